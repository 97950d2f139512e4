"""What only a box behind a network can do to us: connections that break, keys that change, hosts that lie."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sweepstack.channel.pinned_keys import HostKeyChanged
from sweepstack.channel.ssh import link as ssh_link
from sweepstack.channel.ssh import mtu as ssh_mtu
from sweepstack.channel.ssh.channel import SshChannel
from sweepstack.channel.ssh.keys import SshKey
from sweepstack.channel.ssh.links import Links
from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import PlatformError, Unreachable, Unsupported
from tests.at_once import at_once
from tests.simulators.gateway import Gateway
from tests.simulators.machines import Machine
from tests.unit.channel.worlds import SshWorld, words

ROOT = Path(__file__).resolve().parents[3]
PATHS = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
UNDER_WAY = 2 << 20
"""What OpenSSH sends before the other side has taken any of it: its window."""


@pytest.fixture
def channel(ssh_world: SshWorld) -> Iterator[SshChannel]:
    """A channel of its own, that breaks nobody else's connection."""
    made = ssh_world.connect()
    yield made
    made.close()


@pytest.fixture
def gateway(ssh_world: SshWorld) -> Iterator[Gateway]:
    found = ssh_world.machine.gateway
    assert found is not None
    yield found
    found.silence(False)
    found.slow(None)


def eventually(what: Callable[[], bool], seconds: float = 120) -> None:
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.05)


def running(world: SshWorld, command: str) -> bool:
    return command.encode() in world.machine.run("ps", "-eo", "args=").stdout.splitlines()


def test_a_large_file_that_is_cut_goes_on_where_it_was(
    channel: SshChannel, ssh_world: SshWorld, gateway: Gateway, tmp_path: Path
) -> None:
    size = 200_000_000
    ssh_world.sh("sh", "-c", f"head -c {size} /dev/urandom > /sweepstack/data/big")
    before = gateway.from_machine
    target: Path = tmp_path / "big"
    said: list[int] = []
    for more in (90_000_000, 60_000_000):
        channel.close()  # a connection that was used before would be replaced once, and nobody would notice the cut
        gateway.cut_after(more)
        with pytest.raises(Unreachable, match="can't be reached"):
            channel.fetch("data/big", target, said.append)
        assert 0 < target.stat().st_size < size
    channel.fetch("data/big", target, said.append)
    assert (
        hashlib.sha256(target.read_bytes()).hexdigest().encode()
        in ssh_world.sh("sha256sum", "/sweepstack/data/big").stdout
    )
    sent = gateway.from_machine - before
    assert size < sent < size * 1.005 + 2 * UNDER_WAY  # two cuts: each throws away what was under way, and no more
    assert sum(said) > size  # what was there already is said first, each time


def test_a_cut_between_calls_is_not_noticed(channel: SshChannel, gateway: Gateway, ssh_world: SshWorld) -> None:
    channel.write("data/file", b"x")
    for _ in range(2):
        gateway.cut()
        assert channel.read("data/file") == b"x"
        ssh_world.machine.drop_sessions()
        channel.append_locked("data/lines", b"line\n", "data/lock")
    assert channel.read("data/lines") == b"line\nline\n"


def test_a_box_that_is_off_is_unreachable_and_comes_back(tmp_path: Path) -> None:
    world = SshWorld(tmp_path)
    try:
        world.channel.write("data/file", b"x")
        world.machine.stop()
        for ask in (world.channel.read, world.channel.size, world.channel.listdir, world.channel.lock_held):
            with pytest.raises(Unreachable, match="test-box"):
                ask("data/file")
        with pytest.raises(Unreachable):
            world.channel.append_locked("data/file", b"\n", "data/lock")
        with pytest.raises(Unreachable):
            world.channel.fetch("data/file", tmp_path / "copy")
        with pytest.raises(Unreachable):
            world.channel.attach(["true"])
        world.machine.restart()
        assert world.channel.read("data/file") == b"x"
    finally:
        world.close()


def test_silence_is_unreachable_after_its_deadline(
    channel: SshChannel, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel.write("data/file", b"x")
    monkeypatch.setattr(ssh_link, "STALL_SECONDS", 1.5)
    monkeypatch.setattr(ssh_link, "START_SECONDS", 1.5)
    monkeypatch.setattr(ssh_mtu, "SMALL_SECONDS", 1.5)
    gateway.silence()
    with pytest.raises(Unreachable, match="no answer within"):
        channel._links.ask(lambda link: link.ask("size", path="data/file", deadline=1.5), again=True)
    monkeypatch.undo()
    gateway.silence(False)
    assert channel.read("data/file") == b"x"


def test_why_nothing_comes_is_tried_once_a_minute_for_an_address(
    channel: SshChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every caller: also at first contact, where no connections were made yet."""
    tried: list[bool] = []
    monkeypatch.setattr(ssh_mtu, "_TRIED", {})
    monkeypatch.setattr(ssh_mtu, "_gets_through", lambda way, *_: tried.append(bool(way.proxy)) or bool(way.proxy))
    way = channel._links.way
    host, port = way.endpoint.host, way.endpoint.port
    assert ssh_mtu.last_advice(host, port) == ""
    first = ssh_mtu.advice(way)
    assert "sudo ip link set dev NAME mtu 1280" in first
    assert ssh_mtu.advice(replace(way)) == first == ssh_mtu.last_advice(host, port)
    assert tried == [True, False], "small packets, then large ones, once"
    assert ssh_mtu.advice(replace(way, endpoint=way.endpoint._replace(port=port + 1))) != ""
    assert len(tried) == 4
    monkeypatch.setattr(ssh_mtu, "AGAIN_SECONDS", 0.0)
    ssh_mtu.advice(way)
    assert len(tried) == 6
    assert ssh_mtu.last_advice(host, port) == ""


def test_what_is_spawned_survives_the_connection(channel: SshChannel, gateway: Gateway, ssh_world: SshWorld) -> None:
    pid = channel.spawn(["sleep", "301"], cwd="data", env=PATHS, log="data/log")
    gateway.cut()
    ssh_world.machine.drop_sessions()
    channel.close()
    other = ssh_world.connect()
    assert words(other.processes()) == [("sleep", "301")]
    other.terminate(pid)
    assert other.processes() == []
    other.close()


def test_a_command_ends_with_the_connection_that_wanted_it(
    channel: SshChannel, gateway: Gateway, ssh_world: SshWorld
) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            channel.run(["sh", "-c", "sleep 302 & sleep 302"], timeout=300)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: running(ssh_world, "sleep 302"))
    gateway.cut()
    thread.join(60)
    assert isinstance(raised[0], Unreachable)
    eventually(lambda: not running(ssh_world, "sleep 302"))


def test_a_cancelled_command_ends_on_the_box(ssh_world: SshWorld) -> None:
    """Ctrl-C here: the process there ends, too."""
    program = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from sweepstack.onbox.agent.channel import SshEndpoint
        from sweepstack.channel.ssh.channel import SshChannel
        from sweepstack.channel.ssh.keys import SshKey
        key = SshKey({ssh_world.key.public!r}, Path({str(ssh_world.key.identity)!r}), "the test")
        endpoint = SshEndpoint("127.0.0.1", {ssh_world.machine.port}, start="1")
        channel = SshChannel("test-box", endpoint, key=key, host_keys=Path({str(ssh_world.folder / "host-keys")!r}))
        if sys.argv[1] == "run":
            channel.run(["sleep", "303"], timeout=300)
        else:
            sys.exit(channel.attach(["sleep", "303"]))
    """)
    for how, numbers in (("run", (signal.SIGINT, signal.SIGKILL)), ("attach", (signal.SIGINT,))):
        for number in numbers:
            child = subprocess.Popen(
                [sys.executable, "-c", program, how], cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
            )
            eventually(lambda: running(ssh_world, "sleep 303"))
            os.killpg(child.pid, number) if how == "attach" else child.send_signal(number)
            assert child.wait(120) != 0
            eventually(lambda: not running(ssh_world, "sleep 303"))


def test_an_append_that_waits_is_given_up_with_its_connection(
    channel: SshChannel, gateway: Gateway, ssh_world: SshWorld
) -> None:
    channel.write("data/lock", b"")
    raised: list[BaseException] = []

    def append() -> None:
        try:
            channel.append_locked("data/lines", b"late\n", "data/lock")
        except BaseException as error:
            raised.append(error)

    with (ssh_world.root / "data/lock").open("ab") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        thread = threading.Thread(target=append)
        thread.start()
        held = "ls -l /proc/*/fd 2>/dev/null | grep -c data/lock"
        eventually(lambda: ssh_world.machine.run("sh", "-c", held).stdout > b"0\n")
        gateway.cut()
        thread.join(60)
        assert isinstance(raised[0], Unreachable)
        eventually(lambda: ssh_world.machine.run("sh", "-c", held).stdout == b"0\n")
    assert channel.size("data/lines") is None


def test_another_host_key_stops_everything(tmp_path: Path) -> None:
    world = SshWorld(tmp_path)
    try:
        world.channel.write("data/file", b"x")
        receipt = world.channel.pin.path.read_text()
        assert '"protected": false' in receipt
        world.channel.close()
        world.machine.stop()
        for path in (world.machine.disk / "etc/ssh").glob("ssh_host_*"):
            path.unlink()
        world.machine.restart()
        asks: list[Callable[[SshChannel], object]] = [
            lambda one: one.read("data/file"),
            lambda one: one.append_locked("data/file", b"\n", "data/lock"),
            lambda one: one.fetch("data/file", tmp_path / "copy"),
            lambda one: one.attach(["true"]),
        ]
        for ask in asks:
            with pytest.raises(HostKeyChanged, match=r"sweepctl confirm host"):
                ask(world.connect())
        later = world.connect(start="2")  # another start of the box may have another key
        assert later.read("data/file") == b"x"
        later.close()
        assert world.channel.pin.path.read_text() == receipt
        world.channel.pin.forget()
        assert world.channel.read("data/file") == b"x"
    finally:
        world.close()


def test_a_wrong_key_is_not_let_in(ssh_world: SshWorld, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    public = " ".join((tmp_path / "other.pub").read_text().split()[:2])
    ssh_world.channel.size("data")  # a connection with the right key is open, and is no way in for another
    stranger = ssh_world.connect(key=SshKey(public, tmp_path / "other", "a stranger"))
    with pytest.raises(Unreachable, match=r"the key of a stranger .*SWEEPSTACK_SSH_KEY"):
        stranger.size("data")


def test_a_key_in_an_agent_will_do(ssh_world: SshWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: (tmp_path / "agent").exists())
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        for number in range(7):  # sshd gives up after six: exactly the right one has to be offered
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / f"{number}"], check=True)
            subprocess.run(["ssh-add", "-q", tmp_path / f"{number}"], check=True)
        subprocess.run(["ssh-add", "-q", ssh_world.key.identity], check=True)
        held = ssh_world.connect(key=SshKey(ssh_world.key.public, None, "the ssh agent"))
        assert held.size("data") is None
        assert held.attach(["true"]) == 0
        held.close()
    finally:
        process.terminate()
        process.wait()


def test_a_relay_that_passes_a_terminal_is_no_way_for_files(tmp_path: Path) -> None:
    world = SshWorld.__new__(SshWorld)
    key = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    world.key = SshKey(" ".join(key.with_suffix(".pub").read_text().split()[:2]), key, "the test")
    with Machine.start("box-0", keep=tmp_path / "m", authorized_keys=[world.key.public], shell_only=True) as machine:
        endpoint = SshEndpoint(machine.host, machine.port, proxied=True)
        relayed = SshChannel("test-box", endpoint, key=world.key, host_keys=tmp_path / "pins")
        for ask in (relayed.read, relayed.size, relayed.listdir, relayed.lock_held):
            with pytest.raises(Unsupported, match=r"relay.*terminal and nothing else"):
                ask("data/file")
        with pytest.raises(Unsupported, match="copy files"):
            relayed.fetch("data/file", tmp_path / "copy")
        with pytest.raises(Unsupported, match="forward a port"):
            relayed.reach(1, 1)
        with pytest.raises(PlatformError, match="no command"):
            relayed.attach(["true"])


def test_a_volume_that_is_not_mounted_is_unreachable(ssh_world: SshWorld) -> None:
    (ssh_world.root / "mnt" / "other").mkdir(exist_ok=True)
    mounts = {"mnt/durable": "/sweepstack/mnt/durable", "mnt/other": "/sweepstack/mnt/other"}
    other = ssh_world.connect(mounts=mounts)
    assert other.size("mnt/durable/x") is None
    for ask in (other.read, other.size, other.listdir):
        with pytest.raises(Unreachable, match="nothing is mounted"):
            ask("mnt/other/cell")
    with pytest.raises(Unreachable, match="nothing is mounted"):
        other.write("mnt/other/cell", b"x")
    other.close()
    (ssh_world.root / "mnt" / "other").rmdir()


def test_a_root_that_is_not_there_is_unreachable_until_it_is_made(ssh_world: SshWorld) -> None:
    fresh = ssh_world.connect(root="/srv/sweep stack", mounts={})
    for ask in (fresh.read, fresh.size, fresh.listdir):
        with pytest.raises(Unreachable, match="is not there"):
            ask("data/file")
    with pytest.raises(Unreachable):
        fresh.write("data/file", b"x")
    fresh.prepare()
    fresh.prepare()
    fresh.write("data/file", b"x")
    assert fresh.run(["pwd"], timeout=120).stdout == b"/srv/sweep stack\n"
    assert fresh.absolute("data/x") == "/srv/sweep stack/data/x"
    assert fresh.attach(["test", "-f", "file"], cwd="data") == 0
    fresh.close()
    ssh_world.sh("rm", "-r", "/srv/sweep stack")


def test_nothing_is_started_on_a_box_that_is_closed(ssh_world: SshWorld) -> None:
    closed = ssh_world.connect(closed=lambda: "is being destroyed")
    for start in (
        lambda: closed.spawn(["true"], cwd="data", env={}, log="data/log"),
        lambda: closed.run(["true"], timeout=5),
        lambda: closed.attach(["true"]),
        lambda: closed.reach(1, 1),
    ):
        with pytest.raises(PlatformError, match="test-box is being destroyed"):
            start()
    assert closed.size("data") is None
    closed.close()


def test_a_noisy_shell_and_an_old_python_are_told_apart(ssh_world: SshWorld) -> None:
    home = ssh_world.machine.disk / "root"
    (home / ".bashrc").write_text("echo Welcome; printf 'a\\0b'; echo to stderr >&2\n")
    try:
        noisy = ssh_world.connect(root="/srv")
        assert noisy.size("data") is None
        noisy.close()
        with pytest.raises(PlatformError, match=r"can't run python3") as caught:
            ssh_world.connect(python="/nowhere/python3").size("data")
        assert not isinstance(caught.value, Unreachable)
        (home / "old").write_text("#!/bin/sh\necho 'sweepstack: python3 here is 3.6' >&2; exit 97\n")
        (home / "old").chmod(0o755)
        with pytest.raises(PlatformError, match=r"python3 here is 3\.6"):
            ssh_world.connect(python="/root/old").size("data")
        (home / ".bashrc").write_text("exec sh\n")
        with pytest.raises(PlatformError, match=r"a shell that ~/\.bashrc .* starts there \(`exec zsh`\)") as caught:
            ssh_world.connect(root="/srv").size("data")
        assert str(caught.value).isprintable(), "nothing of what it read reaches the terminal"
    finally:
        (home / ".bashrc").unlink()


LIAR = """#!/usr/bin/python3
import json, os, struct, sys
source = sys.stdin.buffer
program = source.read(int(source.readline()))
import zlib, re
nonce = re.search(rb'"nonce": "([0-9a-f]+)"', zlib.decompress(program)).group(1)
def send(kind, data): os.write(1, struct.pack(">cI", kind, len(data)) + data)
os.write(1, b"\\0sweepstack-agent " + nonce + b"\\n")
send(b"J", json.dumps({"ok": {"python": "/bin/python3"}}).encode())
while True:
    header = source.read(5)
    if not header: break
    verb = json.loads(source.read(struct.unpack(">cI", header)[1]))["verb"]
    LIES
"""


@pytest.mark.parametrize(
    ("lies", "ask"),
    [
        ("send(b'J', json.dumps({'ok': [['../../etc/passwd', 'file', 3]]}).encode())", "listdir"),
        ("send(b'J', json.dumps({'ok': [['name', 'file', -3]]}).encode())", "listdir"),
        ("send(b'J', json.dumps({'ok': [['name', 'odd', 3]]}).encode())", "listdir"),
        ("send(b'J', b'no json')", "listdir"),
        ("send(b'X', b'')", "listdir"),
        ("os.write(1, struct.pack('>cI', b'J', 1 << 31))", "listdir"),
        ("send(b'D', b'x' * 100); send(b'J', b'{\"ok\": null}')", "read"),
        ("send(b'J', b'{\"ok\": true}')", "size"),
        ("send(b'J', json.dumps({'size': 3}).encode()); send(b'D', b'x' * 100)", "fetch"),
        ("send(b'J', json.dumps({'size': 30}).encode()); send(b'D', b'x'); send(b'J', b'{\"ok\": 1}')", "fetch"),
        ("send(b'J', json.dumps({'ok': {'files': [['/etc/passwd', 1, 1.0]], 'problem': ''}}).encode())", "walk"),
        ("sys.exit(0)", "size"),
    ],
)
def test_what_a_box_says_is_checked(ssh_world: SshWorld, tmp_path: Path, lies: str, ask: str) -> None:
    program = ssh_world.machine.disk / "root" / "liar"
    program.write_text(LIAR.replace("LIES", lies))
    program.chmod(0o755)
    liar = ssh_world.connect(python="/root/liar")
    asks: dict[str, Callable[[], object]] = {
        "listdir": lambda: liar.listdir("data"),
        "read": lambda: liar.read("data/file", limit=10),
        "size": lambda: liar.size("data/file"),
        "fetch": lambda: liar.fetch("data/file", tmp_path / "copy"),
        "walk": lambda: liar.walk(["data"]),
    }
    with pytest.raises(Unreachable):
        asks[ask]()
    liar.close()


def test_many_threads_need_no_more_sessions_than_there_are(channel: SshChannel) -> None:
    channel.write("data/file", b"x")

    def work(_: int) -> None:
        for _ in range(5):
            assert channel.read("data/file") == b"x"
            channel.run(["sleep", "0.05"], timeout=30)

    at_once(work, range(16))


def test_a_verb_is_one_round_trip_and_few_connections(channel: SshChannel, gateway: Gateway) -> None:
    channel.size("data")
    before = gateway.connections
    for number in range(30):
        channel.write(f"data/{number}", b"x")
        assert channel.read(f"data/{number}") == b"x"
    assert gateway.connections == before


def test_a_port_of_the_box_is_reached(channel: SshChannel, ssh_world: SshWorld) -> None:
    page = "import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=0, bind='127.0.0.1')"
    channel.write("data/page/index.html", b"from the box")
    pid = channel.spawn([channel.python, "-u", "-c", page], cwd="data/page", env=PATHS, log="data/log")
    eventually(lambda: b"Serving HTTP" in channel.read("data/log"))  # a tunnel to nobody listening would be cut
    port = int(channel.read("data/log").decode().split(" port ")[1].split()[0])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        local = probe.getsockname()[1]
        probe.listen()
        with pytest.raises(PlatformError, match=rf"port {local} of this machine is taken"):
            channel.reach(port, local)
    program = textwrap.dedent(f"""
        from pathlib import Path
        from sweepstack.onbox.agent.channel import SshEndpoint
        from sweepstack.channel.ssh.channel import SshChannel
        from sweepstack.channel.ssh.keys import SshKey
        key = SshKey({ssh_world.key.public!r}, Path({str(ssh_world.key.identity)!r}), "the test")
        channel = SshChannel("test-box", SshEndpoint("127.0.0.1", {ssh_world.machine.port}, start="1"), key=key,
                             host_keys=Path({str(ssh_world.folder / "host-keys")!r}))
        print(channel.reach({port}, {local}, lambda text: print(text, flush=True)))
    """)
    child = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert f"http://127.0.0.1:{local} is port {port}" in child.stdout.readline()
    with urllib.request.urlopen(f"http://127.0.0.1:{local}/", timeout=120) as page_seen:
        assert page_seen.read() == b"from the box"
    assert ssh_world.machine.gateway is not None
    ssh_world.machine.gateway.cut()
    assert "there again" in child.stdout.readline()
    child.send_signal(signal.SIGINT)
    assert "until now" in child.stdout.read()
    assert child.wait(120) == 0
    child.stdout.close()
    channel.terminate(pid)


def test_a_shell_on_a_terminal(ssh_world: SshWorld, tmp_path: Path) -> None:
    """What `sweepctl ssh` is: a login shell in the box's folder, with a terminal, whose exit code is passed on."""
    program = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from sweepstack.onbox.agent.channel import SshEndpoint
        from sweepstack.channel.ssh.channel import SshChannel
        from sweepstack.channel.ssh.keys import SshKey
        key = SshKey({ssh_world.key.public!r}, Path({str(ssh_world.key.identity)!r}), "the test")
        channel = SshChannel("test-box", SshEndpoint("127.0.0.1", {ssh_world.machine.port}, start="1"), key=key,
                             host_keys=Path({str(ssh_world.folder / "host-keys")!r}))
        sys.exit(channel.attach([], terminal=True))
    """)
    ours, theirs = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""

    def read_until(what: Callable[[], bool]) -> None:
        nonlocal seen
        ends = time.monotonic() + 60
        while not what():
            assert time.monotonic() < ends, seen
            if select.select([ours], [], [], 0.1)[0]:
                seen += os.read(ours, 65536)

    os.write(ours, b"tty; pwd; echo $SWEEPSTACK_VISITING$((40 + 2)); sleep 304\n")
    read_until(lambda: b"test-box42" in seen and running(ssh_world, "sleep 304"))
    os.write(ours, b"\x03")
    read_until(lambda: not running(ssh_world, "sleep 304"))  # Ctrl-C went to it, and not to ssh
    os.write(ours, b"exit 9\n")
    with contextlib.suppress(OSError):  # EIO: the other side has closed
        read_until(lambda: child.poll() is not None)
    assert child.wait(120) == 9
    os.close(ours)
    assert b"/dev/pts/" in seen
    assert b"/sweepstack\r\n" in seen


def test_a_forked_process_makes_connections_of_its_own(channel: SshChannel) -> None:
    channel.write("data/file", b"x")
    links: Links = channel._links
    mine = list(links._idle)
    assert mine
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            links._take()
            os.write(write, b"%d" % len(links._idle))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"0"
    assert channel.read("data/file") == b"x"
    for descriptor in (read, write):
        os.close(descriptor)
