"""MOUNT_CACHED: copies sealed cells and checkpoints from the durable tier to a bucket, and back.

A cell is sealed on the tier first, then copied to `<source>/<identity>/sealed/<cell>/<attempt>-<digest>/` and read back
from there, its manifest last; only then it counts as sealed. A box with an empty tier fetches these before its first
cell. Checkpoints are copied in the background, as sets (`checkpoint_sets` says what a set is, and which one is the
newest): those of the cells that this box's journal has started and not handed on, and that have not been sealed. A
cell's newest set is brought just before its first attempt here.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from sweepstack.onbox.common.canonical import file_sha256, sha256_hex
from sweepstack.onbox.common.processes import end_all, scan
from sweepstack.onbox.runner.checkpoint_sets import TICK_SECONDS, Changing, NoSuchSet, Sets, Store, Superseded, empty
from sweepstack.onbox.runner.mounts import mounts_of
from sweepstack.onbox.runner.rclone import Remote, RemoteFailed, RemoteStopped
from sweepstack.onbox.runner.records import FOLDER, Journal, Progress, say
from sweepstack.onbox.runner.sealing import MANIFEST, CellFailure, publish

FLUSH_SECONDS = 24 * 3600.0
"""An ended cell waits for its bucket for so long; then it counts as failed."""
OWNER = "SWEEPSTACK_COPIES"
"""In the environment of an rclone of this box: one that a killed runner left would write what is not the newest."""


class Uploads:
    """The copies to the bucket. Call `flush` in the sealers' threads; all else in the main thread.

    `ending`: this runner is told to end; what comes in, and waits for the bucket, is cut. `stopping`: what goes out,
    too. `copies`: the checkpoints.
    """

    def __init__(
        self, cells: Path, checkpoints: Path, identity: str, owner: str, journal: Journal, wake: Callable[[], None]
    ) -> None:
        self.ending, self.stopping = threading.Event(), threading.Event()
        self.copies = Copies(checkpoints, identity, owner, journal, self.ending, self.stopping, wake)
        self._cells, self._identity, self._owner = cells, identity, owner
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[str, Any]] = {}
        self._remote: Remote | None = None

    def connect(self, spec: Mapping[str, Any], env: Mapping[str, str], hidden: Sequence[str]) -> str:
        """Fetches the sealed cells that the bucket has and this tier lacks. Returns why that failed; "" on success, and
        without such a mount. Blocks; call it in a thread."""
        cached = mounts_of(spec, "MOUNT_CACHED")
        if not cached:
            return ""
        marked = {**env, OWNER: self._owner}
        inward, remote = (Remote(cached[0], marked, hidden, event) for event in (self.ending, self.stopping))
        try:
            self._end_leftovers()
            taken = [cell for cell in self._sealed_there(inward) if self._take_back(inward, *cell)]
        except RemoteStopped:
            return "the runner was stopped"
        except OSError as error:
            return f"mounts: {error}"
        if taken:
            say(f"{len(taken)} sealed cells came back from {remote.source}")
        self._remote = remote
        self.copies.connect(inward, remote)
        return ""

    def _end_leftovers(self) -> None:
        """Ends each rclone that an earlier runner of this box left. Raises RemoteFailed."""
        mark = f"{OWNER}={self._owner}".encode()
        left = end_all(lambda: [process for process in scan() if mark in process.environ], 0.0)
        if left:
            raise RemoteFailed(f"an earlier runner's rclone can't be ended: {[process.pid for process in left]}")

    def flush(self, cell: str, attempt: int, folder: Path) -> None:
        """Returns when a sealed folder was read back from the bucket; at once without a bucket. Tries for
        FLUSH_SECONDS, then raises RemoteFailed; RemoteStopped when the runner ends."""
        remote = self._remote
        if remote is None:
            return
        data = (folder / MANIFEST).read_bytes()
        place = f"{self._identity}/sealed/{cell}/{attempt}-{sha256_hex(data)[:16]}"
        size = sum(file["size"] for file in json.loads(data)["files"])
        entry = {"cell": cell, "bytes": size, "since": time.monotonic(), "why": ""}
        with self._lock:
            self._waiting[cell] = entry
        try:
            self._until_there(remote, folder, place, entry)
        finally:
            with self._lock:
                del self._waiting[cell]

    def _until_there(self, remote: Remote, folder: Path, place: str, entry: dict[str, Any]) -> None:
        pause, until = FIRST_PAUSE, time.monotonic() + FLUSH_SECONDS
        while True:
            try:
                remote.push(folder, place, last=MANIFEST)
                return
            except RemoteStopped:
                raise
            except OSError as error:
                if str(error) != entry["why"]:
                    say(f"{entry['cell']} waits for its bucket: {error}")
                entry["why"] = str(error)
                if time.monotonic() > until:
                    raise RemoteFailed(f"it was not to be had in {FLUSH_SECONDS / 3600:g} h: {error}") from error
            if self.ending.wait(pause):
                raise RemoteStopped(f"{entry['cell']}: the runner was stopped")
            pause = min(LONGEST_PAUSE, 2 * pause)

    def wind_up(self) -> None:
        """This runner ends: nothing waits for the bucket any more, and nothing comes in. What goes out goes on."""
        self.ending.set()

    def stop(self) -> None:
        """Ends the copies that run."""
        self.ending.set()
        self.stopping.set()

    def backlog(self) -> dict[str, Any] | None:
        """The cells that wait for the bucket, and `checkpoints` (`Copies.facts`), for people; None without a bucket."""
        if self._remote is None:
            return None
        with self._lock:
            waiting = list(self._waiting.values())
        oldest = max((time.monotonic() - entry["since"] for entry in waiting), default=0.0)
        why = next((entry["why"] for entry in waiting if entry["why"]), self.copies.why)
        return {
            "source": self._remote.source,
            "endpoint": self._remote.endpoint,
            "cells": sorted(entry["cell"] for entry in waiting),
            "bytes": sum(entry["bytes"] for entry in waiting),
            "seconds": round(oldest, 1),
            "why": why,
            "checkpoints": self.copies.facts(),
        }

    # -- taking back

    def _sealed_there(self, remote: Remote) -> list[tuple[str, str]]:
        """The cells with a whole copy in the bucket: (cell, folder of the newest copy). The newest is that of the last
        of a person's retries: only among the copies of one does a box's clock decide."""
        newest: dict[str, tuple[int, str, str]] = {}
        for path in remote.listing(f"{self._identity}/sealed", "/*/*/" + MANIFEST):
            cell, _, _ = path.partition("/")
            try:
                manifest = json.loads(remote.read(f"{self._identity}/sealed/{path}"))
                found = int(manifest.get("retry", 0)), str(manifest["sealed_at"]), path.rpartition("/")[0]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                say(f"{remote.source}: the copy of {cell} in {path} does not read, and is left there: {error}")
                continue
            newest[cell] = max(newest.get(cell, (-1, "", "")), found)
        return [(cell, folder) for cell, (_, _, folder) in sorted(newest.items())]

    def _take_back(self, remote: Remote, cell: str, folder: str) -> bool:
        """Fetches one sealed cell, compares its digests, and renames it. False when it is here already."""
        final = self._cells / cell
        if (final / MANIFEST).exists():
            return False
        partial = self._cells / f"{cell}.partial-0"
        shutil.rmtree(partial, ignore_errors=True)
        remote.fetch(f"{self._identity}/sealed/{folder}", partial)
        for file in json.loads((partial / MANIFEST).read_bytes())["files"]:
            if file_sha256(partial / file["path"]) != file["sha256"]:
                raise RemoteFailed(
                    f"{remote.source}: {folder}/{file['path']} is not what was sealed. Next: remove that folder there, "
                    "then `pulumi up`: the cell runs again"
                )
        publish(partial, final)
        return True


UPLOAD_SECONDS = 60.0
"""Between two copies of new checkpoints."""
FIRST_SOONER = 6
"""So much more often it is looked whether a cell that has just begun has saved something."""
SETTLE_SECONDS, PATIENCE_SECONDS = 2.0, 10.0
"""Checkpoints are copied once they have not changed for so long, and at the latest after so long."""
BRING_SECONDS = 600.0
"""A cell waits for its bucket for so long before it starts; then it is left to the next runner."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Between two tries while the bucket does not answer."""
AT_ONCE = 4
OPEN = ("started", "retry", "failed")


class Unit(NamedTuple):
    """A folder of checkpoints to copy. `key`: the cell and its last attempt; `runs`: whether that may still write."""

    key: tuple[str, int]
    folder: Path
    runs: bool


class Copies:
    """Use it in the main thread; `bring` blocks, and is for a thread. `inward`, `outward`: the bucket, once it is known
    (`connect`). `ending` cuts what comes in, `stopping` all. `wake`: called when something has ended."""

    def __init__(
        self,
        checkpoints: Path,
        identity: str,
        owner: str,
        journal: Journal,
        ending: threading.Event,
        stopping: threading.Event,
        wake: Callable[[], None],
    ) -> None:
        self.refused: dict[str, str] = {}
        self._checkpoints, self._identity, self._owner, self._journal = checkpoints, identity, owner, journal
        self._ending, self._stopping, self._wake = ending, stopping, wake
        self._inward: Store | None = None
        self._outward: Store | None = None
        self._out, self._in = ThreadPoolExecutor(1), ThreadPoolExecutor(AT_ONCE)
        self._bringing: dict[str, Future[str]] = {}
        self._come: set[str] = set()  # those of them that have ended, as `collect` found
        self._folders: dict[str, Path] = {}
        self._copying: Future[None] | None = None
        self._due, self.why, self._hurry = 0.0, "", False
        self._lock = threading.RLock()  # what both threads use
        self._folder_locks: dict[Path, threading.Lock] = {}
        self._sets: dict[Path, Sets] = {}
        self._settled: set[tuple[str, int]] = set()
        self._given_up: set[tuple[str, int]] = set()
        self._copied_at: dict[str, float] = {}
        self._behind: dict[str, str] = {}

    def connect(self, inward: Store, outward: Store) -> None:
        self._inward, self._outward = inward, outward

    # -- in

    def ready(self, cell: str, folder: Path, start: str = "", of: str = "", most: int = 1) -> bool | None:
        """Whether a cell may start, as far as its checkpoints go; True without a bucket. None: they are being brought,
        or are to be brought when fewer than `most` are. False: the bucket did not answer for BRING_SECONDS. `start` and
        `of`: as for `bring`. Never blocks for long."""
        if self._inward is None or (self._is_here(self._journal.cells[cell]) and not empty(folder)):
            self._folders[cell] = folder
            return True
        future = self._bringing.get(cell)
        if future is None:
            if self._ending.is_set() or self.busy_with >= most:
                return None
            future = self._bringing[cell] = self._in.submit(self.bring, cell, folder, start, of)
            future.add_done_callback(lambda _: self._wake())
        if cell not in self._come:
            return None
        failed = future.result()
        if failed:
            return False
        del self._bringing[cell]
        self._come.discard(cell)
        self._folders[cell] = folder
        return True

    def must_begin(self, cell: str) -> None:
        """Raises CellFailure where the set with which a cell was to begin is not there."""
        why = self.refused.pop(cell, "")
        if why:
            raise CellFailure(why)

    def bring(self, cell: str, folder: Path, start: str = "", of: str = "") -> str:
        """Brings what the bucket has into the folder of a cell's checkpoints, before its attempt starts: see
        `Sets.bring`. `of`: the name of the folder whose sets are meant where this one has none. Returns why it did not;
        "" on success, and where there is no such set (`must_begin`). Blocks, for BRING_SECONDS while the bucket is
        away."""
        store = self._inward
        if store is None:
            return ""
        pause, until, said = FIRST_PAUSE, time.monotonic() + BRING_SECONDS, ""
        with self._lock_of(folder):
            with self._lock:
                self._sets.pop(folder, None)
            while True:
                try:
                    other = Sets(store, self._identity, cell, folder.with_name(of), self._owner) if of else None
                    alone = not self._journal.worker  # of several workers another one may be the one that starts it
                    words = Sets(store, self._identity, cell, folder, self._owner).bring(start, other, alone)
                    if words:
                        say(f"{cell}: checkpoints: {words}")
                    return ""
                except NoSuchSet as error:
                    self.refused[cell] = str(error)
                    return ""
                except RemoteStopped:
                    return "the runner was stopped"
                except OSError as error:
                    if str(error) != said:
                        said = str(error)
                        say(f"{cell} does not start before its bucket answers: {said}")
                    if time.monotonic() > until:
                        say(f"{cell} is left to the next runner, which `pulumi up` starts: {said}")
                        return said
                if self._ending.wait(pause):
                    return "the runner was stopped"
                pause = min(LONGEST_PAUSE, 2 * pause)

    def collect(self) -> bool:
        """Whether the wait of a cell has ended since the last call, so that it may start now."""
        come = {cell for cell, future in self._bringing.items() if future.done()} - self._come
        self._come |= come
        return bool(come)

    @property
    def busy_with(self) -> int:
        """How many cells wait for what is being brought."""
        return len(self._bringing) - len(self._come)

    # -- out

    def beat(self, spec: Mapping[str, Any]) -> None:
        """Begins a copy of new checkpoints every UPLOAD_SECONDS. Never blocks, never raises."""
        at, seconds = time.monotonic(), float(spec.get("upload_seconds", UPLOAD_SECONDS))
        if self._copies() or at < self._due or self._ending.is_set():
            return
        units = self._units()
        if not units:
            return
        first = any(unit.key[0] not in self._copied_at for unit in units)
        self._due = at + (seconds / FIRST_SOONER if first else seconds)
        self._begin(units, min(SETTLE_SECONDS, seconds / 2))

    def owes(self) -> bool:
        """Whether a cell that has ended, and is not sealed, has checkpoints that are being copied. Begins that at once;
        one try for each attempt. Never blocks."""
        open_units = self._units()
        if not open_units or self._copies():
            return bool(open_units)
        units = [unit for unit in open_units if unit.key not in self._given_up]
        self._given_up.update(unit.key for unit in units)
        self._begin(units, 0.0)
        return bool(units)

    def last(self) -> None:
        """Begins the last copy: all cells have ended. `left` says what was not copied, once `done`."""
        self._hurry = True  # a copy that runs goes on with its set, and with no other
        units = self._units()
        with self._lock:
            self._behind.update({unit.key[0]: "there was no time to copy it" for unit in units})
        self._begin(units, 0.0)

    @property
    def done(self) -> bool:
        """Whether no copy runs."""
        return not self._copies()

    def left(self) -> dict[str, str]:
        """Cells whose newest checkpoints are not in the bucket, as far as was looked → why."""
        with self._lock:
            return {cell: why for cell, why in sorted(self._behind.items()) if why and self._is_open(cell)}

    def facts(self) -> dict[str, dict[str, Any]]:
        """For each cell that is copied: `age`, seconds since its last whole set was copied, None where that was before
        this runner; `bytes` and number of `sets` in the bucket; `behind`, why its newest checkpoints are not there."""
        at, found = time.monotonic(), {}
        with self._lock:
            for folder, one in self._sets.items():
                cell = folder.parent.name
                if self._is_open(cell) and self._folders.get(cell, folder) == folder:
                    age = at - self._copied_at[cell] if cell in self._copied_at else None
                    more = {"age": None if age is None else round(age, 1), "behind": self._behind.get(cell, "")}
                    found[cell] = {**one.facts, **more}
        return found

    def _copies(self) -> bool:
        if self._copying is not None and self._copying.done():
            self._copying.result()
            self._copying = None
        return self._copying is not None

    def _begin(self, units: Sequence[Unit], settle: float) -> None:
        if units and self._outward is not None and not self._stopping.is_set():
            self._copying = self._out.submit(self._copy, self._outward, units, settle, self._hurry)
            self._copying.add_done_callback(lambda _: self._wake())

    def _is_here(self, progress: Progress) -> bool:
        return progress.here and progress.worker == self._journal.worker

    def _is_open(self, cell: str) -> bool:
        progress = self._journal.cells.get(cell)
        return progress is not None and self._is_here(progress) and progress.state in OPEN

    def _units(self) -> list[Unit]:
        """What has to be looked at: the folders of cells that run, and of those that ended since they were copied."""
        found: list[Unit] = []
        if self._outward is None:
            return found
        for cell, progress in list(self._journal.cells.items()):
            key = cell, progress.attempt
            if self._is_open(cell) and key not in self._settled:
                own = self._checkpoints / cell
                named = [self._folders[cell]] if cell in self._folders else sorted(own.glob("*"))
                folders = [folder for folder in named if FOLDER.fullmatch(folder.name)]
                found += [Unit(key, folder, progress.state == "started") for folder in folders]
        return found

    # -- in the thread

    def _copy(self, store: Store, units: Sequence[Unit], settle: float, last: bool) -> None:
        self.why, failed = "", False
        for unit in units:
            cell = unit.key[0]
            if failed or self._stopping.is_set() or (self._hurry and not last):
                failed = True
                self._note(unit, self.why or "there was no time to copy it")
                continue
            try:
                self._copy_one(store, unit, settle)
            except RemoteStopped:
                failed = True
            except (Changing, Superseded) as error:
                self._note(unit, str(error))
            except OSError as error:
                failed, self.why = True, str(error)
                self._note(unit, str(error))
            except Exception as error:  # a defect here must not end the runner: the cells train on
                self._note(unit, f"{type(error).__name__}: {error}")
                say(f"{cell}: its checkpoints can't be copied: {error!r}")

    def _copy_one(self, store: Store, unit: Unit, settle: float) -> None:
        cell = unit.key[0]
        with self._lock_of(unit.folder):
            with self._lock:
                sets = self._sets.get(unit.folder)
                if sets is None:
                    sets = Sets(store, self._identity, cell, unit.folder, self._owner)
                    self._sets[unit.folder] = sets
            new = sets.copy(settle, PATIENCE_SECONDS if settle else 0.0, self._cut)
            if new:
                self._copied_at[cell] = time.monotonic()
            self._note(unit, "")
            if not unit.runs:
                self._settled.add(unit.key)
            if new:
                try:
                    sets.prune()
                except RemoteStopped:
                    raise
                except OSError as error:  # what is too much stays until the next set
                    say(f"{cell}: old sets of its checkpoints stay in the bucket: {error}")

    def _note(self, unit: Unit, why: str) -> None:
        cell = unit.key[0]
        with self._lock:
            before, self._behind[cell] = self._behind.get(cell, ""), why
        if why and why != before:
            say(f"{cell}: its newest checkpoints are not in the bucket: {why}")

    def _cut(self, seconds: float) -> None:
        if self._stopping.wait(min(seconds, TICK_SECONDS) if self._hurry else seconds):
            raise RemoteStopped("the runner was stopped")

    def _lock_of(self, folder: Path) -> threading.Lock:
        with self._lock:
            return self._folder_locks.setdefault(folder, threading.Lock())
