"""MOUNT_CACHED: copies sealed cells and checkpoints from the durable tier to a bucket, and back.

A cell is sealed on the tier first, then copied to `<source>/<identity>/sealed/<cell>/<attempt>-<digest>/` and read back
from there, its manifest last; only then it counts as sealed. Checkpoints are copied in the background. A box with an
empty tier fetches both before its first cell.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import file_sha256, sha256_hex
from sweepstack.onbox.runner.mounts import mounts_of
from sweepstack.onbox.runner.rclone import Remote, RemoteFailed, RemoteStopped
from sweepstack.onbox.runner.records import say
from sweepstack.onbox.runner.sealing import MANIFEST, publish

FLUSH_SECONDS = 24 * 3600.0
"""An ended cell waits for its bucket for so long; then it counts as failed."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
UPLOAD_SECONDS = 60.0
"""Between two copies of new checkpoints."""


class Uploads:
    """The copies to the bucket. Call `flush` in the sealers' threads; `beat` and `stop` in the main thread."""

    def __init__(self, cells: Path, checkpoints: Path, identity: str) -> None:
        self.stopping = threading.Event()
        self._cells, self._checkpoints, self._identity = cells, checkpoints, identity
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[str, Any]] = {}
        self._remote: Remote | None = None
        self._pool = ThreadPoolExecutor(1)
        self._copying: Future[str] | None = None
        self._due, self._behind, self._failed_at = 0.0, "", 0.0

    def connect(self, spec: Mapping[str, Any], env: Mapping[str, str], hidden: Sequence[str]) -> str:
        """Fetches what the bucket has and this tier lacks. Returns why that failed; "" on success, and without such a
        mount. Blocks; call it in a thread."""
        cached = mounts_of(spec, "MOUNT_CACHED")
        if not cached:
            return ""
        remote = Remote(cached[0], env, hidden, self.stopping)
        try:
            taken = [cell for cell in self._sealed_there(remote) if self._take_back(remote, *cell)]
            remote.fetch(f"{self._identity}/checkpoints", self._checkpoints)
        except RemoteStopped:
            return "the runner was stopped"
        except OSError as error:
            return f"mounts: {error}"
        if taken:
            say(f"{len(taken)} sealed cells came back from {remote.source}")
        self._remote = remote
        return ""

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
            if self.stopping.wait(pause):
                raise RemoteStopped(f"{entry['cell']}: the runner was stopped")
            pause = min(LONGEST_PAUSE, 2 * pause)

    def beat(self, spec: Mapping[str, Any]) -> None:
        """Starts a copy of new checkpoints every UPLOAD_SECONDS. Never blocks, never raises."""
        at = time.monotonic()
        if self._copying is not None and self._copying.done():
            self._behind, self._copying = self._copying.result(), None
        if self._remote is None or self._copying is not None or at < self._due or self.stopping.is_set():
            return
        self._due = at + float(spec.get("upload_seconds", UPLOAD_SECONDS))
        self._copying = self._pool.submit(self._copy_checkpoints, self._remote)

    def _copy_checkpoints(self, remote: Remote) -> str:
        try:
            place = remote.at(f"{self._identity}/checkpoints")
            remote.call("copy", str(self._checkpoints), place, "--exclude", ".*", "--exclude", "*.tmp")
            return ""
        except OSError as error:
            return str(error)

    def backlog(self) -> dict[str, Any] | None:
        """The cells that wait for the bucket, for people; None without a bucket."""
        if self._remote is None:
            return None
        with self._lock:
            waiting = list(self._waiting.values())
        oldest = max((time.monotonic() - entry["since"] for entry in waiting), default=0.0)
        why = next((entry["why"] for entry in waiting if entry["why"]), self._behind)
        return {
            "source": self._remote.source,
            "cells": sorted(entry["cell"] for entry in waiting),
            "bytes": sum(entry["bytes"] for entry in waiting),
            "seconds": round(oldest, 1),
            "why": why,
        }

    def stop(self) -> None:
        """Ends the copies that run."""
        self.stopping.set()

    # -- taking back

    def _sealed_there(self, remote: Remote) -> list[tuple[str, str]]:
        """The cells with a whole copy in the bucket: (cell, folder of the newest copy)."""
        newest: dict[str, tuple[str, str]] = {}
        for path in remote.listing(f"{self._identity}/sealed", "/*/*/" + MANIFEST):
            cell, _, _ = path.partition("/")
            sealed_at = str(json.loads(remote.read(f"{self._identity}/sealed/{path}"))["sealed_at"])
            newest[cell] = max(newest.get(cell, ("", "")), (sealed_at, path.rpartition("/")[0]))
        return [(cell, folder) for cell, (_, folder) in sorted(newest.items())]

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
