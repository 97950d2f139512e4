"""Carries what a session made into a folder that stays when its machine is taken away.

Whole files only, each by a rename: a folder that is synchronized (Google Drive) may never send a file that is appended
to. The journal is read before the files are copied, and written after them: it never speaks of a cell whose files are
not there. What lies there and is not what this box's sessions carried from here (a mounted folder shows late what
another session left, or another session writes there) is never written over: a file is set aside in `superseded/`, and
where the journal is another's, all goes to a folder beside. Python 3.8 and the standard library.
"""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Tuple

from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.aside import set_aside
from sweepstack.onbox.common.canonical import file_sha256, write_atomically
from sweepstack.onbox.common.holes import copy_file

from .returned import MARK, SESSION, continues, journal_in, last_events

LOGS = (box_layout.PATROL, box_layout.RUNNER_LOG, box_layout.SETUP_LOGS)
LOG_NAME = "log.txt"
PART = ".sweepstack-part"
"""The ending of a file that is half there."""
CHECKPOINTS = "checkpoints"
ASIDE = "superseded"
CARRIED = "carried.json"
"""Below `work`: what was carried from there, and to where."""


Moment = Tuple[int, ...]
"""Size, time, inode and ctime of a file: a clock that is set back gives two contents the same time."""


class CarriedFile(NamedTuple):
    """A file that was carried: what it was in `work` then, the SHA-256 of the copy, and what was left in `out`."""

    here: Moment
    sha256: str
    there: Moment


class Carrier:
    """Carries one box from `work` to `out`. `whose`: what its mark says. `changing`: files that were written to while
    they were copied, and so were not carried. For one thread."""

    def __init__(self, work: Path, out: Path, whose: Mapping[str, Any]) -> None:
        self.work, self.out, self.whose = work, out, dict(whose)
        self.changing: list[str] = []
        self._left = _remembered(work, out)
        self._saved = dict(self._left)
        self._written: dict[str, bytes] = {}
        self._checkpoints = "{}/{}/{}/".format(box_layout.DURABLE, self.whose["identity"], CHECKPOINTS)

    def carry(self) -> int:
        """Brings `out` up to date. Returns the size of the journal that is there now. Raises OSError; call it again."""
        journal = journal_in(self.work, box_layout.JOURNAL)
        if not continues(journal, journal_in(self.out, box_layout.JOURNAL)):
            self._go_beside()
        self.changing = []
        durable = list(files_of(self.work / box_layout.DURABLE))
        for path in durable:
            self._copy(path, log=False)
        for path in self._logs():
            self._copy(path, log=True)
        self._write(box_layout.JOURNAL, journal)
        self._write(MARK, json.dumps(self.whose, sort_keys=True).encode("ascii") + b"\n")
        self._drop_old_checkpoints({path.relative_to(self.work).as_posix() for path in durable}, _sealed(journal))
        if self._left != self._saved:
            known = json.dumps({"out": str(self.out), "files": self._left})
            write_atomically(self.work / CARRIED, known.encode("ascii"))
            self._saved = dict(self._left)
        return len(journal)

    def beat(self, **said: Any) -> None:
        """Says that the session lives, or how it ended. Raises OSError."""
        self._write(SESSION, json.dumps({"at": time.time(), **said}, sort_keys=True).encode("ascii") + b"\n")

    def brought(self, path: Path, sha256: str) -> None:
        """Says that this file of `work` was copied from `out`. Raises OSError."""
        name = path.relative_to(self.work).as_posix()
        self._left[name] = CarriedFile(_moment(path), sha256, _moment(self.out / name))

    def _go_beside(self) -> None:
        """Another session carries to `out`, or has: both copies are kept, and a person chooses (docs/by-hand.md)."""
        number = 2
        while os.path.lexists(f"{self.out}-{number}"):
            number += 1
        self.out = self.out.with_name(f"{self.out.name}-{number}")
        self._left, self._written = {}, {}

    def _logs(self) -> list[Path]:
        found = [path for log in LOGS for path in files_of(self.work / log)]
        return found + [path for path in files_of(self.work / box_layout.CELLS) if path.name == LOG_NAME]

    def _copy(self, path: Path, *, log: bool) -> None:
        """Copies one file unless it is there already. One that vanished meanwhile was a part of something. A log is
        copied while it grows; what else changes meanwhile is half of something: the whole one there stays."""
        name = path.relative_to(self.work).as_posix()
        target, known = self.out / name, self._left.get(name)
        try:
            before = _moment(path)
            if known is not None and known.here == before:
                return
            if known is None and _equal(path, target):
                self._left[name] = CarriedFile(before, file_sha256(path), _moment(target))
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(target.name + PART)
            sha256 = _copied(path, part)
            if not log and _moment(path) != before:
                self.changing.append(name)
                part.unlink()
                return
        except FileNotFoundError:
            if path.exists():
                raise
            return
        with contextlib.suppress(OSError):  # a mounted store may keep no times
            os.utime(part, ns=(before[1], before[1]))
        # A log that is shorter was begun anew; a sealed file is never another one.
        anew = known is not None and before[0] < known.here[0] if log else not name.startswith(self._checkpoints)
        if anew or not self._is_ours(name):
            set_aside(target, self.out / ASIDE / name)
        os.replace(part, target)
        self._left[name] = CarriedFile(before, sha256, _moment(target))

    def _is_ours(self, name: str) -> bool:
        """Whether what lies in `out` is what was carried from here. One that is not there is."""
        known = self._left.get(name)
        try:
            there = _moment(self.out / name)
        except FileNotFoundError:
            return True
        if known is None or there[0] != known.there[0]:
            return False
        return there == known.there or file_sha256(self.out / name) == known.sha256

    def _write(self, name: str, data: bytes) -> None:
        if self._written.get(name) == data:
            return
        target = self.out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + PART)
        part.write_bytes(data)
        os.replace(part, target)
        self._written[name] = data

    def _drop_old_checkpoints(self, kept: set[str], sealed: set[str]) -> None:
        """Takes away checkpoints that the job pruned, else the folder fills: those that were carried from here or
        brought here, once a newer one of the same cell is carried, or the cell is sealed. A mounted folder may show
        late what an earlier session left, so whatever else lies there stays."""
        newest: dict[tuple[str, ...], int] = {}
        for name in kept & self._left.keys():
            if name.startswith(self._checkpoints):
                cell = _cell_of(name[len(self._checkpoints) :])
                newest[cell] = max(newest.get(cell, 0), self._left[name].here[1])
        for path in list(files_of(self.out / self._checkpoints)):
            name = path.relative_to(self.out).as_posix()
            if name in kept or name not in self._left or not self._is_ours(name):
                continue
            cell = _cell_of(name[len(self._checkpoints) :])
            if cell[0] in sealed or newest.get(cell, 0) > self._left[name].here[1]:
                path.unlink()
                del self._left[name]


def bring(source: Path, target: Path, aside: Path | None) -> str:
    """Copies a file to `target`, by a rename, with its times; returns its SHA-256. What lies there and is another is
    set aside as `aside-N`, if that is given. Idempotent. Raises OSError."""
    if _equal(source, target):
        return file_sha256(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + PART)
    sha256, at = _copied(source, part), source.stat().st_mtime_ns
    os.utime(part, ns=(at, at))
    if aside is not None:
        set_aside(target, aside)
    os.replace(part, target)
    return sha256


def _remembered(work: Path, out: Path) -> dict[str, CarriedFile]:
    """What earlier sessions carried from `work` to `out`, as far as it is there."""
    left: dict[str, CarriedFile] = {}
    try:
        found = json.loads((work / CARRIED).read_bytes())
        for name, (here, sha256, there) in found["files"].items() if found["out"] == str(out) else ():
            with contextlib.suppress(OSError):
                if _moment(out / name)[0] == there[0]:
                    left[name] = CarriedFile(tuple(here), sha256, tuple(there))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        pass  # what is not known is compared, and set aside where it differs
    return left


def _moment(path: Path) -> Moment:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns


def _copied(path: Path, part: Path) -> str:
    """Copies a file; the SHA-256 of what was copied."""
    hashed = hashlib.sha256()
    copy_file(path, part, hashed)
    return hashed.hexdigest()


def _equal(one: Path, other: Path) -> bool:
    """Whether two files have the same bytes; reads them where their sizes are equal."""
    try:
        return one.stat().st_size == other.stat().st_size and filecmp.cmp(str(one), str(other), shallow=False)
    except FileNotFoundError:
        return False


def begins_as(one: Path, other: Path, size: int) -> bool:
    """Whether the first `size` bytes of two files are the same. Raises OSError."""
    if not size:
        return True
    with open(one, "rb") as first, open(other, "rb") as second:
        while size > 0:
            some = first.read(min(size, 1 << 20))
            if not some or some != second.read(len(some)):
                return False
            size -= len(some)
    return True


def _cell_of(below: str) -> tuple[str, ...]:
    """The cell and the version of its config that a checkpoint is of, by its path below the folder of them all."""
    return tuple(below.strip("/").split("/")[:2])


def _sealed(journal: bytes) -> set[str]:
    return {cell for cell, event in last_events(journal).items() if event in box_layout.SEALED}


def files_of(place: Path) -> Iterator[Path]:
    """The regular files at and below a path, no links."""
    if place.is_file() and not place.is_symlink():
        yield place
    for folder, _, names in os.walk(place):
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path
