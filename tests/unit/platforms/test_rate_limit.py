"""Quotas that are kept, lines that are stood in, and deadlines in which time in line does not count."""

from __future__ import annotations

import threading

import pytest

from sweepstack.onbox.common.errors import RateLimited
from sweepstack.platforms.common import deadline as deadline_module
from sweepstack.platforms.common import rate_limit as limiter_module
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver
from sweepstack.platforms.common.rate_limit import Quota, QuotaUsedUp, RateLimiter


class Clock:
    """Stands in for `time`; waiting moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(limiter_module, "time", clock)
    monkeypatch.setattr(deadline_module, "time", clock)
    monkeypatch.setattr(limiter_module, "_MARGIN", 0.0)
    return clock


class Waits(threading.Event):
    """A cancel that never comes. `meanwhile`: what happens at the first wait."""

    def __init__(self, clock: Clock, meanwhile: object = None) -> None:
        super().__init__()
        self.clock = clock
        self.meanwhile = meanwhile

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        meanwhile, self.meanwhile = self.meanwhile, None
        if callable(meanwhile):
            meanwhile()
        self.clock.now += timeout
        return self.is_set()


def take(limiter: RateLimiter, clock: Clock, seconds: float, **more: object) -> None:
    limiter.take(Deadline(seconds, Waits(clock, **more)), "ask")


def test_a_quota_holds_in_every_window(clock: Clock) -> None:
    limiter, grants = RateLimiter(Quota(3, 10)), []
    for _ in range(10):
        take(limiter, clock, 100)
        grants.append(clock.now)
    assert all(late - early >= 10 for early, late in zip(grants, grants[3:], strict=False))
    assert grants[-1] - grants[0] == 30
    assert limiter.spare() == pytest.approx(2 / 3)
    with pytest.raises(RateLimited):
        [take(limiter, clock, 5) for _ in range(3)]


def test_of_several_quotas_each_holds(clock: Clock) -> None:
    limiter, begin = RateLimiter(Quota(2, 1), Quota(3, 60)), clock.now
    for _ in range(4):
        take(limiter, clock, 100)
    assert clock.now - begin == 60


def test_what_the_platform_says_of_its_quotas_replaces_what_was_assumed(clock: Clock) -> None:
    limiter = RateLimiter(Quota(60, 60), learns=True)
    for _ in range(2):
        take(limiter, clock, 0)
        limiter.learn('"minute";q=2;w=60, "hour";q=3000;w=3600', '"minute";r=1;t=30, "hour";r=2000;t=900')
    with pytest.raises(RateLimited):
        take(limiter, clock, 30)
    limiter.learn("", "")
    take(limiter, clock, 0)
    limiter.learn('"minute";q=60;w=60', '"minute";r=0;t=20')  # other processes use the same key
    with pytest.raises(RateLimited) as caught:
        take(limiter, clock, 10)
    assert caught.value.retry_after == 20


def test_a_fixed_quota_is_not_unlearnt(clock: Clock) -> None:
    limiter = RateLimiter(Quota(1, 60))
    take(limiter, clock, 0)
    limiter.learn("", "")
    with pytest.raises(RateLimited):
        take(limiter, clock, 10)


def test_a_hold_moves_the_whole_line(clock: Clock) -> None:
    """Else all that stand in it would ask at once when it ends."""
    limiter, begin = RateLimiter(Quota(1, 4)), clock.now
    take(limiter, clock, 0)
    take(limiter, clock, 60, meanwhile=lambda: limiter.hold(20))
    assert clock.now - begin == 20
    take(limiter, clock, 60)
    assert clock.now - begin == 24
    with pytest.raises(QuotaUsedUp):
        take(limiter, clock, 10, meanwhile=lambda: limiter.hold(20))
    assert limiter.waiting() == 0, "who gives up stands in nobody's way"


def test_time_in_line_is_not_the_boxs_own(clock: Clock) -> None:
    limiter, deadline, begin = RateLimiter(Quota(1, 2)), Deadline(1, Waits(clock), elastic=True), clock.now
    for _ in range(4):
        limiter.take(deadline, "end a box")
    assert clock.now - begin == 6
    assert deadline.left() == 1
    with pytest.raises(DeadlineOver, match="of other requests come first"):
        limiter.take(Deadline(1, Waits(clock)), "end a box")
    deadline.cancelled.set()
    with pytest.raises(DeadlineOver, match="cancelled"):
        limiter.take(deadline, "end a box")


def test_a_line_that_is_too_long_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline_module, "LONGEST_QUEUE_SECONDS", 900.0)
    limiter = RateLimiter(Quota(1, 1000.0))
    limiter.take(Deadline(1, elastic=True), "end a box")
    with pytest.raises(QuotaUsedUp, match="900 s is all there is"):
        limiter.take(Deadline(1, elastic=True), "end a box")
