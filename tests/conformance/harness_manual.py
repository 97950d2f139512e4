"""How to break the platform of boxes that a person runs, and put it right again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.onbox.host.platform import Phase
from tests.conformance import harness_local


class Harness(harness_local.Harness):
    """See `harness.Harness`. It has no volumes: what outlives a box is the folder that a person brings back."""

    host = False
    spawns = False  # a person starts what runs there: nothing that asks for a process has a meaning

    removed = Phase.UNKNOWN  # a person's session may go on without the folder that is here

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: bool) -> None:
        super().__init__(tmp_path, monkeypatch, machines)
        self._root = tmp_path / "sweepstack" / "manual"
        self.adapter = f"manual:{tmp_path / 'returned'}"
        (tmp_path / "returned").mkdir()
