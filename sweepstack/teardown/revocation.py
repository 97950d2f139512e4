"""Keeps on record which approvals `sweepctl approve --revoke` took back. They end nothing any more.

The engine's state keeps an approval until the next `pulumi up`, and a teardown may be under way with it. So the record
of the revocation counts, wherever the approval was found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from pydantic import AwareDatetime

from sweepstack.core.local_decisions import ABANDONED, TAKEN_BACK, Decision, decisions
from sweepstack.core.records import Approval, Digest, Record
from sweepstack.evidence.records import RecordShelf
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import EvidenceDamaged, EvidenceError, SweepstackError

REVOKED = "revoked.json"


class Revocation(Record):
    """Every approval given at `at` or before counts no more, nor do `approvals` (their digests, whenever given)."""

    approvals: tuple[Digest, ...] = ()
    at: AwareDatetime
    by: str


def approval_digest(approval: Approval) -> str:
    """What one approval is called in the record."""
    return digest_of(approval.model_dump(mode="json"))


def revocation_problem(store: RecordShelf, approval: Approval) -> str:
    """Why this approval counts no more; empty when it does. What can't be read is a reason, too."""
    try:
        found = store.record(REVOKED, Revocation)
    except EvidenceDamaged as error:
        return f"whether the approval was revoked is not known: {error}; `sweepctl approve --revoke` writes it again"
    except EvidenceError as error:
        return f"whether the approval was revoked is not known: {error}"
    if found is None or (approval.at > found.at and approval_digest(approval) not in found.approvals):
        return ""
    return _revoked(found)


def abandonment_problem(store: RecordShelf | None, approval: Approval, native_id: str, identity: str) -> str:
    """The same where the approval gives this one box up, which needs no evidence.

    Without evidence this computer's record says what was revoked. Where there is evidence, and its list can't be read,
    only an abandonment counts that was given on this computer since then: it is younger than whatever the list says.
    """
    problem = ""
    if store is not None:
        problem = revocation_problem(store, approval)
        if not problem or readable(store):
            return problem
    here = [known for known in _here(native_id) if known.identity == identity]
    revoked = next((one for one in here if one.what == TAKEN_BACK and one.at >= approval.at), None)
    if revoked is not None:
        return _revoked(revoked)
    if any(one.what == ABANDONED and one.unread and one.at == approval.at for one in here):
        return ""
    return problem


def readable(store: RecordShelf) -> bool:
    """Whether the evidence can say what was revoked."""
    try:
        store.record(REVOKED, Revocation)
    except EvidenceError:
        return False
    return True


def _revoked(found: Revocation | Decision) -> str:
    return f"the approval was revoked at {found.at:%Y-%m-%d %H:%M} UTC by {found.by}"


def _here(native_id: str) -> list[Decision]:
    """What this computer has on record of the box; nothing where that can't be read."""
    try:
        return decisions(native_id)
    except SweepstackError:
        return []


def write_revocation(store: RecordShelf, approvals: Iterable[Approval], *, at: datetime, by: str) -> None:
    """Takes back `approvals`, and all that were given until `at`. Idempotent; what was taken back stays so.

    `approvals` matter where the clock of the person who gave one was ahead. Raises EvidenceError.
    """
    digests = {approval_digest(approval) for approval in approvals}
    at = at.replace(microsecond=0)

    def later(before: Revocation | None) -> Revocation:
        known = before.approvals if before else ()
        latest = max(at, before.at) if before else at
        return Revocation(approvals=tuple(sorted({*digests, *known})), at=latest, by=by)

    try:
        store.update_record(REVOKED, Revocation, later)
    except EvidenceDamaged:  # nothing can be told from it; all that was given until now is taken back here
        store.write_record(REVOKED, later(None))


def given_at(store: RecordShelf | None, now: datetime, native_ids: Collection[str] = ()) -> datetime:
    """When an approval that is given now is dated: later than what was revoked, even if a clock is behind.
    `native_ids`: the boxes that it is for."""
    before = [one.at for native_id in native_ids for one in _here(native_id) if one.what == TAKEN_BACK]
    try:
        found = store.record(REVOKED, Revocation) if store is not None else None
        before += [found.at] if found is not None else []
    except EvidenceError:
        pass
    return max([now.replace(microsecond=0), *(at + timedelta(seconds=1) for at in before)])
