"""One stage for all plans of a test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.stage import Stage


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """See `Stage`."""
    with Stage() as made:
        yield made
