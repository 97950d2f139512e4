"""A machine with nothing of ours in its image, and its sshd: what it needs before a runner starts on it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.host.platform import BoxRecord, Phase
from tests.simulators.machines import Machine

TIERS = ("data", "scratch", "mnt/durable")


@pytest.fixture
def public_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(tmp_path / "id_ed25519"))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "id_ed25519")], check=True)
    return (tmp_path / "id_ed25519.pub").read_text().strip()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Machine.start("fresh", keep=tmp_path / "machine") as started:
        yield started


def add_user(machine: Machine, name: str) -> None:
    """As the platform's image has it."""
    for file, line in {
        "passwd": f"{name}:x:1777:1777::/home/{name}:/bin/bash",
        "group": f"{name}:x:1777:",
        "shadow": f"{name}:*:19000:0:99999:7:::",
    }.items():
        with (machine.disk / "etc" / file).open("a") as handle:
            handle.write(f"{line}\n")
    assert machine.run("install", "-d", "-o", name, "-g", name, f"/home/{name}").returncode == 0


def record(machine: Machine, user: str) -> BoxRecord:
    endpoint = SshEndpoint(machine.host, machine.port, user, start="1")
    return BoxRecord(f"fresh-{user}", "tag", "me", Phase.RUNNING, 1.0, None, "here", endpoint=endpoint)


def use(channel: Any, machine: Machine) -> None:
    """The tiers are there, and can be written over SSH."""
    for tier in TIERS:
        assert (machine.disk / channel.absolute(tier).lstrip("/")).is_dir()
        channel.write(f"{tier}/kept", b"bytes")
        assert channel.read(f"{tier}/kept") == b"bytes"
    channel.close()
