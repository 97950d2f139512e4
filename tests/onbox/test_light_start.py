"""What a runner and an agent import before their first work: many images of pods have Python's library uncompiled, and
no right to keep it compiled, so each start pays for all of it anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HEAVY = {"dataclasses", "http.client", "inspect", "ssl", "statistics", "urllib.request"}
"""Of the standard library: a third of what a runner took to start."""


@pytest.mark.parametrize(
    "code",
    ["from sweepstack.onbox.runner import main, worker", "from sweepstack.onbox.agent import agent"],
    ids=["runner", "agent"],
)
def test_it_imports_little(code: str) -> None:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}; print(*sys.modules)"
    argv = [sys.executable, "-I", "-S", "-c", program]
    found = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    assert "json" in found
    assert not HEAVY & set(found)
