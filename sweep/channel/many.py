"""Many small files in one request: a round trip and a flush for each would be all that a pull of them does."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sweep.canonical import fsync_directory
from sweep.channel.local import open_target
from sweep.channel.ssh_link import Link
from sweep.errors import Unreachable

MOST_FILES = 512
"""In one request: what a cut may have to bring again."""
FLUSHERS = 8
"""Flushes at once: a disk that is asked for several does them together."""


class Receiver:
    """Files of a box on their way here. `take` may be begun anew on another connection: what is whole stays."""

    def __init__(
        self, files: Sequence[tuple[str, Path]], count: Callable[[Any], int], say: Callable[[int], None]
    ) -> None:
        """`count` reads a size that the box said, or raises."""
        self._files, self._count, self._say = files, count, say
        self._done = 0

    def take(self, link: Link) -> None:
        """Brings the rest of them. Raises what the box raised, Unreachable."""
        rest = self._files[self._done :]
        link.request("fetch_many", paths=[path for path, _ in rest])
        said = link.answer() if rest else None
        for _, target in rest:
            said = self._one(link, target, self._count(said))
            self._done += 1

    def _one(self, link: Link, target: Path, expected: int) -> Any:
        """One file; returns what the box said after it: the size of the next one, or nothing after the last."""
        here = 0
        with open_target(target) as copy:
            copy.truncate(0)

            def write(chunk: bytes) -> None:
                nonlocal here
                here += len(chunk)
                if here > expected:
                    raise Unreachable("the box sends more than it announced: nothing of it is believed")
                copy.write(chunk)

            said = link.answer(write)
        if here != expected:
            raise Unreachable("the box sends less than it announced: nothing of it is believed")
        self._say(here)
        return said


def flush(targets: Sequence[Path]) -> None:
    """They last through a power cut when this returns, and so do their names."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(FLUSHERS) as pool:
        list(pool.map(_flush, targets))
        list(pool.map(fsync_directory, {target.parent for target in targets}))


def _flush(target: Path) -> None:
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
