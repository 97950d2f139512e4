"""A page: what it escapes, what it allows, and that it loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from sweepstack.report.blocks import Block, Code, Facts, Html, Items, Section, Table, Text
from sweepstack.report.page import page

HOSTILE = "</script><script>alert(1)</script><!--\"'><img src=x onerror=alert(2)>\u2028\u202e$$x$$"


def every_block(text: str) -> list[Block]:
    """One of each block of texts, with `text` in each place for one."""
    return [
        Text(text, "bad"),
        Facts([(text, text)]),
        Items(text, [text]),
        Items(text, [text], folded=True),
        Code([text]),
        Table(text, [text, text], [(text, text)], mono=frozenset({1})),
        Table(text, [text], [(text,)], folded=True),
        Table(text, [text], [(text,)], marked=frozenset({0}), keys={0: [text]}),
    ]


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


def allowed(found: Parsed) -> set[str]:
    """The digests of the scripts that may run, where these are all that are there, and where no address is allowed."""
    scripts = [text for kind, text in found.scripts if kind == ""]
    digests = {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts}
    rules = dict(rule.strip().split(" ", 1) for rule in found.policy().split(";"))
    assert set(rules["script-src"].split()) == digests
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert "http" not in found.policy()
    assert not [one for tag, one in found.found if tag in ("link", "iframe", "object", "img") or "src" in one]
    return digests


def test_hostile_text_makes_no_element_and_no_script() -> None:
    plain, hostile = (
        Parsed(page(text, [Section(text, every_block(text))], subtitle=text)) for text in ("plain", HOSTILE)
    )
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in plain.found]
    assert [sorted(one) for _, one in hostile.found] == [sorted(one) for _, one in plain.found]
    assert hostile.scripts == []


def test_what_cannot_be_seen_is_spelled_out() -> None:
    assert "a\\u{202e}b" in page("t", [Section("s", [Text("a\u202eb")])])


def test_only_the_scripts_of_the_page_may_run() -> None:
    """The policy names the digest of each script, allows no other, and no address at all."""
    parts = [Section("s", [*every_block("x"), Html("<p>two</p>\n")])]
    text = page("t", parts, above="<p>one</p>\n", below="<p>three</p>\n", scripts=["first()", "second()"])
    assert len(allowed(Parsed(text))) == 2
    assert re.findall(r"<p>(one|two|three)</p>|(<main>|</main>|<script>)", text) == [
        ("one", ""),
        ("", "<main>"),
        ("two", ""),
        ("", "</main>"),
        ("three", ""),
        *[("", "<script>")] * 2,
    ]


def test_without_scripts_it_is_small_and_runs_nothing() -> None:
    text = page("t", [Section("s", [Text("x"), Table("rows", ["a"], [("1",)])])])
    assert len(text) < 10_000
    assert "script-src 'none'" in Parsed(text).policy().replace("&#x27;", "'")
    assert "<script" not in text


def test_sections_have_names_of_their_own() -> None:
    text = page("t", [Section(title, [Text("x")]) for title in ("Same", "Same", "find", "关机")])
    assert re.findall(r'<section id="([^"]+)"', text) == ["same", "same-2", "find-2", "section"]
    assert sorted(re.findall(r'<a href="#([^"]+)"', text)) == ["find-2", "same", "same-2", "section"]


def test_a_table_row_is_as_long_as_its_headers() -> None:
    with pytest.raises(ValueError, match="zip"):
        page("t", [Section("s", [Table("rows", ["a", "b"], [("1",)])])])
