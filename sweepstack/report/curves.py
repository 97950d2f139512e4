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
        most = max(FEWEST, MOST_POINTS // max(len(found), 1))
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


def thinned(points: Sequence[tuple[float, float]], most: int) -> Sequence[tuple[float, float]]:
    """At most about `most` of the points: the first and last, and of each stretch between the lowest and the highest.

    A stretch with a value that is not finite keeps one such point, so that the gap is seen.
    """
    if len(points) <= most:
        return points
    kept = [points[0]]
    count = max(1, (most - 2) // 2)
    inner = points[1:-1]
    for index in range(count):
        part = inner[index * len(inner) // count : (index + 1) * len(inner) // count]
        broken = next((point for point in part if not math.isfinite(point[1])), None)
        finite = [point for point in part if math.isfinite(point[1])]
        low, high = min(finite, key=_height, default=None), max(finite, key=_height, default=None)
        kept += [point for point in part if point is low or point is high or point is broken]
    return [*kept, points[-1]]


def _height(point: tuple[float, float]) -> float:
    return point[1]
