"""Keeps on record which approvals `sweepctl revoke` took back. They end nothing any more.

The engine's state keeps an approval until the next `pulumi up`, and a teardown may be under way with it. So the record
of the revocation counts, wherever the approval was found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from pydantic import AwareDatetime

from sweepstack.core.local_decisions import ABANDONED, REVOKED_ALL, TAKEN_BACK, Decision, decisions
from sweepstack.core.records import Approval, Digest, Record
from sweepstack.evidence.store import RecordFiles
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import EvidenceDamaged, EvidenceError, SweepstackError

REVOKED = "revoked.json"
WRITTEN_AGAIN = "`sweepctl revoke` writes it again"
"""What a reason says where the list of what was revoked is damaged."""


class Revocation(Record):
    """No approval counts that was given at `at` or before, nor do those in `approvals` (digests), whenever they were
    given."""

    approvals: tuple[Digest, ...] = ()
    at: AwareDatetime
    by: str


def approval_digest(approval: Approval) -> str:
    """The digest by which the record names an approval, with or without signatures."""
    return digest_of(approval.unsigned)


def revocation_problem(
    store: RecordFiles | None, approval: Approval, native_id: str, identity: str, *, given_up: bool
) -> str:
    """Why this approval of the end of a box or volume counts no more; "" if it counts. If the record can't be read,
    that is a reason, too. `store`: None if the evidence can't be opened: what needs evidence is refused for that.

    What was revoked on this computer counts whatever the evidence says: it may have been put back to an earlier day.
    `given_up`: the approval abandons this one, which needs no evidence. Where the list there can't be read, it counts
    only if it was given on this computer since then: it is younger than all that the list says.
    """
    here = [known for known in _here(native_id) if known.identity == identity]
    for one in here:
        if one.what == TAKEN_BACK and one.at >= approval.at and (given_up or one.reason == REVOKED_ALL):
            return _revoked(one)
    if store is None or not (problem := _on_record(store, approval)):
        return ""
    if (
        given_up
        and not readable(store)
        and any(one.what == ABANDONED and one.unread and one.at == approval.at for one in here)
    ):
        return ""
    return problem


def _on_record(store: RecordFiles, approval: Approval) -> str:
    try:
        found = store.record(REVOKED, Revocation)
    except EvidenceDamaged as error:
        return f"whether the approval was revoked is not known: {error}; {WRITTEN_AGAIN}"
    except EvidenceError as error:
        return f"whether the approval was revoked is not known: {error}"
    if found is None or (approval.at > found.at and approval_digest(approval) not in found.approvals):
        return ""
    return _revoked(found)


def readable(store: RecordFiles) -> bool:
    """Whether the evidence's list of revocations can be read."""
    try:
        store.record(REVOKED, Revocation)
    except EvidenceError:
        return False
    return True


def torn(store: RecordFiles) -> bool:
    """Whether that list is there and damaged; False where that is not known."""
    try:
        store.record(REVOKED, Revocation)
    except EvidenceDamaged:
        return True
    except EvidenceError:
        pass
    return False


def _revoked(found: Revocation | Decision) -> str:
    return f"the approval was revoked at {found.at:%Y-%m-%d %H:%M} UTC by {found.by}"


def _here(native_id: str) -> list[Decision]:
    """This computer's decisions about the box; empty if they can't be read."""
    try:
        return decisions(native_id)
    except SweepstackError:
        return []


def write_revocation(store: RecordFiles, approvals: Iterable[Approval], *, at: datetime, by: str) -> None:
    """Revokes `approvals`, and all that were given until `at`. Idempotent; what was revoked stays revoked.

    `approvals` are needed if the clock of the person who gave one was ahead. Raises EvidenceError.
    """
    digests = {approval_digest(approval) for approval in approvals}
    at = at.replace(microsecond=0)

    def later(before: Revocation | None) -> Revocation:
        known = before.approvals if before else ()
        latest = max(at, before.at) if before else at
        return Revocation(approvals=tuple(sorted({*digests, *known})), at=latest, by=by)

    try:
        store.update_record(REVOKED, Revocation, later)
    except EvidenceDamaged:  # it can't be read: all that was given until now is revoked
        store.write_record(REVOKED, later(None))


def given_at(store: RecordFiles | None, now: datetime, native_ids: Collection[str] = ()) -> datetime:
    """The date for an approval that is given now: later than all revocations, even if a clock is behind. `native_ids`:
    the boxes that it is for."""
    before = [one.at for native_id in native_ids for one in _here(native_id) if one.what == TAKEN_BACK]
    try:
        found = store.record(REVOKED, Revocation) if store is not None else None
        before += [found.at] if found is not None else []
    except EvidenceError:
        pass
    return max([now.replace(microsecond=0), *(at + timedelta(seconds=1) for at in before)])
