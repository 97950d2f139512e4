"""Finds what is mounted inside a folder: nothing on it is deleted with the folder.

Runs on hosts and boxes: Python 3.8, standard library.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from pathlib import Path

from sweepstack.onbox.common.errors import NotYetGone

MOUNTS = Path("/proc/self/mountinfo")


def mount_points() -> list[tuple[str, str]]:
    """All mounts that this process sees: (mount point, file system type). Raises FileNotFoundError without /proc."""
    found = []
    for line in MOUNTS.read_bytes().splitlines():
        point = line.split(b" ")[4].decode("unicode_escape").encode("latin-1")  # a space in it is written \040
        kind = line.partition(b" - ")[2].partition(b" ")[0]
        found.append((os.fsdecode(point), kind.decode("ascii", "replace")))
    return found


def mounted_below(folder: Path) -> list[tuple[str, str]]:
    """The mounts inside a folder: (mount point, file system type). The type is "" where there is no /proc (macOS)."""
    inside = os.path.join(os.path.realpath(folder), "")
    try:
        return [(point, kind) for point, kind in mount_points() if point.startswith(inside)]
    except FileNotFoundError:
        return [(point, "") for point in _found_by_walk(inside)]


def _found_by_walk(folder: str) -> list[str]:
    found = []
    for parent, folders, _ in os.walk(folder):
        points = [name for name in folders if os.path.ismount(os.path.join(parent, name))]
        found += [os.path.join(parent, name) for name in points]
        folders[:] = [name for name in folders if name not in points]
    return found


def refuse_mounted(folder: Path, what: str, *, then: str = "", where: str = "") -> None:
    """Raises NotYetGone when something is mounted inside the folder: it is not ours to delete. `what`: what the
    folder is. `then`: what to type after the `umount`. `where`: " on that host", unless this computer is meant."""
    for point, _ in mounted_below(folder):
        raise NotYetGone(
            f"{point} is mounted inside the {what}: `umount {shlex.quote(point)}{then}`{where}, which leaves what "
            "is on it there, then run this again"
        )


def clear_folder(folder: Path) -> None:
    """Removes what is in the folder, as far as that works, except an entry with something mounted on or below it.
    Idempotent."""
    if folder.is_symlink():
        return
    with contextlib.suppress(OSError):
        entries = list(folder.iterdir())
        mounted = [Path(point) for point, _ in mounted_below(folder)] if entries else []
        for entry in entries:
            real = Path(os.path.realpath(folder), entry.name)
            if any(real in (point, *point.parents) for point in mounted):
                continue
            if entry.is_symlink() or not entry.is_dir():
                with contextlib.suppress(OSError):
                    entry.unlink()
            else:
                shutil.rmtree(entry, ignore_errors=True)


def mount_point_of(path: Path) -> Path:
    """The mount point of the file system on which a path lies, by the path's real name. A folder that is bound to
    another place of its own file system (`mount --bind`) counts, too: only /proc tells it."""
    listed: set[str] = set()
    with contextlib.suppress(FileNotFoundError):
        listed = {name for name, _ in mount_points()}
    point = Path(os.path.realpath(path))
    while point != point.parent and not os.path.ismount(point) and str(point) not in listed:
        point = point.parent
    return point
