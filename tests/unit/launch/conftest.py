"""A box, made anew for each test and emptied of processes after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compiled import ship_compiled
from tests.unit.launch.support import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """No power is cut in these tests, so nothing is flushed here; and their cells do not fail late."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    ship_compiled(monkeypatch)
    monkeypatch.setattr("sweepstack.launch.first_step.SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("sweepstack.launch.first_step.POLL_SECONDS", 0.02)
    found = Site(tmp_path)
    yield found
    found.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For cells that fail: no word of theirs passes for a sign of life first, on however busy a machine."""
    monkeypatch.setattr("sweepstack.launch.first_step.SETTLE_SECONDS", 120.0)
