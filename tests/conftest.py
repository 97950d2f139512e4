"""For all tests."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

LONGEST = ("week", "rented", "engine", "chaos", "acceptance", "drill", "s3", "onbox", "fuzz")
"""Folders whose files take half a minute and more. What is not named here takes seconds."""


def pytest_configure() -> None:
    """Gives commands that tests start the default of Ctrl-C: under `nohup … &` it is ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers, the longest files first: one that begins last leaves the other cores idle for minutes."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    tests = Counter(item.path for item in items)
    here = Path(__file__).parent

    def place(item: pytest.Item) -> tuple[int, int]:
        folder = item.path.relative_to(here).parts[0] if here in item.path.parents else ""
        rank = LONGEST.index(folder) if folder in LONGEST else len(LONGEST)
        return rank, -tests[item.path]

    items.sort(key=place)
