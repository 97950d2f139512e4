"""What is there now as a recorded document: without what no review reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sweepstack.billing.cost import Meter
from sweepstack.core.records import Approval
from sweepstack.review.live import Live, LiveFact, LiveVolume, Roster
from sweepstack.status.engine.state import BoxEntry
from sweepstack.status.model import CellView
from sweepstack.status.snapshot import BoxSnapshot
from sweepstack.teardown.box_check import CellLine
from tests.unit.review import plans

SEEN = ("price_per_hour", "exists", "allowed", "way", "reasons", "proposed", "proposed_reasons", "queue", "unclaimed")


def as_document(live: Live) -> dict[str, Any]:
    """The values that `of_document` reads."""
    view, given = live.view, live.snapshot.approval
    found = {
        "stack": view.stack,
        "now": live.snapshot.now.isoformat(),
        "evidence": view.evidence,
        "receipt": view.receipt,
        "store": live.store,
        "base": live.base,
        "cells": [{"name": one.name, "state": one.state, "box": one.box, "note": one.note} for one in view.cells],
        "boxes": [_box(live, one) for one in live.snapshot.box_snapshots],
        "volumes": [
            live_volume.model_dump(mode="json", exclude_defaults=True)
            for entry in live.snapshot.state.volumes
            if (live_volume := live.volume(entry.native_id)) is not None
        ],
        "meter": vars(view.meter),
        "money_lines": view.money_lines,
        "approval": given.model_dump(mode="json") if given is not None else None,
        "facts": [fact.model_dump(mode="json") for fact in live.facts],
        "rosters": {name: roster.model_dump(mode="json") for name, roster in live.rosters.items()},
        "unknown": live.unknown,
        "notes": live.notes,
        "problems": live.problems,
    }
    return {key: value for key, value in found.items() if value}


def _box(live: Live, one: BoxSnapshot) -> dict[str, Any]:
    verdict, by_file = one.verdict, one.proposed
    found = {
        "price_per_hour": one.price_per_hour,
        "exists": one.seen.existence.value,
        "allowed": verdict.allowed,
        "way": verdict.way,
        "reasons": verdict.reasons,
        "proposed": by_file.allowed if by_file is not None else None,
        "proposed_reasons": by_file.reasons if by_file is not None else None,
        "queue": sorted(one.queue.names) if one.queue is not None else [],
        "unclaimed": verdict.unclaimed.words if verdict.unclaimed else None,
        "in_no_copy": live.in_no_copy.get(one.box.name),
        "cells": [{"name": cell.name, "state": cell.state, "note": cell.reason} for cell in verdict.cells],
        "entry": one.box.model_dump(mode="json", exclude_defaults=True),
    }
    return {key: value for key, value in found.items() if value is not None}


def of_document(told: Mapping[str, Any]) -> Live:
    """The picture of a recorded document."""
    boxes = [_of_box(one) for one in told.get("boxes", ())]
    unknown = [text.partition(": ") for text in told.get("unknown", ())]
    return plans.live(
        *boxes,
        volumes=tuple(map(LiveVolume.model_validate, told.get("volumes", ()))),
        stack=told["stack"],
        now=datetime.fromisoformat(told["now"]),
        evidence=told.get("evidence"),
        receipt=told.get("receipt"),
        store=told.get("store", False),
        base=told.get("base", ""),
        cells=tuple(
            CellView(one["name"], one["state"], 1, one.get("box"), None, note=one.get("note", ""))
            for one in told.get("cells", ())
        ),
        meter=Meter(**{"per_hour": 0.0, "so_far": 0.0, "idle": 0.0} | told.get("meter", {})),
        money_lines=tuple(told.get("money_lines", ())),
        approval=Approval.model_validate(told["approval"]) if told.get("approval") else None,
        facts=tuple(map(LiveFact.model_validate, told.get("facts", ()))),
        rosters={name: Roster.model_validate(of) for name, of in told.get("rosters", {}).items()},
        unknown=[(name, why) for name, _, why in unknown],
        notes=tuple(told.get("notes", ())),
        problems=tuple(told.get("problems", ())),
        in_no_copy={
            one.box.name: text["in_no_copy"]
            for one, text in zip(boxes, told.get("boxes", ()), strict=True)
            if "in_no_copy" in text
        },
    )


def _of_box(told: Mapping[str, Any]) -> BoxSnapshot:
    entry = BoxEntry.model_validate(told["entry"])
    cells = tuple(CellLine(one["name"], one["state"], one.get("note", "")) for one in told.get("cells", ()))
    return plans.box(entry.name, entry=entry, cells=cells, **{key: told[key] for key in SEEN if key in told})
