"""Finds a machine by its id or tag. Other people may give their machines our names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.paperspace_api.api import FRESH_SECONDS, Session, checked_id
from sweepstack.platforms.paperspace_api.states import carries, gone, identifier, is_deleted, noted, record_of

LOOKS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0)
"""Seconds before each look for a machine whose create may have been carried out."""


def get(session: Session, native_id: str, account: str, *, now: bool = False) -> BoxRecord:
    """See `Platform.get`. `now`: asks Paperspace for this one, and uses no list."""
    checked_id(native_id)
    session.require(account, f"the box {native_id}")
    row = None if now else session.machines(max_age=paced(FRESH_SECONDS)).by_id.get(native_id)
    if row is not None and not is_deleted(row):
        return recorded(session, row)
    found = by_id(session, native_id)
    return gone(native_id, session.account()) if found is None else found


def by_id(session: Session, native_id: str) -> BoxRecord | None:
    """The machine with this id; None only when it is proved that the team has none: then the key's team is asked for
    again, since another team's key is told the same of a machine that bills. Raises Unreachable, WrongAccount."""
    before, row = session.account(), session.machine(native_id)
    if row is not None:
        return recorded(session, row)
    session.require(before, f"the box {native_id}", max_age=0.0)
    return None


def by_tag(
    session: Session, tag: str, account: str = "", *, max_age: float | None = None, known: str = ""
) -> BoxRecord | None:
    """The oldest machine with this tag that is not ending, else one that is ending; None only when a list from now has
    none. `known`: the id on record, which comes before all others. The note names other machines with the same tag.
    Raises Unreachable; WrongAccount when `account` is another than the key's."""
    session.require(account, f"the box {tag}")
    found = _carrying(session, tag, paced(FRESH_SECONDS) if max_age is None else max_age)
    if not found and max_age is None:  # a list from a moment ago does not prove that there is none
        found = _carrying(session, tag, 0.0)
    if not found:
        if damaged := session.machines(max_age=paced(FRESH_SECONDS)).damaged:
            raise Unreachable(
                f"whether there is a box {tag} is not known: {damaged} of Paperspace's machines can't be read. Look at "
                "the console"
            )
        return None
    found.sort(key=lambda one: (one.phase is Phase.ENDING, one.native_id != known, _age(one)))
    others = [other.native_id for other in found[1:] if other.phase is not Phase.ENDING]
    if not others:
        return found[0]
    ends = ", ".join(f"sweepctl audit --end paperspace_api:{other}" for other in others)
    return noted(
        found[0],
        f"{len(others) + 1} machines carry this tag, and {', '.join(others)} may bill beside it: end what is too many: "
        f"{ends}",
    )


def listed(session: Session, prefix: str) -> list[BoxRecord]:
    """Every machine whose tag begins with `prefix` or can't be read, sorted by id; last, one record for those without
    an id."""
    machines = session.machines(max_age=paced(FRESH_SECONDS))
    found = [
        record
        for row in machines.by_id.values()
        if (record := _present(session, row)) is not None and (record.tag.startswith(prefix) or not record.tag)
    ]
    found.sort(key=lambda record: record.native_id)
    if machines.damaged:
        place = f"Paperspace, {machines.damaged} machines whose id can't be read: look at the console"
        found.append(BoxRecord("", "", session.account(), Phase.UNKNOWN, None, None, place, place))
    return found


def recorded(session: Session, row: Mapping[str, Any]) -> BoxRecord:
    """The machine as a record; ENDING when this process had its delete accepted."""
    return record_of(row, session.account(), ending=session.is_ending(identifier(row)))


def _present(session: Session, row: Mapping[str, Any]) -> BoxRecord | None:
    """A machine of a list as a record. One that is being deleted is asked for by its id, since a list may show it for
    longer: None when it is proved gone."""
    return recorded(session, row) if not is_deleted(row) else by_id(session, identifier(row))


def _carrying(session: Session, tag: str, max_age: float) -> list[BoxRecord]:
    rows = [row for row in session.machines(max_age=max_age).by_id.values() if carries(row, tag)]
    records = [_present(session, row) for row in rows]
    return [replace(record, tag=tag) for record in records if record is not None]


def _age(record: BoxRecord) -> tuple[datetime, str]:
    return record.created_at or datetime.max.replace(tzinfo=UTC), record.native_id
