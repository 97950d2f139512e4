"""A box behind a real sshd, and what the program would tell its queue: the same site as on this machine."""

from __future__ import annotations

import socket
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweepstack.channel.ssh import link as ssh_link
from sweepstack.channel.ssh.channel import SshChannel
from sweepstack.channel.ssh.keys import SshKey
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.host.platform import BoxRecord, Phase
from tests.simulators.machines import Machine
from tests.unit.launch.support import IDENTITY, TRAIN, Site


class SshSite(Site):
    """The job's control folder is bound into the machine, and its volume; nothing else of this machine is there."""

    def __init__(self, folder: Path, name: str = "box-0") -> None:
        self.folder, self.name = folder, name
        self.volume = "volume-0"
        content = folder / "platform" / "volumes" / self.volume / "content"
        self.control, self.job = folder / "control", folder / "job"
        for made in (content, self.control, self.job):
            made.mkdir(parents=True)
        (self.job / "train.sh").write_text(TRAIN)
        self.store = EvidenceStore.found(
            f"file://{socket.gethostname()}{folder / 'evidence'}", IDENTITY, "project", "sweep-t"
        )
        key = folder / "id"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        self.key = SshKey(" ".join(key.with_suffix(".pub").read_text().split()[:2]), key, "the test")
        self.machine = Machine.start(
            name,
            keep=folder / "machine",
            authorized_keys=[self.key.public],
            durable=content,
            binds={str(self.control): self.control},
        )
        self.root = self.machine.disk / "sweepstack"
        self.native_id = "pod-1"
        self.record = BoxRecord(
            self.native_id, box_layout.box_tag(IDENTITY, name, 1), "acc", Phase.RUNNING, 0.5, datetime.now(UTC), "there"
        )
        self.store.write_birth(self.birth())
        self.said: list[str] = []
        self.channel = self.connect()  # type: ignore[assignment]  # a channel is a channel

    def birth(self, **changes: Any) -> Any:
        return super().birth(**{"platform": "ssh", **changes})

    def connect(self) -> SshChannel:
        """As another command would: with connections of its own."""
        endpoint = SshEndpoint(self.machine.host, self.machine.port, start="1")
        mounts = {box_layout.DURABLE: f"/sweepstack/{box_layout.DURABLE}"}
        return SshChannel(self.native_id, endpoint, mounts=mounts, key=self.key, host_keys=self.folder / "pins")

    def close(self) -> None:
        self.release()
        self.channel.close()  # type: ignore[attr-defined]
        self.machine.kill()


class Asked:
    """Counts what is asked of agents while it is installed."""

    def __init__(self, monkeypatch: Any) -> None:
        self.verbs: Counter[str] = Counter()
        before = ssh_link.Link.request

        def request(link: ssh_link.Link, verb: str, **words: Any) -> None:
            self.verbs[verb] += 1
            before(link, verb, **words)

        monkeypatch.setattr(ssh_link.Link, "request", request)

    @property
    def total(self) -> int:
        return self.verbs.total()
