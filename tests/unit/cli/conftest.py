from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.support import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    """A project with one stack, evidence, and no box yet."""
    monkeypatch.setenv("NO_COLOR", "1")
    return World(tmp_path, monkeypatch, capsys)
