"""MOUNT_CACHED: copies sealed cells and checkpoints from the durable tier to a bucket, and back.

A cell is sealed on the tier first, then copied to `<source>/<identity>/sealed/<cell>/<attempt>-<digest>/` and read back
from there, its manifest last; only then it counts as sealed. A box with an empty tier fetches these before its first
cell. Checkpoints are copied in the background, as sets (`checkpoint_sets`): those of the cells that this box's journal
has started and not handed on. A cell's newest set is brought just before its first attempt here.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import file_sha256, sha256_hex
from sweepstack.onbox.common.processes import end_all, scan
from sweepstack.onbox.runner.checkpoint_copies import FIRST_PAUSE, LONGEST_PAUSE, Copies
from sweepstack.onbox.runner.mounts import mounts_of
from sweepstack.onbox.runner.rclone import Remote, RemoteFailed, RemoteStopped
from sweepstack.onbox.runner.records import Journal, say
from sweepstack.onbox.runner.sealing import MANIFEST, publish

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
