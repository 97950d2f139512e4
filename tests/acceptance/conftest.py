"""The prepared sweeps of the engine tests, and the boxes of the on-box tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.conftest import finished, finished_once, make_stack, verified, verified_once
from tests.onbox.conftest import box, make_box
from tests.onbox.test_disk import small_disk

__all__ = ["box", "finished", "finished_once", "make_box", "make_stack", "small_disk", "verified", "verified_once"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those of a whole stack drive the real engine."""
    for item in items:
        if Path(__file__).parent in item.path.parents and "stack" in item.path.stem:
            item.add_marker(pytest.mark.engine)
