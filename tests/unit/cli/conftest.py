from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.read_here import reads_here
from tests.simulators.rental import key_variables
from tests.unit.cli.support import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    """A project with one stack, evidence, and no box yet. No power is cut in these tests, so nothing is flushed; and
    copies are read in this process, but for those of test_pull_verify.py."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(os, "fsync", lambda _: None)
    reads_here(monkeypatch)
    return World(tmp_path, monkeypatch, capsys)


@pytest.fixture
def no_rental_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key of any is at hand."""
    for name in key_variables():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
