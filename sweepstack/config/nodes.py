"""Cells over several nodes: the extension `nodes` says what does not fit."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from sweepstack.config.secrets import RawMistakes
from sweepstack.core.adapters import module_of


def several_nodes(values: dict[str, Any]) -> RawMistakes:
    """What of a stack config does not fit `job.nodes`. Nothing where the extension is not installed: then no platform
    takes such a sweep (`profiles.nodes`)."""
    job, boxes = values.get("job"), values.get("boxes")
    asked = isinstance(job, dict) and not job.keys().isdisjoint(("nodes", "restores"))
    named = isinstance(boxes, dict) and any(isinstance(box, dict) and "peers" in box for box in boxes.values())
    module = module_of("nodes", "config") if asked or named else None
    return cast(RawMistakes, import_module(module).mistakes(values) if module is not None else iter(()))
