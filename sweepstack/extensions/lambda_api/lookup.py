"""Finds a box of Lambda by its id or tag.

Other people may use our names, and Lambda does not say whose a key is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sweepstack.extensions.lambda_api import same_account
from sweepstack.extensions.lambda_api.api import FRESH_SECONDS, KEY_VARIABLE, NAMES, Session, checked_id
from sweepstack.extensions.lambda_api.states import carries, gone, record_of
from sweepstack.onbox.common.errors import WrongAccount
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.listed import first_of
from sweepstack.platforms.common.rate_limit import paced


def get(session: Session, native_id: str, account: str, *, now: bool = False) -> BoxRecord:
    """See `Platform.get`. `now`: asks Lambda for this one, and uses no list. Raises WrongAccount when another key
    rented the box, the key at hand does not see it, and has never seen a box of that key: then it may be gone, or be
    another account's."""
    checked_id(native_id)
    row = None if now else session.instances(max_age=paced(FRESH_SECONDS)).by_id.get(native_id)
    row = row or session.instance(native_id)
    if row is None:
        _must_be_at_hand(session, account, f"the box {native_id}")
        return gone(native_id, account)
    same_account.note(account, session.account)
    return replace(recorded(session, row), account=account)


def by_id(session: Session, native_id: str) -> BoxRecord | None:
    """The box with this id; None only when it is proved that there is none. Raises Unreachable."""
    row = session.instance(native_id)
    return None if row is None else recorded(session, row)


def by_tag(
    session: Session, tag: str, account: str = "", *, max_age: float | None = None, known: str = ""
) -> BoxRecord | None:
    """The oldest box with this tag that is not ending, else one that is ending; None only when a list from now has
    none. `known`: the id on record, which comes before all others. The note names other boxes with the same tag.
    Raises Unreachable; WrongAccount as `get` does."""
    found = _carrying(session, tag, paced(FRESH_SECONDS) if max_age is None else max_age)
    if not found and max_age is None:  # a list from a moment ago does not prove that there is none
        found = _carrying(session, tag, 0.0)
    if not found:
        session.instances(max_age=paced(FRESH_SECONDS)).must_be_whole(tag)
        _must_be_at_hand(session, account, f"the box {tag}")
        return None
    first = first_of(found, known, NAMES)
    return replace(first, account=account or first.account)


def listed(session: Session, prefix: str) -> list[BoxRecord]:
    """Every instance whose tag begins with `prefix` or can't be read, sorted by id; last, one record for those without
    an id."""
    instances = session.instances(max_age=paced(FRESH_SECONDS))
    records = (recorded(session, row) for row in instances.by_id.values())
    return instances.tagged((one for one in records if one.phase is not Phase.GONE), prefix, session.account)


def recorded(session: Session, row: Mapping[str, Any]) -> BoxRecord:
    """The instance as a record; ENDING when this process had its terminate accepted."""
    return record_of(row, session.account, ending=session.is_ending(identifier(row)))


def _carrying(session: Session, tag: str, max_age: float) -> list[BoxRecord]:
    rows = session.instances(max_age=max_age).by_id.values()
    records = [recorded(session, row) for row in rows if carries(row, tag)]
    return [replace(record, tag=tag) for record in records if record.phase is not Phase.GONE]


def _must_be_at_hand(session: Session, account: str, what: str) -> None:
    """Raises WrongAccount unless the key at hand is the one that rented the box, or was seen to be of its account, or
    none is named: to another key Lambda says of a box that bills what it says of one that is gone."""
    if account and account != session.account and not same_account.are_same(account, session.account):
        raise WrongAccount(
            f"{what} was rented with the Lambda key {account}, and the key at hand, {session.account}, does not see "
            f"it: it is gone, or it bills where this key does not reach. Next: `export {KEY_VARIABLE}=…` with that "
            "key; or, where that key was withdrawn, look at another box that it rented and that is still there, with "
            "the key at hand (`sweepctl status`): what sees one of its boxes is of its account"
        )
