"""What a section of a page is made of. Plain values: the page escapes every text when it is written."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Mapping, Sequence
from math import isfinite, isinf
from typing import Any, Literal

from sweepstack.onbox.common.dataclass import dataclass

Tone = Literal["plain", "good", "warn", "bad"]


@dataclass(frozen=True)
class Text:
    """A paragraph. `tone`: how it is marked; a word of it says the same, colour alone tells nothing."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Facts:
    """Names with values, as a list."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Items:
    """Statements below each other. `caption`: what they are; shown where the list is `folded` (closed until opened)."""

    caption: str
    items: Sequence[str]
    folded: bool = False


@dataclass(frozen=True)
class Code:
    """Lines that a person copies, such as the next commands."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows of text under headers; each row as long as the headers. `caption`: what it shows, in a few words.

    `find`: the field of the page hides the rows that do not hold what is typed. `right`: columns of numbers; `mono`:
    columns of digests and commands. `folded`: closed until it is opened (printed open).
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    find: bool = True
    right: frozenset[int] = frozenset()
    mono: frozenset[int] = frozenset()
    folded: bool = False


@dataclass(frozen=True)
class Curve:
    """One line of a plot. `of`: its value of each axis that gives a colour. y that is not finite is a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    of: Mapping[str, str]


@dataclass(frozen=True)
class Lines:
    """A plot of curves; those with the same value of an axis have one colour, and a reader chooses the axis.

    `axes`: the first is the one that is shown first. `times`: x is milliseconds since 1970. `find`: only the curves
    whose names hold what is typed into the field of the page are drawn.
    """

    caption: str
    x: str
    y: str
    axes: Sequence[str]
    curves: Sequence[Curve]
    times: bool = False
    find: bool = True
    percent: bool = False
    """y is a share in percent, and the axis goes from 0 to 100."""


@dataclass(frozen=True)
class Span:
    """A bar: from `begin` to `end` (milliseconds since 1970) on a lane; `what` gives its colour and its legend."""

    lane: str
    begin: float
    end: float
    what: str
    name: str
    note: str = ""


@dataclass(frozen=True)
class Spans:
    """A plot of bars over time, a lane each row. `tones`: how each `what` is coloured, in the legend's order."""

    caption: str
    lanes: Sequence[str]
    spans: Sequence[Span]
    tones: Mapping[str, str]


@dataclass(frozen=True)
class Areas:
    """Areas over time, one on top of the other: `layers` (name → values), as long as `times` (milliseconds)."""

    caption: str
    y: str
    times: Sequence[float]
    layers: Mapping[str, Sequence[float]]
    tones: Mapping[str, str]


Plot = Lines | Spans | Areas
Block = Text | Facts | Items | Code | Table | Plot


@dataclass(frozen=True)
class Section:
    """A heading and what is below it."""

    title: str
    blocks: Sequence[Block]


def as_data(plot: Plot) -> dict[str, Any]:
    """What page.js draws, as short as it gets: an x that many curves share is written once, and numbers as base64."""
    if isinstance(plot, Lines):
        xs: dict[str, int] = {}
        curves = []
        for curve in plot.curves:
            number = xs.setdefault(packed(curve.x, exact=True), len(xs))
            curves.append([curve.name, number, packed(curve.y), [curve.of.get(axis, "") for axis in plot.axes]])
        shared = list(xs)
        kind = {
            "kind": "lines",
            "x": plot.x,
            "y": plot.y,
            "times": plot.times,
            "find": plot.find,
            "percent": plot.percent,
        }
        return kind | {"axes": list(plot.axes), "xs": shared, "curves": curves}
    if isinstance(plot, Spans):
        lane = {name: number for number, name in enumerate(plot.lanes)}
        spans = [[lane[one.lane], one.begin, one.end, one.what, one.name, one.note] for one in plot.spans]
        return {"kind": "spans", "lanes": list(plot.lanes), "spans": spans, "tones": dict(plot.tones)}
    layers = [
        [name, [y if isfinite(y) else None for y in values], plot.tones.get(name, "")]
        for name, values in plot.layers.items()
    ]
    return {"kind": "areas", "y": plot.y, "times": list(plot.times), "layers": layers}


def packed(values: Sequence[float], *, exact: bool = False) -> str:
    """Numbers as `f` or `d` and their bytes (IEEE 754 of 4 or 8 bytes, the lowest first) in base64: half of what digits
    take, and a browser reads them at once. Those of 4 bytes have seven digits, more than a screen shows; `exact`: none
    may be another one."""
    wide, short = array("d", values), array("f", values)
    if short != wide and (exact or (not isfinite(sum(short)) and list(map(isinf, short)) != list(map(isinf, wide)))):
        short = wide
    if sys.byteorder == "big":
        short.byteswap()
    return short.typecode + base64.b64encode(short).decode()
