"""The way to a box on this machine: paths that stay inside, copies that are copies, processes that outlive us."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweepstack.onbox.agent import local_channel as local_module
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import processes
from sweepstack.onbox.common.errors import NotYetGone, PlatformError, Unreachable

BOX = f"local-test{os.getpid()}"
"""Its own in each worker: a box is found by its id in the environment of processes, and they share the machine."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A box's tree with a volume beside it and something precious outside."""
    box = tmp_path / "box"
    for folder in ("scratch", "data/sweep", "mnt"):
        (box / folder).mkdir(parents=True)
    (tmp_path / "volume").mkdir()
    os.symlink(tmp_path / "volume", box / "mnt" / "durable")
    (tmp_path / "secret").write_bytes(b"secret")
    return box


@pytest.fixture
def channel(root: Path) -> LocalChannel:
    return LocalChannel(
        BOX,
        root,
        {"mnt/durable": root.parent / "volume"},
        closed=lambda: "is being destroyed" if (root / "ending.json").exists() else "",
    )


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """A test that fails must not leave sleepers behind."""
    yield
    with contextlib.suppress(NotYetGone):
        for process in processes.of_box(BOX):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def eventually(what: Callable[[], bool], seconds: float = 120) -> None:
    begin = time.monotonic()
    while not what():
        assert time.monotonic() - begin < seconds
        time.sleep(0.02)


def test_not_there_is_said_only_of_a_box_that_is(channel: LocalChannel, root: Path) -> None:
    for path in ("data/nothing", "data/nothing/below", "mnt/durable/nothing"):
        with pytest.raises(FileNotFoundError):
            channel.read(path)
        assert channel.size(path) is None
        assert not channel.lock_held(path)
    channel.write("data/file", b"")
    with pytest.raises(FileNotFoundError):
        channel.read("data/file/below")
    os.rename(root, root.with_name("away"))
    for ask in (channel.read, channel.size, channel.listdir, channel.lock_held):
        with pytest.raises(Unreachable):
            ask("data/nothing")
    with pytest.raises(Unreachable):
        channel.write("data/x", b"")
    assert not root.exists()


def test_a_volume_that_is_not_there_is_unreachable(channel: LocalChannel, root: Path) -> None:
    os.rename(root.parent / "volume", root.parent / "away")
    for ask in (channel.read, channel.size, channel.listdir):
        with pytest.raises(Unreachable):
            ask("mnt/durable/a1b2c3")


def test_what_the_system_refuses_is_unreachable(channel: LocalChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    channel.write("data/file", b"x")

    def broken(*_args: object, **_kwargs: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(local_module.os, "open", broken)
    with pytest.raises(Unreachable, match="Input/output error"):
        channel.read("data/file")


def test_a_source_that_shrinks_meanwhile_is_a_clear_error(channel: LocalChannel, root: Path, tmp_path: Path) -> None:
    channel.write("data/file", os.urandom(4 << 20))
    with pytest.raises(Unreachable, match="shrank while it was copied"):
        channel.fetch("data/file", tmp_path / "copy", lambda _: os.truncate(root / "data" / "file", 1 << 20))
    channel.fetch("data/file", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == (root / "data" / "file").read_bytes()


APPEND = """
import sys
from pathlib import Path
from sweepstack.onbox.agent.local_channel import LocalChannel
channel = LocalChannel("local-testchanne", Path(sys.argv[1]), {})
for number in range(25):
    channel.append_locked("data/queue.jsonl", f"{sys.argv[2]}-{number} {'x' * 5000}\\n".encode(), "data/queue.lock")
"""


def test_lines_of_several_writers_stay_whole(channel: LocalChannel, root: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", APPEND, str(root), str(number)]) for number in range(4)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0, 0]
    lines = [line.split(b" ") for line in channel.read("data/queue.jsonl").splitlines()]
    assert len({line[0] for line in lines}) == len(lines) == 100
    assert all(len(line[1]) == 5000 for line in lines)


def test_half_lines_are_neither_written_nor_built_upon(
    channel: LocalChannel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PlatformError):
        channel.append_locked("data/queue", b"no newline", "data/lock")
    channel.append_locked("data/queue", b"one\n", "data/lock")
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        monkeypatch.setattr(local_module.os, "write", no_space)
        return real(descriptor, bytes(data)[:2])

    def no_space(_descriptor: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local_module.os, "write", full)
    with pytest.raises(Unreachable, match="No space left"):
        channel.append_locked("data/queue", b"two\n", "data/lock")
    monkeypatch.undo()
    assert channel.read("data/queue") == b"one\n"
    (root / "data/queue").write_bytes(b"one\ntw")
    with pytest.raises(PlatformError) as caught:
        channel.append_locked("data/queue", b"three\n", "data/lock")
    assert channel.read("data/queue") == b"one\ntw"
    subprocess.run(str(caught.value).split("`")[1], shell=True, check=True)  # the command that it names
    channel.append_locked("data/queue", b"three\n", "data/lock")
    assert channel.read("data/queue") == b"one\nthree\n"


def test_a_held_lock_is_seen_and_waited_for(channel: LocalChannel, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (root / "data/lock").open("ab") as holder:
        assert not channel.lock_held("data/lock")
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert channel.lock_held("data/lock")
        monkeypatch.setattr(local_module, "APPEND_LOCK_SECONDS", 0.2)
        with pytest.raises(Unreachable, match="data/lock"):
            channel.append_locked("data/queue", b"x\n", "data/lock")
    assert not channel.lock_held("data/lock")
    assert channel.size("data/queue") is None


def test_what_is_spawned_outlives_the_spawner(channel: LocalChannel, root: Path) -> None:
    program = f"""
import os, signal, sys
from pathlib import Path
from sweepstack.onbox.agent.local_channel import LocalChannel
channel = LocalChannel({BOX!r}, Path(sys.argv[1]), {{}})
channel.spawn(["sleep", "300"], cwd="data", env={{"PATH": os.environ["PATH"]}}, log="data/log")
os.killpg(0, signal.SIGKILL)
"""
    spawner = subprocess.run([sys.executable, "-c", program, str(root)], start_new_session=True, timeout=120)
    assert spawner.returncode == -9
    alive = channel.processes()
    assert [process.argv for process in alive] == [("sleep", "300")]
    channel.terminate(alive[0].pid)
    assert channel.processes() == []
    channel.terminate(alive[0].pid)


def test_nothing_is_started_on_a_box_that_ends_or_is_gone(channel: LocalChannel, root: Path) -> None:
    (root / "ending.json").write_text("{}")
    with pytest.raises(PlatformError, match="being destroyed"):
        channel.spawn(["true"], cwd="data", env={}, log="data/log")
    with pytest.raises(PlatformError, match="being destroyed"):
        channel.run(["true"], timeout=5)
    os.rename(root, root.with_name("away"))
    with pytest.raises(Unreachable):
        channel.spawn(["true"], cwd="data", env={}, log="data/log")


def test_what_was_started_while_the_box_closed_is_ended(root: Path) -> None:
    """The look before the start is too early for a stop that begins between the two."""
    answers = ["", "is stopped"]
    channel = LocalChannel(BOX, root, {}, closed=lambda: answers.pop(0))
    with pytest.raises(PlatformError, match="stopped"):
        channel.spawn(["sleep", "300"], cwd="data", env={}, log="data/log")
    assert channel.processes() == []
