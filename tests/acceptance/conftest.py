"""The prepared sweeps of the engine tests, and the boxes of the on-box tests."""

from __future__ import annotations

import pytest

from tests.engine.conftest import make_stack
from tests.onbox.conftest import box, make_box
from tests.onbox.test_disk import small_disk

__all__ = ["box", "make_box", "make_stack", "small_disk"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those of a whole stack drive the real engine."""
    for item in items:
        if item.nodeid.startswith("tests/acceptance/") and "stack" in item.path.stem:
            item.add_marker(pytest.mark.engine)
