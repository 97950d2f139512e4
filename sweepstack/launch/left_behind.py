"""Tells which files of the work dir stay here when it ships.

A job that reads one of them would lose every cell to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sweepstack.core.workdir import Shipment, ignored, no_code
from sweepstack.onbox.common.units import spell_bytes

SHOWN = 3
MOST_FILES = 20_000
"""So many files of one folder are counted at most."""
_CACHES = ("__pycache__", "node_modules", ".egg-info", ".pyc")


def words(path: Path, shipment: Shipment, own: Iterable[str]) -> list[str]:
    """A line for what git does not track there and one for what it ignores, the largest first; empty without such.

    Caches, virtual environments, what begins with a dot, and what is no code of a job are not named.
    """
    lines = []
    if shipment.left_behind:
        more = " …" if shipment.left_behind[SHOWN:] else ""
        lines.append(f"not tracked by git and left behind: {', '.join(shipment.left_behind[:SHOWN])}{more}")
    names = [name for name in ignored(path) if not _is_cache(path, name)]
    mine, ships = no_code(path, own, (f"{name}x" for name in names)), {file.path for file in shipment.files}
    left = [
        (size, name, count)
        for name in names
        if not name.startswith(mine) and not any(one.startswith(name) for one in mine)
        for count, size in [_sized(path, name, ships)]
        if count
    ]
    left.sort(key=lambda one: (-one[0], one[1]))
    shown = [f"{name} ({_files(name, count)}{spell_bytes(size)})" for size, name, count in left[:SHOWN]]
    if shown:
        more = f" and {len(left) - SHOWN} more" if left[SHOWN:] else ""
        lines.append(f"ignored by git and left behind: {', '.join(shown)}{more}; job.include ships what the job reads")
    return lines


def _is_cache(path: Path, name: str) -> bool:
    last = name.rstrip("/").rpartition("/")[2]
    return last.startswith(".") or last.endswith(_CACHES) or (path / name / "pyvenv.cfg").is_file()


def _sized(path: Path, name: str, ships: set[str]) -> tuple[int, int]:
    """Number and bytes of the files in a folder, or of the one file, that do not ship."""
    if not name.endswith("/"):
        return (0, 0) if name in ships else (1, _size(path / name))
    count = size = 0
    for folder, _, files in os.walk(path / name):
        below = Path(folder).relative_to(path).as_posix()
        for file in files:
            if f"{below}/{file}" not in ships:
                count, size = count + 1, size + _size(Path(folder) / file)
        if count >= MOST_FILES:
            break
    return count, size


def _size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0


def _files(name: str, count: int) -> str:
    if not name.endswith("/"):
        return ""
    return f"{'at least ' if count >= MOST_FILES else ''}{count:,} file{'' if count == 1 else 's'}, "
