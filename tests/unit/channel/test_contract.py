"""What every way to a box promises, held against each: on this machine, and over SSH to a machine of its own."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.errors import NotAFile, PlatformError, Unreachable
from tests.at_once import at_once
from tests.unit.channel.worlds import World, words

NAMES = ["a b", "it's", 'say "hi"', "two\nlines", "-rf", "$HOME `id` \\n !x;&|", "naïve 名前", "*?[a]", "tab\there"]
PATHS = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@pytest.fixture
def channel(world: World) -> Channel:
    return world.channel


def eventually(what: Callable[[], bool], seconds: float = 120) -> None:
    begin = time.monotonic()
    while not what():
        assert time.monotonic() - begin < seconds
        time.sleep(0.02)


def test_what_is_written_is_read(channel: Channel, world: World) -> None:
    channel.write("data/sweep/spec.json", b"0123456789", mode=0o600)
    assert channel.read("data/sweep/spec.json") == b"0123456789"
    assert channel.read("data/sweep/spec.json", offset=3, limit=4) == b"3456"
    assert channel.read("data/sweep/spec.json", offset=30) == b""
    assert channel.read("data/sweep/spec.json", limit=0) == b""
    assert channel.size("data/sweep/spec.json") == 10
    assert (world.root / "data/sweep/spec.json").stat().st_mode & 0o777 == 0o600
    channel.write("data/sweep/spec.json", b"", mode=0o644)
    assert channel.read("data/sweep/spec.json") == b""
    assert os.listdir(world.root / "data/sweep") == ["spec.json"]


def test_not_there_is_said_of_what_is_not_there(channel: Channel) -> None:
    for path in ("data/nothing", "data/nothing/below", "mnt/durable/nothing"):
        with pytest.raises(FileNotFoundError):
            channel.read(path)
        assert channel.size(path) is None
        assert not channel.lock_held(path)
        with pytest.raises(FileNotFoundError):
            channel.listdir(path)
    channel.write("data/file", b"")
    with pytest.raises(FileNotFoundError):
        channel.read("data/file/below")
    with pytest.raises(NotADirectoryError):
        channel.listdir("data/file")


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "data/../../secret", "data/..", "", "a\0b", "//x"])
def test_unsafe_paths_are_refused(channel: Channel, path: str, tmp_path: Path) -> None:
    (tmp_path / "own").write_bytes(b"own")
    for ask in (channel.read, channel.size, channel.listdir, channel.lock_held, channel.absolute):
        with pytest.raises(PlatformError):
            ask(path)
    with pytest.raises(PlatformError):
        channel.write(path, b"")
    with pytest.raises(PlatformError):
        channel.append_locked("data/x", b"\n", path)
    with pytest.raises(PlatformError):
        channel.append_locked(path, b"\n", "data/x")
    with pytest.raises(PlatformError):
        channel.fetch(path, tmp_path / "copy")
    with pytest.raises(PlatformError):
        channel.put_tree([(path, tmp_path / "own", 0o644)], "data/tree")
    with pytest.raises(PlatformError):
        channel.put_tree([("own", tmp_path / "own", 0o644)], path)
    assert channel.size("data/tree") is None


def test_links_out_of_the_box_are_not_followed(channel: Channel, world: World, tmp_path: Path) -> None:
    os.symlink(world.secret, world.root / "data" / "link")
    os.symlink(world.secret.parent, world.root / "data" / "folder")
    os.symlink(world.secret.parent, world.root / "mnt" / "made-by-a-job")
    os.symlink(world.secret, world.volume / "link")
    os.symlink("loop", world.root / "data" / "loop")
    for path in ("data/link", "data/folder/secret", "mnt/made-by-a-job/secret", "mnt/durable/link", "data/loop"):
        with pytest.raises(PlatformError):
            channel.read(path)
        with pytest.raises(PlatformError):
            channel.fetch(path, tmp_path / "copy")
        assert channel.tails([path], 9) == {}
        with pytest.raises(PlatformError):
            channel.fetch_many([(path, tmp_path / "copies")])
        with pytest.raises(PlatformError):
            channel.write(path, b"overwritten")
    assert world.secret_here.read_bytes() == b"secret"
    kinds = {entry.name: (entry.kind, entry.size) for entry in channel.listdir("data")}
    assert kinds == {"link": ("link", 0), "folder": ("link", 0), "loop": ("link", 0), "sweep": ("dir", 0)}
    (world.root / "mnt" / "made-by-a-job").unlink()


def test_a_pipe_or_folder_is_no_file_and_does_not_hang(channel: Channel, world: World) -> None:
    os.mkfifo(world.root / "data" / "pipe")
    for path in ("data/pipe", "data/sweep"):
        with pytest.raises(PlatformError):
            channel.read(path)
        assert channel.size(path) is None
    assert {entry.name: entry.kind for entry in channel.listdir("data")} == {"pipe": "other", "sweep": "dir"}


def test_any_name_is_a_name(channel: Channel, world: World, tmp_path: Path) -> None:
    """Names meet no shell, and come back as they went."""
    (tmp_path / "own").write_bytes(b"own")
    files = [(f"in {name}/{name}", tmp_path / "own", 0o640) for name in NAMES]
    channel.put_tree(files, "data/tree -n 'x'")
    for name in NAMES:
        channel.write(f"data/names/{name}", name.encode())
        assert channel.read(f"data/names/{name}") == name.encode()
        channel.append_locked(f"data/names/{name} lines", b"line\n", f"data/names/{name} lock")
        channel.fetch(f"data/names/{name}", tmp_path / "copies" / name)
        assert (tmp_path / "copies" / name).read_bytes() == name.encode()
        assert not channel.lock_held(f"data/names/{name} lock")
        assert channel.read(f"data/tree -n 'x'/in {name}/{name}") == b"own"
    seen = [entry.name for entry in channel.listdir("data/names")]
    assert seen == sorted([*NAMES, *(f"{name} {kind}" for name in NAMES for kind in ("lines", "lock"))])
    listed = {path for path, _, _ in channel.walk(["data/names"]).files}
    assert listed == {f"data/names/{name}" for name in seen}
    tails = channel.tails([f"data/names/{name}" for name in NAMES] + ["data/none", "data"], 3)
    assert tails == {f"data/names/{name}": (len(name.encode()), name.encode()[-3:]) for name in NAMES}
    many = [(f"data/names/{name}", tmp_path / "many" / name) for name in NAMES]
    channel.fetch_many(many)
    assert [target.read_bytes() for _, target in many] == [name.encode() for name in NAMES]
    (world.root / "data" / os.fsdecode(b"bytes \xff\xfe")).write_bytes(b"x")
    odd = next(entry.name for entry in channel.listdir("data") if entry.name.startswith("bytes"))
    assert channel.read(f"data/{odd}") == b"x"
    argv = ["printf", "%s|", *NAMES]
    assert channel.run(argv, timeout=120).stdout.decode() == "".join(f"{name}|" for name in NAMES)


def test_a_walk_lists_files_once_and_says_what_is_missing(channel: Channel, world: World) -> None:
    for name in ("data/a/one", "data/a/two", "data/skipped/three", "scratch/four"):
        channel.write(name, b"12345")
    os.link(world.root / "data/a/one", world.root / "data/a/same")
    os.symlink("one", world.root / "data/a/link")
    listing = channel.walk(["data", "scratch", "nowhere"], skip=["data/skip*"])
    assert [(path, size) for path, size, _ in listing.files] == [
        ("data/a/one", 5),
        ("data/a/two", 5),
        ("scratch/four", 5),
    ]
    assert listing.problem == ""
    assert all(abs(time.time() - changed) < 600 for _, _, changed in listing.files)
    short = channel.walk(["data", "scratch"], limit=2)
    assert (len(short.files), short.problem) == (2, "more than 2 files")


def test_what_is_no_file_is_told_by_itself(channel: Channel, world: World) -> None:
    channel.write("data/a/one", b"12345")
    channel.write("mnt/durable/deep/kept", b"123")
    here = world.root / "data/a"
    (here / "inside").symlink_to("one")
    (here / "tier").symlink_to("../../mnt/durable/deep/kept")
    (here / "outside").symlink_to("/etc/passwd")
    (here / "nothing").symlink_to("nothing")
    os.mkfifo(here / "pipe")
    assert {(one.path, one.what, one.means, one.size) for one in channel.others(["data/a", "data/missing"])} == {
        ("data/a/inside", "a link to one", "data/a/one", 5),
        ("data/a/tier", "a link to ../../mnt/durable/deep/kept", "mnt/durable/deep/kept", 3),
        ("data/a/outside", "a link to /etc/passwd", "", 0),
        ("data/a/nothing", "a link to nothing", "", 0),
        ("data/a/pipe", "a pipe", "", 0),
    }


def test_a_fetched_file_shares_nothing_with_its_source(channel: Channel, world: World, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    channel.write("mnt/durable/weights", content)
    target, seen = tmp_path / "pulled" / "weights", []
    channel.fetch("mnt/durable/weights", target, seen.append)
    source = world.volume / "weights"
    assert sum(seen) == len(content)
    assert target.stat().st_ino != source.stat().st_ino
    assert not target.is_symlink()
    with source.open("r+b") as handle:
        handle.truncate(10)
        handle.write(b"overwritten")
    source.unlink()
    assert target.read_bytes() == content


def test_a_fetch_goes_on_where_it_was_cut(channel: Channel, tmp_path: Path) -> None:
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


def test_holes_stay_holes_on_their_way(channel: Channel, world: World, tmp_path: Path) -> None:
    """Six gigabytes with nothing in them came over the wire, and filled the disk here."""
    content = b"begin" + bytes(8 << 20) + b"end"
    channel.write("mnt/durable/map", b"begin")
    with (world.volume / "map").open("r+b") as handle:
        handle.seek(-3 + len(content))
        handle.write(b"end")
    target, seen = tmp_path / "map", []
    target.write_bytes(content[:100_000])  # a cut one is gone on with, in the middle of a hole
    channel.fetch("mnt/durable/map", target, seen.append)
    assert target.read_bytes() == content
    assert sum(seen) == len(content)
    assert target.stat().st_blocks * 512 < 1 << 20


def test_a_fetch_does_not_write_through_a_link(channel: Channel, tmp_path: Path) -> None:
    channel.write("data/file", b"0123456789")
    (tmp_path / "precious").write_bytes(b"precious")
    for make in (os.link, os.symlink):
        make(tmp_path / "precious", tmp_path / "copy")
        channel.fetch("data/file", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == b"0123456789"
        assert (tmp_path / "precious").read_bytes() == b"precious"
        (tmp_path / "copy").unlink()


def test_trouble_on_our_own_disk_is_not_blamed_on_the_box(channel: Channel, tmp_path: Path) -> None:
    channel.write("data/file", b"0123456789")
    (tmp_path / "blocked").write_bytes(b"")
    with pytest.raises(OSError, match="blocked"):
        channel.fetch("data/file", tmp_path / "blocked" / "copy")


def test_lines_of_several_threads_stay_whole(channel: Channel) -> None:
    """Threads share a channel, and each has its answer."""

    def work(mine: int) -> None:
        for number in range(15):
            line = f"{mine}-{number} {'x' * 5000}\n".encode()
            channel.append_locked("data/queue.jsonl", line, "data/queue.lock")
            channel.write(f"data/own-{mine}", line)
            assert channel.read(f"data/own-{mine}") == line

    at_once(work, range(4))
    lines = [line.split(b" ") for line in channel.read("data/queue.jsonl").splitlines()]
    assert len({line[0] for line in lines}) == len(lines) == 60
    assert all(len(line[1]) == 5000 for line in lines)


def test_lines_are_added_only_where_none_came_since_the_file_was_read(channel: Channel) -> None:
    assert channel.append_locked("data/queue", b"one\n", "data/lock", at=0)
    assert not channel.append_locked("data/queue", b"two\n", "data/lock", at=0)
    assert channel.append_locked("data/queue", b"two\n", "data/lock", at=4)
    assert channel.append_locked("data/queue", b"three\n", "data/lock")
    assert channel.read("data/queue") == b"one\ntwo\nthree\n"


def test_half_lines_are_neither_written_nor_built_upon(channel: Channel, world: World) -> None:
    with pytest.raises(PlatformError):
        channel.append_locked("data/queue", b"no newline", "data/lock")
    channel.append_locked("data/queue", b"one\n", "data/lock")
    (world.root / "data/queue").write_bytes(b"one\ntw")
    with pytest.raises(PlatformError) as caught:
        channel.append_locked("data/queue", b"three\n", "data/lock")
    assert channel.read("data/queue") == b"one\ntw"
    assert world.sh("sh", "-c", str(caught.value).split("`")[1]).returncode == 0  # the command that it names
    channel.append_locked("data/queue", b"three\n", "data/lock")
    assert channel.read("data/queue") == b"one\nthree\n"


def test_a_held_lock_is_seen(channel: Channel, world: World) -> None:
    with (world.root / "data/lock").open("ab") as holder:
        assert not channel.lock_held("data/lock")
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert channel.lock_held("data/lock")
    assert not channel.lock_held("data/lock")


def test_a_tree_is_shipped_whole_or_not_at_all(channel: Channel, world: World, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    files = [("train.py", tmp_path / "train.py", 0o644), ("bin/go", tmp_path / "train.py", 0o755)]
    with pytest.raises(FileNotFoundError):
        channel.put_tree([*files, ("gone", tmp_path / "gone", 0o644)], "data/sweep/code/abc")
    assert not list((world.root / "data/sweep").glob("code/*"))
    channel.put_tree(files, "data/sweep/code/abc")
    assert channel.read("data/sweep/code/abc/train.py") == b"print(1)"
    assert (world.root / "data/sweep/code/abc/bin/go").stat().st_mode & 0o777 == 0o755
    (tmp_path / "train.py").write_text("print(2)")
    channel.put_tree(files, "data/sweep/code/abc")
    assert channel.read("data/sweep/code/abc/train.py") == b"print(1)"
    assert [entry.name for entry in channel.listdir("data/sweep/code")] == ["abc"]
    channel.put_tree([], "data/sweep/code/empty")
    assert channel.listdir("data/sweep/code/empty") == []


PRINT_ENVIRONMENT = "import os, sys; print(sorted(os.environ), os.getsid(0) == os.getpid(), repr(sys.stdin.read()))"


def test_what_is_spawned_is_on_its_own(channel: Channel, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    argv = [channel.python, "-c", PRINT_ENVIRONMENT]
    pid = channel.spawn(argv, cwd="data/sweep", env={"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}, log="data/log/runner.log")
    eventually(lambda: (channel.size("data/log/runner.log") or 0) > 0)
    said = channel.read("data/log/runner.log").decode()
    assert said == "['HOME', 'LANG', 'LC_ALL', 'SWEEPSTACK_BOX_ID'] True ''\n"
    eventually(lambda: world.sh("test", "-e", f"/proc/{pid}").returncode != 0)  # no zombie is left of it
    channel.spawn(argv, cwd="data", env={}, log="data/log/runner.log")
    eventually(lambda: channel.read("data/log/runner.log").count(b"\n") == 2)
    with pytest.raises(FileNotFoundError):
        channel.spawn(["no-such-program"], cwd="data", env={}, log="data/log/runner.log")


def test_a_command_runs_to_its_end(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    script = "cat; echo oops >&2; env | grep -c AWS_; exit 3"
    done = channel.run(["sh", "-c", script], timeout=120, stdin=b"in ")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"in 0\n", b"oops\n")
    killed = channel.run(["sh", "-c", "kill -9 $$"], timeout=120)
    assert killed.returncode == -9
    much = channel.run(["sh", "-c", "head -c 5000000 /dev/zero; head -c 300000 /dev/zero >&2"], timeout=120)
    assert (len(much.stdout), len(much.stderr)) == (5_000_000, 300_000)
    with pytest.raises(FileNotFoundError):
        channel.run(["no-such-program"], timeout=120)


def test_a_command_that_takes_too_long_is_ended_with_its_children(channel: Channel) -> None:
    with pytest.raises(Unreachable, match=r"within 0\.3 s"):
        channel.run(["sh", "-c", "sleep 300 & sleep 300; true"], timeout=0.3)
    eventually(lambda: channel.processes() == [])


def test_only_the_boxs_own_groups_are_terminated(channel: Channel, world: World) -> None:
    script = "setsid sleep 307 >/dev/null 2>&1 & echo $!"
    other = int(world.sh("sh", "-c", script).stdout)
    try:
        channel.terminate(other, grace=0.1)
        assert world.sh("kill", "-0", str(other)).returncode == 0
    finally:
        world.sh("kill", "-9", str(other))
    held = ["sh", "-c", "trap '' TERM; sleep 300 & sleep 300; :"]
    pid = channel.spawn(held, cwd="data", env=PATHS, log="data/log")
    bystander = channel.spawn(["sleep", "300"], cwd="data", env=PATHS, log="data/log")
    eventually(lambda: len(channel.processes()) == 4)
    channel.terminate(pid, grace=0.2)
    assert [process.pid for process in channel.processes()] == [bystander]
    channel.terminate(bystander)
    channel.terminate(bystander)
    assert channel.processes() == []


def test_children_with_a_bare_environment_are_found_too(channel: Channel) -> None:
    script = "env -i sleep 300 & env -i setsid sleep 301 & wait"
    channel.spawn(["sh", "-c", script], cwd="data", env=PATHS, log="data/log")
    eventually(lambda: sum(argv[:1] == ("sleep",) for argv in words(channel.processes())) == 2)


def test_sigterm_comes_first_and_once(channel: Channel) -> None:
    program = (
        "import signal, sys, time\n"
        "def bye(*_): print('asked', flush=True); time.sleep(0.4); print('done', flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, bye); print('up', flush=True); time.sleep(300)"
    )
    pid = channel.spawn([channel.python, "-c", program], cwd="data", env={}, log="data/log")
    eventually(lambda: channel.read("data/log") == b"up\n")
    channel.terminate(pid, grace=10)
    assert channel.read("data/log") == b"up\nasked\ndone\n"


def test_a_visitor_is_not_the_boxs(channel: Channel, world: World, capfd: pytest.CaptureFixture[str]) -> None:
    assert channel.attach(["sh", "-c", "pwd; echo $SWEEPSTACK_BOX_ID; exit 5"], cwd="data") == 5
    assert capfd.readouterr().out == f"{channel.absolute('data')}\n\n"
    assert channel.attach(["no-such-program"]) == 127
    assert "there is no such command on the box" in capfd.readouterr().err
    assert channel.attach(["sh", "-c", "kill -9 $$"]) == 137
    seen: list[object] = []
    watcher = threading.Thread(target=lambda: (time.sleep(1), seen.append(channel.processes())))
    watcher.start()
    assert channel.attach(["sleep", "2"]) == 0
    watcher.join()
    assert seen == [[]]


def test_a_touch_sets_the_time_of_a_file_that_is_there_and_makes_none(channel: Channel, world: World) -> None:
    assert channel.touch("data/sweep/looked") is False
    channel.write("data/sweep/looked", b"")
    os.utime(world.root / "data/sweep/looked", (1, 1))
    assert channel.touch("data/sweep/looked") is True
    assert (world.root / "data/sweep/looked").stat().st_mtime > 1
    with pytest.raises(PlatformError):
        channel.touch("../looked")


def test_a_folder_in_a_file_s_place_is_no_file_to_readers_and_is_kept_by_writers(
    channel: Channel, world: World
) -> None:
    (world.root / "data/spec.json").mkdir(parents=True)
    (world.root / "data/spec.json/x").write_text("kept")
    with pytest.raises(NotAFile, match=r"data/spec\.json on .* is not a regular file"):
        channel.read("data/spec.json")
    assert channel.size("data/spec.json") is None
    channel.write("data/spec.json", b"{}")
    assert channel.read("data/spec.json") == b"{}"
    assert (world.root / "data/spec.json.superseded-1/x").read_text() == "kept"
