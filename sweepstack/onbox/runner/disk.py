"""Checks before every cell that disks can be written and have room; else prunes or waits.

Only the scratch of sealed cells, and of workers that have ended, is ever removed. A full disk is no failure of a cell:
no cell starts until there is room again, and then the queue goes on by itself.

A worker's scratch is a folder of its own beside those of the others. It is removed only when the journal has that
worker's end, its record says that it ran on this host, and no process of it is seen here: a proof can be wrong, and
then its cells still write. What is mounted in such a folder is never removed with it.

The person who has to make room is told what fills the disk, and when it will be full: caches and old checkpoints lie
where no job looks for them, and a disk can be full by the number of its files.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.mount_points import mounted_below
from sweepstack.onbox.common.processes import scan
from sweepstack.onbox.runner.cell_processes import of_workers
from sweepstack.onbox.runner.records import Journal, say

LEAST_BYTES, LEAST_INODES = 256 << 20, 1000
SPACIOUS_BYTES, ROOMY_BYTES = 4 << 30, 16 << 30
"""A cell that found the disk full may have cleaned up. If less than the first is free here, this disk was probably the
full one; if more than the second, or twice the largest cell, it was not."""


PROBE_BYTES = 1 << 20
NOWHERE = -1
"""No device: what is pruned there would not help."""

LOOK_SECONDS = 10.0
"""For all folders together: on a network mount one folder can take minutes."""
GRACE_SECONDS = 2.0
"""How much longer it is waited for a call of the system that does not come back."""
AGAIN_SECONDS = 600.0
SHOWN, SMALL = 4, 0.02
"""So many folders; none that holds less than this part of what the largest one does."""
WINDOW_SECONDS, LEAST_SECONDS = 3600.0, 600.0
SOON_SECONDS = 6 * 3600.0
HALF = 0.5
"""A disk that is not yet half used has time, whatever its rate is."""
CACHES = (
    "~/.cache/huggingface",
    "~/.cache/torch",
    "~/.cache/pip",
    "~/.cache/uv",
    "~/.cache",
    "~/.conda/pkgs",
    "~/wandb",
)
ELSEWHERE = ("/opt/conda/pkgs", "/root/miniconda3/pkgs", "/tmp", "/var/tmp", "/dev/shm")
VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "TORCH_HOME", "PIP_CACHE_DIR", "UV_CACHE_DIR", "WANDB_DIR", "MODELSCOPE_CACHE")


class Room(NamedTuple):
    """What is free on a file system. Inodes are -1 when it does not count them, bytes when it can't tell."""

    path: str
    device: int
    free: int
    total: int
    inodes_free: int
    inodes_total: int
    read_only: bool = False


class Lack(NamedTuple):
    """A file system with too little room. `why`: disk, inodes, quota or read-only; `free` and `needed`: bytes, or
    inodes."""

    why: str
    path: str
    device: int
    free: int
    needed: int

    def facts(self) -> dict[str, Any]:
        return {"why": self.why, "path": self.path, "free": self.free, "needed": self.needed}


def room_at(path: Path) -> Room | None:
    """What is free on the file system of `path`; None when that can't be read."""
    try:
        found, device = os.statvfs(path), os.stat(path).st_dev
    except OSError:
        return None
    total, inodes = found.f_blocks * found.f_frsize, found.f_files
    free = found.f_bavail * found.f_frsize if total else -1  # a bucket's mount may not know
    read_only = bool(found.f_flag & os.ST_RDONLY)
    return Room(str(path), device, free, total, found.f_favail if inodes else -1, inodes, read_only)


def over_quota(folder: Path) -> bool:
    """Whether a quota lets no file of PROBE_BYTES be written into a folder: what a file system says of its room does
    not show that. Leaves nothing there. False where it can't be tried for another reason."""
    import tempfile  # slow to import

    try:
        with tempfile.TemporaryFile(dir=str(folder)) as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())  # a network file system says it only then
    except OSError as error:
        return error.errno == errno.EDQUOT
    return False


class DiskGate:
    """Closed while a file system that cells write to has too little room. For the main thread, except `blames`.

    `blocked`: the lack that the queue waits for; None while it does not. `left`: finds folders of scratch that workers
    left here when they ended.
    """

    left: Callable[[], list[Path]] = list

    def __init__(
        self,
        home: Path,
        cells: Path,
        scratch: Path,
        journal: Journal,
        announce: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        self.blocked: Lack | None = None
        self.scratch = scratch
        self._tiers = [home, cells, self.scratch, self.scratch.parent]
        self._others = [Path(os.path.expanduser("~")), Path("/tmp"), Path("/dev/shm")]
        self._journal, self._announce, self._wake = journal, announce, wake
        self._raised: dict[tuple[int, str], int] = {}  # (device, why) → what one cell found to be too little
        self._full: Path | None = None  # a folder in which a cell found its quota used up
        self._pool = ThreadPoolExecutor(1)
        self._pruning: Future[tuple[int, int, int]] | None = None
        self._useless: set[Path] = set()  # scratch that was pruned already, or can't be

    def is_open(self, spec: Mapping[str, Any], running: int) -> bool:
        """Whether one more cell may start, beside `running` others. Prunes, and writes to the journal; never blocks."""
        if self._pruning is not None:
            if not self._pruning.done():
                return False
            size, cells, workers = self._pruning.result()
            self._pruning = None
            if cells or workers:
                say(f"pruned the scratch of {cells} sealed cells and {workers} ended workers: {size} bytes")
                more: dict[str, Any] = {"workers": workers} if workers else {}
                self._journal.append("scratch-pruned", bytes=size, cells=cells, **more)
        lack = self.lack(spec, running)
        if lack is None:
            self._raised.clear()
            self.blocked = None
            if self._journal.blocked:
                say("there is room again")
                self._announce()
                self._journal.append("queue-unblocked")
            return True
        candidates = self._prunable(lack.device)
        if candidates:
            self._pruning = self._pool.submit(self._prune, candidates, dict(spec), running)
            self._pruning.add_done_callback(lambda _: self._wake())
        elif self.blocked is None or (self.blocked.why, self.blocked.path) != (lack.why, lack.path):
            say(f"blocked: {hint(lack)}")
            self._announce()
            self._journal.append("queue-blocked", hint=hint(lack), **lack.facts())
            self.blocked = lack
        else:
            self.blocked = lack
        return False

    def lack(self, spec: Mapping[str, Any], running: int) -> Lack | None:
        """The first lack that keeps one more cell from starting; None when there is room."""
        asked = spec.get("min_free") or {}
        for room, ours in self._rooms():
            if ours and room.read_only:
                return Lack("read-only", room.path, NOWHERE, 0, 0)
            needs = {"disk": (room.free, 0), "inodes": (room.inodes_free, 0)}
            if ours:
                # Running cells will still write: to their folders here, and their sealed copies there. But a disk that
                # is small as a whole must not block for ever.
                copies = sum(tier.exists() and os.stat(tier).st_dev == room.device for tier in self._tiers[:2])
                least = max(LEAST_BYTES, self._journal.largest * (running + 1) * max(1, copies))
                size, count = asked.get("bytes"), asked.get("inodes")
                size = min(least, room.total // 2) if size is None else int(size)
                count = min(LEAST_INODES, room.inodes_total // 2) if count is None else int(count)
                needs = {"disk": (room.free, size), "inodes": (room.inodes_free, count)}
            for why, (free, needed) in needs.items():
                needed = max(needed, self._raised.get((room.device, why), 0))
                if 0 <= free < needed:
                    return Lack(why, room.path, room.device, free, needed)
        full = self._full
        if full is not None:
            if over_quota(full):
                return Lack("quota", str(full), NOWHERE, 0, PROBE_BYTES)
            self._full = None
        return None

    def blames(self, spec: Mapping[str, Any], running: int, said_full: bool) -> Lack | None:
        """The lack of room that made a cell fail just now; None when it was not that. `said_full`: its output says that
        a disk is full.

        If it says so and has cleaned up, more than what is free now is required from now on.
        """
        lack = self.lack(spec, running)
        if lack is not None or not said_full:
            return lack
        if self.blocked is not None:  # what the queue waits for was there again a moment ago
            return self.blocked
        self._full = next((one for one in (*self._tiers, *self._others) if one.is_dir() and over_quota(one)), None)
        if self._full is not None:
            return Lack("quota", str(self._full), NOWHERE, 0, PROBE_BYTES)
        suspects = []
        for room, _ in self._rooms():
            roomy = max(ROOMY_BYTES, 2 * self._journal.largest)  # a tenth of a large disk is a lot
            if 0 <= room.free < max(SPACIOUS_BYTES, min(room.total // 10, roomy)):
                suspects.append((room.free / max(1, room.total), "disk", room, room.free))
            if 0 <= room.inodes_free < room.inodes_total // 10:
                suspects.append((room.inodes_free / room.inodes_total, "inodes", room, room.inodes_free))
        for _, why, room, free in sorted(suspects, key=lambda one: one[0]):
            least, most = (LEAST_BYTES, room.total) if why == "disk" else (LEAST_INODES, room.inodes_total)
            needed = free + max(1, min(free // 4, least))
            if needed <= most:  # else the queue would wait for ever for what the disk as a whole has not
                self._raised[room.device, why] = needed
                return Lack(why, room.path, room.device, free, needed)
        return None

    def _rooms(self) -> Iterator[tuple[Room, bool]]:
        """The file systems that cells write to, each once; and whether it is reserved for them."""
        seen = set()
        for paths, ours in ((self._tiers, True), (self._others, False)):
            for path in paths:
                room = room_at(path)
                if room is not None and (room.device, room.read_only) not in seen:
                    seen.add((room.device, room.read_only))
                    yield room, ours

    def _prunable(self, device: int) -> list[Path]:
        """Scratch on this file system: what ended workers left, then that of sealed cells, oldest first."""
        found, dead = [], []
        for folder in self.left():
            with contextlib.suppress(OSError):
                if folder not in self._useless and folder.lstat().st_dev == device:
                    dead.append(folder)
        with contextlib.suppress(OSError), os.scandir(self.scratch) as entries:
            for entry in entries:
                if Path(entry.path) in self._useless or not entry.is_dir(follow_symlinks=False):
                    continue
                progress = self._journal.cells.get(entry.name)
                status = entry.stat(follow_symlinks=False)
                if progress is not None and progress.state == "sealed" and status.st_dev == device:
                    found.append((status.st_mtime, Path(entry.path)))
        return [*dead, *(folder for _, folder in sorted(found))]

    def _prune(self, folders: list[Path], spec: dict[str, Any], running: int) -> tuple[int, int, int]:
        """Removes scratch until there is room: bytes freed, and cells and workers that have none left.

        No cell starts meanwhile, so none comes to need it.
        """
        size = cells = workers = 0
        for folder in folders:
            if self.lack(spec, running) is None:
                break
            size += remove(folder)
            if folder.exists():  # it could not be removed completely: don't try again every second
                self._useless.add(folder)
            elif folder.parent == self.scratch:
                cells += 1
            else:
                workers += 1
        return size, cells, workers


def hint(lack: Lack) -> str:
    """What to do about it, in words."""
    if lack.why == "read-only":
        return (
            f"{lack.path} is mounted read-only: see why (`dmesg`, or its server), and make it writable again "
            "(`mount -o remount,rw`, as root); it goes on by itself"
        )
    if lack.why == "quota":
        return f"the quota at {lack.path} is used up: remove files there, or have it raised; it goes on by itself"
    if lack.why == "inodes":
        return f"{lack.path} has {lack.free} inodes free, {lack.needed} are needed: remove small files there"
    more = f"{(lack.needed - lack.free) / 1e9:.2f} GB"
    return f"{lack.path} has {lack.free / 1e9:.2f} GB free: free {more} there, or enlarge it; it goes on by itself"


def left_by_ended(own: Path, workers: Path, ended: Container[str]) -> list[Path]:
    """Such folders beside `own`, this worker's. `workers`: the folder of all workers' records; `ended`: those whose end
    the journal has. Reads only; empty where something can't be read. Blocks for a look at this host's processes."""
    named = []
    with contextlib.suppress(OSError), os.scandir(own.parent) as entries:
        for entry in entries:
            if entry.name == own.name or entry.name not in ended or not entry.is_dir(follow_symlinks=False):
                continue
            if entry.stat(follow_symlinks=False).st_uid == os.geteuid() and _was_here(workers / entry.name):
                named.append(entry.name)
    if not named:
        return []
    try:
        seen = scan()
    except Unreachable:
        return []
    return [own.parent / name for name in named if not of_workers(seen, {name}.__contains__)]


def remove(folder: Path) -> int:
    """Removes a folder, as far as that works; nothing where something is mounted in it. Returns the bytes that were
    freed. Blocks."""
    before = size_of(folder)
    try:
        if mounted_below(folder):
            return 0
    except OSError:
        return 0
    shutil.rmtree(folder, ignore_errors=True)
    return max(0, before - size_of(folder))


def size_of(folder: Path) -> int:
    """Bytes that a folder takes on the disk."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return total


def _was_here(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / "worker.json").read_bytes())["host"] == socket.gethostname())
    except (OSError, ValueError, KeyError, TypeError):
        return False


class FolderUse(NamedTuple):
    """What a folder holds on one disk. `whole`: the time was enough to see all of it."""

    path: str
    bytes: int
    files: int
    whole: bool


class DiskUse:
    """Looks at the folders of one box, at most every `AGAIN_SECONDS` on each disk. For one thread."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._seen: dict[tuple[str, int], tuple[float, str]] = {}
        self._looking: threading.Thread | None = None
        self._found: list[FolderUse] = []
        self._at, self._device = home, 0

    def words(self, why: str, device: int, spec: Mapping[str, Any]) -> str:
        """`: ~/.cache/huggingface 12.3 GB, …`, to end a sentence with; "" where no folder is known there. `why`: disk,
        or inodes. Blocks for `LOOK_SECONDS` and `GRACE_SECONDS` at most."""
        at, said = self._seen.get((why, device), (0.0, ""))
        if not at or time.monotonic() - at > AGAIN_SECONDS:
            said = self._look(why, device, list(self._folders(spec)))
            self._seen[why, device] = time.monotonic(), said
        return said

    def _look(self, why: str, device: int, folders: list[Path]) -> str:
        """In a thread of its own: a `stat` on a mount whose server is gone can hang for ever. While one hangs, no other
        begins."""
        if self._looking is None or not self._looking.is_alive():
            self._found, self._device = [], device
            self._looking = threading.Thread(
                target=hogs, args=(self._each(folders), device, LOOK_SECONDS, self._found), daemon=True
            )
            self._looking.start()
        self._looking.join(LOOK_SECONDS + GRACE_SECONDS)
        if not self._looking.is_alive():
            return _said(why, self._found)
        seen = list(self._found) if device == self._device else []
        return f"{_said(why, seen) or ': '}{', ' if seen else ''}{self._at} does not answer"

    def _each(self, folders: Iterable[Path]) -> Iterator[Path]:
        for folder in folders:
            self._at = folder
            yield folder

    def _folders(self, spec: Mapping[str, Any]) -> Iterator[Path]:
        box = self._home.parent.parent
        yield from (self._home / name for name in ("cells", "checkpoints", "code", "envs"))
        yield from (box / "scratch", box / "mnt" / "durable", box / "data")
        given = {**((spec.get("network") or {}).get("env") or {}), **(spec.get("env") or {})}
        names = [str(given[name]) for name in VARIABLES if name in given]
        yield from (Path(os.path.expanduser(name)) for name in (*names, *CACHES, *ELSEWHERE))


def hogs(folders: Iterable[Path], device: int, seconds: float, found: list[FolderUse] | None = None) -> list[FolderUse]:
    """What these folders hold on the disk `device`, the largest first. A folder inside one that was seen, or the same
    by another name, counts once, where it is named first. `found`: gets each as soon as it is known."""
    ends, found = time.monotonic() + seconds, [] if found is None else found
    seen: set[tuple[int, int]] = set()
    for folder in folders:
        use = _of(folder, device, ends, seen)
        if use is not None and (use.bytes or use.files):
            found.append(use)
    return sorted(found, key=lambda use: -use.bytes)


def _of(folder: Path, device: int, ends: float, seen: set[tuple[int, int]]) -> FolderUse | None:
    try:
        top = os.stat(folder)
    except OSError:
        return None
    size = files = 0
    todo, whole = [os.path.realpath(folder)], True
    if top.st_dev != device or (top.st_dev, top.st_ino) in seen:
        return None
    while todo:
        if time.monotonic() > ends:
            whole = False
            break
        try:
            here = todo.pop()
            status = os.stat(here)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(here) as entries:
                for entry in entries:
                    info = entry.stat(follow_symlinks=False)
                    if info.st_dev != device:
                        continue
                    size, files = size + info.st_blocks * 512, files + 1
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except OSError:
            continue  # gone meanwhile, or not ours to read
    return FolderUse(str(folder), size, files, whole)


def _said(why: str, found: list[FolderUse]) -> str:
    def held(use: FolderUse) -> int:
        return use.files if why == "inodes" else use.bytes

    most = sorted(found, key=held, reverse=True)[:SHOWN]
    parts = []
    for use in most:
        if held(use) >= SMALL * held(most[0]):
            amount = f"{use.files:,} files" if why == "inodes" else f"{use.bytes / 1e9:.1f} GB"
            parts.append(f"{use.path} {'' if use.whole else 'more than '}{amount}")
    return f": {', '.join(parts)}" if parts else ""


class Trend:
    """How fast the free bytes or inodes of a disk shrink, by the looks of the last hour."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def seconds_left(self, at: float, free: int, total: int) -> float | None:
        """In how many seconds none is left, at the rate since the first look of the last hour; None where that is not
        known, not soon, or the disk is less than half used. `at`: now (monotonic)."""
        if free < 0 or total <= 0:
            self._seen.clear()
            return None
        self._seen.append((at, free))
        while self._seen[0][0] < at - WINDOW_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        if at - since < LEAST_SECONDS or before <= free or 1 - free / total < HALF:
            return None
        left = free / ((before - free) / (at - since))
        return left if left < SOON_SECONDS else None
