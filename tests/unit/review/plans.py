"""Documents of a preview, made by hand: for what the recorded ones do not have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sweepstack.billing.cost import Meter
from sweepstack.core.box_end import StopFacts, TeardownFacts
from sweepstack.review.assess import assess
from sweepstack.review.live import Live, LiveBox, LiveCell, LiveVolume
from sweepstack.review.model import Review
from sweepstack.review.plan import read_plan
from tests.unit.entries import box_entry, volume_entry

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
URN = "urn:pulumi:t::sweepstack::sweepstack:components:Sweep$sweepstack:index:{kind}::{name}"


def step(op: str, kind: str, name: str, *, old: dict[str, Any] | None = None, new: dict[str, Any] | None = None) -> Any:
    """One step. `old`: the inputs in the state, with `native_id` where it has one."""
    found: dict[str, Any] = {"op": op, "urn": URN.format(kind=kind, name=name)}
    if old is not None:
        inputs = {key: value for key, value in old.items() if key != "native_id"}
        found["oldState"] = {"id": old.get("native_id", ""), "inputs": inputs, "outputs": old}
    if new is not None:
        found["newState"] = {"inputs": new}
    return found


def box(name: str, **known: Any) -> LiveBox:
    """A locked box with one verified cell and one that runs."""
    cells = (LiveCell(name=f"{name}-a", state="verified"), LiveCell(name=f"{name}-b", state="running", box=name))
    stop = StopFacts(kills=(), keeps=(), price_per_hour=known.pop("stopped_per_hour", None))
    ends = TeardownFacts(verb="destroy", kills=("scratch", "data"), keeps=("durable",), stop=stop)
    fields = {
        "entry": box_entry(name=name, native_id=f"id-{name}", adapter="local", teardown=ends),
        "price_per_hour": 1.25,
        "reasons": ("not approved",),
        "cells": cells,
        "queue": tuple(cell.name for cell in cells),
    }
    return LiveBox.model_validate(fields | known)


def volume(name: str = "v", **known: Any) -> LiveVolume:
    """A volume of the state. `known`: of its entry, and the check's answer."""
    seen = {key: known.pop(key) for key in ("allowed", "way", "reasons", "users") if key in known}
    return LiveVolume(entry=volume_entry(name=name, **known), **seen)


def live(*boxes: LiveBox, volumes: tuple[LiveVolume, ...] = (), **known: Any) -> Live:
    """A sweep of these boxes."""
    cells = tuple(cell for one in boxes for cell in one.cells)
    meter = Meter(per_hour=sum(one.price_per_hour or 0.0 for one in boxes), so_far=3.5, idle=0.0)
    fields: dict[str, Any] = {"stack": "t", "now": NOW, "evidence": "file://here/e", "cells": cells, "meter": meter}
    return Live.model_validate(fields | {"boxes": boxes, "volumes": volumes} | known)


def document(*steps: Any, errors: tuple[str, ...] = (), said: tuple[str, ...] = ()) -> dict[str, Any]:
    """What `pulumi preview --json` prints."""
    diagnostics = [{"severity": "error", "message": f"error: {text}"} for text in errors]
    return {"steps": list(steps), "diagnostics": [*diagnostics, *({"severity": "info", "message": m} for m in said)]}


def reviewed(
    seen: Live, *steps: Any, destroy: bool = False, expected: str = "", request: bool = False, **of: Any
) -> Review:
    """The review of these steps."""
    return assess(read_plan(document(*steps, **of), destroy=destroy), seen, expected=expected, request=request)
