"""Time as a simulator sees it: stands still until it is told, or follows the real one, faster if asked to."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime


class VirtualClock:
    """Seconds since the epoch that tests move. Thread-safe, never goes back.

    `start`: its first reading, by default the real time. `scale`: virtual seconds for each real second; 0 stands still.
    """

    def __init__(self, start: float | None = None, scale: float = 0.0) -> None:
        if scale < 0:
            raise ValueError("a clock does not run backwards")
        self._lock = threading.Lock()
        self._base = time.time() if start is None else start
        self._since = time.monotonic()
        self._scale = scale

    def now(self) -> float:
        """Virtual seconds since the epoch."""
        with self._lock:
            return self._reading()

    def advance(self, seconds: float) -> float:
        """Moves on by so many virtual seconds and returns the new reading."""
        if seconds < 0:
            raise ValueError("a clock does not run backwards")
        with self._lock:
            self._base = self._reading() + seconds
            self._since = time.monotonic()
            return self._base

    def run(self, scale: float) -> None:
        """From now on so many virtual seconds pass in each real one."""
        self.advance(0)
        with self._lock:
            self._scale = scale

    def _reading(self) -> float:
        return self._base + (time.monotonic() - self._since) * self._scale if self._scale else self._base


def rfc3339(moment: float) -> str:
    """`2026-11-21T10:00:00.250Z`."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
