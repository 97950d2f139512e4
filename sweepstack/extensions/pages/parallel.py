"""Parallel coordinates: each cell as a line over the axes and one of the values, pruned cells marked."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from sweepstack.cli.commands.results.order import Wanted
from sweepstack.core.metrics import number
from sweepstack.core.records import Cell
from sweepstack.core.results import CellResult, axes_of, columns_of, ordered, text
from sweepstack.extensions.pages.curves import spread
from sweepstack.extensions.pages.plots import Axis, Parallel, Shown
from sweepstack.onbox.common.units import count
from sweepstack.report.blocks import Text

MOST_LINES = 2000
BEST_LINES = 500
"""Of more cells so many of the best are drawn, and others from all over the roster."""
MOST_AXES, MOST_VALUES = 10, 16
MOST_TICKS = 12
NONE = -0.1
"""The height of what has no value."""
DECADES = 100
"""Numbers above 0 of which the most is so many times the least are drawn by their logarithms."""


def parallel(
    roster: Sequence[Cell],
    found: Sequence[CellResult],
    pruned: Sequence[CellResult],
    wanted: Wanted | None,
    best: Collection[str],
) -> list[Shown]:
    """The plot, and what it leaves out. Nothing where fewer than two cells have a value, or they differ in nothing.
    `best`: names of the cells that are marked; `pruned`: with their value where they were stopped."""
    axes = axes_of([*roster, *(Cell(name=one.name, params=dict(one.params)) for one in pruned)])
    values = _values(found, wanted)
    everything = [*found, *pruned]
    if not axes or not values or len(everything) < 2:
        return []
    drawn = _drawn(everything, wanted, best)
    kinds = ["best" if one.name in best else "pruned" if one.state == "pruned" else "verified" for one in drawn]
    made = [_axis(name, [one.params.get(name) for one in drawn]) for name in axes[:MOST_AXES]]
    made += [_axis(name, [_number(one, name) for one in drawn], pick=True) for name in values[:MOST_VALUES]]
    blocks: list[Shown] = [Parallel("Each cell over its axes", [one.name for one in drawn], kinds, made)]
    if pruned:
        stopped = count(len(pruned), "cell")
        blocks.append(Text(f"{stopped} pruned: dashed, by the value at which they were stopped, which is on record."))
    if len(drawn) < len(everything):
        few = f"the {BEST_LINES} best by {wanted.name}, and others" if wanted is not None else "some"
        blocks.append(Text(f"Of {len(everything)} cells {len(drawn)} are drawn: {few} from all over the roster."))
    left = [*axes[MOST_AXES:], *values[MOST_VALUES:]]
    if left:
        blocks.append(Text(f"Not drawn, as there are too many axes: {', '.join(left)}."))
    return blocks


def _values(found: Sequence[CellResult], wanted: Wanted | None) -> list[str]:
    """The values that are a finite number in a cell, the one that is wanted first."""
    names = [
        name
        for name in columns_of(found)
        if any((value := _number(one, name)) is not None and math.isfinite(value) for one in found)
    ]
    return sorted(names, key=lambda name: wanted is None or name != wanted.name)


def _number(one: CellResult, name: str) -> float | None:
    value = one.values.get(name)
    return None if isinstance(value, str) else float(value) if isinstance(value, bool) else number(value)


def _drawn(everything: Sequence[CellResult], wanted: Wanted | None, best: Collection[str]) -> list[CellResult]:
    """All, or as many as a screen and a browser take, in their order."""
    if len(everything) <= MOST_LINES:
        return list(everything)
    by = wanted.name if wanted is not None else ""
    first = ordered(everything, lambda one: _number(one, by), most_first=wanted is not None and not wanted.lowest)
    kept = spread([one.name for one in everything], [*best, *(one.name for one in first[:BEST_LINES])], MOST_LINES)
    return [one for one in everything if one.name in kept]


def _axis(name: str, values: Sequence[Any], *, pick: bool = False) -> Axis:
    """An axis of numbers, by their logarithms where they span decades; of anything else, by its texts."""
    there = [value for value in values if _is_number(value) and math.isfinite(value)]
    numeric = all(value is None or _is_number(value) for value in values)
    if numeric and there:
        low, high = min(there), max(there)
        by_log = low > 0 and high / low >= DECADES
        heights = [_height(value, low, high, by_log) if value is not None else NONE for value in values]
        distinct = sorted(set(there))
        shown = distinct if len(distinct) <= MOST_TICKS and not pick else [low, _between(low, high, by_log), high]
        ticks = [(_height(value, low, high, by_log), text(value)) for value in shown]
    else:
        words = [one for one in ordered(list(dict.fromkeys(map(text, values))), str, most_first=False) if one]
        at = {word: index / (len(words) - 1) if len(words) > 1 else 0.5 for index, word in enumerate(words)}
        by_log, heights = False, [at.get(text(value), NONE) for value in values]
        step = len(words) // MOST_TICKS + 1
        ticks = [(at[word], word) for word in words[::step]]
    if NONE in heights:
        ticks = [(NONE, "(none)"), *ticks]
    return Axis(f"{name} (log)" if by_log else name, heights, [text(value) for value in values], ticks, pick)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _height(value: float, low: float, high: float, by_log: bool) -> float:
    if not math.isfinite(value):
        return NONE
    if high == low:
        return 0.5
    if by_log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def _between(low: float, high: float, by_log: bool) -> float:
    return math.sqrt(low * high) if by_log else (low + high) / 2
