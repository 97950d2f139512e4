"""A plot for each metric, with the curves of one axis in one colour."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sweepstack.core.results import axes_of, text
from sweepstack.report.blocks import Block, Curve, Lines, Text
from sweepstack.report.facts import SweepFacts

SEED = "seed"
MOST_POINTS = 100_000
"""Of all curves of one plot: a screen has some thousand columns of pixels, and the page is to open at once."""
FEWEST = 60


def metrics(facts: SweepFacts) -> list[Block]:
    """The section on metrics."""
    cells = facts.snapshot.roster
    axes = sorted(axes_of(cells), key=lambda name: name == SEED)  # seeds come last: they are what one averages over
    params = {cell.name: cell.params for cell in cells}
    blocks: list[Block] = []
    for metric, found in facts.curves.items():
        most = most_of(len(found))
        curves = []
        for one in found:
            points = thinned(one.points, most)
            of = {axis: text(params.get(one.cell, {}).get(axis)) for axis in axes}
            curves.append(Curve(one.cell, [x for x, _ in points], [y for _, y in points], of))
        blocks.append(Lines(metric, facts.x, metric, axes, curves))
    if not blocks:
        blocks.append(Text("No cell has a curve here: the stack file names no metrics file, or none was written yet."))
    if facts.sampled:
        blocks.append(Text(f"Of {facts.sampled} long metrics files, pieces all over the file were read."))
    if facts.not_read:
        blocks.append(Text(f"The files of {facts.not_read} cells that are not verified were not read for this page."))
    return blocks


def most_of(curves: int) -> int:
    """The most points of each of so many curves in one plot."""
    return max(FEWEST, MOST_POINTS // max(curves, 1))


def thinned(points: Sequence[tuple[float, float]], most: int) -> Sequence[tuple[float, float]]:
    """At most about `most` of the points: the first and last, and of each stretch between the lowest and the highest.

    A stretch with a value that is not finite keeps one such point, so that the gap is seen.
    """
    if len(points) <= most:
        return points
    kept = [0]
    count = max(1, (most - 2) // 2)
    heights = [y for _, y in points]
    inner = len(points) - 2
    for index in range(count):
        begin, end = 1 + index * inner // count, 1 + (index + 1) * inner // count
        part = heights[begin:end]
        if not math.isfinite(sum(part)):  # seldom; a sum of large numbers may be infinite, too
            kept += _uneven(heights, begin, end)
        elif part:
            kept += sorted({begin + part.index(min(part)), begin + part.index(max(part))})
    return [points[index] for index in [*kept, len(points) - 1]]


def _uneven(heights: Sequence[float], begin: int, end: int) -> list[int]:
    """Of a stretch with values that are not finite: the first of them, and the lowest and highest of the others."""
    finite = [index for index in range(begin, end) if math.isfinite(heights[index])]
    broken = [index for index in range(begin, end) if not math.isfinite(heights[index])]
    ends = {min(finite, key=heights.__getitem__), max(finite, key=heights.__getitem__)} if finite else set()
    return sorted({*broken[:1], *ends})
