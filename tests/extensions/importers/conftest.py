"""A project without a stack, in which a person types."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extensions.importers.support import project


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its folder: commands are typed there, by no terminal."""
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    return tmp_path
