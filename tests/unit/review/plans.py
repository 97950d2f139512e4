"""Documents of a preview, and what is there now, made by hand: for what the recorded ones do not have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sweepstack.billing.cost import Meter
from sweepstack.billing.stray import Stray
from sweepstack.core.box_end import StopFacts, TeardownFacts
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Approval, Cell
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.review.assess import assess
from sweepstack.review.live import Live, LiveVolume
from sweepstack.review.model import Review
from sweepstack.review.plan import read_plan
from sweepstack.status.engine.state import StackState
from sweepstack.status.model import CellView, SweepView
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.box_check import CellLine, Verdict
from sweepstack.teardown.unclaimed import Unclaimed
from tests.unit.entries import box_entry, queue_entry, volume_entry

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
URN = "urn:pulumi:t::sweepstack::sweepstack:components:Sweep$sweepstack:index:{kind}::{name}"


@dataclass(frozen=True)
class Told(Unclaimed):
    """Unclaimed files of which only the words are known."""

    told: str = ""

    @property
    def words(self) -> str:
        return self.told


def step(op: str, kind: str, name: str, *, old: dict[str, Any] | None = None, new: dict[str, Any] | None = None) -> Any:
    """One step. `old`: the inputs in the state, with `native_id` where it has one."""
    found: dict[str, Any] = {"op": op, "urn": URN.format(kind=kind, name=name)}
    if old is not None:
        inputs = {key: value for key, value in old.items() if key != "native_id"}
        found["oldState"] = {"id": old.get("native_id", ""), "inputs": inputs, "outputs": old}
    if new is not None:
        found["newState"] = {"inputs": new}
    return found


def box(name: str, **known: Any) -> BoxSnapshot:
    """A locked box with one verified cell and one that runs. `known`: its `entry`, and what was seen of it."""
    stop = StopFacts(kills=(), keeps=(), price_per_hour=known.get("stopped_per_hour"))
    ends = TeardownFacts(verb="destroy", kills=("scratch", "data"), keeps=("durable",), stop=stop)
    entry = known.get("entry") or box_entry(name=name, native_id=f"id-{name}", adapter="local", teardown=ends)
    cells = known.get("cells", (CellLine(f"{name}-a", "verified"), CellLine(f"{name}-b", "running")))
    proposed = Verdict(known["proposed"], reasons=known.get("proposed_reasons", [])) if "proposed" in known else None
    named = known.get("queue", [cell.name for cell in cells])
    queue = tuple(Cell.model_construct(name=one, params={}) for one in named)  # of any name
    return BoxSnapshot(
        box=entry,
        queue=queue_entry().model_copy(update={"cells": queue}),
        launch=None,
        seen=Observation(Existence(known.get("exists", "exists"))),
        verdict=Verdict(
            known.get("allowed", False),
            known.get("way"),
            list(known.get("reasons", ["not approved"])),
            cells=list(cells),
            launched=True,
            unclaimed=Told(files=1, told=known["unclaimed"]) if "unclaimed" in known else Unclaimed(),
        ),
        phase="running",
        where="",
        price_per_hour=known.get("price_per_hour", 1.25),
        since=None,
        journal=None,
        proposed=proposed,
    )


def volume(name: str = "v", **known: Any) -> LiveVolume:
    """A volume of the state. `known`: of its entry, and the check's answer."""
    seen = {key: known.pop(key) for key in ("allowed", "way", "reasons", "users") if key in known}
    return LiveVolume(entry=volume_entry(name=name, **known), **seen)


def live(*boxes: BoxSnapshot, volumes: tuple[LiveVolume, ...] = (), **known: Any) -> Live:
    """A sweep of these boxes. `known`: what the picture has besides, and what only a review asks."""
    state = StackState(
        known.pop("stack", "t"), boxes=tuple(one.box for one in boxes), volumes=tuple(one.entry for one in volumes)
    )
    cells = [(one.box.name, cell) for one in boxes for cell in one.verdict.cells]
    found: dict[str, Any] = {
        "evidence": "file://here/e",
        "meter": Meter(per_hour=sum(one.price_per_hour or 0.0 for one in boxes), so_far=3.5, idle=0.0),
        "cells": tuple(CellView(one.name, one.state, 1, box, None, note=one.reason) for box, one in cells),
        "receipt": None,
        "money_lines": (),
        "notes": (),
    }
    found |= {key: known.pop(key) for key in found if key in known}
    unknown = tuple(Stray("claim", "", "", name=name, why=why) for name, why in known.pop("unknown", ()))
    shot = Snapshot(state, known.pop("now", NOW), (), {}, box_snapshots=boxes, approval=known.pop("approval", None))
    view = SweepView(
        state.stack, boxes=(), gates=(), eta_seconds=None, unknown=unknown, next=(), bills="unknown", **found
    )
    return Live(shot, view, judged=volumes, **known)


def approval(**given: Any) -> Approval:
    """An approval that has run out."""
    known: dict[str, Any] = {"actions": (), "waivers_digest": f"sha256:{'0' * 64}", "by": "ana"}
    return Approval(**known | {"at": NOW, "expires": NOW} | given)


def document(*steps: Any, errors: tuple[str, ...] = (), said: tuple[str, ...] = ()) -> dict[str, Any]:
    """What `pulumi preview --json` prints."""
    diagnostics = [{"severity": "error", "message": f"error: {text}"} for text in errors]
    return {"steps": list(steps), "diagnostics": [*diagnostics, *({"severity": "info", "message": m} for m in said)]}


def reviewed(
    seen: Live, *steps: Any, destroy: bool = False, expected: str = "", request: bool = False, **of: Any
) -> Review:
    """The review of these steps."""
    return assess(read_plan(document(*steps, **of), destroy=destroy), seen, expected=expected, request=request)
