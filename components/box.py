"""Box: one machine, its set-up, its queue and its gate.

Made in this order and deleted in the opposite one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components.approval import approval_for, approval_to_leave
from components.durable_mount import DurableMount, mounts_input
from components.gate import BoxRef, gate
from components.platforms import ssh
from components.queue import queue
from components.resources import Box, BoxArgs, Gate, Identity, Queue
from sweepstack.core.verify_rules import artifacts_digest
from sweepstack.launch.smoke import Smoke
from sweepstack.profiles.fleet import Fleet
from sweepstack.profiles.plan import BoxPlan, Plan


@dataclass(frozen=True)
class Code:
    """What ships: its digest and, for people, how much. `lack`: why it can't be had; empty where it can."""

    digest: str
    words: str
    lack: str = ""


class BoxComponent(pulumi.ComponentResource):
    """One box of the sweep. Costs money from the moment it is created until its delete is proved."""

    box: Box
    queue: Queue
    gate: Gate

    def __init__(
        self,
        fleet: Fleet,
        box_plan: BoxPlan,
        identity: Identity,
        mounts: Sequence[DurableMount],
        code: Code,
        smoke: Smoke | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("sweepstack:components:Box", box_plan.name, None, opts)
        plan = fleet.plan_of(box_plan.name)
        teardown = plan.teardown.as_inputs()
        approval = approval_for(plan, box_plan.name)
        child = pulumi.ResourceOptions(parent=self)
        self.box = Box(
            box_plan.name,
            BoxArgs(
                identity=identity.identity,
                evidence=identity.evidence,
                adapter=plan.adapter_of(box_plan),
                platform=plan.platform if box_plan.host or box_plan.returns else None,
                name=box_plan.name,
                resources=dict(box_plan.resources),
                price_per_hour=plan.price_per_hour,
                max_price=plan.max_price,
                bid=plan.bid,
                image=plan.job.image,
                placed=dict(box_plan.placed) if box_plan.placed is not None else None,
                dry_run=pulumi.runtime.is_dry_run(),
                no_code=code.lack or None,
                budget=plan.budget.model_dump(mode="json", exclude_none=True) if plan.budget is not None else None,
                ignore_balance=plan.ignore_balance or None,
                smoke=smoke.model_dump(mode="json", exclude_defaults=True) if smoke is not None else None,
                mounts=mounts_input(mounts),
                places=plan.site.places_input() if plan.site is not None else None,
                claims=plan.site.claims_input() if plan.site is not None else None,
                links=_links(plan),
                volume=plan.durable.volume if plan.durable is not None and plan.durable.kept_volume else None,
                secrets=list(plan.job.secrets or ()) or None,
                named=list(fleet.names),
                leaving=approval_to_leave(plan.approval, fleet.staying),
                roster_digest=plan.roster.digest,
                artifacts_digest=artifacts_digest(plan.artifacts),
                teardown=teardown,
                want=box_plan.want,
                when_done=plan.when_done,
                lease=plan.lease_text or None,
                list_lag=plan.list_lag,
                approval=approval,
            ),
            child,
        )
        self.setup = ssh.set_up(plan, box_plan, self.box, child)
        ref = BoxRef(self.box.native_id, self.box.account, self.box.generation, teardown, approval)
        after_setup = pulumi.ResourceOptions(parent=self, depends_on=[self.setup] if self.setup is not None else None)
        self.queue = queue(plan, box_plan, identity, ref, code.digest, after_setup)
        after_queue = pulumi.ResourceOptions(parent=self, depends_on=[self.queue])
        self.gate = gate(plan, box_plan, identity, ref, after_queue)
        self.register_outputs({"native_id": self.box.native_id, "clearance": self.gate.clearance})


def _links(plan: Plan) -> dict[str, str] | None:
    """Where the job expects the volume → where it is on a box."""
    if plan.durable is None or not plan.durable.path:
        return None
    return {plan.durable.path: plan.durable.mount}
