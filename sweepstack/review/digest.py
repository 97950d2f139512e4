"""The digest of a change: the same as long as `up` would do the same.

It covers what would be done: each operation with its resource, the native id, and the inputs that change, before and
after; and the roster's diff. What changes by itself is left out: costs, progress, what was seen, which box gets which
of the waiting cells, and an update that no input asks for (it resumes what stands still). So are paths of this machine:
the code that ships has a digest of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.canonical import digest_of
from sweepstack.review.cell_changes import compared
from sweepstack.review.live import Live, Roster
from sweepstack.review.plan import ENDING, Plan, Step

_BY_ITSELF = frozenset(
    {"live", "clearance", "clearances", "outlook", "versions", "dry_run", "no_code", "cells", "elsewhere", "workdir"}
)
"""Inputs that change without a person's change, or from one machine to the next."""


def change_digest(plan: Plan, live: Live) -> str:
    """`sha256:…` over the change. It does not depend on the order of the engine's steps."""
    found = [step for step in map(_step, plan.steps) if step is not None]
    state, file = live.rosters.get("state", Roster()), live.rosters.get("file", Roster())
    cells = [
        [one.name, one.change, file.cells.get(one.name, ""), file.dropped.get(one.name, "")]
        for one in ([] if plan.destroy else compared(state, file))
    ]
    return digest_of(
        {
            "command": "destroy" if plan.destroy else "up",
            "stack": plan_stack(live.stack),
            "steps": sorted(found, key=lambda one: (one["urn"], one["op"], one["native_id"])),
            "cells": cells,
        }
    )


def plan_stack(stack: str) -> str:
    """The name without organization and project: `t` and `organization/sweepstack/t` are one stack."""
    return stack.rsplit("/", 1)[-1]


def _step(step: Step) -> dict[str, Any] | None:
    """What counts of a step; None where nothing does."""
    if step.op in ("same", "refresh", "read"):
        return None
    known = {"op": step.op, "urn": step.urn, "native_id": step.native_id}
    if step.op == "delete" or (step.op in ENDING and not step.new):
        return known
    before, after = _matters(step.old), _matters(step.new)
    changed = {
        name: [before.get(name), after.get(name)]
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    }
    if step.op == "update" and not changed:
        return None
    return {**known, "inputs": changed}


def _matters(value: Any) -> Any:
    """The same without what changes by itself, and without what is empty: a state spells out more defaults."""
    if isinstance(value, Mapping):
        kept = {str(key): _matters(item) for key, item in value.items() if key not in _BY_ITSELF}
        return {key: item for key, item in kept.items() if item not in (None, {}, [], "")}
    if isinstance(value, list | tuple):
        return [_matters(item) for item in value]
    return value
