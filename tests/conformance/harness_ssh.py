"""How to break a host of the user's own, and put it right again: a real sshd, and the folder that its boxes lie in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provider.platforms._local_drills import BOOT_DRILL, CREATE_DRILL
from provider.platforms.base import BoxRequest, Platform, VolumeRecord
from provider.platforms.registry import load_platform
from provider.platforms.ssh import SshPlatform
from tests.conformance.harness import FAULTS
from tests.simulators.host import Host
from tests.simulators.machines import require

CREATE = """
import json, sys
from provider.platforms.base import BoxRequest, Wait
from provider.platforms.registry import load_platform
print(load_platform(sys.argv[2]).create(BoxRequest(**json.loads(sys.argv[1])), wait=Wait(60)).native_id)
"""


class Harness:
    """See `harness.Harness`. Its boxes are always real."""

    adapter = "ssh"
    host = False
    wire = False
    price = 0.25
    killed_by_stop = ("scratch",)
    kept_by_stop = ("data", "mnt/durable")
    secrets: tuple[str, ...] = ()
    plays: frozenset[tuple[str, str]] = frozenset()
    impossible = frozenset(FAULTS)  # nothing answers there but our own code: what fails is the way to it (`cut_off`)

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: bool) -> None:
        require()
        self._host = Host(tmp_path / "host")
        self._root = self._host.home / ".local/share/sweepstack/local"
        self._connected: list[SshPlatform] = []
        monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(self._host.key))
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def connect(self) -> SshPlatform:
        """The adapter as the provider gets it, but less patient with processes."""
        platform = load_platform(f"ssh:{self._host.address}")
        assert isinstance(platform, SshPlatform)
        assert platform._caller is not None
        platform._caller.grace = 0.3
        self._connected.append(platform)
        return platform

    def request(self, tag: str, **changes: Any) -> BoxRequest:
        return BoxRequest(**{"tag": tag, "name": "box-0", "price_per_hour": self.price, **changes})

    def volume(self, platform: Platform, tag: str) -> VolumeRecord:
        return platform.ensure_volume(tag, "durable")

    def rentals(self) -> set[str]:
        boxes = self._root / "boxes"
        return set(os.listdir(boxes)) if boxes.is_dir() else set()

    def doubled(self) -> dict[str, list[str]]:
        return {}

    def slow_boot(self, seconds: float) -> None:
        """New boxes take so long to be ready."""
        self._drill(**{BOOT_DRILL: str(seconds)})

    def lose_answers(self) -> None:
        """Creates are carried out and their answers are lost."""
        self._drill(**{CREATE_DRILL: "lose-answer"})

    def fail_late(self) -> None:
        """Creates are carried out and then reported as failed."""
        self._drill(**{CREATE_DRILL: "fail-after-create"})

    def _drill(self, **environment: str) -> None:
        self._host.say(**environment)
        for platform in self._connected:  # an open session has the environment that it began with
            if platform._caller is not None:
                platform._caller.close()

    def make_unreadable(self, native_id: str) -> None:
        """The host still has the box, and its record is damaged."""
        (self._root / "boxes" / native_id / "box.json").write_bytes(b'{"schema": 1, "nat')

    def make_foreign(self) -> None:
        """Another host's folder is there now."""
        file = self._root / "registry.json"
        shutil.copy(file, self._root / "registry.saved")
        file.write_text(json.dumps({**json.loads(file.read_text()), "id": "zzzzzzzzzz"}))

    def cut_off(self) -> None:
        """The host does not answer."""
        self._host.stop()

    def remove_by_hand(self, native_id: str) -> None:
        """Somebody removes the box behind our back."""
        shutil.rmtree(self._root / "boxes" / native_id)

    def repair(self) -> None:
        """Everything answers again, from the real folder."""
        self._host.start()
        if self._host.environment:
            self._drill()
        saved = self._root / "registry.saved"
        if saved.exists():
            saved.rename(self._root / "registry.json")

    def create_at_once(self, request: BoxRequest, count: int) -> set[str]:
        """The ids that so many processes get for the same request at the same time."""
        asked = json.dumps({"tag": request.tag, "name": request.name, "price_per_hour": request.price_per_hour})
        command = [sys.executable, "-c", CREATE, asked, f"ssh:{self._host.address}"]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) for _ in range(count)]
        answers = [process.communicate(timeout=120)[0].decode().strip() for process in running]
        assert all(process.returncode == 0 for process in running)
        return set(answers)

    def close(self) -> None:
        """Its world is the test's folder; the host and what runs on it end."""
        self._host.stop()
