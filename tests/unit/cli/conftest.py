from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.cli.support import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    """A project with one stack, evidence, and no box yet. No power is cut in these tests, so nothing is flushed."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return World(tmp_path, monkeypatch, capsys)
