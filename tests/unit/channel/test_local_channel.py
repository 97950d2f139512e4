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

from sweep.channel import local as local_module
from sweep.channel import processes
from sweep.channel.local import LocalChannel
from sweep.errors import NotYetGone, PlatformError, Unreachable

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


def eventually(what: Callable[[], bool], seconds: float = 10) -> None:
    begin = time.monotonic()
    while not what():
        assert time.monotonic() - begin < seconds
        time.sleep(0.02)


def test_what_is_written_is_read(channel: LocalChannel, root: Path) -> None:
    channel.write("data/sweep/spec.json", b"0123456789", mode=0o600)
    assert channel.read("data/sweep/spec.json") == b"0123456789"
    assert channel.read("data/sweep/spec.json", offset=3, limit=4) == b"3456"
    assert channel.read("data/sweep/spec.json", offset=30) == b""
    assert channel.size("data/sweep/spec.json") == 10
    assert (root / "data/sweep/spec.json").stat().st_mode & 0o777 == 0o600


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


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "data/../../secret", "data/..", "", "a\0b", "//x"])
def test_unsafe_paths_are_refused(channel: LocalChannel, path: str, tmp_path: Path) -> None:
    for ask in (channel.read, channel.size, channel.listdir, channel.lock_held, channel.absolute):
        with pytest.raises(PlatformError):
            ask(path)
    with pytest.raises(PlatformError):
        channel.write(path, b"")
    with pytest.raises(PlatformError):
        channel.append_locked("data/x", b"\n", path)
    with pytest.raises(PlatformError):
        channel.fetch(path, tmp_path / "copy")
    with pytest.raises(PlatformError):
        channel.put_tree([(path, tmp_path / "secret", 0o644)], "data/tree")
    assert channel.size("data/tree") is None


def test_links_out_of_the_box_are_not_followed(channel: LocalChannel, root: Path, tmp_path: Path) -> None:
    os.symlink(tmp_path / "secret", root / "data" / "link")
    os.symlink(tmp_path, root / "data" / "folder")
    os.symlink(tmp_path, root / "mnt" / "made-by-a-job")
    os.symlink(tmp_path / "secret", tmp_path / "volume" / "link")
    os.symlink("loop", root / "data" / "loop")
    for path in ("data/link", "data/folder/secret", "mnt/made-by-a-job/secret", "mnt/durable/link", "data/loop"):
        with pytest.raises(PlatformError):
            channel.read(path)
        with pytest.raises(PlatformError):
            channel.fetch(path, tmp_path / "copy")
        with pytest.raises(PlatformError):
            channel.write(path, b"overwritten")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    kinds = {entry.name: (entry.kind, entry.size) for entry in channel.listdir("data")}
    assert kinds == {"link": ("link", 0), "folder": ("link", 0), "loop": ("link", 0), "sweep": ("dir", 0)}


def test_a_pipe_or_folder_is_no_file_and_does_not_hang(channel: LocalChannel, root: Path) -> None:
    os.mkfifo(root / "data" / "pipe")
    for path in ("data/pipe", "data/sweep"):
        with pytest.raises(PlatformError):
            channel.read(path)
        assert channel.size(path) is None
    assert {entry.name: entry.kind for entry in channel.listdir("data")} == {"pipe": "other", "sweep": "dir"}


def test_what_the_system_refuses_is_unreachable(channel: LocalChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    channel.write("data/file", b"x")

    def broken(*_args: object, **_kwargs: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(local_module.os, "open", broken)
    with pytest.raises(Unreachable, match="Input/output error"):
        channel.read("data/file")


def test_a_fetched_file_shares_nothing_with_its_source(channel: LocalChannel, root: Path, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    channel.write("mnt/durable/weights", content)
    target, seen = tmp_path / "pulled" / "weights", []
    channel.fetch("mnt/durable/weights", target, seen.append)
    source = tmp_path / "volume" / "weights"
    assert sum(seen) == len(content)
    assert target.stat().st_ino != source.stat().st_ino
    assert not target.is_symlink()
    with source.open("r+b") as handle:
        handle.truncate(10)
        handle.write(b"overwritten")
    source.unlink()
    assert target.read_bytes() == content


def test_a_fetch_goes_on_where_it_was_cut(channel: LocalChannel, tmp_path: Path) -> None:
    channel.write("data/file", b"0123456789")
    target, seen = tmp_path / "copy", []
    target.write_bytes(b"abcd")  # taken as it is: the digest finds it out, not the copy
    channel.fetch("data/file", target, seen.append)
    assert target.read_bytes() == b"abcd456789"
    assert seen == [4, 6]
    channel.fetch("data/file", target, seen.append)
    assert seen == [4, 6, 10]
    target.write_bytes(b"longer than the source")
    channel.fetch("data/file", target)
    assert target.read_bytes() == b"0123456789"


def test_a_fetch_does_not_write_through_a_link(channel: LocalChannel, tmp_path: Path) -> None:
    channel.write("data/file", b"0123456789")
    for make in (os.link, os.symlink):
        make(tmp_path / "secret", tmp_path / "copy")
        channel.fetch("data/file", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == b"0123456789"
        assert (tmp_path / "secret").read_bytes() == b"secret"
        (tmp_path / "copy").unlink()


def test_a_source_that_shrinks_meanwhile_is_a_clear_error(channel: LocalChannel, root: Path, tmp_path: Path) -> None:
    channel.write("data/file", os.urandom(4 << 20))
    with pytest.raises(Unreachable, match="shrank while it was copied"):
        channel.fetch("data/file", tmp_path / "copy", lambda _: os.truncate(root / "data" / "file", 1 << 20))
    channel.fetch("data/file", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == (root / "data" / "file").read_bytes()


def test_trouble_on_our_own_disk_is_not_blamed_on_the_box(channel: LocalChannel, tmp_path: Path) -> None:
    channel.write("data/file", b"0123456789")
    (tmp_path / "blocked").write_bytes(b"")
    with pytest.raises(OSError, match="blocked"):
        channel.fetch("data/file", tmp_path / "blocked" / "copy")


APPEND = """
import sys
from pathlib import Path
from sweep.channel.local import LocalChannel
channel = LocalChannel("local-testchanne", Path(sys.argv[1]), {})
for number in range(25):
    channel.append_locked("data/queue.jsonl", f"{sys.argv[2]}-{number} {'x' * 5000}\\n".encode(), "data/queue.lock")
"""


def test_lines_of_several_writers_stay_whole(channel: LocalChannel, root: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", APPEND, str(root), str(number)]) for number in range(4)]
    assert [writer.wait(30) for writer in writers] == [0, 0, 0, 0]
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


def test_a_tree_is_shipped_whole_or_not_at_all(channel: LocalChannel, root: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    files = [("train.py", tmp_path / "train.py", 0o644), ("bin/go", tmp_path / "train.py", 0o755)]
    with pytest.raises(FileNotFoundError):
        channel.put_tree([*files, ("gone", tmp_path / "gone", 0o644)], "data/sweep/code/abc")
    assert not any((root / "data/sweep/code").iterdir())
    channel.put_tree(files, "data/sweep/code/abc")
    assert channel.read("data/sweep/code/abc/train.py") == b"print(1)"
    assert (root / "data/sweep/code/abc/bin/go").stat().st_mode & 0o777 == 0o755
    (tmp_path / "train.py").write_text("print(2)")
    channel.put_tree(files, "data/sweep/code/abc")
    assert channel.read("data/sweep/code/abc/train.py") == b"print(1)"
    assert [entry.name for entry in channel.listdir("data/sweep/code")] == ["abc"]


PRINT_ENVIRONMENT = "import os, sys; print(sorted(os.environ), os.getsid(0) == os.getpid(), repr(sys.stdin.read()))"


def test_what_is_spawned_is_on_its_own(channel: LocalChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    argv = [channel.python, "-c", PRINT_ENVIRONMENT]
    pid = channel.spawn(argv, cwd="data/sweep", env={"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}, log="data/log/runner.log")
    eventually(lambda: channel.read("data/log/runner.log").endswith(b"\n"))
    said = channel.read("data/log/runner.log").decode()
    assert said == "['LANG', 'LC_ALL', 'SWEEPSTACK_BOX_ID'] True ''\n"
    eventually(lambda: not Path(f"/proc/{pid}").exists())  # no zombie is left of it
    channel.spawn(argv, cwd="data", env={}, log="data/log/runner.log")
    eventually(lambda: channel.read("data/log/runner.log").count(b"\n") == 2)


def test_what_is_spawned_outlives_the_spawner(channel: LocalChannel, root: Path) -> None:
    program = f"""
import os, signal, sys
from pathlib import Path
from sweep.channel.local import LocalChannel
channel = LocalChannel({BOX!r}, Path(sys.argv[1]), {{}})
channel.spawn(["sleep", "300"], cwd="data", env={{"PATH": os.environ["PATH"]}}, log="data/log")
os.killpg(0, signal.SIGKILL)
"""
    spawner = subprocess.run([sys.executable, "-c", program, str(root)], start_new_session=True, timeout=30)
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


def test_a_command_runs_to_its_end(channel: LocalChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    script = "cat; echo oops >&2; env | grep -c AWS_; exit 3"
    done = channel.run(["sh", "-c", script], timeout=10, stdin=b"in ")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"in 0\n", b"oops\n")


def test_a_command_that_takes_too_long_is_ended_with_its_children(channel: LocalChannel) -> None:
    begin = time.monotonic()
    with pytest.raises(Unreachable, match=r"within 0\.3 s"):
        channel.run(["sh", "-c", "sleep 300 & sleep 300; true"], timeout=0.3)
    assert time.monotonic() - begin < 5
    eventually(lambda: channel.processes() == [])


def test_only_the_boxs_own_groups_are_terminated(channel: LocalChannel) -> None:
    other = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        channel.terminate(other.pid, grace=0.1)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    pid = channel.spawn(["sh", "-c", "trap '' TERM; sleep 300 & sleep 300; :"], cwd="data",
                        env={"PATH": os.environ["PATH"]}, log="data/log")  # fmt: skip
    bystander = channel.spawn(["sleep", "300"], cwd="data", env={"PATH": os.environ["PATH"]}, log="data/log")
    eventually(lambda: len(channel.processes()) == 4)
    channel.terminate(pid, grace=0.2)
    assert [process.pid for process in channel.processes()] == [bystander]
    processes.end_all(BOX, grace=1)


def test_children_with_a_bare_environment_are_found_too(channel: LocalChannel) -> None:
    channel.spawn(["sh", "-c", "env -i sleep 300 & env -i setsid sleep 301 & wait"], cwd="data",
                        env={"PATH": os.environ["PATH"]}, log="data/log")  # fmt: skip
    eventually(lambda: sum(p.argv[:1] == ("sleep",) for p in channel.processes()) == 2)
    processes.end_all(BOX, grace=1)
    assert channel.processes() == []


def test_sigterm_comes_first_and_once(channel: LocalChannel) -> None:
    program = (
        "import signal, sys, time\n"
        "def bye(*_): print('asked', flush=True); time.sleep(0.4); print('done', flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, bye); print('up', flush=True); time.sleep(300)"
    )
    channel.spawn([channel.python, "-c", program], cwd="data", env={}, log="data/log")
    eventually(lambda: channel.read("data/log") == b"up\n")
    processes.end_all(BOX, grace=5)
    assert channel.read("data/log") == b"up\nasked\ndone\n"
