"""What boxes cost: price × time, from what the platform or the stack config named. An unknown price stays unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Running:
    """One rented thing: USD per hour, when its bill began and ended (None: it still runs), and whether it works.

    `idle` is None where nobody knows. `gone` without `until`: it ended at a time that nobody recorded. `known`: USD so
    far by the ledger, which knows of stops and changed prices; None where it has no figure.
    """

    price_per_hour: float | None
    since: datetime | None
    until: datetime | None = None
    gone: bool = False
    idle: bool | None = None
    known: float | None = None

    def so_far(self, now: datetime) -> float | None:
        """USD until now, or until its end; None where price, beginning or end are unknown."""
        if self.known is not None:
            return self.known
        if self.price_per_hour is None or self.since is None or (self.gone and self.until is None):
            return None
        hours = ((self.until or now) - self.since).total_seconds() / 3600
        return max(hours, 0.0) * self.price_per_hour


@dataclass(frozen=True)
class Meter:
    """USD: per hour now, in all so far, and of the hourly rate the part that buys no training right now.

    `incomplete`: something has no price or no dates on record, so the figures are lower bounds. `projected`: in all
    when the last cell is through, by what was measured; None: nothing to go by.
    """

    per_hour: float
    so_far: float
    idle: float
    incomplete: bool = False
    projected: float | None = None


def meter(things: Iterable[Running], now: datetime) -> Meter:
    """The sum over everything that was ever rented for a sweep."""
    per_hour = so_far = idle = 0.0
    incomplete = False
    for thing in things:
        cost = thing.so_far(now)
        incomplete |= cost is None
        so_far += cost or 0.0
        if thing.gone or thing.until is not None or thing.price_per_hour is None:
            continue
        per_hour += thing.price_per_hour
        if thing.idle:
            idle += thing.price_per_hour
    return Meter(per_hour, so_far, idle, incomplete)
