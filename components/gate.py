"""Gate: shows what stands between a box and its end. The lock itself is in the box's delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi

from components.resources import Gate, GateArgs, Identity
from sweepstack.core.verify_rules import artifacts_digest
from sweepstack.profiles.plan import BoxPlan, Plan


@dataclass(frozen=True)
class BoxRef:
    """What queue and gate must know of their box: outputs of it, so that the engine keeps the order."""

    native_id: pulumi.Output[str]
    account: pulumi.Output[str]
    generation: pulumi.Output[int]
    teardown: dict[str, Any]
    approval: dict[str, Any] | None


def gate(plan: Plan, box_plan: BoxPlan, identity: Identity, box: BoxRef, opts: pulumi.ResourceOptions) -> Gate:
    """The gate of one box. `box` is a real output: a literal id would let the box be deleted first."""
    return Gate(
        box_plan.name,
        GateArgs(
            identity=identity.identity,
            evidence=identity.evidence,
            adapter=plan.adapter_of(box_plan),
            box=box.native_id,
            box_name=box_plan.name,
            account=box.account,
            generation=box.generation,
            roster_digest=plan.roster.digest,
            artifacts_digest=artifacts_digest(plan.artifacts),
            teardown=box.teardown,
            approval=box.approval,
        ),
        opts,
    )
