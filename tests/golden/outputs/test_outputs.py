"""What the commands say at each moment of a golden sweep is what was said before, to the letter."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.outputs.moments import MOMENTS
from tests.golden.outputs.texts import TEXTS

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NAMES = (*MOMENTS, *TEXTS)
ACCEPT = "python -m tests.golden.outputs"
# In make proof; in make test the moments beside them, at which most of the same lines are said.
SELDOM = ("stopped", "hung")


@pytest.fixture(scope="module")
def said(request: pytest.FixtureRequest) -> dict[str, str]:
    """File → its text now, of those that this run compares."""
    asked = [
        one.callspec.params["name"]
        for one in request.session.items
        if one.path == Path(__file__) and hasattr(one, "callspec")
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.golden.outputs", "--show", *asked]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.proof] if name in SELDOM else []) for name in NAMES]
)
def test_the_commands_say_what_they_said(said: dict[str, str], name: str) -> None:
    path = HERE / f"{name}.txt"
    lines = [text.splitlines() for text in (path.read_text(encoding="utf-8"), said[name])]
    diff = list(difflib.unified_diff(*lines, f"{name}.txt", "now", lineterm="", n=4))
    if diff:
        shown = "\n".join(diff)
        pytest.fail(f"if this is wanted: {ACCEPT}, and list it in the commit\n{shown}", pytrace=False)


def test_no_file_is_left_of_what_is_shown_no_more() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == set(NAMES)
