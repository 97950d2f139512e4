"""An instance of the simulated vast.ai that is a real machine: what survives what, reached over its own sshd."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulators import machines
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.vastai import Machine, VastSimulator
from tests.simulators.vastai_fixtures import START, offer_of, rent, sdk, until

DURABLE = "/sweepstack/mnt/durable"
RUN_SECONDS = 120.0


class Login:
    """A key pair of a person, and plain ssh to where an instance's row says."""

    def __init__(self, folder: Path) -> None:
        self.key = folder / "id"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        self.public = self.key.with_suffix(".pub").read_text().strip()

    def try_(self, row: dict[str, Any], script: str) -> subprocess.CompletedProcess[str]:
        settings = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
        options = [word for setting in settings for word in ("-o", setting)]
        port = row["ports"]["22/tcp"][0]["HostPort"]
        where = ["-p", port, f"root@{row['public_ipaddr'].strip()}"]
        command = ["ssh", "-F", "/dev/null", "-i", str(self.key), *options, *where, script]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    def ask(self, row: dict[str, Any], script: str) -> str:
        done = self.try_(row, script)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def login(tmp_path: Path) -> Login:
    machines.require()
    return Login(tmp_path)


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[VastSimulator]:
    machines.require()
    sim = VastSimulator(clock=VirtualClock(START), state=tmp_path / "vast", machines=True)
    sim.add_account("ann")
    sim.world.market.add(Machine(1, 11, gpus=2))
    sim.act("set", {"boot_reads": 0, "stop_reads": 0, "start_reads": 0, "destroy_reads": 0})
    with SimServer(sim):
        yield sim
        sim.check()


@pytest.fixture
def ann(sim: VastSimulator) -> Any:
    return sdk(sim)


def test_a_key_of_the_account_logs_in_and_another_needs_to_be_attached(ann: Any, login: Login, tmp_path: Path) -> None:
    ann.create_ssh_key(login.public)
    number = rent(ann, gpus=2)
    row = until(ann, number, "running")
    assert login.ask(row, "whoami; nvidia-smi -L | wc -l").split() == ["root", "2"]
    (tmp_path / "other").mkdir()
    other = Login(tmp_path / "other")
    assert other.try_(row, "true").returncode == 255
    ann.attach_ssh(number, other.public)
    assert other.ask(row, "echo in") == "in"
    ann.detach_ssh(number, "1")
    assert login.try_(row, "true").returncode == 255


def test_the_disk_outlives_a_stop_and_not_a_recycle_and_the_volume_outlives_all(
    sim: VastSimulator, ann: Any, login: Login
) -> None:
    ann.create_ssh_key(login.public)
    volume = int(ann.create_volume(offer_of(ann, 1)["avail_vol_ask_id"], size=10)["volume_name"].removeprefix("V."))
    number = rent(ann, gpus=1, link_volume=volume, mount_path=DURABLE)
    row = until(ann, number, "running")
    login.ask(row, f"echo d > /workspace/disk; echo v > {DURABLE}/volume; setsid sleep 600 > /dev/null 2>&1 &")
    ann.stop_instance(number)
    until(ann, number, "exited")
    assert login.try_(row, "true").returncode == 255, "stopped: nothing answers there"
    ann.start_instance(number)
    again = until(ann, number, "running")
    assert again["ports"] != row["ports"], "a new port"
    assert login.ask(again, f"cat /workspace/disk {DURABLE}/volume; pgrep -c sleep || true").split() == ["d", "v", "0"]
    ann.recycle_instance(number)
    again = until(ann, number, "running")
    assert login.ask(again, f"ls /workspace; cat {DURABLE}/volume") == "v"
    login.ask(again, "echo d > /workspace/disk")
    ann.update_instance(number, image="other:1")
    again = until(ann, number, "running")
    assert login.ask(again, f"ls /workspace; cat {DURABLE}/volume") == "v"
    ann.destroy_instance(number)
    assert login.try_(again, "true").returncode == 255
    sim.clock.advance(31)
    second = rent(ann, gpus=1, link_volume=volume, mount_path="/data")
    row = until(ann, second, "running")
    assert login.ask(row, "cat /data/volume; ls /workspace") == "v"


def test_a_reboot_keeps_the_disk_and_may_keep_the_port(sim: VastSimulator, ann: Any, login: Login) -> None:
    ann.create_ssh_key(login.public)
    number = rent(ann, gpus=1)
    row = until(ann, number, "running")
    login.ask(row, "echo d > /workspace/disk")
    sim.act("set", {"new_ports": False})
    ann.reboot_instance(number)
    again = until(ann, number, "running")
    assert again["ports"] == row["ports"]
    assert login.ask(again, "cat /workspace/disk") == "d"


def test_onstart_runs_at_each_start_with_the_variables_that_a_session_lacks(ann: Any, login: Login) -> None:
    ann.create_ssh_key(login.public)
    number = rent(ann, gpus=1, env={"WORD": "hello"}, onstart_cmd='echo "$WORD" >> /root/said')
    for starts in (1, 2):
        row = until(ann, number, "running")
        ends = time.monotonic() + RUN_SECONDS
        while login.ask(row, "wc -l < /root/said || echo 0").strip() != str(starts):
            assert time.monotonic() < ends, "onstart did not run"
            time.sleep(0.05)
        assert login.ask(row, 'tail -n 1 /root/said; echo "[$WORD]"').split() == ["hello", "[]"]
        if starts == 1:
            ann.reboot_instance(number)


def test_the_host_goes_and_the_disk_comes_back_with_it(sim: VastSimulator, ann: Any, login: Login) -> None:
    ann.create_ssh_key(login.public)
    number = rent(ann, gpus=1)
    row = until(ann, number, "running")
    login.ask(row, "echo d > /workspace/disk")
    sim.act("offline", {"machine": 1})
    assert login.try_(row, "true").returncode == 255
    sim.act("online", {"machine": 1})
    assert login.ask(until(ann, number, "running"), "cat /workspace/disk") == "d"


def test_an_outbid_machine_dies_without_notice_and_keeps_its_disk(sim: VastSimulator, ann: Any, login: Login) -> None:
    ann.create_ssh_key(login.public)
    number = rent(ann, gpus=1, price=0.25)
    row = until(ann, number, "running")
    login.ask(row, "echo d > /workspace/disk; trap 'echo notice >> /workspace/disk' TERM; sleep 600 > /dev/null 2>&1 &")
    sim.act("outbid", {"id": number})
    assert login.try_(row, "true").returncode == 255
    ann.change_bid(number, 1.0)
    assert login.ask(until(ann, number, "running"), "cat /workspace/disk") == "d"
