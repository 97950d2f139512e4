"""Rate limiter: keeps one process inside a platform's quotas by waiting before each request.

The quotas themselves are facts of a platform's API and stand in its adapter. Requests of another process of the same
user are not counted; they show only as 429 answers.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import RateLimited, RequestRefused
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver

PACE_VARIABLE = "SWEEPSTACK_API_PACE"
"""Environment variable: a factor for our own waiting times, such as 0.01 in tests against a simulator. It does not
change the platform's quotas."""
_MARGIN, _MOST_MARGIN = 0.05, 1.2
"""Requests do not arrive exactly as far apart as they were sent. A window is kept longer by this part of it, and by
`_MOST_MARGIN` seconds at most."""
_POLICY = re.compile(r'"(?P<name>[^"]*)"\s*;\s*q=(?P<count>\d+)\s*;\s*w=(?P<seconds>\d+)')
_LEFT = re.compile(r'"(?P<name>[^"]*)"\s*;\s*r=(?P<left>\d+)\s*;\s*t=(?P<seconds>\d+)')


class QuotaUsedUp(DeadlineOver, RateLimited):
    """The rate limit allows the request later than its caller is willing to wait. It was not sent."""


def paced(seconds: float) -> float:
    """`seconds` times the factor in SWEEPSTACK_API_PACE. Raises RequestRefused when that is no factor."""
    text = os.environ.get(PACE_VARIABLE, "").strip() or "1"
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= 100:
            return seconds * float(text)
    raise RequestRefused(f"{PACE_VARIABLE} is {text!r}, and it is a factor above 0, such as 0.01: `unset` it")


@dataclass(frozen=True)
class Quota:
    """At most `count` requests in any `seconds`."""

    count: int
    seconds: float

    def window(self) -> float:
        """Seconds that this process keeps between a request and the one `count` later."""
        return paced(self.seconds + min(self.seconds * _MARGIN, _MOST_MARGIN))


@dataclass
class _Turn:
    """The time (monotonic) at which one request goes out, or went out."""

    at: float


def _moment(turn: _Turn) -> float:
    return turn.at


class RateLimiter:
    """The quotas of one endpoint, or of all endpoints together, for one key. Callers are served in the order in which
    they came. Safe to share between threads.

    `learns`: take the quotas from the platform's replies; a reply that names none lifts them, since the platform names
    none only to callers that it does not limit.
    """

    def __init__(self, *quotas: Quota, learns: bool = False) -> None:
        self._quotas = list(quotas)
        self._learns = learns
        self._turns: list[_Turn] = []  # requests that went out lately, then those that wait, sorted by time
        self._not_before = 0.0
        self._lock = threading.Lock()

    def take(self, deadline: Deadline, what: str) -> None:
        """Blocks until the quotas allow one more request, which this call reserves. `what`: the request, for messages.

        Raises QuotaUsedUp as soon as it is clear that this will be after the deadline, DeadlineOver upon a cancel; then
        nothing is reserved.
        """
        with self._lock:
            now = time.monotonic()
            turn = _Turn(self._next(now))
            _refuse_if_too_late(turn.at - now, deadline, what)
            self._forget_old(now)
            self._turns.append(turn)
            self._turns.sort(key=_moment)  # with new quotas it may go out before others that wait already
        rest = turn.at - now
        try:
            while True:
                deadline.extend_for_queue(rest)
                deadline.pause(rest, f"a turn to {what}")
                if (rest := turn.at - time.monotonic()) <= 0:  # else `hold` moved it meanwhile
                    return
                _refuse_if_too_late(rest, deadline, what)
        except DeadlineOver:
            with self._lock:
                self._turns = [one for one in self._turns if one is not turn]
            raise

    def hold(self, seconds: float) -> None:
        """Sends nothing for `seconds`, and moves all waiting requests behind that: the platform answered 429."""
        with self._lock:
            now = time.monotonic()
            if now + seconds <= self._not_before:
                return
            self._not_before = now + seconds
            in_line = [turn for turn in self._turns if turn.at > now]
            self._turns = [turn for turn in self._turns if turn.at <= now]
            for turn in in_line:
                turn.at = max(turn.at, self._next(now))
                self._turns.append(turn)

    def interval(self) -> float:
        """Seconds between requests at the steady rate that the quotas allow; 0 without a quota."""
        with self._lock:
            return max((quota.seconds / quota.count for quota in self._quotas), default=0.0)

    def waiting(self) -> int:
        """How many requests wait for the rate limit."""
        with self._lock:
            now = time.monotonic()
            return sum(1 for turn in self._turns if turn.at > now)

    def queue_seconds(self) -> float:
        """Seconds until the last waiting request goes out; 0 when none waits."""
        with self._lock:
            return max(0.0, self._turns[-1].at - time.monotonic()) if self._turns else 0.0

    def spare(self) -> float:
        """The part of the tightest quota that is unused now, 0 to 1; 1 without a quota."""
        with self._lock:
            now = time.monotonic()
            used = [
                sum(1 for turn in self._turns if now - turn.at < paced(quota.seconds)) / quota.count
                for quota in self._quotas
            ]
            return max(0.0, 1.0 - max(used, default=0.0))

    def learn(self, policy: str, left: str) -> None:
        """Takes the quotas over from a successful reply: its headers `RateLimit-Policy` and `RateLimit`, "" where one
        is missing. Does nothing unless the limiter `learns`."""
        if not self._learns:
            return
        with self._lock:
            named = [Quota(int(m["count"]), float(m["seconds"])) for m in _POLICY.finditer(policy)]
            self._quotas = [quota for quota in named if quota.count > 0]
        for match in _LEFT.finditer(left):
            if int(match["left"]) == 0:
                self.hold(paced(min(float(match["seconds"]), 60.0)))

    def _next(self, now: float) -> float:
        """The time (monotonic) at which the quotas allow one more request."""
        turns = self._turns
        free = [turns[-quota.count].at + quota.window() for quota in self._quotas if len(turns) >= quota.count]
        return max([now, self._not_before, *free])

    def _forget_old(self, now: float) -> None:
        """Drops requests that went out so long ago that no quota counts them any more."""
        out = sum(1 for turn in self._turns if turn.at <= now)
        most = max((quota.count for quota in self._quotas), default=0)
        if out > 2 * most:
            del self._turns[: out - most]


def _refuse_if_too_late(rest: float, deadline: Deadline, what: str) -> None:
    if rest > (most := deadline.longest_queue()):
        seconds = most if deadline.elastic else deadline.seconds
        raise QuotaUsedUp(
            f"{what}: {rest:.0f} s of other requests come first at the pace that the platform allows, and "
            f"{seconds:g} s is all there is",
            rest,
        )
