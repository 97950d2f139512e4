"""A page with plots, without a browser: what it escapes, what it allows, and what is in its data."""

from __future__ import annotations

import base64
import json
import math
import struct
import sys

import pytest

from sweepstack.core import extras
from sweepstack.extensions.pages.plots import (
    Areas,
    Axis,
    Curve,
    Lines,
    NoLibrary,
    Parallel,
    Shown,
    Span,
    Spans,
    in_script,
    library,
    packed,
    page,
)
from tests.unit.report.test_page import HOSTILE, Parsed, allowed
from tests.unit.report.test_page import every_block as every_text


def every_block(text: str) -> list[Shown]:
    """One of each block, with `text` in each place for a text."""
    return [
        *every_text(text),
        Lines(text, text, text, [text], [Curve(text, [0, 1], [math.nan, 1], {text: text})]),
        Spans(text, [text], [Span(text, 0, 1, text, text, text)], {text: "good"}),
        Areas(text, text, [0, 1], {text: [0, 1]}, {text: "work"}),
        Parallel(text, [text, text], ["verified", "pruned"], [_axis(text), _axis(text, pick=True)]),
    ]


def _axis(text: str, *, pick: bool = False) -> Axis:
    return Axis(text, [0, 1], [text, text], [(0, text)], pick)


def numbers(text: str) -> list[float]:
    """What page.js reads of packed numbers, by the words of `packed` and not by its code."""
    data = base64.b64decode(text[1:])
    size = {"f": 4, "d": 8}[text[0]]
    return list(struct.unpack(f"<{len(data) // size}{text[0]}", data))


def test_hostile_text_makes_no_element_and_no_script() -> None:
    plain, hostile = (Parsed(page(text, [(text, every_block(text))], find=text)) for text in ("plain", HOSTILE))
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in plain.found]
    assert [sorted(one) for _, one in hostile.found] == [sorted(one) for _, one in plain.found]
    data = [json.loads(text) for kind, text in hostile.scripts if kind == "application/json"]
    assert [one["kind"] for one in data] == ["lines", "spans", "areas", "parallel"]
    assert data[0]["curves"][0][0] == HOSTILE, "the data is what it was"
    gap, value = numbers(data[0]["curves"][0][2])
    assert (math.isnan(gap), value) == (True, 1.0), "NaN is a gap"


def test_only_the_scripts_of_the_page_may_run() -> None:
    """Two of the library, one of ours."""
    assert len(allowed(Parsed(page("t", [("s", every_block("x"))])))) == 3


def test_a_shared_x_is_written_once() -> None:
    curves = [Curve(str(number), [0, 1, 2], [1, 2, 3], {}) for number in range(3)]
    text = page("t", [("s", [Lines("c", "x", "y", [], curves)])])
    data = next(json.loads(text) for kind, text in Parsed(text).scripts if kind == "application/json")
    assert [numbers(x) for x in data["xs"]] == [[0, 1, 2]]
    assert [curve[1] for curve in data["curves"]] == [0, 0, 0]


@pytest.mark.parametrize("values", [[0.5, 16777216.0], [1.7e12, 1.7e12 + 30_000], [1e300, 1.0], [math.inf, 2.0], []])
def test_an_x_is_exact_however_it_is_packed(values: list[float]) -> None:
    """Milliseconds since 1970 and huge numbers need eight bytes; a y has at least six digits in four."""
    assert numbers(packed(values, exact=True)) == values
    assert numbers(packed(values)) == pytest.approx(values, rel=1e-6)


def test_data_in_a_script_ends_no_script() -> None:
    text = in_script({"a": HOSTILE})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"a": HOSTILE}


def test_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    library.cache_clear()
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(NoLibrary) as refused:
        page("t", [("s", [Areas("c", "y", [0], {"a": [0]}, {})])])
    assert str(refused.value) == (
        "a page with plots can't be written: the package bokeh is not installed here. Next: " + extras.fix("report")
    )
