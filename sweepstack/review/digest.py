"""The digest of a change: the same as long as `up` would do the same.

It covers what would be done: each operation with its resource, the native id, and the inputs that change, before and
after; the way in which each box and volume ends, with the names; and the roster's diff. What changes by itself is left
out: costs, progress, and the inputs of `BY_ITSELF`; and an update that no input asks for (it resumes what stands
still).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweepstack.core.records import SETTLED
from sweepstack.core.resources import FIRST_TYPES
from sweepstack.onbox.common.canonical import canonical_json, digest_of
from sweepstack.review.cell_changes import compared
from sweepstack.review.live import Live, Roster
from sweepstack.review.model import PlannedEnd
from sweepstack.review.plan import ENDING, EnginePlan, Step

BY_ITSELF: Mapping[str, frozenset[str]] = {
    "Identity": frozenset({"clearances", "outlook"}),
    "Volume": frozenset({"live", "clearance"}),
    "Box": frozenset({"live", "clearance", "dry_run", "no_code", "smoke.workdir"}),
    "Queue": frozenset({"versions", "cells", "elsewhere", "job.workdir"}),
    "Gate": frozenset({"live", "clearance"}),
}
"""Resource → the full paths of its inputs that are left out: known only while `up` runs, or of this machine (the code
that ships has a digest of its own). `clearance`, `clearances`: the way of an end is bound by itself. `cells`,
`elsewhere`: which box gets a waiting cell; the cells and their configs are bound by the rosters."""
PRUNED = "pruned"
"""Left out where there is none: digests of before there was that state stay what they are."""
_TEARDOWN = frozenset({"teardown.paths", "teardown.keeps_per_gb_month"})
FREE: Mapping[str, frozenset[str]] = {
    "Identity": frozenset(),
    "Volume": frozenset(),
    "Box": frozenset({"resources", "smoke.params", "smoke.env", "mounts", "places", "links"}) | _TEARDOWN,
    "Queue": frozenset(
        {"job.env", "job.tracker.mlflow.tags", "job.network.env", "job.network.folders", "dropped", "pins", "sources"}
    )
    | _TEARDOWN,
    "Gate": _TEARDOWN,
}
"""Resource → the full paths of its maps whose keys are no fields of ours: compared as they are, an empty value, too."""


def change_digest(plan: EnginePlan, live: Live, ends: Sequence[PlannedEnd]) -> str:
    """`sha256:…` over the change. It does not depend on the order of the engine's steps. `ends`: what it ends."""
    found = [step for step in map(_step, plan.steps) if step is not None]
    state, file = live.rosters.get("state", Roster()), live.rosters.get("file", Roster())
    cells = [
        [one.name, one.change, file.cells.get(one.name, ""), file.dropped.get(one.name, "")]
        for one in ([] if plan.destroy else compared(state, file))
    ]
    return digest_of(
        {
            "command": "destroy" if plan.destroy else "up",
            "stack": plan_stack(live.view.stack),
            "steps": sorted(found, key=lambda one: (one["urn"], one["op"], one["native_id"])),
            "cells": cells,
            **({"ends": sorted((_end(one, live) for one in ends), key=canonical_json)} if ends else {}),
        }
    )


def plan_stack(stack: str) -> str:
    """The name without organization and project: `t` and `organization/sweepstack/t` are one stack."""
    return stack.rsplit("/", 1)[-1]


def _end(one: PlannedEnd, live: Live) -> dict[str, Any]:
    """How this box or volume ends. One that is locked does not end by this change, and one that is gone loses nothing
    by it: of these no more counts."""
    known: dict[str, Any] = {"what": one.what, "name": one.name, "native_id": one.native_id, "verb": one.verb}
    if one.gone or not one.cleared:
        return {**known, "way": "gone" if one.gone else "locked"}
    box = live.box(one.native_id, one.name) if one.what == "box" else None
    held = live.cells_of(box) if box is not None else ()
    settled = {state: sorted(cell.name for cell in held if cell.state == state) for state in sorted(SETTLED)}
    settled = {state: names for state, names in settled.items() if names or state != PRUNED}
    cells = {name for names in settled.values() for name in names}
    given = {
        (cell.state, cell.name, cell.reason)
        for approval in live.approvals
        for cell in approval.given_up
        if cell.name in (cells if cell.state == "waived" else (one.name,))
    }
    return {
        **known,
        "way": one.way,
        "dies": sorted(one.dies),
        "settled": settled,
        "lost": sorted(cell.name for cell in one.lost),
        "given": sorted(map(list, given)),
    }


def _step(step: Step) -> dict[str, Any] | None:
    """What counts of a step; None where nothing does."""
    if step.op in ("refresh", "read"):
        return None
    known = {"op": step.op, "urn": _first_named(step.urn), "native_id": step.native_id}
    if step.op == "delete" or (step.op in ENDING and not step.new):
        return known
    changed = changed_inputs(step)
    if step.op in ("same", "update") and not changed:
        return None
    return {**known, "inputs": {name: list(values) for name, values in changed.items()}}


def _first_named(urn: str) -> str:
    """The URN with the types that its components had first: what was reviewed before is still what is brought up."""
    where, project, types, name = urn.split("::", 3)
    return "::".join((where, project, "$".join(FIRST_TYPES.get(one, one) for one in types.split("$")), name))


def changed_inputs(step: Step) -> dict[str, tuple[Any, Any]]:
    """The inputs that this step changes, before and after; None is absent. Without what changes by itself."""
    before, after = (_matters(step.kind, values, "") for values in (step.old, step.new))
    return {
        name: (before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    }


def _matters(kind: str, value: Any, path: str) -> Any:
    """The same without what is left out, and without what is empty: a state spells out more defaults. A map with keys
    of a person's own (`FREE`) is kept as it is, and so is what is no resource of ours."""
    if kind not in BY_ITSELF or path in FREE[kind]:
        return value
    if isinstance(value, Mapping):
        below = f"{path}." if path else ""
        kept = {
            str(key): _matters(kind, item, f"{below}{key}")
            for key, item in value.items()
            if f"{below}{key}" not in BY_ITSELF[kind]
        }
        return {key: item for key, item in kept.items() if item not in (None, {}, [], "")}
    if isinstance(value, list | tuple):
        return [_matters(kind, item, path) for item in value]
    return value
