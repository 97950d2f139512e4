"""Refuses to rent while a box exists that is locked and that the stack file does not name.

A box that gets another name is a new box, and the old one is to end. The engine rents first and deletes last: if the
end is refused, both would bill, and the message would come after the money is spent.
"""

from __future__ import annotations

from sweepstack.core.observation import Existence
from sweepstack.core.records import Birth
from sweepstack.evidence.lazy import Evidence
from sweepstack.onbox.common.errors import EvidenceError, PlatformError
from sweepstack.operations.observe import made_by
from sweepstack.provider.models import BoxInputs
from sweepstack.provider.resources.want_gone import Rules, judge_birth
from sweepstack.provider.session import Operation
from sweepstack.teardown.refusal import waiting_cost


def refusal(op: Operation, inputs: BoxInputs, evidence: Evidence) -> str:
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
            f'  give up   sweepctl approve --stack {op.stack} --abandon {box} --reason "…", and pulumi up',
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
