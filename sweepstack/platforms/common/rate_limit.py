"""Keeps one process inside a platform's quotas: it waits before a request instead of being told off after it.

The quotas of a platform are facts of its API, so they stand with its adapter; what is here only keeps them. Another
process of the same user is noticed by its 429s alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from dataclasses import dataclass

from sweepstack.onbox.common.errors import RateLimited, RequestRefused
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver

PACE_VARIABLE = "SWEEPSTACK_API_PACE"
"""Our own waiting is multiplied by this: 0.01 in tests against a simulator. What a platform allows stays as it is."""
_MARGIN, _MOST_MARGIN = 0.05, 1.2
"""Requests do not arrive exactly as far apart as they were sent: such a part of a window, so many seconds at most."""
_POLICY = re.compile(r'"(?P<name>[^"]*)"\s*;\s*q=(?P<count>\d+)\s*;\s*w=(?P<seconds>\d+)')
_LEFT = re.compile(r'"(?P<name>[^"]*)"\s*;\s*r=(?P<left>\d+)\s*;\s*t=(?P<seconds>\d+)')


class QuotaUsedUp(DeadlineOver, RateLimited):
    """The turn of a request is further away than its caller waits. Nothing was sent."""


def paced(seconds: float) -> float:
    """`seconds` of waiting as long as they are to last in this process. Raises RequestRefused for a bad factor."""
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
        """Seconds between a request and the one `count` later, as this process keeps them."""
        return paced(self.seconds + min(self.seconds * _MARGIN, _MOST_MARGIN))


@dataclass
class _Turn:
    """When one request goes out, or went (monotonic)."""

    at: float


def _moment(turn: _Turn) -> float:
    return turn.at


class RateLimiter:
    """The quotas of one endpoint, or of all together, for one key. First come, first served. Threads share it.

    `learns`: the quotas are the platform's to say: replaced by what its replies name, and dropped when a reply names
    none, since only callers that are exempt are told nothing.
    """

    def __init__(self, *quotas: Quota, learns: bool = False) -> None:
        self._quotas = list(quotas)
        self._learns = learns
        self._turns: list[_Turn] = []  # of those that went out lately, then of those in line
        self._not_before = 0.0
        self._lock = threading.Lock()

    def take(self, deadline: Deadline, what: str) -> None:
        """Blocks until it is this caller's turn to `what`. Raises QuotaUsedUp as soon as it is clear that its turn
        comes too late, DeadlineOver when it is cancelled; then it has taken no turn."""
        with self._lock:
            now = time.monotonic()
            turn = _Turn(self._next(now))
            _must_come_in_time(turn.at - now, deadline, what)
            self._forget_old(now)
            self._turns.append(turn)
            self._turns.sort(key=_moment)  # new quotas may let it go before others that stand in line
        rest = turn.at - now
        try:
            while True:
                deadline.stand(rest)
                deadline.pause(rest, f"a turn to {what}")
                if (rest := turn.at - time.monotonic()) <= 0:  # else it was moved meanwhile
                    return
                _must_come_in_time(rest, deadline, what)
        except DeadlineOver:
            with self._lock:
                self._turns = [one for one in self._turns if one is not turn]
            raise

    def hold(self, seconds: float) -> None:
        """Nothing is sent for so long, and those in line come after that: the platform said that it was too much."""
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
        """Seconds from one request to the next at the pace that the platform allows; 0 where it names none."""
        with self._lock:
            return max((quota.seconds / quota.count for quota in self._quotas), default=0.0)

    def waiting(self) -> int:
        """How many stand in line."""
        with self._lock:
            now = time.monotonic()
            return sum(1 for turn in self._turns if turn.at > now)

    def ahead(self) -> float:
        """Seconds until the last turn that was given out; 0 when nobody waits."""
        with self._lock:
            return max(0.0, self._turns[-1].at - time.monotonic()) if self._turns else 0.0

    def spare(self) -> float:
        """The part of the quotas that is left now, 0 to 1; 1 without one."""
        with self._lock:
            now = time.monotonic()
            used = [
                sum(1 for turn in self._turns if now - turn.at < paced(quota.seconds)) / quota.count
                for quota in self._quotas
            ]
            return max(0.0, 1.0 - max(used, default=0.0))

    def learn(self, policy: str, left: str) -> None:
        """Takes over what a successful reply says of the quotas; both are header values, "" where there is none."""
        if not self._learns:
            return
        with self._lock:
            named = [Quota(int(m["count"]), float(m["seconds"])) for m in _POLICY.finditer(policy)]
            self._quotas = [quota for quota in named if quota.count > 0]
        for match in _LEFT.finditer(left):
            if int(match["left"]) == 0:
                self.hold(paced(min(float(match["seconds"]), 60.0)))

    def _next(self, now: float) -> float:
        """When the next who comes has its turn."""
        turns = self._turns
        free = [turns[-quota.count].at + quota.window() for quota in self._quotas if len(turns) >= quota.count]
        return max([now, self._not_before, *free])

    def _forget_old(self, now: float) -> None:
        """Those that went out count as long as a quota reaches back to them."""
        out = sum(1 for turn in self._turns if turn.at <= now)
        most = max((quota.count for quota in self._quotas), default=0)
        if out > 2 * most:
            del self._turns[: out - most]


def _must_come_in_time(rest: float, deadline: Deadline, what: str) -> None:
    if rest > (most := deadline.most_in_line()):
        seconds = most if deadline.elastic else deadline.seconds
        raise QuotaUsedUp(
            f"{what}: {rest:.0f} s of other requests come first at the pace that the platform allows, and "
            f"{seconds:g} s is all there is",
            rest,
        )
