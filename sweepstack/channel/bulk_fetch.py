"""Fetches many small files in one request.

A round trip and a flush for each file would be most of the time of a pull.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from sweepstack.channel.ssh.link import Link
from sweepstack.onbox.agent.file_writes import open_target
from sweepstack.onbox.common.canonical import fsync_directory
from sweepstack.onbox.common.errors import Unreachable

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


class Flushing:
    """Flushes files while the next ones come. All that were added last through a power cut when the `with` has ended
    without an error, and so do their names."""

    def __init__(self) -> None:

        self._pool = ThreadPoolExecutor(FLUSHERS)
        self._folders: set[Path] = set()
        self._begun: list[Iterator[None]] = []

    def add(self, targets: Sequence[Path]) -> None:
        """These are whole: their bytes may be flushed from now on."""
        self._begun.append(self._pool.map(_flush, [targets[part::FLUSHERS] for part in range(FLUSHERS)]))
        self._folders |= {target.parent for target in targets}

    def __enter__(self) -> Flushing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._pool:
            if error is None:
                for flushed in (*self._begun, self._pool.map(fsync_directory, self._folders)):
                    list(flushed)  # raises what went wrong


def _flush(targets: Sequence[Path]) -> None:
    for target in targets:
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
