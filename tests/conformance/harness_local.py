"""How to break the local platform, and put it right again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common import processes
from sweepstack.onbox.host.folder_platform import BOOT_DRILL, CREATE_DRILL, LocalPlatform
from sweepstack.onbox.host.platform import BoxRequest, Platform, VolumeRecord
from sweepstack.platforms.registry import load_platform
from tests.conformance.harness import FAULTS, created_at_once

CUT_DESTROY = """
import os, shutil, signal, sys
from sweepstack.platforms.registry import load_platform
real, calls = shutil.rmtree, []
def cut(path, *args, **kwargs):
    if str(sys.argv[1]) in str(path):
        calls.append(path)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    return real(path, *args, **kwargs)
shutil.rmtree = cut
load_platform(ADAPTER).destroy(sys.argv[1], sys.argv[2])
"""
CUT_STOP = """
import os, signal, sys
from sweepstack.onbox.host import box_folders
from sweepstack.platforms.registry import load_platform
def cut(folder):
    os.kill(os.getpid(), signal.SIGKILL)
box_folders.wipe = cut
load_platform(ADAPTER).stop(sys.argv[1], sys.argv[2])
"""
STOP_START = """
import sys
from sweepstack.onbox.host.platform import Wait
from sweepstack.platforms.registry import load_platform
from sweepstack.onbox.common import processes
from tests.conformance.harness import FAULTS, created_at_once
platform = load_platform(ADAPTER)
platform._grace = 0.1
for _ in range(int(sys.argv[4])):
    platform.stop(*sys.argv[1:3]) if sys.argv[3] == "stop" else platform.start(*sys.argv[1:3], wait=Wait(30))
"""


class Harness:
    """See `harness.Harness`. Its boxes are always real."""

    adapter = "local"
    host = True
    wire = False
    price = 0.25
    killed_by_stop = ("scratch",)
    kept_by_stop = ("data", "mnt/durable")
    secrets: tuple[str, ...] = ()
    plays: frozenset[tuple[str, str]] = frozenset()
    impossible = frozenset(FAULTS)  # nothing is between us and it

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: bool) -> None:
        self._patch = monkeypatch
        self._root = tmp_path / "sweepstack" / "local"
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        for drill in (BOOT_DRILL, CREATE_DRILL):
            monkeypatch.delenv(drill, raising=False)
        monkeypatch.setattr(processes, "SCAN_SECONDS", 0.005)

    @property
    def at(self) -> str:
        """What loads the adapter with its place."""
        return self.adapter

    def connect(self) -> LocalPlatform:
        """The adapter as the provider gets it, but less patient with processes."""
        platform = load_platform(self.adapter)
        assert isinstance(platform, LocalPlatform)
        platform._grace = 0.3
        return platform

    def request(self, tag: str, **changes: Any) -> BoxRequest:
        return BoxRequest(**{"tag": tag, "name": "box-0", "price_per_hour": self.price, **changes})

    def volume(self, platform: Platform, tag: str) -> VolumeRecord:
        return platform.ensure_volume(tag, "durable")

    def rentals(self) -> set[str]:
        boxes = self._root / "boxes"
        return {path.name for path in boxes.glob("[!.]*")}

    def doubled(self) -> dict[str, list[str]]:
        return {}

    def slow_boot(self, seconds: float) -> None:
        """New boxes take so long to be ready."""
        self._patch.setenv(BOOT_DRILL, str(seconds))

    def lose_answers(self) -> None:
        """Creates are carried out and their answers are lost."""
        self._patch.setenv(CREATE_DRILL, "lose-answer")

    def fail_late(self) -> None:
        """Creates are carried out and then reported as failed."""
        self._patch.setenv(CREATE_DRILL, "fail-after-create")

    def make_unreadable(self, native_id: str) -> None:
        """The platform still has the box, and answers nonsense about it."""
        (self._root / "boxes" / native_id / "box.json").write_bytes(b'{"schema": 1, "nat')

    def make_foreign(self) -> None:
        """Another account is at hand now."""
        self._edit_registry("zzzzzzzzzz")

    def cut_off(self) -> None:
        """The platform does not answer."""
        (self._root / "registry.json").rename(self._root / "registry.away")

    def remove_by_hand(self, native_id: str) -> None:
        """Another person or program ends the box; what runs on it may go on for a while."""
        shutil.rmtree(self._root / "boxes" / native_id)

    def repair(self) -> None:
        """Everything answers again, to its real account."""
        away = self._root / "registry.away"
        if away.exists():
            away.rename(self._root / "registry.json")
        saved = self._root / "registry.saved"
        if saved.exists():
            saved.rename(self._root / "registry.json")

    def create_at_once(self, request: BoxRequest, count: int) -> set[str]:
        """The ids that so many processes get for the same request at the same time."""
        return created_at_once(self.at, request, count, machines=True)

    def cut_destroy(self, native_id: str, account: str) -> None:
        """A destroy whose process is killed when a part of the box is gone."""
        self._cut(CUT_DESTROY, native_id, account)

    def cut_stop(self, native_id: str, account: str) -> None:
        """A stop whose process is killed when the box's processes have ended and its tiers are not wiped yet."""
        self._cut(CUT_STOP, native_id, account)

    def turn(self, native_id: str, account: str, what: str, times: int) -> subprocess.Popen[bytes]:
        """Another process that stops, or starts, the box again and again."""
        command = self._script(STOP_START, native_id, account, what, str(times))
        return subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE)

    def _cut(self, script: str, *words: str) -> None:
        assert subprocess.run(self._script(script, *words), env=os.environ, timeout=60).returncode == -9

    def _script(self, script: str, *words: str) -> list[str]:
        return [sys.executable, "-c", f"ADAPTER = {self.at!r}\n{script}", *words]

    def _edit_registry(self, identifier: str) -> None:
        file = self._root / "registry.json"
        shutil.copy(file, self._root / "registry.saved")
        file.write_text(json.dumps({**json.loads(file.read_text()), "id": identifier}))

    def close(self) -> None:
        """Its world is the test's folder."""
