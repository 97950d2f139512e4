"""When things happen by themselves, and the clock that the books are read by."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable

from tests.simulators.clock import VirtualClock


class Timeline(VirtualClock):
    """Reads a clock; whatever was due has happened before, each thing at its own moment and not when it was noticed.

    So a client that looks once an hour finds books that are right to the second.
    """

    def __init__(self, clock: VirtualClock, lock: threading.RLock) -> None:
        super().__init__(0.0)
        self._clock, self._guard = clock, lock
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._moment: float | None = None

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Calls `act` when so many seconds have passed. It has to see for itself whether it still applies."""
        with self._guard:
            begin = self._clock.now() if self._moment is None else self._moment
            self._count += 1
            heapq.heappush(self._due, (begin + seconds, self._count, act))

    def now(self) -> float:
        with self._guard:
            if self._moment is not None:
                return self._moment
            now = self._clock.now()
            while self._due and self._due[0][0] <= now:
                self._moment, _, act = heapq.heappop(self._due)
                try:
                    act()
                finally:
                    self._moment = None
            return now
