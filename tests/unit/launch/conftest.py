"""A box, made anew for each test and emptied of processes after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.launch.support import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """No power is cut in these tests, so nothing is flushed here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    found = Site(tmp_path)
    yield found
    found.close()
