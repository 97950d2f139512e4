"""How many calls a platform takes: so many in a window, or one each so many seconds."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field


@dataclass
class WindowQuota:
    """At most `limit` calls of one key in any `seconds`. A refused call does not count."""

    limit: int
    seconds: float = 60.0
    _calls: dict[str, deque[float]] = field(default_factory=dict)

    def take(self, key: str, now: float) -> float | None:
        """None: allowed, and counted. Else after how many seconds there is room again, at least 1."""
        calls = self._recent(key, now)
        if len(calls) < self.limit:
            calls.append(now)
            return None
        return max(1.0, math.ceil(calls[0] + self.seconds - now))

    def left(self, key: str, now: float) -> int:
        """Calls that are left now."""
        return self.limit - len(self._recent(key, now))

    def reset(self, key: str, now: float) -> int:
        """Seconds until the oldest call counts no more."""
        calls = self._recent(key, now)
        return math.ceil(calls[0] + self.seconds - now) if calls else int(self.seconds)

    def _recent(self, key: str, now: float) -> deque[float]:
        calls = self._calls.setdefault(key, deque())
        while calls and calls[0] <= now - self.seconds:
            calls.popleft()
        return calls


@dataclass
class IntervalQuota:
    """At least `seconds` between two calls of one key. A refused call does not count."""

    seconds: float
    _last: dict[str, float] = field(default_factory=dict)

    def take(self, key: str, now: float) -> float | None:
        """None: allowed, and counted. Else after how many seconds it is."""
        last = self._last.get(key)
        if last is not None and now - last < self.seconds:
            return self.seconds - (now - last)
        self._last[key] = now
        return None
