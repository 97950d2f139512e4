"""What a machine needs before a runner starts on it, where nothing of ours is in its image: real machines and sshds."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweepstack.extensions.lambda_api import channel as lambda_api
from sweepstack.extensions.paperspace_api import channel as paperspace_api
from sweepstack.extensions.paperspace_api.login_script import login_script
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


def test_paperspace_s_startup_script_lets_the_key_in_and_makes_the_tiers(machine: Machine, public_key: str) -> None:
    """Nothing else makes them: a create that was cancelled did not."""
    add_user(machine, "paperspace")
    box = record(machine, "paperspace")
    assert "Permission denied" in paperspace_api.why_silent(box)
    for _ in range(2):  # at each boot
        done = machine.run("sh", "-c", login_script(public_key)[1])
        assert done.returncode == 0, done.stderr
    use(paperspace_api.channel_to(box), machine)
    assert paperspace_api.why_silent(box) == ""


@pytest.mark.parametrize("cancelled", [True, False])
def test_lambda_s_first_boot_or_our_first_look_makes_the_tiers(
    machine: Machine, public_key: str, cancelled: bool
) -> None:
    add_user(machine, "ubuntu")
    (machine.disk / "home/ubuntu/.ssh").mkdir()
    (machine.disk / "home/ubuntu/.ssh/authorized_keys").write_text(public_key)  # Lambda does that
    box = record(machine, "ubuntu")
    if cancelled:
        for argv in yaml.safe_load(lambda_api.FIRST_BOOT)["runcmd"]:
            done = machine.run(*argv)
            assert done.returncode == 0, done.stderr
    else:
        assert lambda_api.why_silent(box) == ""
    use(lambda_api.channel_to(box), machine)
