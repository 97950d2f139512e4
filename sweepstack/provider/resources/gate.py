"""Gate: shows people whether a box may end, and stops a destroy before anything is deleted.

Each box has one, and the engine deletes it before all that belongs to the box. The gate gives order; it does not
protect: a dozen engine commands go round it. `Box.delete` protects. Read always returns the gate's id: if the gate
reported itself gone, the same destroy would end the box, too.
"""

from __future__ import annotations

from typing import ClassVar

from sweepstack.core.resources import GateInputs, GateState
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.provider.resources import host_address_change, policy_limits, teardown
from sweepstack.provider.resources.base import Checked, Decision, Gone, Handler, ReadAnswer
from sweepstack.provider.session import Operation


class GateHandler(Handler[GateInputs, GateState]):
    """Shows `locked` or `cleared`, and why. Its delete asks the same check as the box's."""

    token = "sweepstack:index:Gate"
    inputs_type = GateInputs
    state_type = GateState
    replaces_before_delete = True
    decisions: ClassVar[dict[str, Decision]] = {
        "identity": Decision.REFUSE,
        "evidence": Decision.REFUSE,
        "adapter": Decision.MOVE,
        "box": Decision.REPLACE,
        "box_name": Decision.REPLACE,
        "account": Decision.REPLACE,
        "generation": Decision.REPLACE,
        "roster_digest": Decision.IGNORE,
        "artifacts_digest": Decision.IGNORE,  # what it means for the box is in `clearance`
        "teardown": Decision.UPDATE,
        "approval": Decision.IGNORE,
        "clearance": Decision.UPDATE,
        "policy": Decision.UPDATE,
        "live": Decision.IGNORE,
    }

    def check(self, op: Operation, old: GateInputs | None, new: GateInputs) -> Checked[GateInputs]:
        """Writes `clearance`. A stale, expired or foreign approval shows as `locked (reason)` and is no failure."""
        new, failures = host_address_change.written_out(old, new)
        if failures:
            return Checked(new, failures)
        now = policy_limits.bound(op, Evidence(new.evidence), old.policy if old is not None else None, new.identity)
        new = new.model_copy(update={"policy": now.copy})
        state = GateState(**new.model_dump())
        judgement = teardown.judge_end(teardown.context_of(state), state, new.approval, full=False)
        return Checked(new.model_copy(update={"clearance": teardown.clearance_of(judgement, new.approval)}))

    def create(self, op: Operation, inputs: GateInputs) -> tuple[str, GateState]:
        return f"{inputs.box}/gate", GateState(**inputs.model_dump())

    def read(self, op: Operation, identifier: str, state: GateState) -> ReadAnswer[GateInputs, GateState] | Gone:
        by_state = teardown.judge_end(teardown.context_of(state), state, state.approval, full=False)
        judgement = teardown.by_records(by_state, full=False)
        inputs = GateInputs.model_validate(
            state.model_dump() | {"live": teardown.live_facts(judgement, state.teardown)}
        )
        return ReadAnswer(inputs, state)

    def update(self, op: Operation, identifier: str, old: GateState, new: GateInputs) -> GateState:
        return GateState(**new.model_dump())

    def delete(self, op: Operation, identifier: str, state: GateState) -> None:
        judgement = teardown.require_allowed(op, teardown.context_of(state), state)
        if judgement.verdict.way != "gone":
            teardown.begin_teardown(judgement)
