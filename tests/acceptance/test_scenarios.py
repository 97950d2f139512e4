"""Each acceptance scenario is played by a test of `make test` that carries its id, in its name or at the head of its
docstring."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = {
    "A01": "zero-byte checkpoint",
    "A02": "file present but does not load",
    "A03": "stale success log",
    "A04": "the queue says done, one cell never ran",
    "A05": "duplicate cell names",
    "A06": "zero aggregated cells",
    "A07": "durable sync fails, training exits 0",
    "A09": "receipt forged or stale",
    "B01": "SSH drop in the middle of a run",
    "B02": "box reclaimed in the middle of a cell",
    "B03": "resume with zero GPUs",
    "B04": "disk full by inodes",
    "B05": "disk fills in the middle of a queue",
    "B07": "script changed under a live run",
    "C01": "stop while unverified where it can't be undone",
    "C02": "a destroy that is eventually consistent",
    "C03": "a stopped box is released after days",
    "C04": "a stop does not stop the meter",
    "C06": "a replacement is also a delete",
}
BY_NAME = re.compile(r"^test_([abc]\d\d)_")
BY_WORDS = re.compile(r"^(?:Scenario )?([ABC]\d\d)\b")
ANYWHERE = re.compile(r"def test_[abc]\d\d_|\b[ABC]\d\d\b")
"""In a file that need not be read as Python there is neither."""


@functools.cache
def carried() -> dict[str, list[str]]:
    """Id → the tests of `make test` that carry it."""
    found: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body if ANYWHERE.search(text) else ():
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            if "pytest.mark.proof" in map(ast.unparse, node.decorator_list):
                continue
            name = BY_NAME.match(node.name)
            words = BY_WORDS.match(ast.get_docstring(node) or "")
            for match in filter(None, (name, words)):
                found.setdefault(match[1].upper(), []).append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def test_each_scenario_has_its_test() -> None:
    found = carried()
    assert [f"{name}: {what}" for name, what in SCENARIOS.items() if name not in found] == []


def test_no_test_carries_an_id_that_is_none() -> None:
    assert {name: tests for name, tests in carried().items() if name not in SCENARIOS} == {}
