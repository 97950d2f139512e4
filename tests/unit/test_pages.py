"""What the code and the tests cite is in the repository: a reader has nothing else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("bench", "components", "scripts", "sweepstack", "tests")
PAGE = re.compile(r"(?<![\w*{}])[\w./-]*[\w-]\.md\b")
ELSEWHERE = re.compile(r"\b(?:facts|trials)/|\bfacts §|(?<!/)\bshared/(?:facts|trials|seeds)\b")
MADE_UP = {"bench.md", "NOTES.md"}
"""What a command writes."""


def test_every_page_that_is_cited_is_there() -> None:
    there = {
        path.name for folder in (".", "docs", "docs/adr", "profiles", "tests") for path in (ROOT / folder).glob("*.md")
    }
    there |= {path.name for path in (ROOT / "tests").rglob("*.md")} | {
        path.name for path in (ROOT / "docs").rglob("*.md")
    }
    problems = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path == Path(__file__):
                continue
            text = path.read_text()
            cited = {page for page in PAGE.findall(text) if page.rpartition("/")[2] not in there} - MADE_UP
            cited |= set(ELSEWHERE.findall(text))
            problems += [f"{path.relative_to(ROOT)}: {page}" for page in sorted(cited)]
    assert problems == []


def test_the_changelog_has_a_short_entry_for_each_version() -> None:
    """It is merged by union: a branch of before a release brings back all lines that the release had folded."""
    _, *entries = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    names = [entry.splitlines()[0].split()[0] for entry in entries]
    again = "git checkout main -- CHANGELOG.md, then write your own lines under Unreleased once more"
    assert names == ["Unreleased", "0.1.0"], again
    lines = {name: len(entry.splitlines()) for name, entry in zip(names, entries, strict=True)}
    assert lines["Unreleased"] <= 150, again
    assert lines["0.1.0"] <= 60, again
    said = [line for entry in entries for line in entry.splitlines() if line.startswith("- ")]
    assert sorted({line for line in said if said.count(line) > 1}) == [], "a merge by union doubled lines: take one out"
