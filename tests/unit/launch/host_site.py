"""A box on a host of the user's own, behind a real sshd, and what the program would tell its queue."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.host.platform import BoxRequest, Wait
from sweepstack.platforms.registry import load_platform
from sweepstack.platforms.ssh.platform import SshPlatform
from tests.simulators.host import Host
from tests.unit.launch.support import IDENTITY, TRAIN, Site


class HostSite(Site):
    """The same site as on this machine, but everything goes through the sshd. `request`: more of what the box is."""

    def __init__(self, folder: Path, monkeypatch: Any, name: str = "box-0", **request: Any) -> None:
        self.folder, self.name = folder, name
        self.host = Host(folder / "host")
        self.host.say(PATH=f"{Path(sys.prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin")
        monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(self.host.key))
        self.hosted = load_platform(f"ssh:{self.host.address}")
        assert isinstance(self.hosted, SshPlatform)
        self.store = EvidenceStore.found(
            f"file://{socket.gethostname()}{folder / 'evidence'}", IDENTITY, "project", "sweep-t"
        )
        self.control, self.job = folder / "control", folder / "job"
        for made in (self.control, self.job):
            made.mkdir()
        (self.job / "train.sh").write_text(TRAIN)
        self.record = self.hosted.create(
            BoxRequest(box_layout.box_tag(IDENTITY, name, 1), name, 0.0, **request), wait=Wait(120)
        )
        self.native_id = self.record.native_id
        self.root = self.host.home / ".local/share/sweepstack/local/boxes" / self.native_id
        self.store.write_birth(self.birth(platform="ssh"))
        self.said: list[str] = []
        self.channel = self.hosted.channel(self.native_id, self.record.account)  # type: ignore[assignment]

    def close(self) -> None:
        super().close()
        self.channel.close()  # type: ignore[attr-defined]
        self.host.stop()
