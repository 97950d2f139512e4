"""The folder in which a box comes back from a session, as both sides know it.

    <folder>/<native id>/sweepstack-box.json     whose it is (MARK); written last by the first pass
                         session.json            the last sign of life of the session that writes here (SESSION)
                         data/sweep/…            journal, logs
                         mnt/durable/…           sealed cells, checkpoints

Python 3.8 and the standard library.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Iterator, NamedTuple

MARK = "sweepstack-box.json"
SESSION = "session.json"
PACKED = ".tar"
"""The ending of the one file that a session's results are packed into where a platform hands out few files."""
WHOSE = ("identity", "box", "native_id", "generation")
"""What the mark says."""
DEPTH = 3
"""A copy is looked for so many folders below the one that was named: an archive may unpack into one of its own."""
ENTRIES = 2_000
"""So many folders are looked into at most: each command looks."""
SMALL, LARGE = 1 << 20, 1 << 30
"""Bytes that are read at most: of a mark or a sign of life, and of a journal."""


class Copy(NamedTuple):
    """A copy of a box: its folder, and what its mark says."""

    folder: Path
    whose: dict[str, Any]


def copies(folder: Path, depth: int = DEPTH) -> Iterator[Copy]:
    """Every copy of a box in this folder and below it. One whose mark can't be read has an empty `whose`. Raises
    OSError."""
    looked = 0
    waiting = [(folder, depth)]
    while waiting:
        place, left = waiting.pop(0)
        looked += 1
        if looked > ENTRIES:
            raise OSError(f"it has more than {ENTRIES:,} folders: name a folder for results alone")
        with os.scandir(place) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        if any(entry.name == MARK for entry in entries):
            yield Copy(place, _whose(place / MARK))
        elif left:
            waiting += [
                (Path(entry.path), left - 1)
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and entry.name[0] != "."
            ]


def _whose(mark: Path) -> dict[str, Any]:
    try:
        said = json.loads(read(mark.parent, mark.name, SMALL))
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def read(folder: Path, path: str, most: int) -> bytes:
    """A file of a copy. A session writes regular files alone: a link would lead out of the copy, into files of this
    computer that no session wrote, and a read of a pipe never ends. Raises OSError, also where it has more bytes."""
    status = (folder / path).lstat()
    if leads_out(folder, path) or not stat.S_ISREG(status.st_mode):
        raise OSError(f"{folder / path} is, or lies behind, a link, or is no file: copy what the session wrote again")
    if status.st_size > most:
        raise OSError(f"{folder / path} has {status.st_size:,} bytes, and no session writes more than {most:,} there")
    return (folder / path).read_bytes()


def leads_out(folder: Path, path: str) -> bool:
    """Whether a part of `path` below `folder` is a link."""
    parts = Path(path).parts
    return any((folder.joinpath(*parts[: count + 1])).is_symlink() for count in range(len(parts)))


def whole_lines(data: bytes) -> bytes:
    """A journal without a last line that was cut off."""
    return data[: data.rfind(b"\n") + 1]


def journal_in(folder: Path, path: str) -> bytes:
    """The whole lines of the journal of a copy; empty where there is none yet. Raises OSError."""
    try:
        return whole_lines(read(folder, path, LARGE))
    except FileNotFoundError:
        return b""


def continues(later: bytes, earlier: bytes) -> bool:
    """Whether the journal `earlier` is how `later` began: a journal is only ever appended to."""
    return later.startswith(earlier)


def last_events(journal: bytes) -> dict[str, str]:
    """Cell → what the journal says of it last. A line that does not read is left out."""
    state = {}
    for line in journal.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "cell" in entry:
            state[entry["cell"]] = entry["event"]
    return state
