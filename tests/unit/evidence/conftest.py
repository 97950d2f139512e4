"""A sweep in a temporary folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.evidence.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three cells on one box, nothing run yet."""
    return World(tmp_path)
