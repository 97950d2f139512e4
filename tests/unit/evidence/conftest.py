"""A sweep in a temporary folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.evidence.world import World


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fsync does shows only after a power cut, and thousands of them take half a minute."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three cells on one box, nothing run yet."""
    return World(tmp_path)
