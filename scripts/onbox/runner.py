#!/usr/bin/env python3
"""Runs a box's queue of cells, one in each slot, and seals what they leave behind on the durable tier.

    python runner.py SWEEP        SWEEP: the folder of spec.json and queue.jsonl, `<box>/data/sweep`

One file, Python 3.8+, standard library only. What a started cell runs (code, command, environment) never changes; after
a final failure, a newer version of it in the queue starts with a fresh count. Checkpoints are kept by version, so a cell
only ever goes on from its own. An exit code of 0 proves nothing: a cell is done when its files were copied to the
durable tier, read back there, and listed in a manifest that appeared together with them under the final name.

Exit codes:
  0      the queue is drained: every cell is sealed or dropped
  1      drained, but a cell failed for good or was refused, or a line of the queue can't be read
  2      SWEEP, spec.json or the durable tier can't be used; nothing was started
  3      another runner is at work here
  4      the journal is damaged before its last line; nothing was started
  5      a process of an earlier runner's cell can't be ended; nothing was started
  6      the journal or the queue can't be read or written; running cells were ended, the next runner goes on with them
  128+n  signal n came: it was passed on to the cells; the next runner goes on with them
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import hashlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import unicodedata
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, NamedTuple  # noqa: UP035

GENESIS = "0" * 64
HEARTBEAT_SECONDS, LOOK_SECONDS, GRACE_SECONDS, KILL_SECONDS, LOCK_SECONDS = 5.0, 1.0, 20.0, 5.0, 1.0
PATROL_BYTES, CHUNK, SEALERS = 8 << 20, 1 << 20, 4
CELL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
OURS = re.compile(r".*\.(partial|superseded)-\d+")
PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
MANIFEST, LOG = "manifest.json", "log.txt"
DESCRIBE = """
import importlib.metadata as m, json, platform
found = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.platform()}
for name in ("torch", "numpy", "safetensors", "jax", "tensorflow", "transformers", "scikit-learn"):
    try: found[name] = m.version(name)
    except m.PackageNotFoundError: pass
print(json.dumps(found))
"""


class Fatal(Exception):
    """The runner can't go on. `args`: exit code, message."""


class CellFailure(Exception):
    """This attempt did not leave what it must. The message is the reason."""


def canonical(value: Any) -> bytes:
    """The one way to write a value as JSON; digests are over these bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def digest(value: Any) -> str:
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def now() -> str:
    seconds, millis = divmod(time.time_ns() // 1_000_000, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{millis:03d}Z"


def say(text: str) -> None:
    print(now(), text, file=sys.stderr, flush=True)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    with open(path, "xb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def set_aside(path: Path) -> None:
    """Frees a name: nothing that we did not write in this attempt is ever deleted."""
    number = 1
    while os.path.lexists(path):
        aside = path.with_name(f"{re.sub(r'[.]partial-[0-9]+$', '', path.name)}.superseded-{number}")
        if not os.path.lexists(aside):
            os.rename(path, aside)
        number += 1


class Progress:
    """What the journal says of one cell. `state`: pending, started, retry, failed, sealed or dropped."""

    def __init__(self) -> None:
        self.state, self.attempt, self.config, self.version = "pending", 0, "", ""
        self.failures: collections.Counter[str] = collections.Counter()
        self.refused: set[str] = set()


class Journal:
    """The hash-chained record, and the progress of the cells that follows from it. Threads may append at once."""

    def __init__(self, path: Path) -> None:
        self.cells: collections.defaultdict[str, Progress] = collections.defaultdict(Progress)
        self._head, self._seq = GENESIS, 0
        self._lock, self._sync_lock, self._round, self._synced = threading.Lock(), threading.Lock(), 1, 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        data = path.read_bytes()
        *lines, torn = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                said = entry.pop("hash")
                if (entry["seq"], entry["prev"], digest(entry)[7:]) != (number, self._head, said):
                    raise ValueError("the chain is broken")
                self._follow(entry, said)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise Fatal(4, f"{path}, line {number}: {error}; keep the file and look at it") from error
        self._size = len(data) - len(torn)
        if torn:  # a power cut in the middle of a line: the event was never reported to anybody
            os.ftruncate(self._file, self._size)
            self.append("torn-line-cut", bytes=len(torn))

    def append(self, event: str, wait: bool = True, **details: Any) -> None:
        """Writes one event. With `wait` it is on the disk on return; without, the next waiting call takes it along."""
        with self._lock:
            entry = dict(details, event=event, prev=self._head, seq=self._seq + 1, time=now())
            said = digest(entry)[7:]
            line = canonical(dict(entry, hash=said)) + b"\n"
            if os.write(self._file, line) != len(line):
                os.ftruncate(self._file, self._size)
                raise OSError(28, "the journal's disk is full")
            self._size += len(line)
            self._follow(entry, said)
        if wait:
            self.sync()

    def sync(self) -> None:
        """Blocks until all that was appended before is on the disk. Calls that overlap share one fsync."""
        ticket = self._round
        with self._sync_lock:
            if self._synced < ticket:
                mine, self._round = self._round, self._round + 1
                os.fsync(self._file)
                self._synced = mine

    def _follow(self, entry: dict[str, Any], said: str) -> None:
        self._head, self._seq = said, entry["seq"]
        event, cell = entry["event"], self.cells[entry["cell"]] if "cell" in entry else Progress()
        if event == "cell-started":
            cell.state, cell.attempt, cell.config = "started", entry["attempt"], entry["config_digest"]
            cell.version = entry["version"]
        elif event == "cell-failed":
            cell.failures[cell.version] += 1
            cell.state = "failed" if entry["final"] else "retry"
        elif event in ("cell-sealed", "cell-found-sealed"):
            cell.state, cell.config = "sealed", entry["config_digest"]
        elif event == "cell-dropped":
            cell.state = "dropped"
        elif event == "cell-refused":
            cell.refused.add(entry["reason"])


class Entry(NamedTuple):
    """One version of a cell, as the queue holds it."""

    cell: str
    params: dict[str, Any]
    config: str
    code: str
    run: str
    env: dict[str, str]
    version: str


class Queue:
    """The append-only queue file, read on from where the last reading ended."""

    def __init__(self, path: Path) -> None:
        self.path, self.unreadable, self._offset = path, 0, 0
        self.cells: dict[str, list[Entry] | str] = {}  # versions, oldest first; or the reason why it was dropped
        self.refused: list[tuple[str, str]] = []

    def refresh(self) -> list[str]:
        """Reads what was appended; the names that it concerns."""
        try:
            if os.stat(self.path).st_size <= self._offset:
                return []
        except FileNotFoundError:
            return []
        with open(self.path, "rb") as handle:
            handle.seek(self._offset)
            data = handle.read()
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        return [name for name in map(self._take, data.split(b"\n")[:-1]) if name]

    def _take(self, line: bytes) -> str:
        name = ""
        try:
            raw = json.loads(line)
            name = raw["cell"]
            if not CELL.fullmatch(name) or raw["op"] not in ("add", "drop"):
                name = ""
                raise ValueError("no cell name, or no such op")
            if raw["op"] == "drop":
                self.cells[name] = str(raw["reason"])
                return name
            if OURS.fullmatch(name):
                raise ValueError("names that end so are the runner's own; give the cell another name")
            env = {str(key): str(value) for key, value in raw.get("env", {}).items()}
            version = digest({"code": raw["code"], "run": raw["run"], "env": env})
            entry = Entry(name, raw["params"], raw["config_digest"], raw["code"], raw["run"], env, version)
            if entry.config != digest({"name": name, "params": entry.params}):
                raise ValueError("its config digest is not that of its name and parameters")
            if not re.fullmatch(r"sha256:[0-9a-f]{64}", entry.code) or not isinstance(entry.run, str):
                raise ValueError("its code digest or run command is none")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            say(f"queue line refused: {error!r}: {line[:200]!r}")
            self.unreadable += 1
            if name:
                self.refused.append((name, str(error)))
            return ""
        known = self.cells.setdefault(name, [])
        if isinstance(known, str):
            known = self.cells[name] = []
        known.append(entry)
        return name


class Attempt(NamedTuple):
    entry: Entry
    number: int
    slot: int
    spec: dict[str, Any]
    folder: Path
    argv: list[str]
    started_at: str
