"""Queue: what one box runs, in an order that is the same at every run of the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
from pydantic import TypeAdapter

from components.gate import BoxRef
from components.resources import Identity, Queue, QueueArgs
from sweepstack.core.foreign_cells import elsewhere_text
from sweepstack.core.lease import LeaseFacts
from sweepstack.core.records import CellText
from sweepstack.onbox.nodes.command import NODES
from sweepstack.profiles.plan import BoxPlan, JobPlan, Plan

ZERO = ("retries", "grace_seconds")
"""Keys for which 0 is asked for."""


def job_input(
    job: JobPlan,
    box: BoxPlan,
    code: str,
    network: Mapping[str, Any] | None = None,
    when_drained: dict[str, str] | None = None,
    image: str = "",
    lease: LeaseFacts | None = None,
    by_hand: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The job as an input. What was not asked for is left out, so that a new key changes no old state."""
    asked = {
        "setup": job.setup,
        "secrets": list(job.secrets),
        "gpus": box.gpus,
        "mixing": job.mixing if job.mixing != "refuse" else "",
        "resume": job.resume if job.resume != "same-code" else "",
        "min_free_bytes": job.min_free_bytes,
        "min_free_inodes": job.min_free_inodes,
        "stall_seconds": job.stall_seconds,
        "timeout_seconds": job.timeout_seconds,
        "grace_seconds": box.grace_seconds,
        "on_hang": job.on_hang if job.on_hang != "tell" else "",
        "retries": job.retries,
        "keep": list(job.keep),
        "mounts": [dict(mount) for mount in job.mounts],
        "network": dict(network or {}),
        "when_drained": when_drained or {},
        "smoke": dict(job.smoke),
        "image": image,
        "lease": lease.model_dump(mode="json", exclude_defaults=True) if lease is not None else {},
        "by_hand": dict(by_hand or {}),
        "scheduler": dict(box.scheduler),
        "nodes": _nodes(job, box),
    }
    nodes = {NODES: str(job.nodes)} if job.nodes > 1 else {}
    return {
        "run": job.run,
        "workdir": job.workdir,
        "include": list(job.include),
        "env": dict(sorted({**job.env, **nodes}.items())),
        "slots": box.slots,
        "code": code,
        **{key: value for key, value in asked.items() if value or (key in ZERO and value is not None)},
    }


def _nodes(job: JobPlan, box: BoxPlan) -> dict[str, Any]:
    """Where the other nodes of its cells are; empty where a cell has one."""
    if job.nodes < 2:
        return {}
    where: dict[str, Any] = {"allocated": True} if box.scheduler else {"peers": list(box.peers)}
    return {**where, **({"restores": True} if job.restores else {})}


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
            job=job_input(
                plan.job, box_plan, code, plan.network, plan.when_drained, plan.image, plan.lease, plan.by_hand
            ),
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
