"""Lists files below folders of this machine, with limits on count and time; follows no links."""

from __future__ import annotations

import fnmatch
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweepstack.onbox.agent.channel import Listing
from sweepstack.onbox.common.errors import PlatformError

_LOOK_AT_THE_CLOCK = 256
NEWEST_SECONDS = 1.0
MOST_OTHERS = 10_000


class Walk:
    """One walk over some folders: at most `limit` files, until `deadline` (monotonic). See `Channel.walk`."""

    def __init__(self, skip: Sequence[str], limit: int, deadline: float) -> None:
        self._skip = skip
        self._limit = limit
        self._deadline = deadline
        self._files: list[tuple[str, int, float]] = []
        self._seen: set[tuple[int, int]] = set()
        self._problems: list[str] = []
        self._looks = 0
        self.others: list[tuple[str, str, int]] = []
        """What is neither a file nor a folder: its path in the listing, its own path, its mode."""

    def below(self, root: Path, name: str) -> None:
        """Adds the files below `root`; `name` is its path in the listing. Raises FileNotFoundError,
        NotADirectoryError."""
        pending = [(str(root), name)]
        first = True
        while pending and not self._over():
            folder, shown = pending.pop()
            try:
                with os.scandir(folder) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                if first:
                    raise
                continue  # removed since it was listed
            except OSError as error:
                self._problems.append(f"{shown} can't be read ({error.strerror})")
                continue
            finally:
                first = False
            inner = []
            for entry in entries:
                if self._over():
                    return
                path = f"{shown}/{entry.name}"
                if self._add(entry, path):
                    inner.append((entry.path, path))
            pending += reversed(inner)

    def listing(self) -> Listing:
        """The files that were found, and why there may be more."""
        return Listing(tuple(self._files), "; ".join(self._problems[:3]))

    def _add(self, entry: os.DirEntry[str], path: str) -> bool:
        """Adds an entry if it is a regular file. True for a folder that is to be walked."""
        try:
            if entry.is_dir(follow_symlinks=False):  # known from scandir: no system call of its own
                return not any(fnmatch.fnmatchcase(path, pattern) for pattern in self._skip)
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._problems.append(f"{path} can't be read ({error.strerror})")
            return False
        if stat.S_ISREG(status.st_mode):
            if status.st_nlink > 1:
                if (status.st_dev, status.st_ino) in self._seen:
                    return False
                self._seen.add((status.st_dev, status.st_ino))
            self._files.append((path, status.st_size, status.st_ctime))
        elif len(self.others) < self._limit:
            self.others.append((path, entry.path, status.st_mode))
        return False

    def _over(self) -> bool:
        if self._problems and self._problems[-1].startswith("more than"):
            return True
        self._looks += 1
        if len(self._files) >= self._limit:
            self._problems.append(f"more than {self._limit:,} files")
        elif self._looks % _LOOK_AT_THE_CLOCK == 0 and time.monotonic() > self._deadline:
            self._problems.append("more than could be counted in time")
        else:
            return False
        return True


def newest(channel: Any, folder: str, below: str, count: int, most: int) -> tuple[dict[str, Any], list[str] | None]:
    """Of the files `folder/*/*/below`: path → end (size, last bytes) of the `count` that changed last, and the paths of
    the others; None for the others when there are too many to list."""
    found, whole = _matching(channel, folder, below, time.monotonic() + NEWEST_SECONDS)
    found.sort(reverse=True)
    ends = {path: end for _, path in found[:count] if (end := tail_of(channel, path, most)) is not None}
    others = [path for _, path in found if path not in ends]
    return ends, others if whole and len(others) <= MOST_OTHERS else None


def _matching(channel: Any, folder: str, below: str, deadline: float) -> tuple[list[tuple[float, str]], bool]:
    """(time of the last change, path) of each; and whether these are all. Links are not followed."""
    found: list[tuple[float, str]] = []
    try:
        outer = [entry.name for entry in channel.listdir(folder) if entry.kind == "dir"]
    except (FileNotFoundError, NotADirectoryError):
        return found, True
    here = channel.absolute(folder)
    for name in outer:
        if time.monotonic() > deadline:
            return found, False
        for inner in _folders(f"{here}/{name}"):
            path = f"{name}/{inner}/{below}"
            try:
                status = os.lstat(f"{here}/{path}")
            except (FileNotFoundError, NotADirectoryError):
                continue
            if stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime, f"{folder}/{path}"))
    return found, True


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as found:
            return [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def tail_of(channel: Any, path: str, most: int) -> tuple[int, bytes] | None:
    """Size and last bytes of one file of a local channel; None when it is no file that can be read."""
    try:
        with channel.open_file(path) as handle:
            size = handle.seek(0, 2)
            handle.seek(max(0, size - most))
            return size, handle.read(min(size, most))
    except (OSError, PlatformError):
        return None
