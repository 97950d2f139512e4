"""How to break a host of the user's own, and put it right again: a real sshd, and the folder that its boxes lie in."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.onbox.host.folder_platform import BOOT_DRILL, CREATE_DRILL
from sweepstack.platforms.registry import load_platform
from sweepstack.platforms.ssh.platform import SshPlatform
from tests.conformance import harness_local
from tests.simulators.host import Host
from tests.simulators.machines import require


class Harness(harness_local.Harness):
    """See `harness.Harness`. What lies on the host is what lies on this machine elsewhere; the way to it is its own."""

    adapter = "ssh"
    host = False

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: bool) -> None:
        require()
        super().__init__(tmp_path, monkeypatch, machines)
        self._host = Host(tmp_path / "host")
        self._root = self._host.home / ".local/share/sweepstack/local"
        self._connected: list[SshPlatform] = []
        monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(self._host.key))

    @property
    def at(self) -> str:
        return f"{self.adapter}:{self._host.address}"

    def connect(self) -> SshPlatform:  # type: ignore[override]
        """The adapter as the provider gets it, but less patient with processes."""
        platform = load_platform(self.at)
        assert isinstance(platform, SshPlatform)
        assert platform._caller is not None
        platform._caller.grace = 0.3
        self._connected.append(platform)
        return platform

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

    def cut_off(self) -> None:
        """The host does not answer."""
        self._host.stop()

    def repair(self) -> None:
        """Everything answers again, from the real folder."""
        self._host.start()
        if self._host.environment:
            self._drill()
        super().repair()

    def close(self) -> None:
        """Its world is the test's folder; the host and what runs on it end."""
        self._host.stop()
