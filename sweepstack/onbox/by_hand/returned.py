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
        said = json.loads(mark.read_bytes())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def whole_lines(data: bytes) -> bytes:
    """A journal without a last line that was cut off."""
    return data[: data.rfind(b"\n") + 1]


def journal_in(folder: Path, path: str) -> bytes:
    """The whole lines of the journal of a copy; empty where there is none yet. Raises OSError."""
    try:
        return whole_lines((folder / path).read_bytes())
    except FileNotFoundError:
        return b""


def continues(later: bytes, earlier: bytes) -> bool:
    """Whether the journal `earlier` is how `later` began: a journal is only ever appended to."""
    return later.startswith(earlier)
