"""Hosts that ask each new connection a question (a second factor): all goes over the one that the person has opened.

A real sshd, which demands keyboard-interactive of all who connect from some moment on; the person's own ssh connected
before it, and shares that connection (ControlMaster).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.channel.host_address import HostAddress
from sweepstack.channel.ssh import route as ssh_config
from sweepstack.onbox.common.errors import NotAuthorized, Unreachable
from sweepstack.platforms.registry import load_platform
from sweepstack.platforms.ssh.platform import SshPlatform
from tests.simulators.host import Host
from tests.simulators.machines import require
from tests.unit.platforms.test_ssh_routes import used


class Person:
    """Who has an ssh configuration of their own, and opens connections by it."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "ssh config"
        self.known = folder / "known"
        self.sockets = Path(tempfile.mkdtemp(prefix="cm-", dir="/tmp"))  # the path of a socket is short
        self.config.write_text("")

    def knows(self, name: str, host: Host, more: str = "") -> None:
        """Adds a name, whose connections are shared."""
        lines = [f"HostName {host.at}", f"Port {host.port}", f"User {host.user}", "ControlMaster auto"]
        lines += [f"ControlPath {self.sockets}/%C", f"UserKnownHostsFile {str(self.known)!r}"]
        lines += ["StrictHostKeyChecking accept-new", f"IdentityFile {str(host.key)!r}", more]
        with self.config.open("a") as config:
            config.write(f"Host {name}\n" + "".join(f"  {line}\n" for line in lines).replace("'", '"'))

    def ssh(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["ssh", "-F", str(self.config), *words]
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def opens(self, name: str) -> None:
        done = self.ssh("-fN", name)
        assert done.returncode == 0, done.stderr
        assert self.has_open(name)

    def has_open(self, name: str) -> bool:
        return self.ssh("-O", "check", name).returncode == 0

    def closes_all(self) -> None:
        for socket in self.sockets.iterdir():
            subprocess.run(["ssh", "-S", str(socket), "-O", "exit", "x"], capture_output=True, check=False)
        shutil.rmtree(self.sockets, ignore_errors=True)


def asks_everyone(host: Host) -> None:
    """From now on each new connection is asked a question. Those that are open stay."""
    config = host.folder / "sshd_config"
    text = config.read_text().replace("KbdInteractiveAuthentication no", "KbdInteractiveAuthentication yes")
    config.write_text(f"AuthenticationMethods publickey,keyboard-interactive\n{text}")
    log = host.folder / "sshd.log"
    begun = log.read_text().count("Server listening")
    assert host._sshd is not None
    os.kill(host._sshd.pid, signal.SIGHUP)
    ends = time.monotonic() + 60
    while log.read_text().count("Server listening") == begun:
        assert time.monotonic() < ends, log.read_text()
        time.sleep(0.02)


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    require()
    made = Person(tmp_path)
    monkeypatch.setenv(ssh_config.CONFIG_VARIABLE, str(made.config))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("SWEEPSTACK_SSH_KEY", raising=False)
    yield made
    made.closes_all()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "lab")
    yield made
    made.stop()


def address_of(name: str) -> str:
    return str(ssh_config.completed(HostAddress.parse(name)))


def connection(address: str) -> SshPlatform:
    found = load_platform(f"ssh:{address}")
    assert isinstance(found, SshPlatform)
    return found


def test_all_goes_over_the_connection_that_the_person_opened(person: Person, lab: Host) -> None:
    """It outlives us, and without it the error says how to open it."""
    person.knows("lab", lab)
    person.opens("lab")
    asks_everyone(lab)
    assert "keyboard-interactive" in person.ssh("-o", "ControlPath=none", "-o", "BatchMode=yes", "lab", "true").stderr
    address = address_of("lab")
    box = used(address)
    platform = connection(address)
    assert platform._caller is not None
    platform._caller.connections().close()
    assert person.has_open("lab"), "we ended a connection of the person's"
    assert connection(address).get(box.native_id, box.account).native_id == box.native_id

    person.ssh("-O", "exit", "lab")
    platform._caller.connections().close()
    with pytest.raises(Unreachable, match=r"lets .* in over a connection that you open yourself.*ssh -fN lab"):
        connection(address).get(box.native_id, box.account)


def test_a_jump_that_asks_everyone(person: Person, lab: Host, tmp_path: Path) -> None:
    """The host behind it takes our key; the way there leads over the connection to the jump."""
    door = Host(tmp_path / "door")
    try:
        person.knows("door", door)
        with person.config.open("a") as config:
            config.write(
                f'Host inner\n  HostName {lab.at}\n  Port {lab.port}\n  User {lab.user}\n  IdentityFile "{lab.key}"\n'
                "  ProxyJump door\n"
            )
        person.opens("door")
        asks_everyone(door)
        used(address_of("inner"))
        assert person.has_open("door")
    finally:
        door.stop()


def test_without_a_key_of_ones_own(person: Person, lab: Host) -> None:
    """Who logs in by password and code alone has no key: over an open connection none is asked for."""
    person.knows("lab", lab)
    person.opens("lab")
    asks_everyone(lab)
    text = person.config.read_text()
    person.config.write_text(text.replace(f'"{lab.key}"', '"/nowhere/key"'))
    used(address_of("lab"))
    person.ssh("-O", "exit", "lab")
    with pytest.raises(NotAuthorized, match="open the connection that you share: ssh -fN lab"):
        connection(address_of("lab")).account()


def test_a_connection_that_is_dead_is_not_joined(person: Person, lab: Host) -> None:
    """Its socket is left behind; a host that takes the key is entered as ever."""
    person.knows("lab", lab)
    person.opens("lab")
    (socket,) = person.sockets.iterdir()
    pid = int(person.ssh("-O", "check", "lab").stderr.partition("pid=")[2].rstrip(")\r\n"))
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            time.sleep(0.02)
    assert socket.exists()
    used(address_of("lab"))


def test_a_path_for_all_hosts_makes_no_name_known(person: Person, lab: Host) -> None:
    """`Host *` with a ControlPath is common, and says nothing about where a name leads."""
    person.config.write_text(f"Host *\n  ControlMaster auto\n  ControlPath {person.sockets}/%C\n")
    assert address_of("gpu2/x") == "root@gpu2:22/x"
