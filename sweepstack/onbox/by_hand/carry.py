"""Carries what a session made into a folder that stays when its machine is taken away.

Whole files only, each by a rename: a folder that is synchronized (Google Drive) may never send a file that is appended
to. The journal is read before the files are copied, and written after them: it never speaks of a cell whose files are
not there. Python 3.8 and the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any, Iterator, Mapping

from sweepstack.onbox.by_hand.returned import MARK, SEALED, SESSION, journal_in, last_events
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.holes import copy_file

LOGS = (box_layout.PATROL, box_layout.RUNNER_LOG, box_layout.SETUP_LOGS)
LOG_NAME = "log.txt"
PART = ".part"
CHECKPOINTS = "checkpoints"


class Carrier:
    """Carries one box from `work` to `out`. `whose`: what its mark says. For one thread."""

    def __init__(self, work: Path, out: Path, whose: Mapping[str, Any]) -> None:
        self.work, self.out, self.whose = work, out, dict(whose)
        self._seen: dict[str, tuple[int, int]] = {}
        self._written: dict[str, bytes] = {}

    def carry(self) -> int:
        """Brings `out` up to date. Returns the size of the journal that is there now. Raises OSError; call it again."""
        journal = journal_in(self.work, box_layout.JOURNAL)
        durable = list(_files(self.work / box_layout.DURABLE))
        for path in [*durable, *self._logs()]:
            self._copy(path)
        self._write(box_layout.JOURNAL, journal)
        self._write(MARK, json.dumps(self.whose, sort_keys=True).encode("ascii") + b"\n")
        self._drop_old_checkpoints({path.relative_to(self.work).as_posix() for path in durable}, _sealed(journal))
        return len(journal)

    def beat(self, **said: Any) -> None:
        """Says that the session lives, or how it ended. Raises OSError."""
        self._write(SESSION, json.dumps({"at": time.time(), **said}, sort_keys=True).encode("ascii") + b"\n")

    def _logs(self) -> list[Path]:
        found = [path for log in LOGS for path in _files(self.work / log)]
        return found + [path for path in _files(self.work / box_layout.CELLS) if path.name == LOG_NAME]

    def _copy(self, path: Path) -> None:
        """Copies one file unless it is there already. One that vanished meanwhile was a part of something."""
        name = path.relative_to(self.work).as_posix()
        target = self.out / name
        try:
            status = path.stat()
            now = status.st_size, status.st_mtime_ns
            if self._seen.get(name) == now or (name not in self._seen and _same(target, now)):
                self._seen[name] = now
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(target.name + PART)
            copy_file(path, part)
        except FileNotFoundError:
            if path.exists():
                raise
            return
        with contextlib.suppress(OSError):  # a mounted store may keep no times: the next session then copies it again
            os.utime(part, ns=(now[1], now[1]))
        os.replace(part, target)
        self._seen[name] = now

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
        """Takes away checkpoints that the job pruned, else the folder fills: those that this session carried or found
        equal here, once a newer one of the same cell is carried, or the cell is sealed. A mounted folder may show late
        what an earlier session left, so whatever else lies there stays."""
        place = "{}/{}/{}".format(box_layout.DURABLE, self.whose["identity"], CHECKPOINTS)
        newest: dict[tuple[str, ...], int] = {}
        for name in kept & self._seen.keys():
            if name.startswith(place + "/"):
                cell = _cell_of(name[len(place) :])
                newest[cell] = max(newest.get(cell, 0), self._seen[name][1])
        for path in list(_files(self.out / place)):
            name = path.relative_to(self.out).as_posix()
            if name in kept or name not in self._seen:
                continue
            cell = _cell_of(name[len(place) :])
            if cell[0] in sealed or newest.get(cell, 0) > self._seen[name][1]:
                path.unlink()
                del self._seen[name]


def _cell_of(below: str) -> tuple[str, ...]:
    """The cell and the version of its config that a checkpoint is of, by its path below the folder of them all."""
    return tuple(below.strip("/").split("/")[:2])


def _sealed(journal: bytes) -> set[str]:
    return {cell for cell, event in last_events(journal).items() if event in SEALED}


def _same(target: Path, now: tuple[int, int]) -> bool:
    try:
        there = target.stat()
    except OSError:
        return False
    return there.st_size == now[0] and abs(there.st_mtime_ns - now[1]) < 2_000_000_000  # some stores keep even seconds


def _files(place: Path) -> Iterator[Path]:
    """The regular files at and below a path, no links."""
    if place.is_file() and not place.is_symlink():
        yield place
    for folder, _, names in os.walk(place):
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path
