"""The deadline of one operation, and polling until a condition holds or the deadline has passed.

A `Wait` says how long a caller is willing to wait; its clock does not run. A `Deadline` is a wait whose clock runs.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.host.platform import PROGRESS_SECONDS, Wait

LONGEST_QUEUE_SECONDS = 7200.0
"""Seconds. The longest wait for the rate limit of an elastic deadline, where this wait does not count."""


class DeadlineOver(Unreachable):
    """The caller cancelled, or the deadline passed, before the request was sent."""


class Deadline:
    """The seconds that one operation may take, counted from its construction. `cancelled` ends it early.

    `elastic`: time spent waiting for the rate limit, behind other requests of this process, does not count. So a
    deadline means the same for one box and for the hundredth that is created at once. The rate limiter gives each
    request a fixed time, so this wait ends, too.
    """

    def __init__(self, seconds: float, cancelled: threading.Event | None = None, *, elastic: bool = False) -> None:
        self.seconds = seconds
        self.elastic = elastic
        self._queued = 0.0
        self.cancelled = cancelled or threading.Event()
        self._begin = time.monotonic()

    @classmethod
    def of(cls, wait: Wait) -> Deadline:
        """An elastic deadline of the caller's `wait`, which begins now."""
        return cls(wait.deadline, wait.cancelled, elastic=True)

    def extend_for_queue(self, seconds: float) -> None:
        """The next `seconds` are spent waiting for the rate limit. An elastic deadline moves by as much."""
        if self.elastic:
            self._queued += seconds

    def left(self) -> float:
        """Seconds until the deadline, 0 when it has passed."""
        return max(0.0, self._begin + self.seconds + self._queued - time.monotonic())

    def longest_queue(self) -> float:
        """Seconds that a request may wait for the rate limit."""
        return LONGEST_QUEUE_SECONDS if self.elastic else self.left()

    def why_over(self) -> str:
        """ "cancelled", "not within 600 s", or empty while there is time."""
        if self.cancelled.is_set():
            return "cancelled"
        return "" if self.left() else f"not within {self.seconds:g} s"

    def pause(self, seconds: float, what: str = "the platform") -> None:
        """Blocks for `seconds`. Raises DeadlineOver at once when the deadline would pass first, or upon a cancel."""
        until = time.monotonic() + seconds
        if self.cancelled.is_set():
            raise DeadlineOver(f"cancelled while waiting for {what}")
        if seconds > self.left():
            raise DeadlineOver(f"{what} would take {seconds:.1f} s more, and {self.seconds:g} s is all there is")
        while (rest := until - time.monotonic()) > 0:
            if self.cancelled.wait(rest):
                raise DeadlineOver(f"cancelled while waiting for {what}")


class Lasting:
    """Whether a condition held at every look for `seconds`: a single answer of a platform may be out of date."""

    def __init__(self, deadline: Deadline, seconds: float) -> None:
        self._deadline, self._seconds = deadline, seconds
        self._since: float | None = None  # seconds that the deadline had left when the condition began to hold

    def held(self, now: bool) -> bool:
        """Notes whether the condition holds `now`. Returns whether it has held for the whole time."""
        if not now:
            self._since = None
            return False
        self._since = self._deadline.left() if self._since is None else self._since
        return self._since - self._deadline.left() >= self._seconds


class Watch:
    """Polls until a condition holds, as often as the API allows. Reports progress every five seconds."""

    def __init__(
        self, deadline: Deadline, what: str, pace: Callable[[], float], wait: Wait | None = None, *, later: bool = False
    ) -> None:
        """`pace`: gives the seconds until the next look. `wait`: receives the progress. `later`: pause once before the
        first look, since nothing can have changed yet."""
        self._deadline = deadline
        self._what = what
        self._pace = pace
        self._tell = (wait or Wait()).progress
        self._later = later
        self._said = deadline.left()

    def until(self, ready: Callable[[], bool], most: float = math.inf) -> str:
        """Blocks until `ready()`, the deadline, a cancel, or `most` seconds. Returns "" when ready, else why it stopped
        waiting. A DeadlineOver of `ready` counts as the deadline; its other errors are passed on."""
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
