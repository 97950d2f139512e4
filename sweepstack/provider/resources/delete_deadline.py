"""The deadline of a delete while many boxes of one account are deleted at once.

A platform takes so many requests a minute, from all boxes together, so their deletes wait in line. The deadline of each
box counts from its own turn: the moment its platform has accepted the delete. Until then its clock starts anew whenever
another box in the line had its turn or is done, since the line moves then. If the line does not move for that long, the
wait ends. The number of boxes is finite, so every wait ends.
"""

from __future__ import annotations

import threading
import time

_lock = threading.Lock()
_moved: dict[str, float] = {}
"""Platform and account → when one of its boxes last had its turn, or was done (monotonic)."""


class Turn:
    """One box's place in line. `line`: platform and account, whose requests count together; `seconds`: the deadline,
    from the box's turn on."""

    def __init__(self, line: str, seconds: float) -> None:
        self._line = line
        self._seconds = seconds
        self._begin = time.monotonic()
        self._came = False

    def came(self) -> None:
        """The platform has accepted the delete: from the first call on the deadline is this box's own."""
        if not self._came:
            self._came = True
            self._begin = self._move()

    def wait_for(self, seconds: float) -> None:
        """The platform needs so many seconds for its proof: the deadline is no earlier."""
        self._seconds = max(self._seconds, seconds)

    def done(self) -> None:
        """This box is gone, so the line moves."""
        self._move()

    def left(self) -> float:
        """Seconds left; 0 when the wait is over."""
        with _lock:
            moved = self._begin if self._came else max(self._begin, _moved.get(self._line, self._begin))
        return max(0.0, moved + self._seconds - time.monotonic())

    def _move(self) -> float:
        with _lock:
            _moved[self._line] = now = time.monotonic()
        return now
