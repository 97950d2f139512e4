"""What fills a disk, and when it will be full: for the person who has to make room.

Caches and old checkpoints lie where no job looks for them, and a disk can be full by the number of its files.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

LOOK_SECONDS = 10.0
"""For all folders together: on a network mount one folder can take minutes."""
GRACE_SECONDS = 2.0
"""How much longer it is waited for a call of the system that does not come back."""
AGAIN_SECONDS = 600.0
SHOWN, SMALL = 4, 0.02
"""So many folders; none that holds less than this part of what the largest one does."""
WINDOW_SECONDS, LEAST_SECONDS = 3600.0, 600.0
SOON_SECONDS = 6 * 3600.0
HALF = 0.5
"""A disk that is not yet half used has time, whatever its rate is."""
CACHES = (
    "~/.cache/huggingface",
    "~/.cache/torch",
    "~/.cache/pip",
    "~/.cache/uv",
    "~/.cache",
    "~/.conda/pkgs",
    "~/wandb",
)
ELSEWHERE = ("/opt/conda/pkgs", "/root/miniconda3/pkgs", "/tmp", "/var/tmp", "/dev/shm")
VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "TORCH_HOME", "PIP_CACHE_DIR", "UV_CACHE_DIR", "WANDB_DIR", "MODELSCOPE_CACHE")


class Use(NamedTuple):
    """What a folder holds on one disk. `whole`: the time was enough to see all of it."""

    path: str
    bytes: int
    files: int
    whole: bool


class DiskUse:
    """Looks at the folders of one box, at most every `AGAIN_SECONDS` on each disk. For one thread."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._seen: dict[tuple[str, int], tuple[float, str]] = {}
        self._looking: threading.Thread | None = None
        self._found: list[Use] = []
        self._at, self._device = home, 0

    def words(self, why: str, device: int, spec: Mapping[str, Any]) -> str:
        """`: ~/.cache/huggingface 12.3 GB, …`, to end a sentence with; "" where no folder is known there. `why`: disk,
        or inodes. Blocks for `LOOK_SECONDS` and `GRACE_SECONDS` at most."""
        at, said = self._seen.get((why, device), (0.0, ""))
        if not at or time.monotonic() - at > AGAIN_SECONDS:
            said = self._look(why, device, list(self._folders(spec)))
            self._seen[why, device] = time.monotonic(), said
        return said

    def _look(self, why: str, device: int, folders: list[Path]) -> str:
        """In a thread of its own: a `stat` on a mount whose server is gone can hang for ever. While one hangs, no other
        begins."""
        if self._looking is None or not self._looking.is_alive():
            self._found, self._device = [], device
            self._looking = threading.Thread(
                target=hogs, args=(self._each(folders), device, LOOK_SECONDS, self._found), daemon=True
            )
            self._looking.start()
        self._looking.join(LOOK_SECONDS + GRACE_SECONDS)
        if not self._looking.is_alive():
            return _said(why, self._found)
        seen = list(self._found) if device == self._device else []
        return f"{_said(why, seen) or ': '}{', ' if seen else ''}{self._at} does not answer"

    def _each(self, folders: Iterable[Path]) -> Iterator[Path]:
        for folder in folders:
            self._at = folder
            yield folder

    def _folders(self, spec: Mapping[str, Any]) -> Iterator[Path]:
        box = self._home.parent.parent
        yield from (self._home / name for name in ("cells", "checkpoints", "code", "envs"))
        yield from (box / "scratch", box / "mnt" / "durable", box / "data")
        given = {**((spec.get("network") or {}).get("env") or {}), **(spec.get("env") or {})}
        names = [str(given[name]) for name in VARIABLES if name in given]
        yield from (Path(os.path.expanduser(name)) for name in (*names, *CACHES, *ELSEWHERE))


def hogs(folders: Iterable[Path], device: int, seconds: float, found: list[Use] | None = None) -> list[Use]:
    """What these folders hold on the disk `device`, the largest first. A folder inside one that was seen, or the same
    by another name, counts once, where it is named first. `found`: gets each as soon as it is known."""
    ends, found = time.monotonic() + seconds, [] if found is None else found
    seen: set[tuple[int, int]] = set()
    for folder in folders:
        use = _of(folder, device, ends, seen)
        if use is not None and (use.bytes or use.files):
            found.append(use)
    return sorted(found, key=lambda use: -use.bytes)


def _of(folder: Path, device: int, ends: float, seen: set[tuple[int, int]]) -> Use | None:
    try:
        top = os.stat(folder)
    except OSError:
        return None
    size = files = 0
    todo, whole = [os.path.realpath(folder)], True
    if top.st_dev != device or (top.st_dev, top.st_ino) in seen:
        return None
    while todo:
        if time.monotonic() > ends:
            whole = False
            break
        try:
            here = todo.pop()
            status = os.stat(here)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(here) as entries:
                for entry in entries:
                    info = entry.stat(follow_symlinks=False)
                    if info.st_dev != device:
                        continue
                    size, files = size + info.st_blocks * 512, files + 1
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except OSError:
            continue  # gone meanwhile, or not ours to read
    return Use(str(folder), size, files, whole)


def _said(why: str, found: list[Use]) -> str:
    def held(use: Use) -> int:
        return use.files if why == "inodes" else use.bytes

    most = sorted(found, key=held, reverse=True)[:SHOWN]
    parts = []
    for use in most:
        if held(use) >= SMALL * held(most[0]):
            amount = f"{use.files:,} files" if why == "inodes" else f"{use.bytes / 1e9:.1f} GB"
            parts.append(f"{use.path} {'' if use.whole else 'more than '}{amount}")
    return f": {', '.join(parts)}" if parts else ""


class Trend:
    """How fast the free bytes or inodes of a disk shrink, by the looks of the last hour."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def seconds_left(self, at: float, free: int, total: int) -> float | None:
        """In how many seconds none is left, at the rate since the first look of the last hour; None where that is not
        known, not soon, or the disk is less than half used. `at`: now (monotonic)."""
        if free < 0 or total <= 0:
            self._seen.clear()
            return None
        self._seen.append((at, free))
        while self._seen[0][0] < at - WINDOW_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        if at - since < LEAST_SECONDS or before <= free or 1 - free / total < HALF:
            return None
        left = free / ((before - free) / (at - since))
        return left if left < SOON_SECONDS else None
