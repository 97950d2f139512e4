"""Box: one machine, its set-up, its queue and its gate.

Made in this order and deleted in the opposite one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pulumi
from pydantic import TypeAdapter

from components.approval import approval_for, approval_to_leave
from components.platforms import ssh
from components.resources import Box, Component, Gate, Identity, Queue
from components.volume import DurableMount
from sweepstack.core.foreign_cells import elsewhere_text
from sweepstack.core.job import JobInput, Smoke
from sweepstack.core.records import CellText
from sweepstack.core.verify_rules import artifacts_digest
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.profiles.fleet import Fleet
from sweepstack.profiles.plan import BoxPlan, Plan


@dataclass(frozen=True)
class Code:
    """What ships: its digest and, for people, how much. `lack`: why it can't be had; empty where it can."""

    digest: str
    words: str
    lack: str = ""


class BoxGroup(Component):
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
        name = box_plan.name
        super().__init__(name, opts, called=name)
        plan = fleet.plan_of(name)
        child = pulumi.ResourceOptions(parent=self)
        shared: dict[str, Any] = {
            "identity": identity.identity,
            "evidence": identity.evidence,
            "adapter": plan.adapter_of(box_plan),
            "roster_digest": plan.roster.digest,
            "teardown": plan.teardown.as_inputs(),
            "approval": approval_for(plan, name),
        }
        self.box = Box(name, child, **shared, **_rented(fleet, box_plan, mounts, code, smoke))
        self.setup = ssh.set_up(plan, box_plan, self.box, child)
        # Outputs of the box, so that the engine keeps the order: a literal id would let the box be deleted first.
        shared |= {
            "box": self.box.native_id,
            "box_name": name,
            "account": self.box.account,
            "generation": self.box.generation,
        }
        after_setup = pulumi.ResourceOptions(parent=self, depends_on=[self.setup] if self.setup is not None else None)
        self.queue = Queue(name, after_setup, **shared, **_cells(plan, box_plan, code.digest))
        # It shows what stands between the box and its end. The lock itself is in the box's delete.
        after_queue = pulumi.ResourceOptions(parent=self, depends_on=[self.queue])
        self.gate = Gate(name, after_queue, **shared, artifacts_digest=artifacts_digest(plan.artifacts))
        self.declared(native_id=self.box.native_id, clearance=self.gate.clearance)


def _rented(
    fleet: Fleet, box_plan: BoxPlan, mounts: Sequence[DurableMount], code: Code, smoke: Smoke | None
) -> dict[str, Any]:
    """What the box itself must have, and what is asked before it is rented."""
    plan = fleet.plan_of(box_plan.name)
    pods = box_plan.scheduler.get("pods")
    return {
        "platform": plan.platform if box_plan.host or box_plan.returns or plan.cluster else None,
        "name": box_plan.name,
        "resources": dict(box_plan.resources),
        "price_per_hour": plan.price_per_hour,
        "max_price": plan.max_price,
        "bid": plan.bid,
        "image": plan.job.image if not pods else None,  # of pods, a later one may have another image
        "pods": pods,
        "placed": dict(box_plan.placed) if box_plan.placed is not None else None,
        "dry_run": pulumi.runtime.is_dry_run(),
        "no_code": code.lack or None,
        "budget": plan.budget.model_dump(mode="json", exclude_none=True) if plan.budget is not None else None,
        "ignore_balance": plan.ignore_balance or None,
        "smoke": smoke.model_dump(mode="json", exclude_defaults=True) if smoke is not None else None,
        "mounts": {mount.path: mount.volume.native_id for mount in sorted(mounts, key=lambda mount: mount.path)},
        "places": plan.site.places_input() if plan.site is not None else None,
        "claims": plan.site.claims_input() if plan.site is not None else None,
        "links": _links(plan),
        "volume": plan.durable.volume if plan.durable is not None and plan.durable.kept_volume else None,
        "secrets": list(plan.job.secrets or ()) or None,
        "named": list(fleet.names),
        "leaving": approval_to_leave(plan.approval, fleet.staying),
        "artifacts_digest": artifacts_digest(plan.artifacts),
        "want": box_plan.want,
        "when_done": plan.when_done,
        "lease": plan.lease_text or None,
        "list_lag": plan.list_lag,
    }


def _links(plan: Plan) -> dict[str, str] | None:
    """Where the job expects the volume → where it is on a box."""
    if plan.durable is None or not plan.durable.path:
        return None
    return {plan.durable.path: plan.durable.mount}


def job_input(job: JobInput, box: BoxPlan, code: str) -> dict[str, Any]:
    """The job of one box as an input. What was not asked for is left out, so that a new key changes no old state."""
    asked = {"gpus": box.gpus, "scheduler": dict(box.scheduler), "nodes": dict(box.nodes)}
    return {
        **job.model_dump(mode="json", exclude_unset=True),
        "slots": box.slots,
        "code": code,
        **{key: value for key, value in asked.items() if value},
        **({"grace_seconds": box.grace_seconds} if box.grace_seconds is not None else {}),
    }


def _cells(plan: Plan, box_plan: BoxPlan, code: str) -> dict[str, Any]:
    """What one box runs, in an order that is the same at every run of the program: its own cells; which cells are
    others'; what was dropped, for whichever box has it."""
    own = {cell.name for cell in box_plan.cells}
    return {
        "stack": pulumi.get_stack(),
        "want": box_plan.want,
        "job": job_input(plan.job, box_plan, code),
        "cells": TypeAdapter(tuple[CellText, ...]).dump_python(box_plan.cells),
        "elsewhere": sorted(elsewhere_text(cell) for cell in plan.roster.cells if cell.name not in own),
        "dropped": dict(sorted(plan.roster.dropped.items())),
        "pins": dict(sorted(plan.roster.pins.items())) or None,
        "retries": {name: plan.retries[name].model_dump(mode="json") for name in sorted(plan.retries)} or None,
        "artifacts": [artifact.model_dump(mode="json") for artifact in plan.artifacts],
        "metrics": plan.metrics.model_dump(mode="json") if plan.metrics else None,
        "priority": [json.dumps(line, sort_keys=True) for line in plan.roster.priority] or None,
    }
