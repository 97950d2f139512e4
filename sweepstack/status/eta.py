"""Estimates the time left from sealed cells' seconds and running cells' steps."""

from __future__ import annotations

import heapq
import math
import statistics
from functools import cached_property

from sweepstack.core.records import Cell
from sweepstack.status.snapshot import BoxSnapshot, Snapshot

SUSPECT_FROM = 3
"""Sealed cells of a box that make a median worth comparing with."""
TOTAL_NAMES = ("{x}s", "max_{x}s", "max_{x}", "num_{x}s", "n_{x}s", "total_{x}s")
"""Parameters that say how far x goes: `steps`, `max_steps`, … where the metrics' x is `step`."""


class Timing:
    """What was measured in one snapshot. Computed once, asked for every cell."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ends = self._last_x()

    @cached_property
    def median(self) -> float | None:
        """Seconds that a cell takes: by the sealed ones, else as running ones project it; None: nothing to go by."""
        measured = [
            seconds for box_snapshot in self._snapshot.box_snapshots for seconds in box_snapshot.times.took.values()
        ]
        if measured:
            return statistics.median(measured)
        projected = [
            elapsed + left
            for box_snapshot in self._snapshot.box_snapshots
            for name in box_snapshot.running
            if (left := self._by_steps(box_snapshot, name)) is not None
            and (elapsed := self.elapsed(box_snapshot, name)) is not None
        ]
        return statistics.median(projected) if projected else None

    def elapsed(self, box_snapshot: BoxSnapshot, name: str) -> float | None:
        """Seconds since a cell's running attempt began."""
        progress = box_snapshot.progress(name)
        if progress is None or progress.state != "running" or progress.started_at is None:
            return None
        return max((box_snapshot.there(self._snapshot.now) - progress.started_at).total_seconds(), 0.0)

    def left(self, box_snapshot: BoxSnapshot, name: str) -> float | None:
        """Seconds until a running cell is through: by its own pace where step and total are known, else by the median.

        None where neither is known, where it takes longer than the median already or went further than the cells that
        were measured, and where it hangs.
        """
        if self._hangs(box_snapshot, name):
            return None
        by_steps = self._by_steps(box_snapshot, name)
        if by_steps is not None:
            return by_steps
        elapsed = self.elapsed(box_snapshot, name)
        if elapsed is None or self.median is None or elapsed > self.median or self._beyond(box_snapshot, name):
            return None
        return self.median - elapsed

    def total(self, cell: Cell, box_snapshot: BoxSnapshot) -> float | None:
        """The last x that a cell will reach: as its parameters name it, else as all sealed cells had it."""
        metrics = box_snapshot.queue.metrics if box_snapshot.queue else None
        if metrics is None:
            return None
        for pattern in TOTAL_NAMES:
            value = cell.params.get(pattern.format(x=metrics.x))
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                return float(value)
        return self._ends

    def quick(self, box_snapshot: BoxSnapshot, name: str) -> str:
        """Why a sealed cell finished too fast to be believed, or nothing. What went on from a checkpoint never is."""
        state = box_snapshot.times
        seconds = state.took.get(name)
        if seconds is None or name in state.resumed or state.attempts_sealed.get(name) != 1:
            return ""
        usual = self._medians.get(box_snapshot.box.native_id)
        if usual is None or seconds >= usual / 2:
            return ""
        return f"quick: sealed after {seconds:.3g} s, the others took {usual:.3g} s"

    @cached_property
    def _medians(self) -> dict[str, float]:
        return {
            box_snapshot.box.native_id: statistics.median(box_snapshot.times.took.values())
            for box_snapshot in self._snapshot.box_snapshots
            if len(box_snapshot.times.took) >= SUSPECT_FROM
        }

    @cached_property
    def _cells(self) -> dict[str, Cell]:
        return {cell.name: cell for cell in self._snapshot.roster}

    def _hangs(self, box_snapshot: BoxSnapshot, name: str) -> bool:
        doing = box_snapshot.patrol.running.get(name) if box_snapshot.patrol else None
        return doing is not None and doing.verdict == "hung"

    def _by_steps(self, box_snapshot: BoxSnapshot, name: str) -> float | None:
        point, elapsed, cell = box_snapshot.points.get(name), self.elapsed(box_snapshot, name), self._cells.get(name)
        if point is None or point.x is None or elapsed is None or cell is None:
            return None
        total = self.total(cell, box_snapshot)
        if total is None or total < point.x:
            return None
        begun = box_snapshot.times.resumed.get(name)
        done = point.x - (begun if begun is not None else 0.0)
        return elapsed / done * (total - point.x) if done > 0 else None

    def _beyond(self, box_snapshot: BoxSnapshot, name: str) -> bool:
        """Whether a running cell went past the x at which the sealed ones ended: their times say nothing of it."""
        point = box_snapshot.points.get(name)
        return point is not None and point.x is not None and self._ends is not None and point.x > self._ends

    def _last_x(self) -> float | None:
        """The x at which sealed cells ended, where all that were looked at agree; what ended too fast has no say."""
        ends = {
            point.x
            for box_snapshot in self._snapshot.box_snapshots
            for name, point in box_snapshot.points.items()
            if point.x is not None and name in box_snapshot.times.took and not self.quick(box_snapshot, name)
        }
        return ends.pop() if len(ends) == 1 else None

    def eta(self) -> float | None:
        """Seconds until the last queue is through, those whose runner has died counted as if it went on now; None where
        that is not known."""
        ends = []
        for box_snapshot in self._snapshot.box_snapshots:
            if (
                box_snapshot.journal is None
                or box_snapshot.launch is None
                or not (box_snapshot.seen.runner_alive or box_snapshot.stranded)
            ):
                continue
            end = self._through(box_snapshot)
            if end is None:
                return None
            ends.append(end)
        return max(ends, default=None)

    def _through(self, box_snapshot: BoxSnapshot) -> float | None:
        """Seconds until one queue is through: running cells end, the waiting ones take the slots as they come free."""
        assert box_snapshot.launch is not None
        waiting, busy = 0, []
        for name in box_snapshot.launch.cells:
            progress = box_snapshot.progress(name)
            again = progress is not None and progress.state == "failed" and not progress.final
            if progress is None or progress.state == "pending" or again or name in box_snapshot.stranded:
                waiting += 1
            elif progress.state == "running":
                # Nothing to go by, though others were measured: it takes longer than they did, and may end any moment.
                left = self.left(box_snapshot, name)
                if left is None and (self.median is None or self._hangs(box_snapshot, name)):
                    return None
                busy.append(left or 0.0)
        if not waiting:
            return max(busy, default=0.0)
        if self.median is None or box_snapshot.blocked is not None:
            return None
        slots = box_snapshot.slots
        if not slots and not box_snapshot.stranded:
            return None  # its workers wait, and when they begin is the scheduler's to say
        slots = max(slots, 1)
        free = sorted(busy + [0.0] * max(slots - len(busy), 0))
        if waiting > 100 * slots:  # far from the end, who takes which slot makes no difference
            return sum(free) / len(free) + self.median * math.ceil(waiting / slots)
        for _ in range(waiting):
            heapq.heapreplace(free, free[0] + self.median)
        return max(free)
