"""Keeps abandonments where the delete of a box finds them, even if the program can't be run any more.

`sweepctl give-up data/BOX` writes one into the evidence, as the box's clearance; if that can't be written, on this
computer. Each is a whole approval for one box: verb, native id, reason, expiry. It ends nothing by itself: the delete
asks `sweepstack.teardown.check.may_end` with it, as with the approval in the state (docs/adr/015).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from sweepstack.core.local_decisions import ABANDONED, TAKEN_BACK, Decision, decisions, record_decision
from sweepstack.core.records import Abandonment, Action, Approval
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.teardown.box_context import BoxContext, BoxFacts

VERB = "destroy"


@dataclass
class AbandonmentCopies:
    """For people: where an abandonment is on record now, and why it could not be written elsewhere."""

    where: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def alone(approval: Approval, entry: Abandonment) -> Approval:
    """The part of `approval` that gives up this one box, as an approval of its own. One that is signed stays whole,
    since its signatures cover nothing less; the check of a box asks it for that box alone."""
    if approval.signatures:
        return approval
    return Approval(
        receipt=None,
        actions=(Action(verb=entry.verb, box=entry.box, native_id=entry.native_id),),
        abandon=(entry,),
        waivers_digest=Approval.digest_waivers((), (entry,)),
        by=approval.by,
        at=approval.at,
        expires=approval.expires,
    )


def record_abandonment(store: EvidenceStore | None, approval: Approval, decision: Decision) -> AbandonmentCopies:
    """Records the abandonment of one box (`alone`) in the evidence and on this computer, as far as they can be written.
    Raises nothing.

    `decision`: the record for this computer. It counts only if the evidence can't be written, or if the evidence's list
    of revocations can't be read.
    """
    kept = AbandonmentCopies()
    if store is not None:
        try:
            store.write_clearance(decision.native_id, approval)
            kept.where.append(f"the evidence ({store.shown})")
        except EvidenceError as error:
            kept.problems.append(str(error))
    expires = None if kept.where and not decision.unread else approval.expires
    try:
        path = record_decision(decision.model_copy(update={"what": ABANDONED, "expires": expires}))
        kept.where.append(f"this computer ({path})")
    except SweepstackError as error:
        kept.problems.append(str(error))
    return kept


def recorded_approvals(box: BoxContext) -> Iterator[Approval]:
    """The approvals on record for this box, the evidence's first. They allow nothing by themselves: the check still has
    to be asked."""
    try:
        found = box.store.clearance(box.native_id)
    except EvidenceError:
        found = None
    if found is not None:
        yield found
    here = _on_this_computer(box.facts)
    if here is not None:
        yield here


def take_back(facts: BoxFacts, by: str, reason: str) -> None:
    """Revokes what this computer has on record for the box. Idempotent. Raises SweepstackError."""
    standing = _standing(facts)
    if standing is not None:
        now = datetime.now(UTC).replace(microsecond=0)
        changes = {"what": TAKEN_BACK, "by": by, "at": now, "reason": reason, "expires": None, "found": ""}
        record_decision(standing.model_copy(update=changes))


def _on_this_computer(facts: BoxFacts) -> Approval | None:
    known = _standing(facts)
    if known is None or known.expires is None:
        return None
    entry = Abandonment(box=known.box, native_id=known.native_id, reason=known.reason, verb=known.verb)
    given = Approval(
        actions=(), waivers_digest=Approval.digest_waivers((), ()), by=known.by, at=known.at, expires=known.expires
    )
    return alone(given, entry)


def _standing(facts: BoxFacts) -> Decision | None:
    """This computer's last decision about this very box, if it counts (see `record_abandonment`)."""
    try:
        found = [known for known in decisions(facts.native_id) if known.what in (ABANDONED, TAKEN_BACK)]
    except SweepstackError:
        return None
    ours = [known for known in found if (known.identity, known.account) == (facts.identity, facts.account)]
    last = ours[-1] if ours else None
    counts = last is not None and last.what == ABANDONED and last.expires is not None
    return last if counts and last is not None and (last.box, last.verb) == (facts.name, VERB) else None
