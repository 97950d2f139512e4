"""Names the checkpoint that a failed try found, where that may be what ended it.

One that a kill cut in the middle fails each later try in the same way."""

from __future__ import annotations

import contextlib
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Iterator, NamedTuple

from sweepstack.onbox.runner.checkpoint_sets import grows

SOON_SECONDS = 120.0
"""A try that fails sooner, and wrote no checkpoint, may have failed at the one that it found."""
KINDS = frozenset({"bug", "unknown", "files"})
"""Classes of failures that a checkpoint can be the cause of."""
TRACKERS = frozenset({"wandb", "runs", "mlruns"})
"""Folders that trackers make; Hugging Face's and Lightning's settings are `*.yaml` there."""
MOST_FILES = 10_000
TAIL = 256 << 10


class CheckpointFile(NamedTuple):
    """The newest file of a checkpoint folder: its path there, its size, when it was written (ns)."""

    path: str
    size: int
    mtime_ns: int


def newest(folder: Path) -> CheckpointFile | None:
    """The file of these checkpoints that was written last, of the first MOST_FILES; None where there is none, or it
    can't be told. Of no account are hidden files and `*.tmp`, which no job reads, and what trackers write there when a
    try begins."""
    with contextlib.suppress(OSError):
        return max(_files(folder), key=lambda found: found.mtime_ns, default=None)
    return None


def any_there(folder: Path) -> bool | None:
    """Whether there is a file that counts, as for `newest`; None where it can't be told."""
    try:
        return next(_files(folder), None) is not None
    except FileNotFoundError:
        return False
    except OSError:
        return None


def _files(folder: Path) -> Iterator[CheckpointFile]:
    folders, count = [str(folder)], 0
    while folders and count < MOST_FILES:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name in TRACKERS or grows(entry.name):
                    continue
                if entry.name.endswith((".tmp", ".yaml", ".yml")):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    status, count = entry.stat(follow_symlinks=False), count + 1
                    yield CheckpointFile(os.path.relpath(entry.path, folder), status.st_size, status.st_mtime_ns)


def doubt(found: CheckpointFile | None, folder: Path, kind: str, seconds: float, beat: str) -> str:
    """Why the checkpoint that a failed try found may be what ended it, in words for its reason; "" where not. `beat`:
    see `last_beat`."""
    if found is None or kind not in KINDS or seconds > SOON_SECONDS or newest(folder) != found:
        return ""
    cut = f", written after that try's last heartbeat at {beat[11:19]}" if beat and _after(found, beat) else ""
    return (
        f"it found checkpoints, and ended after {seconds:.0f} s without a new one: "
        f"{found.path} ({found.size} bytes, the newest{cut}) may be cut"
    )


def last_beat(patrol: Path, cell: str, number: int) -> str:
    """When the patrol last saw this attempt at work; "" where its file does not say."""
    try:
        with open(patrol, "rb") as handle:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - TAIL))
            lines = handle.read().split(b"\n")
    except OSError:
        return ""
    for line in reversed(lines):  # the first may lack its beginning, and the last its end
        with contextlib.suppress(ValueError, KeyError, TypeError):
            row = json.loads(line)
            if any((one["cell"], one["attempt"]) == (cell, number) for one in row["running"]):
                return str(row["time"])
    return ""


def _after(found: CheckpointFile, beat: str) -> bool:
    with contextlib.suppress(ValueError):
        return found.mtime_ns / 1e9 > datetime.fromisoformat(beat.replace("Z", "+00:00")).timestamp()
    return False
