"""What a verify says while it is at work, and how long its stages took."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

Progress = Callable[[str, int, int], None]
"""Gets the cell that is being read, bytes read so far, and bytes in all; from any thread."""


class Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._begin = perf_counter()

    def lap(self, stage: str) -> None:
        """The stage ends that began with the last one's end."""
        now = perf_counter()
        self.stages[stage] = now - self._begin
        self._begin = now


class Said:
    """Adds up what is brought here, where the evidence is not on this machine, and what workers read. A count that is
    slightly off does no harm, so there is no lock."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.to_fetch = self.to_read = 0
        self._fetched = self._read = 0

    def fetched(self, cell: str, count: int) -> None:
        """So many bytes of a cell came here."""
        self._fetched += count
        if self.progress:
            self.progress(f"fetching {cell}", min(self._fetched, self.to_fetch), self.to_fetch)

    def read(self, cell: str, count: int) -> None:
        """So many bytes of a cell were read."""
        self._read += count
        if self.progress:
            self.progress(cell, min(self._read, self.to_read), self.to_read)
