"""The file as it is read: values as the engine takes them, and the line of everything."""

from __future__ import annotations

import pytest

from sweepstack.config.file import parse_document
from sweepstack.onbox.common.errors import ConfigError

TEXT = """\
a: {x: 1e-4, y: on, z: "0.1", n: 2027-01-31, t: True, m: ~, i: 0x1F, f: .5}
b:
  - 1
  - {q: 'true', w: -3}

c: &c {k: 1, j: 1}
d: {<<: *c, j: 2}
"""


def test_values_follow_the_core_schema() -> None:
    data = parse_document(TEXT, "f").data
    assert data["a"] == {"x": 1e-4, "y": "on", "z": "0.1", "n": "2027-01-31", "t": True, "m": None, "i": 31, "f": 0.5}
    assert data["b"] == [1, {"q": "true", "w": -3}]
    assert data["d"] == {"k": 1, "j": 2}


def test_lines_are_those_of_the_file() -> None:
    document = parse_document(TEXT, "f", first_line=10)
    assert document.line(("b", 1, "w")) == 13
    assert document.line(("d", "nothing")) == 16
    assert document.line(("nothing",)) == 10


def test_flaws_have_a_line() -> None:
    document = parse_document("a: 1\nb: !thing x\na: 2\n", "f")
    assert [(flaw.line, flaw.loc) for flaw in document.flaws] == [(2, ("b",)), (3, ("a",))]


def test_an_alias_that_contains_itself_is_refused() -> None:
    assert "contains itself" in parse_document("a: &a [*a]\n", "f").flaws[0].text


def test_two_documents_in_one_file_are_refused() -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        parse_document("a: 1\n---\nb: 2\n", "f")
