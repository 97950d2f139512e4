"""GPU-hours that the jobs of a cluster hold, by the journals of its boxes. Pure.

A site may charge for them, or take them off an allocation. A worker holds its GPUs from its start to its end, whether
cells run or not. What the scheduler itself books may be some seconds a worker more: its start and its end.
"""

from __future__ import annotations

from datetime import datetime

from sweepstack.core.journal import Journal
from sweepstack.onbox.common.dataclass import dataclass

HOUR = 3600.0


@dataclass(frozen=True)
class Rate:
    """What GPU-hours are to a sweep. `price`: USD for one, None unknown. `most`: how many the sweep may take, None for
    no limit that is known."""

    price: float | None = None
    most: float | None = None

    def usd(self, hours: float) -> str:
        """` ($4.80)`; "" where no price is known."""
        return "" if self.price is None else f" (${hours * self.price:,.2f})"


def held(journal: Journal, gpus: int, now: datetime | None) -> float:
    """GPU-hours that the workers of a box held so far. `now`: by the clock of the box; None where none of them runs any
    more: then one without an end on record counts until the last line of the journal."""
    until = now or journal.last_at
    spans = [(worker.ended_at or until or worker.began_at) - worker.began_at for worker in journal.workers.values()]
    return sum(max(span.total_seconds(), 0.0) for span in spans) / HOUR * gpus


def used_line(rate: Rate, used: float, projected: float | None) -> str:
    """How the sweep stands: `used 12.3 GPU-hours ($14.76) of 500; about 40.0 ($48.00) when …`."""
    of = "" if rate.most is None else f" of {rate.most:g}"
    words = f"used {used:.1f} GPU-hours{rate.usd(used)}{of}"
    if projected is not None:
        words += f"; about {projected:.1f}{rate.usd(projected)} when the last cell is through"
    if rate.most is not None and used >= rate.most:
        return f"ALLOCATION USED UP: {words}. What runs goes on"
    if rate.most is not None and (projected or 0.0) > rate.most:
        return f"MORE THAN THE ALLOCATION: {words}"
    return words
