"""What a live run may spend, what it has spent, and the word to stop before it is too much.

Counted are the platform's own prices times the time from before a create until after its end is proved: a little more
than what is billed. A create is let through only if everything that runs, and the new box for as long as a test may
take, still fits below the ceiling.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

RESERVE_SECONDS = 900.0
"""So long may a box run that a test rents: it must be affordable before it is rented."""
MARGIN = 0.8
"""The part of the ceiling that boxes may use up before all of them are ended: ending takes time, too."""


class OverBudget(KeyboardInterrupt):
    """The run ends here, as after Ctrl-C: no test may swallow it."""


@dataclass
class Purse:
    """`ceiling` in USD; `now`: seconds. Threads share it."""

    ceiling: float
    now: Callable[[], float] = time.monotonic
    ended: float = 0.0
    """USD of what has ended."""
    running: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Tag → since when, USD per hour."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: str = ""
    """Why nothing more is rented; empty while something may be."""

    def spent(self) -> float:
        """USD so far."""
        with self.lock:
            return self._spent()

    def take(self, tag: str, price_per_hour: float) -> None:
        """Before a create. Raises OverBudget, and then nothing may be rented any more."""
        with self.lock:
            if not self.over:
                reserve = RESERVE_SECONDS / 3600 * sum(price for _, price in self._with(tag, price_per_hour))
                whole = self._spent() + reserve
                if whole > self.ceiling:
                    self.over = (
                        f"${self._spent():.4f} is spent, and a box at ${price_per_hour:.3f}/h for "
                        f"{RESERVE_SECONDS / 60:.0f} minutes could bring it to ${whole:.4f}; "
                        f"--spend is ${self.ceiling:g}"
                    )
            if self.over:
                raise OverBudget(self.over)
            self.running.setdefault(tag, (self.now(), price_per_hour))

    def reprice(self, tag: str, price_per_hour: float) -> None:
        """What the platform says that it costs. 0: it did not say, and the most that was allowed counts."""
        with self.lock:
            if tag in self.running and price_per_hour > 0:
                self.running[tag] = (self.running[tag][0], price_per_hour)

    def put_back(self, tag: str) -> None:
        """It is proved that nothing of it bills any more."""
        with self.lock:
            if tag in self.running:
                since, price = self.running.pop(tag)
                self.ended += (self.now() - since) / 3600 * price

    def must_stop(self) -> str:
        """Why everything has to end now; empty while it may go on. That nothing more may be rented is no reason."""
        with self.lock:
            if self._spent() <= MARGIN * self.ceiling:
                return ""
            self.over = f"${self._spent():.4f} of the ${self.ceiling:g} of --spend are used up"
            return self.over

    def _spent(self) -> float:
        now = self.now()
        return self.ended + sum((now - since) / 3600 * price for since, price in self.running.values())

    def _with(self, tag: str, price: float) -> list[tuple[float, float]]:
        return [*self.running.values(), *([] if tag in self.running else [(0.0, price)])]
