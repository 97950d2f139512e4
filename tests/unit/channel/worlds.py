"""A box behind each kind of channel, as the same tests see it: on this machine, and on one that is reached by SSH."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweepstack.channel.ssh.channel import SshChannel
from sweepstack.channel.ssh.keys import SshKey
from sweepstack.onbox.agent.channel import Channel, SshEndpoint
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import processes
from tests.simulators.machines import Machine

FOLDERS = ("scratch", "data/sweep", "mnt")


class World:
    """`root`, `volume`: the box's tree and its volume, as folders of this machine. `secret`: a file outside, where a
    link of the box would find it; `secret_here` is the same file."""

    channel: Channel
    root: Path
    volume: Path
    secret: Path
    secret_here: Path

    def sh(self, *argv: str) -> subprocess.CompletedProcess[bytes]:
        """Runs something on the box, past the channel."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing runs there any more."""


class LocalWorld(World):
    def __init__(self, folder: Path) -> None:
        self.native_id = f"local-test{os.getpid()}"  # its own in each worker: they share the machine
        self.root, self.volume = folder / "box", folder / "volume"
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True)
        self.volume.mkdir()
        os.symlink(self.volume, self.root / "mnt" / "durable")
        self.secret = self.secret_here = folder / "secret"
        self.secret.write_bytes(b"secret")
        self.channel = LocalChannel(self.native_id, self.root, {"mnt/durable": self.volume})

    def sh(self, *argv: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(argv, capture_output=True, timeout=120)

    def close(self) -> None:
        for process in processes.of_box(self.native_id):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


class SshWorld(World):
    """A machine that several tests share: `fresh` gives each of them an empty tree."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        key = folder / "id"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        self.key = SshKey(" ".join(key.with_suffix(".pub").read_text().split()[:2]), key, "the test")
        self.folder, self.volume = folder, folder / "volume"
        self.volume.mkdir()
        self.machine = Machine.start(
            "box-0", keep=folder / "machine", authorized_keys=[self.key.public], durable=self.volume, **settings
        )
        self.root = self.machine.disk / "sweepstack"
        self.secret, self.secret_here = Path("/root/secret"), self.machine.disk / "root" / "secret"
        self.channel: SshChannel = self.connect()
        self.fresh()

    def connect(self, **changes: Any) -> SshChannel:
        """Another channel to the same box."""
        mounts = {"mnt/durable": "/sweepstack/mnt/durable"}
        known = {"key": self.key, "mounts": mounts, "host_keys": self.folder / "host-keys", **changes}
        endpoint = SshEndpoint(self.machine.host, self.machine.port, start=str(known.pop("start", "1")))
        return SshChannel("test-box", endpoint, **known)

    def fresh(self) -> None:
        for folder in (self.volume, self.root):
            for path in folder.iterdir():
                if path.name == "mnt":
                    continue
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self.secret_here.write_bytes(b"secret")

    def sh(self, *argv: str) -> subprocess.CompletedProcess[bytes]:
        return self.machine.run(*argv)

    def still(self) -> None:
        """Ends what the last test left running on the box."""
        found = "grep -lz SWEEPSTACK_BOX_ID=test-box /proc/[0-9]*/environ 2>/dev/null"
        script = f"{found} | while IFS=/ read -r _ _ pid _; do kill -9 $pid; done"
        self.machine.run("bash", "-c", script)

    def close(self) -> None:
        self.channel.close()
        self.machine.kill()


def words(processes_seen: Sequence[Any]) -> list[tuple[str, ...]]:
    return [process.argv for process in processes_seen]
