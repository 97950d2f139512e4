"""Whether what was done was safe, too: a box that ended had a copy of each sealed cell elsewhere, or was given up."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweepstack.cli.commands.audit import GIVEN_UP
from sweepstack.core.local_decisions import ABANDONED
from tests.states.world import World

ARTIFACT = "model.safetensors"


def sealed_then(world: World, moment: str) -> dict[str, bytes]:
    """Cell → its artifact, as it was sealed at that moment, before anything was lost."""
    volumes = world.base / "saved" / moment / "data" / "sweepstack" / "local" / "volumes"
    return {path.parent.name: path.read_bytes() for path in volumes.glob(f"*/content/*/cells/*/{ARTIFACT}")}


def sealed_on(world: World, moment: str) -> dict[str, str]:
    """Cell → the native id of the box that sealed it, if that was there at the moment."""
    boxes = world.base / "saved" / moment / "data" / "sweepstack" / "local" / "boxes"
    return {
        line["cell"]: path.relative_to(boxes).parts[0]
        for path in boxes.glob("*/data/sweep/journal.jsonl")
        for line in map(json.loads, path.read_text().splitlines())
        if line.get("event") == "cell-sealed"
    }


def unsafe(world: World, moment: str) -> list[str]:
    """Why the end of the boxes was not safe. Empty where it was, or where they are still there."""
    if world.books():
        return []
    whose, given_up, lost = sealed_on(world, moment), _given_up(world), _lost(world)
    found = []
    for cell, content in sealed_then(world, moment).items():
        copies = [world.evidence / "cells" / cell / ARTIFACT, *_durable(world, cell)]
        if any(path.is_file() and path.read_bytes() == content for path in copies):
            continue
        box = whose.get(cell, "")
        if (box, cell) not in lost and box not in given_up:
            found.append(
                f"{cell} is nowhere any more, its box {box or '(gone before)'} was not given up, no loss names it"
            )
    return found


def _durable(world: World, cell: str) -> list[Path]:
    return [path / ARTIFACT for root in world.volume_contents() for path in root.glob(f"*/cells/{cell}")]


def _given_up(world: World) -> set[str]:
    """The native ids of the boxes that a person gave up, by the evidence and by this computer."""
    lines = [
        *_documents(world.evidence, "records/decisions/*.json"),
        *_documents(world.base, "data/**/decisions.jsonl"),
    ]
    found = {line["native_id"] for line in lines if line.get("what") in (GIVEN_UP, ABANDONED)}
    approvals = _documents(world.evidence, "records/clearances/*.json")
    return found | {entry["native_id"] for one in approvals for entry in one.get("abandon", ())}


def _lost(world: World) -> set[tuple[str, str]]:
    """(native id, cell) of what the evidence says was lost with a box."""
    return {
        (loss["native_id"], cell)
        for loss in _documents(world.evidence, "records/losses/*.json")
        for cell in loss["cells"]
    }


def _documents(folder: Path, pattern: str) -> Iterator[dict[str, Any]]:
    """Each object in these files that reads: one in a file, or one in a line. What was damaged is left out."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError, ValueError):
            text = path.read_text()
            for part in text.splitlines() if path.suffix == ".jsonl" else [text]:
                with contextlib.suppress(ValueError):
                    if isinstance(document := json.loads(part), dict):
                        yield document
