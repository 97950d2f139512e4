"""Queue: what one box runs, in an order that is the same at every run of the program."""

from __future__ import annotations

from typing import Any

import pulumi
from pydantic import TypeAdapter

from components.gate import BoxRef
from components.resources import Identity, Queue, QueueArgs
from sweepstack.core.foreign_cells import elsewhere_text
from sweepstack.core.job import JobInput
from sweepstack.core.records import CellText
from sweepstack.profiles.plan import BoxPlan, Plan


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


def queue(
    plan: Plan, box_plan: BoxPlan, identity: Identity, box: BoxRef, code: str, opts: pulumi.ResourceOptions
) -> Queue:
    """The queue of one box: its own cells; which cells are others'; what was dropped, for whichever box has it."""
    own = {cell.name for cell in box_plan.cells}
    return Queue(
        box_plan.name,
        QueueArgs(
            identity=identity.identity,
            evidence=identity.evidence,
            stack=pulumi.get_stack(),
            adapter=plan.adapter_of(box_plan),
            box=box.native_id,
            box_name=box_plan.name,
            account=box.account,
            generation=box.generation,
            roster_digest=plan.roster.digest,
            teardown=box.teardown,
            want=box_plan.want,
            job=job_input(plan.job, box_plan, code),
            cells=TypeAdapter(tuple[CellText, ...]).dump_python(box_plan.cells),
            elsewhere=sorted(elsewhere_text(cell) for cell in plan.roster.cells if cell.name not in own),
            dropped=dict(sorted(plan.roster.dropped.items())),
            pins=dict(sorted(plan.roster.pins.items())) or None,
            retries={name: plan.retries[name].model_dump(mode="json") for name in sorted(plan.retries)} or None,
            artifacts=[artifact.model_dump(mode="json") for artifact in plan.artifacts],
            metrics=plan.metrics.model_dump(mode="json") if plan.metrics else None,
            approval=box.approval,
        ),
        opts,
    )
