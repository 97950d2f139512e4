"""What the boxes' patrols measured: GPUs, memory, disk, inodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from sweepstack.core.heartbeat import Patrol
from sweepstack.report.blocks import Block, Curve, Lines, Table, Text
from sweepstack.report.facts import BoxStory, SweepFacts
from sweepstack.report.timeline import millis

Measure = Callable[[Patrol], dict[str, float | None]]
"""One line of a patrol → name of the curve, after that of its box ("" for the box's own) → value."""


def machines(facts: SweepFacts) -> list[Block]:
    """The section on what the machines did: a plot a measure, and what the patrols raised."""
    stories = [story for story in facts.boxes if story.patrols or story.workers]
    if not stories:
        return [Text("No line of a patrol could be read: boxes that are gone had their logs not copied, or none ran.")]
    sources = [source for story in stories for source in _sources(story)]
    boxes = [_Source(story.label, story.label, _lines(story)) for story in stories]
    blocks: list[Block] = []
    for title, unit, measure in _MEASURES:
        of = boxes if title in _SHARED else sources
        curves = [curve for source in of for curve in _curves(source, measure)]
        if curves:
            blocks.append(
                Lines(title, "time (UTC)", unit, ["box"], curves, times=True, find=False, percent="%" in unit)
            )
    raised = [row for source in sources for row in _raised(source)]
    if raised:
        blocks.append(Table("What the patrols raised", ("box", "alarm", "first", "last"), raised, find=False))
    missing = [story.label for story in facts.boxes if story not in stories]
    if missing:
        blocks.append(Text(f"Without a reading: {', '.join(missing)}."))
    left_out = [f"{story.others} of {story.label}" for story in stories if story.others]
    if left_out:
        blocks.append(Text(f"Workers that are not shown, those that began first: {', '.join(left_out)}."))
    return blocks


class _Source(NamedTuple):
    """Whose patrol it was: of a box (`box`), or of one of its workers."""

    box: str
    label: str
    patrols: Sequence[Patrol]


def _sources(story: BoxStory) -> Iterator[_Source]:
    if story.patrols:
        yield _Source(story.label, story.label, story.patrols)
    for name, patrols in story.workers.items():
        yield _Source(story.label, f"{story.label} {name}", patrols)


def _lines(story: BoxStory) -> list[Patrol]:
    """All lines of a box, by time."""
    return sorted(chain(story.patrols, *story.workers.values()), key=lambda patrol: patrol.time)


def _curves(source: _Source, measure: Measure) -> Iterator[Curve]:
    rows = [measure(patrol) for patrol in source.patrols]
    times = [millis(patrol.time) for patrol in source.patrols]
    for name in dict.fromkeys(name for values in rows for name, value in values.items() if value is not None):
        ys = [math.nan if (value := values.get(name)) is None else value for values in rows]
        yield Curve(f"{source.label} {name}".strip(), times, ys, {"box": source.box})


def _gpus(key: str) -> Measure:
    return lambda patrol: {f"GPU {gpu.get('index', '?')}": _number(gpu.get(key)) for gpu in patrol.gpus}


def _gpu_memory(patrol: Patrol) -> dict[str, float | None]:
    return {
        f"GPU {gpu.get('index', '?')}": _share(_number(gpu.get("memory_used")), _number(gpu.get("memory_total")))
        for gpu in patrol.gpus
    }


def _memory(patrol: Patrol) -> dict[str, float | None]:
    return {"": _share(patrol.memory.get("used"), patrol.memory.get("limit"))}


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _share(used: float | None, total: float | None) -> float | None:
    return None if used is None or not total else 100 * used / total


def _number(value: Any) -> float | None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good else None


_MEASURES: tuple[tuple[str, str, Measure], ...] = (
    ("GPU in use", "% of the time", _gpus("util")),
    ("GPU memory", "% of it", _gpu_memory),
    ("GPU temperature", "degrees C", _gpus("temperature")),
    ("Memory", "% of the limit", _memory),
    ("Disk", "% used", lambda patrol: {"": _percent(patrol.disk.used)}),
    ("Inodes", "% used", lambda patrol: {"": _percent(patrol.inodes.used)}),
)
_SHARED = ("Disk", "Inodes")
"""Of a box that several workers share, these are those of one tier: each worker sees the same."""


def _raised(source: _Source) -> Iterator[tuple[str, ...]]:
    """Each alarm once, with the first and the last line that has it."""
    seen: dict[str, list[Patrol]] = {}
    for patrol in source.patrols:
        for alarm in patrol.alarms:
            seen.setdefault(alarm, []).append(patrol)
    for alarm, patrols in seen.items():
        yield source.label, alarm, f"{patrols[0].time:%Y-%m-%d %H:%M}", f"{patrols[-1].time:%Y-%m-%d %H:%M}"
