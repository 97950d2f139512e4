"""Keeps one process inside a platform's quotas: it waits before a request instead of being told off after it.

A quota is so many requests in any so many seconds, per endpoint or for all of them. Where a platform names its quotas
in its replies (the headers RateLimit and RateLimit-Policy), those replace the ones that were assumed.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from sweepstack.onbox.common.errors import RateLimited, RequestRefused, Unreachable

PACE_VARIABLE = "SWEEPSTACK_API_PACE"
"""Our own waiting is multiplied by this: 0.01 in tests against a simulator. What a platform allows stays as it is."""
ALL = "*"
"""The quota that every request counts against, whatever its endpoint."""
_MARGIN = 1.02
"""Requests do not arrive exactly as far apart as they were sent."""
_POLICY = re.compile(r'"(?P<name>[^"]*)"\s*;\s*q=(?P<count>\d+)\s*;\s*w=(?P<seconds>\d+)')
_LEFT = re.compile(r'"(?P<name>[^"]*)"\s*;\s*r=(?P<left>\d+)\s*;\s*t=(?P<seconds>\d+)')


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


class Limiter:
    """Shared by all threads that use one key. `quotas`: endpoint, or `ALL` → quota; no entry, no limit.

    `learns`: the quotas under `ALL` are the platform's to say: replaced by what its replies name, and dropped when a
    reply names none, since only callers that are exempt are told nothing.
    """

    def __init__(self, quotas: Mapping[str, Quota], *, learns: bool = False) -> None:
        self._lock = threading.Lock()
        self._windows = {name: [_Window(quota)] for name, quota in quotas.items()}
        self._learns = learns
        self._not_before = 0.0
        self._waiting = 0

    def take(self, endpoint: str, *, patience: float, cancelled: threading.Event) -> None:
        """Blocks until a request may go out, at most `patience` seconds. Raises RateLimited when it would take longer,
        Unreachable when it is cancelled: either way nothing was sent."""
        end = time.monotonic() + patience
        if self._delay(endpoint) <= 0:
            return
        with self._lock:
            self._waiting += 1
        try:
            while (delay := self._delay(endpoint)) > 0:
                if time.monotonic() + delay > end:
                    raise RateLimited(f"the quota is used up for another {delay:.0f} s: ask again then", delay)
                if cancelled.wait(delay):
                    raise Unreachable("cancelled while waiting for the platform's quota: nothing was sent")
        finally:
            with self._lock:
                self._waiting -= 1

    def _delay(self, endpoint: str) -> float:
        """0 when a request may go out, and then it is counted; else after how many seconds to ask again."""
        with self._lock:
            now = time.monotonic()
            windows = [*self._windows.get(ALL, ()), *self._windows.get(endpoint, ())]
            delay: float = max([self._not_before - now, *(window.delay(now) for window in windows)])
            if delay > 0:
                return delay
            for window in windows:
                window.grants.append(now)
            return 0.0

    def waiting(self) -> int:
        """How many wait for their turn."""
        with self._lock:
            return self._waiting

    def hold(self, seconds: float) -> None:
        """Nobody sends anything for so long: the platform said that it was too much."""
        with self._lock:
            self._not_before = max(self._not_before, time.monotonic() + seconds)

    def spare(self) -> float:
        """The part of the quota of `ALL` that is left now, 0 to 1; 1 without one."""
        with self._lock:
            now = time.monotonic()
            return min([1.0, *(window.spare(now) for window in self._windows.get(ALL, ()))])

    def learn(self, policy: str, left: str) -> None:
        """Takes over what a successful reply says of the quotas; both are header values, "" where there is none."""
        if not self._learns:
            return
        with self._lock:
            quotas = [Quota(int(m["count"]), float(m["seconds"])) for m in _POLICY.finditer(policy)]
            windows = self._windows.get(ALL, [])
            if [window.quota for window in windows] != quotas:
                past = max((window.grants for window in windows), key=len, default=deque[float]())
                self._windows[ALL] = [_Window(quota, past) for quota in quotas if quota.count > 0]
            for match in _LEFT.finditer(left):
                if int(match["left"]) == 0:
                    until = time.monotonic() + paced(min(float(match["seconds"]), 60.0))
                    self._not_before = max(self._not_before, until)


class _Window:
    """The last `count` requests that were let out."""

    def __init__(self, quota: Quota, past: deque[float] | None = None) -> None:
        self.quota = quota
        self.grants: deque[float] = deque(past or (), maxlen=quota.count)

    def delay(self, now: float) -> float:
        if len(self.grants) < self.quota.count:
            return 0.0
        return self.grants[0] + paced(self.quota.seconds) * _MARGIN - now

    def spare(self, now: float) -> float:
        used = sum(1 for grant in self.grants if now - grant < paced(self.quota.seconds))
        return 1.0 - used / self.quota.count
