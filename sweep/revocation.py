"""What `sweepctl approve --revoke` took back, on record: such an approval ends nothing, whatever else still holds it.

The engine's state keeps an approval until the next `pulumi up`, and a teardown may be under way with it. So the record
counts, and not the place that an approval was found in.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pydantic import AwareDatetime

from sweep.canonical import digest_of
from sweep.errors import EvidenceDamaged, EvidenceError
from sweep.evidence.records import RecordShelf
from sweep.model import Approval, Digest, Record

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
        return f"whether the approval was revoked is not known: {error}; `sweepctl approve --revoke` writes it anew"
    except EvidenceError as error:
        return f"whether the approval was revoked is not known: {error}"
    if found is None or (approval.at > found.at and approval_digest(approval) not in found.approvals):
        return ""
    return f"the approval was revoked at {found.at:%Y-%m-%d %H:%M} UTC by {found.by}"


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


def given_at(store: RecordShelf | None, now: datetime) -> datetime:
    """When an approval that is given now is dated: later than what was revoked, even if a clock is behind."""
    now = now.replace(microsecond=0)
    try:
        found = store.record(REVOKED, Revocation) if store is not None else None
    except EvidenceError:
        return now
    return now if found is None else max(now, found.at + timedelta(seconds=1))
