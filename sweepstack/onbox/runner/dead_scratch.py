"""Finds and removes the scratch folders that workers of this box left on this host when they ended.

A worker's scratch is a folder of its own beside those of the others. It is removed only when the journal has that
worker's end, its record says that it ran on this host, and no process of it is seen here: a proof can be wrong, and
then its cells still write. What is mounted in such a folder is never removed with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Container
from pathlib import Path

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.mount_points import mounted_below
from sweepstack.onbox.common.processes import scan
from sweepstack.onbox.runner.cell_processes import of_workers


def left_by_ended(own: Path, workers: Path, ended: Container[str]) -> list[Path]:
    """Such folders beside `own`, this worker's. `workers`: the folder of all workers' records; `ended`: those whose end
    the journal has. Reads only; empty where something can't be read. Blocks for a look at this host's processes."""
    named = []
    with contextlib.suppress(OSError), os.scandir(own.parent) as entries:
        for entry in entries:
            if entry.name == own.name or entry.name not in ended or not entry.is_dir(follow_symlinks=False):
                continue
            if entry.stat(follow_symlinks=False).st_uid == os.geteuid() and _was_here(workers / entry.name):
                named.append(entry.name)
    if not named:
        return []
    try:
        seen = scan()
    except Unreachable:
        return []
    return [own.parent / name for name in named if not of_workers(seen, {name}.__contains__)]


def remove(folder: Path) -> int:
    """Removes a folder, as far as that works; nothing where something is mounted in it. Returns the bytes that were
    freed. Blocks."""
    before = size_of(folder)
    try:
        if mounted_below(folder):
            return 0
    except OSError:
        return 0
    shutil.rmtree(folder, ignore_errors=True)
    return max(0, before - size_of(folder))


def size_of(folder: Path) -> int:
    """Bytes that a folder takes on the disk."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return total


def _was_here(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / "worker.json").read_bytes())["host"] == socket.gethostname())
    except (OSError, ValueError, KeyError, TypeError):
        return False
