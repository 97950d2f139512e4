"""A plot for each metric, with the curves of one axis in one colour."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import pairwise

from sweepstack.core.results import SEED, axes_of, text
from sweepstack.extensions.pages.page_data import SweepFacts
from sweepstack.extensions.pages.plots import Curve, Lines, Shown
from sweepstack.onbox.common.units import count
from sweepstack.report.blocks import Text

MOST_POINTS = 100_000
"""Of all curves of one plot: a screen has some thousand columns of pixels, and the page is to open at once."""
FEWEST = 60
MOST_CURVES = 2000
"""Of one plot: a browser takes seconds for more, and an eye tells no more apart."""


def metrics(facts: SweepFacts, best: Collection[str] = ()) -> list[Shown]:
    """The section on metrics. `best`: cells whose curves are drawn in any case."""
    cells = facts.snapshot.roster
    axes = sorted(axes_of(cells), key=lambda name: name == SEED)  # seeds come last: they are what one averages over
    params = {cell.name: cell.params for cell in cells}
    blocks: list[Shown] = []
    for metric, found in facts.cells.curves.items():
        curves, drawn = [], spread([one.cell for one in found], best, MOST_CURVES)
        for one in found if len(found) == len(drawn) else [one for one in found if one.cell in drawn]:
            of = {axis: text(params.get(one.cell, {}).get(axis)) for axis in axes}
            curves.append(Curve(one.cell, [x for x, _ in one.points], [y for _, y in one.points], of))
        blocks.append(Lines(metric, facts.cells.x, metric, axes, curves))
        if len(curves) < len(found):
            few = f"{len(curves)} of {len(found)} curves are drawn"
            blocks.append(Text(f"{few}: of cells from all over the roster, and of the best."))
    if not blocks:
        blocks.append(Text("No cell has a curve here: the stack file names no metrics file, or none was written yet."))
    elif facts.cells.thinned:
        blocks.append(
            Text(
                f"Long curves are drawn by about {facts.cells.thinned} of their points: the first, the last, and the "
                "lowest, the highest and a missing one of each stretch between them."
            )
        )
    if facts.cells.joined:
        tries = count(facts.cells.joined, "cell")
        blocks.append(Text(f"The curves of {tries} begin with what earlier tries wrote, which no seal covers."))
    if facts.cells.sampled:
        blocks.append(Text(f"Of {facts.cells.sampled} long metrics files, pieces all over the file were read."))
    if facts.cells.not_read:
        blocks.append(
            Text(f"The files of {facts.cells.not_read} cells that are not verified were not read for this page.")
        )
    return blocks


def spread(names: Sequence[str], first: Collection[str], most: int) -> set[str]:
    """All names; of more than `most`, those of `first`, and others from all over them."""
    if len(names) <= most:
        return set(names)
    kept = set([*dict.fromkeys(first)][:most]) & set(names)
    others, room = [name for name in names if name not in kept], most - len(kept)
    return kept | {others[index * len(others) // room] for index in range(room)}


def most_of(curves: int) -> int:
    """The most points of each of so many curves in one plot."""
    return max(FEWEST, MOST_POINTS // max(curves, 1))


def thinned(xs: Sequence[float], ys: Sequence[float], most: int) -> list[tuple[float, float]]:
    """At most about `most` of the points: the first and last, and of each stretch between the lowest and the highest.

    A stretch with a value that is not finite keeps one such point, so that the gap is seen.
    """
    if len(ys) <= most:
        return list(zip(xs, ys, strict=True))
    count, inner = max(1, (most - 2) // 2), len(ys) - 2
    even = math.isfinite(sum(ys))  # a sum of large numbers may be infinite, too
    kept = [0]
    ends = [1 + index * inner // count for index in range(count + 1)]
    for begin, end in pairwise(ends):
        part = ys[begin:end]
        if not (even or math.isfinite(sum(part))):
            kept += _uneven(ys, begin, end)
        elif part:
            low, high = part.index(min(part)), part.index(max(part))
            kept += (begin + low, begin + high) if low < high else (begin + high, begin + low)[: 1 + (low != high)]
    kept.append(len(ys) - 1)
    return [(xs[index], ys[index]) for index in kept]


def _uneven(heights: Sequence[float], begin: int, end: int) -> list[int]:
    """Of a stretch with values that are not finite: the first of them, and the lowest and highest of the others."""
    finite = [index for index in range(begin, end) if math.isfinite(heights[index])]
    broken = [index for index in range(begin, end) if not math.isfinite(heights[index])]
    ends = {min(finite, key=heights.__getitem__), max(finite, key=heights.__getitem__)} if finite else set()
    return sorted({*broken[:1], *ends})
