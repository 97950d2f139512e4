"""The page without a browser: what it escapes, what it allows, and that it loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
from html.parser import HTMLParser
from typing import Any

import pytest

from sweepstack.report import page as page_module
from sweepstack.report.blocks import (
    Areas,
    Block,
    Code,
    Curve,
    Facts,
    Items,
    Lines,
    Section,
    Span,
    Spans,
    Table,
    Text,
    packed,
)
from sweepstack.report.page import in_script, page

HOSTILE = "</script><script>alert(1)</script><!--\"'><img src=x onerror=alert(2)>\u2028\u202e$$x$$"


def every_block(text: str) -> list[Block]:
    """One of each block, with `text` in each place for a text."""
    return [
        Text(text, "bad"),
        Facts([(text, text)]),
        Items(text, [text]),
        Items(text, [text], folded=True),
        Code([text]),
        Table(text, [text, text], [(text, text)], mono=frozenset({1})),
        Table(text, [text], [(text,)], folded=True),
        Lines(text, text, text, [text], [Curve(text, [0, 1], [math.nan, 1], {text: text})]),
        Spans(text, [text], [Span(text, 0, 1, text, text, text)], {text: "good"}),
        Areas(text, text, [0, 1], {text: [0, 1]}, {text: "work"}),
    ]


def numbers(text: str) -> list[float]:
    """What page.js reads of packed numbers, by the words of `packed` and not by its code."""
    data = base64.b64decode(text[1:])
    size = {"f": 4, "d": 8}[text[0]]
    return list(struct.unpack(f"<{len(data) // size}{text[0]}", data))


class Parsed(HTMLParser):
    """Elements with their attributes, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.scripts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs).get("type") or "", ""))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script" and self.scripts and not self.scripts[-1][1]:
            self.scripts[-1] = (self.scripts[-1][0], data)

    def policy(self) -> str:
        return next(one["content"] for tag, one in self.found if one.get("http-equiv") == "Content-Security-Policy")


def test_hostile_text_makes_no_element_and_no_script() -> None:
    plain, hostile = (Parsed(page(text, [Section(text, every_block(text))], find=text)) for text in ("plain", HOSTILE))
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in plain.found]
    assert [sorted(one) for _, one in hostile.found] == [sorted(one) for _, one in plain.found]
    data = [json.loads(text) for kind, text in hostile.scripts if kind == "application/json"]
    assert [one["kind"] for one in data] == ["lines", "spans", "areas"]
    assert data[0]["curves"][0][0] == HOSTILE, "the data is what it was"
    gap, value = numbers(data[0]["curves"][0][2])
    assert (math.isnan(gap), value) == (True, 1.0), "NaN is a gap"


def test_what_cannot_be_seen_is_spelled_out() -> None:
    assert "a\\u{202e}b" in page("t", [Section("s", [Text("a\u202eb")])])


def test_only_the_scripts_of_the_page_may_run() -> None:
    """The policy names the digest of each script, allows no other, and no address at all."""
    found = Parsed(page("t", [Section("s", every_block("x"))]))
    scripts = [text for kind, text in found.scripts if kind == ""]
    assert len(scripts) == 3
    digests = {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts}
    rules = dict(rule.strip().split(" ", 1) for rule in found.policy().split(";"))
    assert set(rules["script-src"].split()) == digests
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert "http" not in found.policy()
    assert not [one for tag, one in found.found if tag in ("link", "iframe", "object", "img") or "src" in one]


def test_without_plots_it_is_small_and_runs_nothing() -> None:
    text = page("t", [Section("s", [Text("x"), Table("rows", ["a"], [("1",)])])])
    assert len(text) < 10_000
    assert "script-src 'none'" in Parsed(text).policy().replace("&#x27;", "'")
    assert "<script" not in text


def test_sections_have_names_of_their_own() -> None:
    text = page("t", [Section(title, [Text("x")]) for title in ("Same", "Same", "find", "关机")], find="Find")
    assert re.findall(r'<section id="([^"]+)"', text) == ["same", "same-2", "find-2", "section"]
    assert sorted(re.findall(r'<a href="#([^"]+)"', text)) == ["find-2", "same", "same-2", "section"]


def test_a_table_row_is_as_long_as_its_headers() -> None:
    with pytest.raises(ValueError, match="zip"):
        page("t", [Section("s", [Table("rows", ["a", "b"], [("1",)])])])


def test_a_shared_x_is_written_once() -> None:
    curves = [Curve(str(number), [0, 1, 2], [1, 2, 3], {}) for number in range(3)]
    text = page("t", [Section("s", [Lines("c", "x", "y", [], curves)])])
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
    page_module.library.cache_clear()
    monkeypatch.setattr(page_module, "lacks", lambda extra: f"{extra} is missing")
    with pytest.raises(page_module.NoLibrary, match="report is missing"):
        page("t", [Section("s", [Areas("c", "y", [0], {"a": [0]}, {})])])
    page_module.library.cache_clear()
