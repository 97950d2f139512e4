"""How to break the platform of boxes that a person runs, and put it right again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sweepstack.onbox.host.platform import BoxRequest, Phase
from tests.conformance import harness_local
from tests.conformance.harness import created_at_once


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

    def create_at_once(self, request: BoxRequest, count: int) -> set[str]:
        return created_at_once(self.adapter, request, count, machines=True)

    def cut_destroy(self, native_id: str, account: str) -> None:
        self._cut(harness_local.CUT_DESTROY, native_id, account)

    def cut_stop(self, native_id: str, account: str) -> None:
        self._cut(harness_local.CUT_STOP, native_id, account)

    def turn(self, native_id: str, account: str, what: str, times: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", self._of(harness_local.STOP_START), native_id, account, what, str(times)]
        return subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE)

    def _cut(self, script: str, native_id: str, account: str) -> None:
        command = [sys.executable, "-c", self._of(script), native_id, account]
        assert subprocess.run(command, env=os.environ, timeout=60).returncode == -9

    def _of(self, script: str) -> str:
        return script.replace('"local"', repr(self.adapter))

    def remove_by_hand(self, native_id: str) -> None:
        shutil.rmtree(self._root / "boxes" / native_id)
