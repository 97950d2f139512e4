"""A machine of the tests is one: it sees nothing of the host, dies whole, and keeps what its tiers keep."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulators import machines
from tests.simulators.machines import Machine

ROOT = Path(__file__).resolve().parents[2]


class Login:
    """A key pair, and plain ssh with it."""

    def __init__(self, folder: Path) -> None:
        self.key = folder / "id"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        self.public = self.key.with_suffix(".pub").read_text()

    def argv(self, machine: Machine, *more: str) -> list[str]:
        settings = ["BatchMode=yes", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={self._known(machine)}"]
        options = [word for setting in settings for word in ("-o", setting)]
        where = ["-p", str(machine.port), f"{machine.user}@{machine.host}"]
        return ["ssh", "-F", "/dev/null", "-i", str(self.key), *options, *where, *more]

    def run(self, machine: Machine, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.argv(machine, script), capture_output=True, text=True, timeout=120)

    def ask(self, machine: Machine, script: str) -> str:
        done = self.run(machine, script)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _known(self, machine: Machine) -> Path:
        path = self.key.with_name(f"known-{machine.name}")
        path.write_text(f"[{machine.host}]:{machine.port} {machine.host_key}\n")
        return path


@pytest.fixture
def login(tmp_path: Path) -> Login:
    machines.require()
    return Login(tmp_path)


@pytest.fixture
def start(tmp_path: Path, login: Login) -> Iterator[Callable[..., Machine]]:
    started: list[Machine] = []

    def make(name: str = "box-0", **more: object) -> Machine:
        settings = {"keep": tmp_path / name, "authorized_keys": [login.public], **more}
        started.append(Machine.start(name, **settings))  # type: ignore[arg-type]
        return started[-1]

    yield make
    for machine in started:
        machine.kill()


def until(what: Callable[[], bool], seconds: float = 120) -> None:
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_it_is_a_machine_of_its_own(start: Callable[..., Machine], login: Login, tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    machine = start(env={"PLATFORM_SAYS": "two words"}, durable=tmp_path / "volume")
    assert login.ask(machine, "hostname; pwd; id -u; echo $HOME").split("\n") == ["box-0", "/root", "0", "/root"]
    assert "PLATFORM_SAYS=two words" in login.ask(machine, r"tr '\0' '\n' < /proc/1/environ")
    assert login.ask(machine, "echo $PLATFORM_SAYS") == ""
    assert login.ask(machine, f"ls -d {ROOT} {tmp_path} {sys.prefix} 2>/dev/null; true") == ""
    assert int(login.ask(machine, "ps -e | wc -l")) < 15
    login.ask(machine, "echo kept > /sweepstack/mnt/durable/file; echo x > /sweepstack/file; echo y > /tmp/file")
    assert (tmp_path / "volume" / "file").read_text() == "kept\n"
    assert not Path("/sweepstack/file").exists()
    login.ask(machine, "touch /usr/local/bin/installed /etc/written")
    assert not Path("/usr/local/bin/installed").exists()
    assert not Path("/etc/written").exists()
    assert login.run(machine, "command -v nvidia-smi").returncode != 0


def test_it_dies_whole(start: Callable[..., Machine], login: Login) -> None:
    machine = start()
    login.ask(
        machine,
        "setsid sleep 1000 >/dev/null 2>&1 & tmux new-session -d 'sleep 2000'; nohup sleep 3000 >/dev/null 2>&1 &",
    )
    names = lambda: login.ask(machine, "ps -eo args=")  # noqa: E731
    until(lambda: all(f"sleep {n}000" in names() for n in (1, 2, 3)))
    pids = machine.pids()
    assert len(pids) >= 5
    machine.stop()
    machine.stop()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    with socket.socket() as probe:
        assert probe.connect_ex((machine.host, machine.port)) != 0


def test_what_a_stop_keeps_and_a_wipe_does_not(start: Callable[..., Machine], login: Login, tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    machine = start(durable=tmp_path / "volume", gpus=2)
    assert login.ask(machine, "nvidia-smi -L | wc -l") == "2"
    assert login.ask(machine, "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | wc -l") == "2"
    login.ask(machine, "echo 1 > /sweepstack/scratch; echo 1 > /sweepstack/mnt/durable/kept")
    port, key = machine.port, machine.host_key
    machine.restart(gpus=0)
    assert (machine.port, machine.host_key) == (port, key)
    assert login.ask(machine, "cat /sweepstack/scratch; command -v nvidia-smi; true") == "1"
    machine.restart(new_port=True)
    assert machine.port != port
    with pytest.raises(AssertionError, match="stop it first"):
        machine.wipe()
    machine.stop()
    machine.wipe()
    machine.restart()
    assert machine.host_key not in ("", key)
    assert login.ask(machine, "ls /sweepstack; cat /sweepstack/mnt/durable/kept").split() == ["mnt", "1"]


def test_it_ends_when_the_test_is_killed(login: Login, tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import sys, threading, time
        from pathlib import Path
        from tests.simulators.machines import Machine
        made = []
        start = lambda: made.append(Machine.start("box-0", keep=Path({str(tmp_path / "box")!r})))
        thread = threading.Thread(target=start)
        thread.start(); thread.join()  # a machine outlives the thread that made it
        time.sleep(0.3)
        print(*made[0].pids(), flush=True)
        time.sleep(300)
    """)
    test = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE)
    assert test.stdout is not None
    pids = [int(word) for word in test.stdout.readline().split()]
    assert len(pids) >= 2
    test.send_signal(signal.SIGKILL)
    test.wait()
    test.stdout.close()
    until(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()])


def test_connections_are_cut_counted_and_fall_silent(start: Callable[..., Machine], login: Login) -> None:
    machine = start()
    gateway = machine.gateway
    assert gateway is not None
    before = gateway.from_machine
    assert len(login.ask(machine, "head -c 3000000 /dev/zero | tr '\\0' x")) == 3_000_000
    assert gateway.from_machine - before > 3_000_000
    gateway.cut_after(1_000_000)
    cut = login.run(machine, "head -c 3000000 /dev/zero | tr '\\0' x")
    assert cut.returncode == 255
    assert len(cut.stdout) < 2_500_000
    assert login.ask(machine, "echo again") == "again"
    gateway.silence()
    waiting = subprocess.Popen(login.argv(machine, "echo late"), stdout=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(1)
    gateway.silence(False)
    assert waiting.communicate(timeout=120)[0] == b"late\n"
    sleeper = subprocess.Popen(login.argv(machine, "echo up; sleep 300"), stdout=subprocess.PIPE)
    assert sleeper.stdout is not None
    assert sleeper.stdout.readline() == b"up\n"
    machine.drop_sessions()
    assert sleeper.wait(120) == 255
    sleeper.stdout.close()
    assert b"sleep 300" in machine.run("ps", "-eo", "args=").stdout  # its session was dropped, it was not
    assert login.ask(machine, "echo again") == "again"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "SSHD", Path("/nowhere/sshd"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(pytest.fail.Exception, match=r"apt-get install -y .*openssh-server"):
        machines.require()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root" in machines.missing()
