"""How long one verb may still take, and looking again and again until then.

A `Wait` says how long a caller is willing to wait, and has no clock. A `Deadline` is that wait with its clock running.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.host.platform import PROGRESS_SECONDS, Wait

MOST_IN_LINE = 7200.0
"""Seconds that a turn may be away, where time in line does not count."""


class DeadlineOver(Unreachable):
    """Waiting ended: cancelled, or the deadline came first. Nothing was sent."""


class Deadline:
    """The time that one verb may still take, from now on, and who may cut it short.

    `elastic`: the time that it stands in line behind requests of this process does not count, so that a deadline of one
    box says the same for the hundredth that is asked for at once. A turn has a moment of its own, so this ends, too.
    """

    def __init__(self, seconds: float, cancelled: threading.Event | None = None, *, elastic: bool = False) -> None:
        self.seconds = seconds
        self.elastic = elastic
        self._stood = 0.0
        self.cancelled = cancelled or threading.Event()
        self._begin = time.monotonic()

    @classmethod
    def of(cls, wait: Wait) -> Deadline:
        """That of a verb that begins now, and may stand in line."""
        return cls(wait.deadline, wait.cancelled, elastic=True)

    def stand(self, seconds: float) -> None:
        """So many seconds from now are spent in line."""
        if self.elastic:
            self._stood += seconds

    def left(self) -> float:
        """Seconds, 0 when it is over."""
        return max(0.0, self._begin + self.seconds + self._stood - time.monotonic())

    def most_in_line(self) -> float:
        """Seconds that a turn may be away."""
        return MOST_IN_LINE if self.elastic else self.left()

    def why_over(self) -> str:
        """ "cancelled", "not within 600 s", or empty while there is time."""
        if self.cancelled.is_set():
            return "cancelled"
        return "" if self.left() else f"not within {self.seconds:g} s"

    def pause(self, seconds: float, what: str = "the platform") -> None:
        """Blocks for `seconds`. Raises DeadlineOver as soon as it is clear that they can't be waited for."""
        until = time.monotonic() + seconds
        if self.cancelled.is_set():
            raise DeadlineOver(f"cancelled while waiting for {what}")
        if seconds > self.left():
            raise DeadlineOver(f"{what} would take {seconds:.1f} s more, and {self.seconds:g} s is all there is")
        while (rest := until - time.monotonic()) > 0:
            if self.cancelled.wait(rest):
                raise DeadlineOver(f"cancelled while waiting for {what}")


class Lasting:
    """Whether something has been so, at every look, for `seconds`: one answer may be from before."""

    def __init__(self, deadline: Deadline, seconds: float) -> None:
        self._deadline, self._seconds = deadline, seconds
        self._since: float | None = None  # seconds that were left when it began

    def so(self, now: bool) -> bool:
        """`now`: what this look says."""
        if not now:
            self._since = None
            return False
        self._since = self._deadline.left() if self._since is None else self._since
        return self._since - self._deadline.left() >= self._seconds


class Watch:
    """Looks again and again, at the pace that the API allows, until something is so. Tells of it every five seconds."""

    def __init__(
        self, deadline: Deadline, what: str, pace: Callable[[], float], wait: Wait | None = None, *, later: bool = False
    ) -> None:
        """`pace`: seconds until the next look. `wait`: who hears of it. `later`: nothing is to be seen before the first
        pause."""
        self._deadline = deadline
        self._what = what
        self._pace = pace
        self._tell = (wait or Wait()).progress
        self._later = later
        self._said = deadline.left()

    def until(self, ready: Callable[[], bool], most: float = math.inf) -> str:
        """Returns "" when `ready()`, else why waiting ended: after `most` seconds at the latest. DeadlineOver of
        `ready` counts as that; others pass."""
        begun = self._deadline.left()
        while True:
            try:
                if self._later:
                    self._later = False
                elif ready():
                    return ""
                self._progress()
                if begun - self._deadline.left() >= most:
                    return f"not within {most:g} s: still waiting for {self._what}"
                self._deadline.pause(self._pace(), self._what)
            except DeadlineOver:
                if self._deadline.cancelled.is_set():
                    return f"cancelled while waiting for {self._what}"
                return f"not within {self._deadline.seconds:g} s: still waiting for {self._what}"

    def _progress(self) -> None:
        left, seconds = self._deadline.left(), self._deadline.seconds
        if self._said - left >= PROGRESS_SECONDS:
            self._said = left
            self._tell(f"waiting for {self._what}: {seconds - left:.0f} s of at most {seconds:g} s")
