"""`sweepctl place --wait`: looks again until something fits.

It rents nothing: `pulumi up` does, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from sweepstack.cli.commands.place.looks import Look
from sweepstack.cli.commands.place.market import Market
from sweepstack.cli.commands.place.near import Near, nearest
from sweepstack.cli.output import aside, count, span
from sweepstack.platforms.common.rate_limit import paced

LOOK_SECONDS = 60.0
"""Time between two looks: a platform may allow as few as 10 searches a minute, and a look can take two."""
TELL_SECONDS = 600.0
"""Time between two lines that say how long it still waits, and what is near."""


class Waiting:
    """One wait. `looks`: how many there were; `near`: what was near at last, from the last time it was asked;
    `useless`: it ended since no candidate can ever have anything."""

    def __init__(self, limit: timedelta) -> None:
        self.limit = limit.total_seconds()
        self.looks, self.useless = 0, False
        self.near: list[Near] = []
        self._end = time.monotonic() + self.limit
        self._told_at, self._troubles = 0.0, dict[str, str]()
        self._answered: set[str] = set()

    @property
    def words(self) -> str:
        """`within 6 h (312 looks)`"""
        return f"within {span(self.limit)} ({count(self.looks, 'look')})"

    def until(self, look: Callable[[], Look]) -> Look:
        """Looks until each box has an offer or is rented, no candidate can ever have one, or the time is up. Returns
        the last look.

        An outage of a platform does not end it: it is told, and so is its end. Raises what `look` raises, so a mistake
        in the stack file, which is read for each look, ends the wait; KeyboardInterrupt at any moment.
        """
        while True:
            seen = look()
            self.looks += 1
            self._tell_troubles(seen.markets)
            left = self._end - time.monotonic()
            self.useless = not seen.complete and not self._may_come(seen.markets)
            if not seen.boxes or seen.complete or self.useless or left <= 0:
                return seen
            now = time.monotonic()
            if self.looks == 1 or now - self._told_at >= TELL_SECONDS:
                self._tell(seen, left, now)
            time.sleep(max(0.0, min(paced(LOOK_SECONDS), self._end - time.monotonic())))

    def last_near(self, seen: Look) -> list[Near]:
        """What is near now; where that is asked for in vain, what was near before."""
        self.near = nearest(seen.markets, seen.choice) or self.near
        return self.near

    def _may_come(self, markets: Sequence[Market]) -> bool:
        """Whether a candidate can have something later. One that answered before, and now refuses the key, counts: a
        page in front of an API can say that, too."""
        self._answered |= {market.platform for market in markets if not market.refusals}
        return any(
            not market.out and (market.error is None or market.passing or market.platform in self._answered)
            for market in markets
        )

    def _tell(self, seen: Look, left: float, now: float) -> None:
        self._told_at = now
        near = self.last_near(seen)
        end = (datetime.now(UTC) + timedelta(seconds=left)).strftime("%Y-%m-%d %H:%M UTC")
        missing = f" for {', '.join(seen.choice.lacking)}" if seen.choice is not None else ""
        again = (
            f"looking again every {span(LOOK_SECONDS)}" if self.looks == 1 else f"{count(self.looks, 'look')} so far"
        )
        aside(f"waiting  nothing fits now{missing}; {span(left)} left, until {end}; {again}; Ctrl-C ends it")
        aside(*(f"near     {one.words}" for one in near))

    def _tell_troubles(self, markets: Sequence[Market]) -> None:
        """Says once that a candidate gives no answer, and once that it does again."""
        now = {market.platform: str(market.error) for market in markets if market.error is not None}
        for name, why in now.items():
            if name not in self._troubles:
                aside(f"trouble  {name} gives no answer, and is asked again: {why}")
        for name in self._troubles.keys() - now.keys():
            aside(f"again    {name} answers")
        self._troubles = now
