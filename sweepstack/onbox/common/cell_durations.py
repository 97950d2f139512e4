"""Estimates how long a cell takes: a typical time, and a factor per axis value and box."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

ROUNDS = 30
CLOSE = 1e-3
"""A change of all factors by less than this ends the rounds."""
SHORTEST = 1e-3
"""Seconds: what took less is taken for this long, so that ratios stay finite."""
_BOX = "\0box"
"""The box is one more axis; no parameter has this name."""


class Took(NamedTuple):
    """A measured cell: the box that ran it (by its native id, or one of its workers), and seconds."""

    cell: str
    box: str
    seconds: float


class Durations(NamedTuple):
    """`overall`: seconds of a typical cell. `effects`: axis → value → by which factor it takes longer."""

    overall: float
    effects: Mapping[str, Mapping[str, float]] = MappingProxyType({})

    def of(self, params: Mapping[str, object]) -> float:
        """Seconds that a cell of these parameters takes on a box of speed 1. A value that was never measured counts as
        a typical one."""
        return self.overall * math.prod(
            known.get(_text(params.get(axis)), 1.0) for axis, known in self.effects.items() if axis != _BOX
        )

    def speed(self, box: str) -> float:
        """2.0 for a box that takes half the time; 1.0 for one that has sealed nothing yet."""
        return 1.0 / self.effects.get(_BOX, {}).get(box, 1.0)


def durations(params: Mapping[str, Mapping[str, object]], measured: Iterable[Took]) -> Durations | None:
    """`params`: cell → its parameters. None while none of these cells was measured.

    Least squares on logarithms, an axis at a time (backfitting): the mean of what the others leave unexplained, until
    that moves no more. Values of an axis may so differ by orders of magnitude."""
    rows = sorted((one for one in measured if one.cell in params), key=lambda one: (one.cell, one.box, one.seconds))
    if not rows:
        return None
    left = [math.log(max(one.seconds, SHORTEST)) for one in rows]
    overall = math.fsum(left) / len(left)
    left = [value - overall for value in left]
    groups = _groups(rows, params)
    effects: dict[str, dict[str, float]] = {axis: defaultdict(float) for axis in groups}
    for _ in range(ROUNDS):
        most = 0.0
        for axis, values in groups.items():
            for value, places in values.items():
                shift = math.fsum(left[place] for place in places) / len(places)
                most = max(most, abs(shift))
                effects[axis][value] += shift
                for place in places:
                    left[place] -= shift
        if most < CLOSE:
            break
    factors = {axis: {value: math.exp(shift) for value, shift in known.items()} for axis, known in effects.items()}
    return Durations(math.exp(overall), factors)


def _groups(rows: Sequence[Took], params: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, list[int]]]:
    """axis → value → places in `rows`, of axes with several values: those with few first, each measured more often."""
    groups: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, one in enumerate(rows):
        for axis, value in params[one.cell].items():
            groups[axis][_text(value)].append(place)
        groups[_BOX][one.box].append(place)
    several = {axis: values for axis, values in groups.items() if len(values) > 1}
    return dict(sorted(several.items(), key=lambda item: (len(item[1]), item[0])))


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
