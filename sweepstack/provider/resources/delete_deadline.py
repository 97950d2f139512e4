"""Boxes that are ended at once stand in line: a platform takes so many requests a minute, from all of them together.

So the deadline of each counts from its own turn, the moment its platform has taken the verb. Until then the clock
starts anew whenever another box of that platform has had its turn or is done, since the line moves then; a line that
stands still for that long ends the wait. Boxes are finite, so every wait ends.
"""

from __future__ import annotations

import threading
import time

_lock = threading.Lock()
_moved: dict[str, float] = {}
"""Platform and account → when one of its boxes had its turn, or was done (monotonic)."""


class Turn:
    """One box's place in line. `line`: what its platform counts together; `seconds`: its deadline, from its turn on."""

    def __init__(self, line: str, seconds: float) -> None:
        self._line = line
        self._seconds = seconds
        self._begin = time.monotonic()
        self._came = False

    def came(self) -> None:
        """The verb was taken: from the first time on the deadline is this box's own."""
        if not self._came:
            self._came = True
            self._begin = self._move()

    def done(self) -> None:
        """This box is gone."""
        self._move()

    def left(self) -> float:
        """Seconds, 0 when the wait is over."""
        with _lock:
            moved = self._begin if self._came else max(self._begin, _moved.get(self._line, self._begin))
        return max(0.0, moved + self._seconds - time.monotonic())

    def _move(self) -> float:
        with _lock:
            _moved[self._line] = now = time.monotonic()
        return now
