"""Which waiting cell a worker takes next, once cells were measured.

Long cells first: else the last ones keep one worker at work while the others have ended. But a slow worker that took
the longest cell would itself be the last. So a worker takes the longest cell that it ends before all cells can be
through, however they were shared out; where it can't end any so early, the shortest. Cells that are expected to take
the same time are taken in the queue's order, and so are all of them while none was measured. What a worker left that
has ended comes before all others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from sweepstack.onbox.common.cell_durations import Durations, durations
from sweepstack.onbox.runner.records import Entry, Queue
from sweepstack.onbox.runner.shared_journal import SharedJournal

GROWTH = 1.5
"""Estimates are made anew once so many times as many cells were measured."""
SHARE = 16
"""The waiting cells are arranged anew once this part of them was taken."""


class Order:
    """The order of one worker's claims. `learned`: how often estimates were made. For the thread of the main loop."""

    def __init__(self, queue: Queue, journal: SharedJournal) -> None:
        self.learned = 0
        self._queue, self._journal = queue, journal
        self._known: Durations | None = None
        self._seconds: dict[str, float] = {}
        self._learn_at, self._left = 1, 0

    def learn(self) -> None:
        """Estimates anew what cells take, if enough were measured since. Takes a tenth of a second for 10,000
        cells: so not in a turn of the journal."""
        times = self._journal.times
        if len(times) >= self._learn_at:
            self._learn_at, self._left = int(len(times) * GROWTH) + 1, 0
            self._known = durations({name: self._params(name) for name in self._queue.cells}, list(times.values()))
            self._seconds.clear()
            self.learned += 1

    def seconds(self, name: str) -> float | None:
        """What a cell is expected to take on this worker; None while no cell of the queue was measured."""
        return None if self._known is None else self._of(name) / self._known.speed(self._journal.worker)

    def arrange(self, ready: deque[str], slots: int) -> None:
        """Puts the cell first that this worker is to take next."""
        self._left -= 1
        if self._known is None or len(ready) < 2 or self._left > 0:
            return
        self._left = len(ready) // SHARE
        ordered = sorted(ready, key=self._of, reverse=True)
        limit = max(self._limit(ordered, slots), self._of(ordered[-1]))
        first = bisect_left([-self._of(name) for name in ordered], -limit)
        ready.clear()
        ready.extend(ordered[first:])
        ready.extend(reversed(ordered[:first]))
        begun = [name for name in ready if self._journal.cells[name].state == "started"]
        for name in begun:  # which a worker left that has ended
            ready.remove(name)
        ready.extendleft(reversed(begun))

    def _limit(self, ordered: list[str], slots: int) -> float:
        """Seconds of the longest cell that this worker ends before all can be through, on a worker of speed 1."""
        assert self._known is not None
        at_work = self._journal.begun.keys() - self._journal.ended | {self._journal.worker}
        speeds = [self._known.speed(worker) for worker in at_work]
        rest = sum(map(self._of, ordered))
        for name, cell in self._journal.cells.items():
            if cell.state == "started" and cell.worker in at_work:
                rest += self._of(name) / 2  # of a cell that runs half is left, on average
        bound = max(rest / (sum(speeds) * slots), self._of(ordered[0]) / max(speeds))
        return bound * self._known.speed(self._journal.worker)

    def _of(self, name: str) -> float:
        found = self._seconds.get(name)
        if found is None:
            assert self._known is not None
            found = self._seconds[name] = self._known.of(self._params(name))
        return found

    def _params(self, name: str) -> dict[str, object]:
        """Those of its newest version: of one cell all versions have the same."""
        lines = self._queue.cells.get(name, [])
        entries = [] if isinstance(lines, str) else [line for line in lines if isinstance(line, Entry)]
        return entries[-1].params if entries else {}
