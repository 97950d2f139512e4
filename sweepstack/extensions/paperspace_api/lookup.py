"""Finds a machine by its id or tag. Other people may give their machines our names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sweepstack.extensions.paperspace_api.api import FRESH_SECONDS, NAMES, Session, checked_id
from sweepstack.extensions.paperspace_api.states import carries, gone, is_deleted, record_of
from sweepstack.onbox.host.platform import BoxRecord
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.listed import first_of
from sweepstack.platforms.common.rate_limit import paced


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
        session.machines(max_age=paced(FRESH_SECONDS)).must_be_whole(tag)
        return None
    return first_of(found, known, NAMES)


def listed(session: Session, prefix: str) -> list[BoxRecord]:
    """Every machine whose tag begins with `prefix` or can't be read, sorted by id; last, one record for those without
    an id."""
    machines = session.machines(max_age=paced(FRESH_SECONDS))
    records = (_present(session, row) for row in machines.by_id.values())
    return machines.tagged((one for one in records if one is not None), prefix, session.account())


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
