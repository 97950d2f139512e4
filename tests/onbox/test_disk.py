"""A disk that runs full, in bytes or in inodes: on a real small file system. No cell fails for it, and none is lost."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.runner.disk import DiskGate
from sweepstack.onbox.runner.records import Journal
from tests.onbox.harness import Box, wait_for

MB = 1 << 20
MIN_FREE = {"bytes": 20 * MB, "inodes": 100}
WRITE = "head -c {size} /dev/zero > {{out}}/result.json"


class SmallDisk:
    """A file system of its own, and a box on it."""

    def __init__(self, folder: Path, megabytes: int, inodes: int) -> None:
        self.folder = folder
        self._inside: list[Path] = []
        folder.mkdir()
        options = f"size={megabytes}m,nr_inodes={inodes}"
        self._sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
        done = subprocess.run(
            [*self._sudo, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"NOT TESTED: a small file system can't be mounted here: {done.stderr.strip()}")
        subprocess.run([*self._sudo, "chmod", "777", str(folder)], check=True)
        self.box = Box(folder, min_free=MIN_FREE, patrol_seconds=0.2)

    @property
    def free(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int) -> Path:
        """Leaves so many bytes."""
        filler = self.folder / "filler"
        with open(filler, "wb") as handle:
            os.posix_fallocate(handle.fileno(), 0, self.free - leave)
        return filler

    def use_up_inodes(self) -> Path:
        """Leaves 40 of them."""
        many = self.folder / "cache"
        many.mkdir()
        for number in range(os.statvfs(self.folder).f_favail - 40):
            (many / str(number)).touch()
        return many

    def enlarge(self, megabytes: int) -> None:
        subprocess.run([*self._sudo, "mount", "-o", f"remount,size={megabytes}m", str(self.folder)], check=True)

    def remount(self, how: str) -> None:
        """`ro` or `rw`."""
        subprocess.run([*self._sudo, "mount", "-o", f"remount,{how}", str(self.folder)], check=True)

    def mount(self, folder: Path) -> None:
        """Another file system in this one."""
        subprocess.run([*self._sudo, "mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)
        self._inside.append(folder)

    def end(self) -> None:
        self.box.clean()
        for folder in self._inside:
            subprocess.run([*self._sudo, "umount", "-l", str(folder)], check=True)
        subprocess.run([*self._sudo, "umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., SmallDisk]]:
    made: list[SmallDisk] = []

    def make(megabytes: int = 100, inodes: int = 3000) -> SmallDisk:
        made.append(SmallDisk(tmp_path / f"disk{len(made)}", megabytes, inodes))
        return made[-1]

    yield make
    for disk in made:
        disk.end()


def blocked(box: Box) -> dict[str, Any]:
    wait_for(lambda: bool(box.events("queue-blocked")), box.log)
    return dict(box.events("queue-blocked")[-1])


def patrolled(box: Box) -> str:
    path = box.home / "patrol.jsonl"
    return path.read_text() if path.exists() else ""


def test_full_disk_starts_nothing_and_the_queue_goes_on_by_itself(small_disk: Callable[..., SmallDisk]) -> None:
    disk = small_disk()
    box, filler = disk.box, disk.fill(leave=10 * MB)
    for name in ("a", "b"):
        box.add(name)
    runner = box.start()
    event = blocked(box)
    assert (event["why"], event["needed"]) == ("disk", 20 * MB)
    assert event["free"] <= 10 * MB
    assert "GB free" in event["hint"]
    wait_for(lambda: '"blocked": {"why": "disk"' in patrolled(box), box.log)
    assert {box.state(name) for name in ("a", "b")} == {"pending"}
    box.drop("b")  # a blocked queue still listens
    wait_for(lambda: box.state("b") == "dropped", box.log)
    filler.unlink()
    assert runner.ended() == 0
    assert box.state("a") == "sealed"
    events = [entry["event"] for entry in box.journal().entries]
    assert [events.count(event) for event in ("queue-blocked", "queue-unblocked", "cell-failed")] == [1, 1, 0]
    assert events.index("queue-unblocked") < events.index("cell-started")


def test_inodes_run_out_with_bytes_to_spare(small_disk: Callable[..., SmallDisk]) -> None:
    disk = small_disk(inodes=1000)
    box = disk.box
    many = disk.use_up_inodes()
    box.add("a")
    runner = box.start()
    event = blocked(box)
    assert (event["why"], event["needed"], event["free"] < 90) == ("inodes", 100, True)
    assert "inodes free" in event["hint"]
    assert disk.free > 50 * MB
    wait_for(lambda: "inodes 9" in patrolled(box), box.log)
    assert box.state("a") == "pending"
    shutil.rmtree(many)
    assert runner.ended() == 0
    assert box.state("a") == "sealed"


def test_disk_fills_in_the_middle_of_a_queue(small_disk: Callable[..., SmallDisk]) -> None:
    """Scenario B05: what comes after the gate closed is not started, nothing crashes, and a larger disk is enough."""
    disk = small_disk()
    box = disk.box
    box.set(min_free={"bytes": 50 * MB})
    names = [f"c{number}" for number in range(6)]
    for number, name in enumerate(names):  # each writes when the one before is sealed: 15 MB here, and 15 MB there
        before = (
            f"while ! [ -e {box.sealed(names[number - 1])}/manifest.json ]; do sleep 0.02; done; " if number else ""
        )
        box.add(name, before + WRITE.format(size=15 * MB))
    runner = box.start()
    blocked(box)
    wait_for(lambda: "running" not in [box.state(name) for name in names], box.log)
    states = [box.state(name) for name in names]
    done = states.count("sealed")
    assert states == ["sealed"] * done + ["pending"] * (6 - done)
    assert 0 < done < 6
    disk.enlarge(400)
    assert runner.ended() == 0
    assert [box.state(name) for name in names] == ["sealed"] * 6
    assert box.events("cell-failed") == []
    assert [one["cell"] for one in box.events("cell-started")] == names  # each once, in order


def test_only_scratch_of_sealed_cells_is_pruned(small_disk: Callable[..., SmallDisk]) -> None:
    disk = small_disk()
    box = disk.box
    box.set(retries=0, slots=2)
    fill = "cd $SWEEPSTACK_SCRATCH; head -c {} /dev/zero > cache; mkdir d; echo > d/x"
    box.add("sealed", fill.format(30 * MB) + "; echo > {out}/result.json")
    box.add("failed", fill.format(5 * MB) + "; exit 1")
    box.run("sealed", code=1)
    scratch = box.root / "scratch" / "sweep"
    assert (scratch / "sealed" / "1" / "cache").stat().st_size == 30 * MB  # kept while there is room
    box.add("running", fill.format(5 * MB) + f"; touch {box.control}/middle-running; echo; sleep 600")
    runner = box.start()
    box.in_the_middle("running")
    disk.fill(leave=10 * MB)
    box.add("next")
    runner.until("next", "sealed")
    (event,) = box.events("scratch-pruned")
    assert (event["cells"], event["bytes"] >= 30 * MB) == (1, True)
    assert not (scratch / "sealed").exists()
    assert (scratch / "failed" / "1" / "cache").stat().st_size == 5 * MB
    assert (scratch / "running" / "1" / "d" / "x").exists()
    assert box.events("queue-blocked") == []
    box.manifest("sealed")


def test_a_disk_that_becomes_read_only_fails_no_cell(small_disk: Callable[..., SmallDisk]) -> None:
    """The durable tier alone: the runner's own records lie elsewhere. All cells would fail for good within a second."""
    disk = small_disk()
    box = Box(disk.folder.with_name("own"), patrol_seconds=0.2, retries=0)
    durable = box.root / "mnt" / "durable"
    box.volume = disk.folder / "tier"
    box.volume.mkdir()
    durable.unlink()
    durable.symlink_to(box.volume)
    held = box.hold("a")
    try:
        for number, name in enumerate("ab"):
            box.add_steps(name, seed=number)
        runner = box.start()
        box.in_the_middle("a")
        disk.remount("ro")
        held.unlink()
        event = blocked(box)
        assert (event["why"], "is mounted read-only" in event["hint"]) == ("read-only", True)
        wait_for(lambda: bool(box.events("cell-failed", "a")), box.log)
        wait_for(lambda: "is mounted read-only: see why" in patrolled(box), box.log)
        disk.remount("rw")
        assert runner.ended() == 0, box.log()
        assert {box.state(name) for name in "ab"} == {"sealed"}
        assert {one["class"] for one in box.events("cell-failed")} == {"disk"}
    finally:
        box.clean()


def test_what_was_short_a_moment_ago_is_blamed_and_not_what_the_disk_as_a_whole_has_not(
    small_disk: Callable[..., SmallDisk],
) -> None:
    """Inodes that came back before the cell's end was judged; and bytes of which there are no more than these."""
    disk = small_disk(inodes=1000)
    spec, many = {"min_free": MIN_FREE}, disk.use_up_inodes()
    journal = Journal(disk.folder / "journal.jsonl")
    gate = DiskGate(disk.folder, disk.folder, disk.folder / "scratch", journal, lambda: None, lambda: None)
    assert not gate.is_open(spec, 0)
    shutil.rmtree(many)
    lack = gate.blames(spec, 1, True)
    assert lack is not None
    assert lack.why == "inodes"
    assert gate.is_open(spec, 0), "it waited for ever for more bytes than the disk has"
    lack = gate.blames(spec, 1, True)
    assert lack is None or not lack.path.startswith(str(disk.folder)), lack
    journal.close()


@pytest.mark.parametrize("asked", ["write", "fsync"])
def test_a_quota_that_is_used_up_fails_no_cell(
    small_disk: Callable[..., SmallDisk], monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """The file system says that there is room. No kernel here has quotas: what it answers is taken from write(2)."""
    disk = small_disk(megabytes=9000)
    journal = Journal(disk.folder / "journal.jsonl")
    gate = DiskGate(disk.folder, disk.folder, disk.folder / "scratch", journal, lambda: None, lambda: None)
    spec: dict[str, Any] = {"min_free": MIN_FREE}

    def used_up(*_: object, **__: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patched:
        patched.setattr(tempfile if asked == "write" else os, "TemporaryFile" if asked == "write" else "fsync", used_up)
        lack = gate.blames(spec, 0, True)
        assert lack is not None
        assert (lack.why, lack.path) == ("quota", str(disk.folder))
        assert gate.lack(spec, 0) == lack, "nothing starts meanwhile"
    assert gate.is_open(spec, 0)
    journal.close()


def test_what_an_ended_worker_left_goes_when_there_is_too_little_room(tmp_path: Path) -> None:
    """A worker that ended after this one began: what it left was not removed then."""
    dead, own = tmp_path / "workers" / "7_0.0", tmp_path / "workers" / "7_1.0"
    for folder in (dead / "a", own / "b"):
        folder.mkdir(parents=True)
        (folder / "cache").write_bytes(bytes(1 << 16))
    journal = Journal(tmp_path / "journal.jsonl")
    gate = DiskGate(tmp_path, tmp_path, own, journal, lambda: None, lambda: None)
    gate.left = lambda: [dead]
    spec = {"min_free": {"bytes": 1 << 60}}
    assert not gate.is_open(spec, 0)
    wait_for(lambda: not dead.exists(), str)
    wait_for(lambda: not gate.is_open(spec, 0) and gate.blocked is not None, str)
    said = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert (said[0]["event"], said[0]["workers"], said[0]["cells"]) == ("scratch-pruned", 1, 0)
    assert said[0]["bytes"] >= 1 << 16
    assert (own / "b" / "cache").exists(), "of a cell that is not sealed"
    journal.close()


def test_scratch_that_can_not_be_removed_is_not_pruned(small_disk: Callable[..., SmallDisk]) -> None:
    """A mount in it holds it, whoever asks. The queue is blocked, and says so."""
    disk = small_disk()
    box = disk.box
    box.add("a", f"cd $SWEEPSTACK_SCRATCH; head -c {5 * MB} /dev/zero > cache; mkdir held; echo > {{out}}/result.json")
    box.run("a")
    held = box.root / "scratch" / "sweep" / "a" / "1" / "held"
    disk.mount(held)
    disk.fill(leave=10 * MB)
    box.add("next")
    box.start()
    blocked(box)
    assert held.exists()
    assert box.events("scratch-pruned") == []
    assert "pruned" not in box.log()


@pytest.mark.parametrize("tidy", [False, True])
def test_cell_that_finds_the_disk_full_has_not_failed(small_disk: Callable[..., SmallDisk], tidy: bool) -> None:
    """Also one that removes what it wrote: then there seems to be room. It waits for more than it found."""
    disk = small_disk()
    box, filler = disk.box, disk.fill(leave=40 * MB)
    box.set(retries=0)
    clean = "rm $SWEEPSTACK_SCRATCH/f; " if tidy else ""
    write = f"head -c {60 * MB} /dev/zero > $SWEEPSTACK_SCRATCH/f"
    box.add("a", f"{write} || {{ {clean}exit 1; }}; echo > {{out}}/result.json")
    runner = box.start()
    event = blocked(box)
    assert event["why"] == "disk"
    (failure,) = box.events("cell-failed", "a")
    assert (failure["class"], failure["final"]) == ("disk", False)
    if not tidy:  # first, while the runner waits: it would begin the next attempt there meanwhile
        shutil.rmtree(box.root / "scratch" / "sweep" / "a")
    filler.unlink()
    assert runner.ended() == 0, box.log()
    assert box.state("a") == "sealed"
    assert len(box.events("cell-failed", "a")) == 1


def test_full_to_the_last_byte_the_journal_still_says_so(small_disk: Callable[..., SmallDisk]) -> None:
    """A cell ends while nothing can be written: it can't be sealed, and what became of it is known all the same."""
    disk = small_disk()
    box = disk.box
    box.set(retries=0)
    held = box.hold("a")
    box.add_steps("a", seed=7)
    runner = box.start()
    box.in_the_middle("a")
    filler = disk.folder / "filler"
    for size, most in ((MB, 2000), (1, 2 * MB)):  # bounded: should the small disk not be mounted, this fills no other
        with contextlib.suppress(OSError), open(filler, "ab", buffering=0) as handle:
            for _ in range(most):
                handle.write(b"x" * size)
    assert disk.free == 0
    held.unlink()
    blocked(box)
    assert {one["class"] for one in box.events("cell-failed", "a")} == {"disk"}
    filler.unlink()
    assert runner.ended() == 0, box.log()
    box.manifest("a")
    assert not (box.control / "overlap-a").exists()


def test_queue_that_waited_says_so_to_the_next_runner_too(small_disk: Callable[..., SmallDisk]) -> None:
    disk = small_disk()
    box, filler = disk.box, disk.fill(leave=10 * MB)
    box.add("a")
    runner = box.start()
    blocked(box)
    runner.kill()
    filler.unlink()
    box.run("a")
    assert len(box.events("queue-unblocked")) == 1


def test_default_asks_for_as_much_as_the_largest_cell_took(small_disk: Callable[..., SmallDisk]) -> None:
    """No `min_free` in the spec: half of a small disk at most, or it would block for ever."""
    disk = small_disk(megabytes=1000)
    box = disk.box
    box.set(min_free=None)
    box.add("a", WRITE.format(size=200 * MB))
    box.run("a")
    disk.fill(leave=380 * MB)
    box.add("b")
    runner = box.start()
    event = blocked(box)
    assert 400 * MB <= event["needed"] <= 401 * MB  # its folder and its sealed copy lie on this disk
    assert json.loads(json.dumps(event))["path"].startswith(str(disk.folder))
    disk.enlarge(1200)
    assert runner.ended() == 0
    assert box.state("b") == "sealed"
