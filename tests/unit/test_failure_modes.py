"""docs/failure-modes.md is true: each id once, each test is there, and each page has the words."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from sweepstack.profiles.load import load_profile, platforms

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "failure-modes.md"
ROW = re.compile(r"^\| ([A-Z][A-Z0-9-]+) \| (.+?) \| (prevented|detected|told) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/.]+\.py)::(test_\w+)`")
TOLD = re.compile(r"(this page|`[\w/.-]+\.md`): \"([^\"]+)\"")
UNIVERSAL = [*(f"U{number}" for number in range(1, 45)), *(f"MN{number}" for number in range(1, 7))]
"""As they are cited in issues and notes: a number is never used again."""
PLATFORMS = [
    *(f"AD{number}" for number in range(1, 10)),
    "AD-DANGER",
    *(f"RP{number}" for number in range(1, 16)),
    *(f"VAST{number}" for number in range(1, 16)),
    *(f"LAM{number}" for number in range(1, 15)),
    *(f"PS{number}" for number in range(1, 13)),
]
"""Of the platforms whose failures are numbered further than their profile's eight gotchas."""


class Row(NamedTuple):
    """One failure of the page."""

    id: str
    what: str
    how: str
    where: str


@functools.cache
def rows() -> tuple[Row, ...]:
    return tuple(Row(*found.groups()) for found in ROW.finditer(PAGE.read_text(encoding="utf-8")))


@functools.cache
def names_in(path: str) -> frozenset[str]:
    """The tests that pytest collects of a file."""
    file = ROOT / path
    if not file.is_file() or not file.name.startswith("test_"):
        return frozenset()
    found = ast.parse(file.read_text(encoding="utf-8")).body
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef))


def flat(text: str) -> str:
    return " ".join(text.split())


def words_of(page: str) -> str:
    """What a page says; of this one, what stands below the tables: a row is no proof of itself."""
    if page == "this page":
        return flat(PAGE.read_text(encoding="utf-8").partition("## What is only told")[2])
    file = ROOT / page.strip("`")
    return flat(file.read_text(encoding="utf-8")) if file.is_file() else ""


def wrong(row: Row) -> str:
    """What does not hold of a row; "" where all does."""
    if row.how == "told":
        told = TOLD.findall(row.where)
        missing = [f"{page} lacks {words!r}" for page, words in told if flat(words) not in words_of(page)]
        return "no page" if not told else ", ".join(missing)
    named = TEST.findall(row.where)
    rest = TEST.sub("", row.where).strip(" ,")
    missing = [f"{path}::{name} is not there" for path, name in named if name not in names_in(path)]
    return "no test" if not named or rest else ", ".join(missing)


def test_every_line_of_a_table_is_a_row() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(lines) - sum(line.startswith("| id |") for line in lines) == len(rows())


def test_each_id_stands_there_once() -> None:
    twice = [name for name, count in Counter(row.id for row in rows()).items() if count > 1]
    assert twice == []


@pytest.mark.parametrize("name", platforms())
def test_each_gotcha_of_each_profile_stands_there(name: str) -> None:
    there = {row.id for row in rows()}
    missing = [gotcha.id for gotcha in load_profile(name).gotchas if gotcha.id not in there]
    assert missing == [], f"add a row to docs/failure-modes.md: prevented, detected or told, for {', '.join(missing)}"


def test_each_universal_and_each_numbered_platform_failure_stands_there() -> None:
    there = {row.id for row in rows()}
    assert [name for name in [*UNIVERSAL, *PLATFORMS] if name not in there] == []


def test_each_row_holds() -> None:
    found = {row.id: problem for row in rows() if (problem := wrong(row))}
    assert found == {}


@pytest.mark.parametrize(
    ("how", "where", "problem"),
    [
        ("prevented", "`tests/unit/test_failure_modes.py::test_that_is_not_there`", "is not there"),
        ("detected", "`tests/unit/test_absent.py::test_each_row_holds`", "is not there"),
        ("detected", "`tests/unit/test_failure_modes.py::test_each_row_holds`, and more", "no test"),
        ("prevented", 'this page: "Compress logs"', "no test"),
        ("told", 'this page: "words that stand nowhere below"', "lacks"),
        ("told", '`README.md`: "words that stand nowhere there"', "lacks"),
        ("told", "somewhere", "no page"),
    ],
)
def test_a_row_that_does_not_hold_is_found(how: str, where: str, problem: str) -> None:
    assert problem in wrong(Row("U1", "anything", how, where))
