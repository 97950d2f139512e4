"""Queue: what one box is to run. Everything that could end up in another order from run to run is put in order here."""

from __future__ import annotations

import json
from typing import Any

import pulumi

from components.gate import BoxRef
from components.resources import Identity, Queue, QueueArgs
from profiles.resolve import BoxPlan, Plan
from sweep.model import Cell


def cell_input(cell: Cell) -> dict[str, Any]:
    """A cell as an input. Parameters travel as JSON text: the engine has one kind of number, we have 20 and 20.0."""
    return {"name": cell.name, "params": {key: json.dumps(cell.params[key]) for key in sorted(cell.params)}}


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
            adapter=plan.adapter,
            box=box.native_id,
            box_name=box_plan.name,
            account=box.account,
            generation=box.generation,
            roster_digest=plan.roster.digest,
            teardown=box.teardown,
            want=box_plan.want,
            job={
                "run": plan.job.run,
                "workdir": plan.job.workdir,
                "include": list(plan.job.include),
                "env": dict(sorted(plan.job.env.items())),
                "slots": plan.job.slots,
                "code": code,
            },
            cells=[cell_input(cell) for cell in box_plan.cells],
            elsewhere=sorted(name for name in plan.roster.names if name not in own),
            dropped=dict(sorted(plan.roster.dropped.items())),
            artifacts=[artifact.model_dump(mode="json") for artifact in plan.artifacts],
            metrics=plan.metrics.model_dump(mode="json") if plan.metrics else None,
            approval=box.approval,
        ),
        opts,
    )
