"""Plots: what is drawn in a page, and how a page with plots is written.

The plotting library: BokehJS, as the package `bokeh` of the extra `report` ships it.

None of its Python is imported. Of the libraries that a wheel brings, plotly.js (4.8 MB) takes a browser 1.9 s of CPU
time before it draws anything, and BokehJS 0.3 s. docs/report.md has the figures.
"""

from __future__ import annotations

import base64
import json
import sys
from array import array
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from itertools import count
from math import isfinite, isinf
from pathlib import Path
from typing import Any

from sweepstack.core.extras import lacks
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.report import page as html
from sweepstack.report.blocks import Block, Html, Section
from sweepstack.report.page import said

FILES = ("bokeh.min.js", "bokeh-api.min.js")


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


@dataclass(frozen=True)
class Axis:
    """An upright axis: the height (0 to 1) of each line on it, below 0 for one without a value; `texts`: what a reader
    sees of each; `ticks`: (height, text). `pick`: one of those of which a reader chooses the one that is shown."""

    name: str
    heights: Sequence[float]
    texts: Sequence[str]
    ticks: Sequence[tuple[float, str]]
    pick: bool = False


@dataclass(frozen=True)
class Parallel:
    """Parallel coordinates: a line for each of `names` over all axes. Its colour is its height on the axis that is
    picked. `kinds`: of each line a key of KINDS, which gives how it is drawn and its legend."""

    caption: str
    names: Sequence[str]
    kinds: Sequence[str]
    axes: Sequence[Axis]


KINDS = ("verified", "pruned", "best")
"""Those that come later are drawn over the others."""

Plot = Lines | Spans | Areas | Parallel
Shown = Block | Plot
Part = tuple[str, Sequence[Shown]]
"""A heading and what is below it."""


class NoLibrary(SweepstackError):
    """The package is not installed, or has other files."""


def page(title: str, parts: Sequence[Part], *, subtitle: str = "", find: str = "") -> str:
    """The whole page, as text of UTF-8. Pure but for the library, which is read from its package.

    `find`: the label of a field that filters tables and curves; "" for none. Without a plot it holds no library, and is
    some kilobytes; with one, 1.4 MB more. Raises SweepstackError where there is a plot and its package is not there.
    """
    plots = [block for _, blocks in parts for block in blocks if isinstance(block, Plot)]
    own = (files("sweepstack.extensions.pages") / "page.js").read_text("utf-8")
    numbers = count()
    sections = [
        Section(name, [Html(_host(block, next(numbers))) if isinstance(block, Plot) else block for block in blocks])
        for name, blocks in parts
    ]
    data = (
        f'<script type="application/json" id="data-{number}">{in_script(as_data(plot))}</script>\n'
        for number, plot in enumerate(plots)
    )
    return html.page(
        title,
        sections,
        subtitle=subtitle,
        above=_field(find) if find else "",
        below="".join(data),
        scripts=[*(library() if plots else ()), *([own] if plots or find else [])],
    )


def in_script(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it ends that element, or begins a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _field(label: str) -> str:
    return (
        f'<search><label for="find">{said(label)}</label> <input id="find" type="search" autocomplete="off" '
        'spellcheck="false"> <output id="found" for="find" aria-live="polite"></output></search>\n'
    )


def _host(block: Plot, number: int) -> str:
    """The place of a plot, in which page.js draws it."""
    names: Sequence[str] = block.axes if isinstance(block, Lines) else ()
    label = "one colour for each"
    if isinstance(block, Parallel):
        names, label = [axis.name for axis in block.axes if axis.pick], "against"
    options = "".join(f"<option>{said(name)}</option>" for name in names)
    choice = f'<label class="colour">{label} <select data-plot="{number}">{options}</select></label>'
    return (
        f"<figure><figcaption>{said(block.caption)}{choice if len(names) > 1 else ''}</figcaption>"
        f'<div class="plot" id="plot-{number}" data-plot="{number}"><p class="wait">not drawn yet</p></div></figure>\n'
    )


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
    if isinstance(plot, Parallel):
        axes = [[one.name, packed(one.heights), list(one.texts), list(one.ticks), one.pick] for one in plot.axes]
        kinds = [KINDS.index(kind) for kind in plot.kinds]
        return {"kind": "parallel", "names": list(plot.names), "kinds": kinds, "words": KINDS, "axes": axes}
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


@cache
def library() -> tuple[str, ...]:
    """The scripts, in the order in which they are run. Raises NoLibrary."""
    if missing := lacks("report"):
        raise NoLibrary(f"a page with plots can't be written: {missing}")
    spec = find_spec("bokeh")
    assert spec is not None
    folder = Path(next(iter(spec.submodule_search_locations or [""]))) / "server" / "static" / "js"
    try:
        # Within an element `script`, no text may close it; in JavaScript the escape means the same.
        return tuple((folder / name).read_text("utf-8").replace("</script", "<\\/script") for name in FILES)
    except OSError as error:
        raise NoLibrary(
            f"{error.filename} can't be read ({error.strerror}): pip install --force-reinstall bokeh"
        ) from error
