"""Clears boxes that leave the program in the change that approves their end (`want: gone`).

Such a box has no inputs any more that could carry its approval. The engine updates before it deletes. So the Identity
takes the approval, checks it in full, and writes it down as the box's clearance; the deletes find it there and check
again.

Refuses to rent while a box exists that is locked and that the stack file does not name.

A box that gets another name is a new box, and the old one is to end. The engine rents first and deletes last: if the
end is refused, both would bill, and the message would come after the money is spent.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sweepstack.core.observation import Existence
from sweepstack.core.records import Approval, Birth
from sweepstack.core.resources import BoxInputs
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError, PlatformError, SweepstackError
from sweepstack.operations.observe import made_by, observe, rented_at
from sweepstack.provider.resources.teardown import Judgement
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.box_context import BoxContext, BoxFacts, in_entry
from sweepstack.teardown.check import may_end
from sweepstack.teardown.refusal import waiting_cost

LASTS = timedelta(hours=1)
VERB = "destroy"
"""The only verb by which a box may leave the program (TeardownFacts). An approval of a stop does not count."""


@dataclass(frozen=True)
class Rules:
    """What a receipt must have been made with: the digests of the roster and the artifacts of the stack file. `policy`:
    that of the state."""

    roster_digest: str
    artifacts_digest: str | None
    policy: str | None = None


def judge_leaving(evidence: Evidence, approval: Approval, rules: Rules, *, full: bool) -> list[Judgement]:
    """One judgement for each box that the approval names and that has not ended. Empty if the records can't be read."""
    try:
        births = evidence.store.births()
    except EvidenceError:
        return []
    living = {birth.native_id: birth for birth in births if birth.ended_at is None}
    return [
        judge_birth(evidence, living[action.native_id], action.native_id, approval, rules, full=full)
        for action in approval.actions
        if action.native_id in living and action.verb == VERB
    ]


def judge_birth(
    evidence: Evidence, birth: Birth, native_id: str, approval: Approval | None, rules: Rules, *, full: bool
) -> Judgement:
    """Whether the box of this record may end by `approval`: the check of a box that has no inputs."""
    facts = BoxFacts(
        identity=evidence.store.marker.identity,
        evidence=evidence.uri,
        name=birth.box,
        native_id=native_id,
        account=birth.account,
        generation=birth.generation,
        verb=VERB,
        kills=(),
        keeps=(),
        roster_digest=rules.roster_digest,
        artifacts_digest=rules.artifacts_digest,
        price_per_hour=birth.price_per_hour,
        created_at=birth.created_at,
        policies=in_entry(rules.policy),
    )
    rented = rented_at(birth.price_per_hour)
    box = BoxContext(facts, birth.platform, evidence)
    seen, record = observe(box, rented=rented)
    return Judgement(box, seen, may_end(BoxEnding(box, approval, seen), full=full), record, approval)


def clear(op: Operation, evidence: Evidence, approval: Approval, rules: Rules) -> None:
    """Writes the clearances. Raises SweepstackError, before anything is deleted, if one of the boxes may not end."""
    judged = judge_leaving(evidence, approval, rules, full=True)
    for judgement in judged:
        if not judgement.verdict.allowed:
            raise SweepstackError(
                f"box {judgement.facts.name} stays locked: {'; '.join(judgement.verdict.reasons)}. "
                f"Next: sweepctl verify --stack {op.stack}"
            )
    for judgement in judged:
        evidence.store.write_clearance(judgement.facts.native_id, for_this_change(approval))


def take_back(evidence: Evidence, withdrawn: Approval, kept: Approval | None) -> None:
    """Deletes the clearances of boxes that an earlier change approved to leave, and that this one does not."""
    still = {action.native_id for action in kept.actions} if kept else set()
    store = evidence.store
    for action in withdrawn.actions:
        if action.native_id not in still:
            store.write_clearance(action.native_id, None)


def for_this_change(approval: Approval) -> Approval:
    """The approval, for an hour at most. The deletes come within minutes, and a clearance that an interrupted change
    leaves must not count for days. What was signed stays as it is."""
    soon = datetime.now(UTC) + LASTS
    if approval.signatures:
        return approval.model_copy(update={"until": soon})
    return approval.model_copy(update={"expires": min(approval.expires, soon)})


def why_others_come_first(op: Operation, inputs: BoxInputs, evidence: Evidence) -> str:
    """Why this box is not rented now; "" if no other box is in the way. Asks the platform about those boxes only.

    A box with `want: gone` counts as named: its end was asked for, and its cells move to the boxes that stay.
    """
    if inputs.named is None:
        return ""
    try:
        births = evidence.store.births()
    except EvidenceError:
        return ""  # without its records no box is rented anyway
    left = [birth for birth in births if birth.ended_at is None and birth.box not in inputs.named]
    locked = [(birth, why) for birth in left if (why := _why_locked(inputs, birth, evidence))]
    if not locked:
        return ""
    lines = [f"  {birth.box}: {why}" for birth, why in locked]
    box = locked[0][0].box
    return "\n".join(
        [
            f"box {inputs.name} is not rented: the stack file does not name every box that is there and locked",
            *lines,
            f"  keep it   put boxes.{box} back; {inputs.name} may come beside it, and takes over what has not started",
            f"  end it    put it back, pulumi up, and sweepctl finish --stack {op.stack} --box {box}",
            f'  give up   sweepctl give-up --stack {op.stack} data/{box} --reason "…", and pulumi up',
            f"  next      sweepctl status --stack {op.stack}",
        ]
    )


def _why_locked(inputs: BoxInputs, birth: Birth, evidence: Evidence) -> str:
    """Why such a box is in the way; "" if it is proved gone, or may end with this change."""
    native_id = birth.native_id
    if native_id is None:
        try:
            found, _ = made_by(birth)
        except PlatformError as error:
            return f"whether {birth.tag} was rented on {birth.platform} can't be told: {error}"
        return f"{found.native_id} was rented, and its answer lost" if found else ""
    rules = Rules(inputs.roster_digest, inputs.artifacts_digest, inputs.policy)
    judgement = judge_birth(evidence, birth, native_id, inputs.leaving, rules, full=False)
    if judgement.verdict.allowed or judgement.seen.existence is Existence.GONE:
        return ""
    note = f" {judgement.seen.note};" if judgement.seen.note else ""
    return f"{native_id}, {judgement.verdict.headline};{note} it bills {waiting_cost(judgement.facts)}"
