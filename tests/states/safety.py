"""Whether what was done was safe, too: a box that ended had a copy of each sealed cell elsewhere, or was given up."""

from __future__ import annotations

from pathlib import Path

from sweepstack.cli.commands.audit.end import GIVEN_UP
from tests.states.world import World

ARTIFACT = "model.safetensors"


def sealed_then(world: World, moment: str) -> dict[str, bytes]:
    """Cell → its artifact, as it was sealed at that moment, before anything was lost."""
    volumes = world.base / "saved" / moment / "data" / "sweepstack" / "local" / "volumes"
    return {path.parent.name: path.read_bytes() for path in volumes.glob(f"*/content/*/cells/*/{ARTIFACT}")}


def unsafe(world: World, moment: str, typed: list[str]) -> list[str]:
    """Why the end of the boxes was not safe. Empty where it was, or where they are still there."""
    if world.books():
        return []
    if any("--abandon" in command for command in typed):
        return [] if _on_record(world) else ["a box was given up, and no record says so"]
    found = []
    for cell, content in sealed_then(world, moment).items():
        copies = [world.evidence / "cells" / cell / ARTIFACT, *_durable(world, cell)]
        if not any(path.is_file() and path.read_bytes() == content for path in copies):
            found.append(f"{cell} is nowhere any more, and no box was given up")
    return found


def _durable(world: World, cell: str) -> list[Path]:
    return [path / ARTIFACT for root in world.volume_contents() for path in root.glob(f"*/cells/{cell}")]


def _on_record(world: World) -> bool:
    """In the evidence, or on this computer."""
    records = [*world.evidence.glob("records/**/*.json"), *world.base.glob("data/**/decisions.jsonl")]
    texts = [path.read_text(errors="replace") for path in records if path.is_file()]
    return any(words in text for text in texts for words in ('"abandon', f'"{GIVEN_UP}"'))
