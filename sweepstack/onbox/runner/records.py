"""The runner's records: the journal, a chain of hashes that it writes, and the queue that it reads."""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from sweepstack.onbox.common.box_layout import CELL_NAME, SEALED
from sweepstack.onbox.common.canonical import DIGEST, GENESIS, canonical_json, digest_of, sha256_hex
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.files_hold import FILES, FilesHold
from sweepstack.onbox.common.longer import FROM, SOURCE
from sweepstack.onbox.common.next_version import checkpoint_name, work_of

LOCK_SECONDS = 1.0
"""A lock is tried for so long: a process that checks whether it is held takes it for a moment."""
KEPT_BYTES = 1 << 20
"""Disk space that is reserved for the journal: some thousand lines."""
CELL = re.compile(CELL_NAME)
OURS = re.compile(r".*\.(partial|superseded)-\d+")
FOLDER = re.compile(r"[0-9a-f]{16}")
"""The name of a folder of checkpoints."""


class Fatal(SweepstackError):
    """The runner can't go on. `args`: exit code, message."""


def now() -> str:
    seconds, millis = divmod(time.time_ns() // 1_000_000, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{millis:03d}Z"


def say(text: str) -> None:
    """Writes a line for people to the runner's log. Errors are ignored: the journal tells of a full disk."""
    with contextlib.suppress(OSError):
        print(now(), text, file=sys.stderr, flush=True)


def outcome(run: Callable[[], int]) -> int:
    """The exit code of a program of the runner; what it raises is told in its log."""
    try:
        return run()
    except Fatal as error:
        code, message = error.args
        say(message)
        return int(code)
    except Exception:
        traceback.print_exc()
        return 70


def set_aside_room(file: int, size: int) -> None:
    """Reserves disk space for `size` bytes of a file without making it longer, if the system can do that."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        if sys.maxsize > 1 << 32:  # else the C library's offsets are shorter
            fallocate = ctypes.CDLL(None).fallocate
            fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
            fallocate(file, 1, 0, size)  # 1: FALLOC_FL_KEEP_SIZE


class Progress:
    """One cell's progress, from the journal. `state`: pending, started, retry, failed, sealed or dropped."""

    def __init__(self) -> None:
        self.state, self.attempt, self.config, self.version, self.retry = "pending", 0, "", "", 0
        self.failures: collections.Counter[str] = collections.Counter()
        self.threads: dict[str, int] = {}  # version → what its first attempt here was given; 0: the libraries chose
        self.refused: set[str] = set()
        self.failed_as = ""  # the reason of its last failure, unless that was in doubt because of a checkpoint
        self.worker = ""  # who started it last, on a box of several workers
        self.saved: bool | None = None  # whether it had a checkpoint when it failed; None: not known
        self.work = ""  # of its version, where the line of its start says so
        self.folder = ""  # the folder of checkpoints of its last start, where that is not its version's own
        self.checkpoints_of: tuple[str, ...] = ()  # see Entry, of its last start
        self.source = ("", "")  # likewise
        self.by_files = False  # whether its last attempt ended with exit code 0, and its files alone failed it
        self.here = False  # started here, and neither handed on nor found sealed by another box

    @property
    def checkpoints(self) -> str:
        """The name of the folder of checkpoints of its last start; "" where an older runner did not say."""
        return self.folder or (checkpoint_name(self.config, self.work) if self.work else "")


class Journal:
    """The journal, and the cells' progress that follows from it. Safe to append from several threads. `worker`: which
    of several writes here; "" where one runner has the box."""

    worker = ""

    def __init__(self, path: Path) -> None:
        self.cells: collections.defaultdict[str, Progress] = collections.defaultdict(Progress)
        self.prepared: set[str] = set()  # setups that have finished
        self.ended: set[str] = set()  # workers whose end is known; none where one runner has the box
        self.environments: dict[str, dict[str, str]] = {}  # digest → what was installed; the newest last
        self.hold = FilesHold()
        self.largest, self.blocked = 0, False  # bytes that a sealed cell took at most; whether the queue waits for room
        self._kept, self._path = 0, path
        self._head, self._seq = GENESIS, 0
        self._lock, self._sync_lock, self._round, self._synced = threading.RLock(), threading.Lock(), 1, 0
        self._open()

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        data = self._path.read_bytes()
        *lines, torn = data.split(b"\n")
        for line in lines:
            try:
                self._take(line)
            except ValueError as error:
                self.close()
                raise Fatal(4, f"{error}; keep the file and look at it") from error
        self._size = len(data) - len(torn)
        self._keep_room()
        if torn:  # a power cut in the middle of a line: the event was never reported
            os.ftruncate(self._file, self._size)
            self.append("torn-line-cut", bytes=len(torn))

    def _take(self, line: bytes) -> str:
        """Follows one more line. Returns its cell's name, "" for none. Raises ValueError where it does not follow."""
        try:
            entry = json.loads(line)
            said = entry.pop("hash")
            if (entry["seq"], entry["prev"], sha256_hex(canonical_json(entry))) != (self._seq + 1, self._head, said):
                raise ValueError("the chain is broken")
            self._follow(entry, said)
            return str(entry.get("cell", ""))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{self._path}, line {self._seq + 1}: {error}") from error

    def turn(self, seconds: float | None = None) -> contextlib.AbstractContextManager[bool]:
        """Held while this runner judges the journal and the queue and appends what follows from that. Nothing to wait
        for here, where one runner writes; see `SharedJournal.turn`."""
        return contextlib.nullcontext(True)

    def is_ours(self) -> None:
        """Raises Fatal where another has taken this runner's end for proved: no other writer is here."""

    def prepared_elsewhere(self, setup: str) -> str | None:
        """Of a set-up that has to be run: "" while another worker runs it, why it failed there, None when it is this
        runner's to begin, as here always."""
        return None

    def changed(self) -> list[str]:
        """The cells of which other writers said something since the last call: there is none here."""
        return []

    def elsewhere(self, progress: Progress) -> bool:
        """Whether another worker, of which no end is known, has this cell: there is none here."""
        return False

    def append(self, event: str, wait: bool = True, **details: Any) -> None:
        """Appends one event. With `wait` it is on the disk upon return; without, the next call that waits writes it,
        too.

        Raises Fatal when it can't be written: what is not in the journal must not happen.
        """
        with self._lock:
            entry = dict(details, event=event, prev=self._head, seq=self._seq + 1, time=now())
            said = sha256_hex(canonical_json(entry))
            line = canonical_json(dict(entry, hash=said)) + b"\n"
            try:
                if os.write(self._file, line) != len(line):
                    os.ftruncate(self._file, self._size)
                    raise OSError(errno.ENOSPC, "its disk is full")
            except OSError as error:
                raise Fatal(6, f"the journal can't be written: {error}") from error
            self._size += len(line)
            self._keep_room()
            self._follow(entry, said)
        if wait:
            self.sync()

    def close(self) -> None:
        """Nothing more is appended by this object."""
        os.close(self._file)

    def is_last_writer(self) -> bool:
        """Whether the journal ends with what this process wrote or read: else another runner was here."""
        return os.fstat(self._file).st_size == self._size

    def sync(self) -> None:
        """Blocks until all earlier events are on the disk. Calls at the same time share one fsync. Raises Fatal."""
        ticket = self._round
        with self._sync_lock:
            if self._synced < ticket:
                mine, self._round = self._round, self._round + 1
                try:
                    os.fsync(self._file)
                except OSError as error:  # after one failure a later success would prove nothing
                    raise Fatal(6, f"the journal can't be written: {error}") from error
                self._synced = mine

    def _keep_room(self) -> None:
        """Reserves disk space at the journal's end, so that events can be written on a full disk, too."""
        if self._kept - self._size < KEPT_BYTES // 2:
            self._kept = self._size + KEPT_BYTES
            set_aside_room(self._file, self._kept)

    def _follow(self, entry: dict[str, Any], said: str) -> None:
        self._head, self._seq = said, entry["seq"]
        event, cell = entry["event"], self.cells[entry["cell"]] if "cell" in entry else Progress()
        self.hold.follow(entry, begun=cell.state not in ("pending", "dropped"))
        if event == "cell-started":
            cell.state, cell.attempt, cell.config = "started", entry["attempt"], entry["config_digest"]
            if entry.get("retry", 0) > cell.retry:  # a person asked for it: it has all its tries again
                cell.failures[entry["version"]] = 0
            cell.version, cell.retry, cell.saved = entry["version"], entry.get("retry", 0), None
            cell.work = entry.get("work", "")
            cell.folder, cell.checkpoints_of = entry.get("folder", ""), tuple(entry.get("checkpoints_of", ()))
            begun = entry.get(FROM) or {}
            cell.source = str(begun.get("cell", "")), str(begun.get("manifest", ""))
            cell.threads.setdefault(cell.version, entry.get("threads", 0))
            cell.worker, cell.by_files, cell.here = entry.get("worker", ""), False, True
        elif event == "cell-resealing":
            cell.state, cell.version, cell.worker = "started", entry["version"], entry.get("worker", "")
        elif event == "cell-failed":
            cell.by_files = cell.by_files or (entry.get("class") == FILES and entry["exit_code"] == 0)
            cell.failures[cell.version] += entry.get("class") != "disk"  # a full disk is no failure of the cell
            cell.state, cell.saved = "failed" if entry["final"] else "retry", entry.get("checkpoints")
            cell.failed_as = "" if "checkpoint" in entry else str(entry.get("reason", ""))
        elif event in SEALED:
            cell.state, cell.config, cell.by_files = "sealed", entry["config_digest"], False
            cell.retry = entry.get("retry", cell.retry)
            self.largest = max(self.largest, entry.get("stored", entry.get("bytes", 0)))
            cell.here = cell.here and event == "cell-sealed"
        elif event == "cell-dropped":
            cell.state, cell.here = "dropped", False
        elif event == "cell-refused":
            cell.refused.add(entry["reason"])
        elif event == "setup-finished":
            self.prepared.add(entry["setup"])
        elif event == "setup-started":
            self.prepared.discard(entry["setup"])
        elif event == "environment":
            self.environments[entry["digest"]] = entry["distributions"]
        elif event in ("queue-blocked", "queue-unblocked"):
            self.blocked = event == "queue-blocked"


class Entry(NamedTuple):
    """One version of a cell, as in the queue.

    `work`: the part of the version that computes; checkpoints stay valid while it is the same, even if other artifacts
    are asked for. `setup`: shell text that prepares its environment, "" for none; `prepared`: the digest of it and the
    code. `retry`: how often a person asked to run the cell again. `salt`: not 0 when it must begin without checkpoints.
    `ends`: whether an attempt that runs is ended for that retry.
    `origin`: the `work` whose set of checkpoints before the newest it begins with, where it has none of its own; "" for
    none.
    `folder`: the folder of checkpoints that it goes on in, "" for the one of its own config and work; `checkpoints_of`:
    the code of the versions that wrote there before.
    `source`: the cell that it begins from, and the manifest of the sealed copy; two empty texts for none.
    """

    cell: str
    params: dict[str, Any]
    config: str
    code: str
    run: str
    env: dict[str, str]
    version: str
    work: str
    setup: str
    prepared: str
    retry: int
    origin: str = ""
    salt: int = 0
    ends: bool = False
    folder: str = ""
    checkpoints_of: tuple[str, ...] = ()
    source: tuple[str, str] = ("", "")

    @property
    def checkpoints(self) -> str:
        """The name of the folder of its checkpoints."""
        return self.folder or checkpoint_name(self.config, self.work)


class Release(NamedTuple):
    """A tombstone: the cell moved to another box. It counts only for a cell that has not started."""

    reason: str


class Queue:
    """The append-only queue file; each reading continues where the last one ended."""

    def __init__(self, path: Path, shared: bool = False) -> None:
        self.path, self.unreadable, self._offset, self._shared = path, 0, 0, shared
        # versions, oldest first, and where it was let go between them; or the reason why it was dropped
        self.cells: dict[str, list[Entry | Release] | str] = {}
        self.refused: list[tuple[str, str]] = []

    def refresh(self) -> list[str]:
        """Reads new lines. Returns the names of the cells in them."""
        try:
            if not self._shared and os.stat(self.path).st_size <= self._offset:
                return []  # shared: an NFS client asks its server for the size only where a file is opened
            with open(self.path, "rb") as handle:
                handle.seek(self._offset)
                data = handle.read()
        except FileNotFoundError:
            return []
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        return [name for name in map(self._take, data.split(b"\n")[:-1]) if name]

    def _take(self, line: bytes) -> str:
        name = ""
        try:
            raw = json.loads(line)
            name = raw["cell"]
            if not isinstance(name, str) or not CELL.fullmatch(name) or raw["op"] not in ("add", "drop"):
                name = ""
                raise ValueError("no cell name, or no such op")
            if raw["op"] == "drop" and raw.get("unless_started"):
                known = self.cells.setdefault(name, [])
                if not isinstance(known, str):  # whether it counts is the journal's to say: see Schedule.wanted
                    known.append(Release(str(raw["reason"])))
                return name
            if raw["op"] == "drop":
                self.cells[name] = str(raw["reason"])
                return name
            if OURS.fullmatch(name):
                raise ValueError("names that end so are the runner's own; give the cell another name")
            entry = _entry_of(name, raw)
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


def _source_of(raw: dict[str, Any]) -> tuple[str, str]:
    """See `Entry.source`. Raises ValueError where a cell is to begin from another one, and the line does not say from
    which sealed copy."""
    cell, said = raw["params"].get(SOURCE, ""), raw.get(FROM) or {}
    manifest = str(said.get("manifest", ""))
    if cell and not (cell == said.get("cell") and CELL.fullmatch(cell) and DIGEST.fullmatch(manifest)):
        raise ValueError(f"it does not say from which sealed copy of {cell} it begins")
    return (cell, manifest) if cell else ("", "")


def _entry_of(name: str, raw: dict[str, Any]) -> Entry:
    """The version of a cell in a line of the queue. Raises ValueError, KeyError, TypeError, AttributeError."""
    env = {str(key): str(value) for key, value in raw.get("env", {}).items()}
    setup, retry, salt = raw.get("setup", ""), raw.get("retry", 0), raw.get("salt", 0)
    before = raw.get("set_of")
    counts = (retry, salt, 0 if before is None else before)
    if not isinstance(setup, str) or not all(isinstance(n, int) and n >= 0 for n in counts):
        raise ValueError("its setup is no text, or its retry or salt no count")
    folder, checkpoints_of = raw.get("folder", ""), tuple(raw.get("checkpoints_of", ()))
    if folder and not FOLDER.fullmatch(folder):
        raise ValueError("its folder is no name of a folder of checkpoints")
    work = work_of(raw, salt)
    parts = [work, *([raw["artifacts"]] if "artifacts" in raw else []), *([retry] if retry else [])]
    version = digest_of(parts) if len(parts) > 1 else work
    prepared = digest_of([setup, raw["code"]])
    entry = Entry(
        name,
        raw["params"],
        raw["config_digest"],
        raw["code"],
        raw["run"],
        env,
        version,
        work,
        setup,
        prepared,
        retry,
        "" if before is None else work_of(raw, before),
        salt,
        raw.get("ends") is True,
        folder,
        checkpoints_of,
        _source_of(raw),
    )
    if entry.config != digest_of({"name": name, "params": entry.params}):
        raise ValueError("its config digest is not that of its name and parameters")
    if not DIGEST.fullmatch(entry.code) or not isinstance(entry.run, str):
        raise ValueError("its code digest or run command is none")
    return entry
