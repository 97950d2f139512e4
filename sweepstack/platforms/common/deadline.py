"""Not asking faster than a platform allows, and not waiting longer than somebody is willing to.

The quotas of a platform are facts of its API, so they stand with its adapter; what is here only keeps them. One
`Limiter` per quota, key and process: another process of the same user is noticed by its 429s alone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.platforms.common.rate_limit import paced

if TYPE_CHECKING:
    from sweepstack.onbox.host.platform import Wait

_MARGIN = 1.05
"""Requests do not arrive exactly as far apart as they were sent."""
_LOOK_SECONDS = 0.05
MOST_IN_LINE = 7200.0
"""Seconds that a turn may be away."""

Answer = TypeVar("Answer")


class OutOfPatience(Unreachable):
    """Waiting for the platform's turn ended: cancelled, or the deadline came first. Nothing was sent."""


class Patience:
    """How long one verb may still take, and who may cut it short.

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
    def of(cls, wait: Wait) -> Patience:
        """That of a verb that begins now."""
        return cls(wait.deadline, wait.cancelled, elastic=True)

    def stand(self, seconds: float) -> None:
        """So many seconds from now are spent in line."""
        if self.elastic:
            self._stood += seconds

    def left(self) -> float:
        """Seconds, 0 when it is over."""
        return max(0.0, self._begin + self.seconds + self._stood - time.monotonic())

    def why_over(self) -> str:
        """ "cancelled", "not within 600 s", or empty while there is time."""
        if self.cancelled.is_set():
            return "cancelled"
        return "" if self.left() else f"not within {self.seconds:g} s"

    def pause(self, seconds: float, what: str = "the platform") -> None:
        """Blocks for `seconds`. Raises OutOfPatience as soon as it is clear that they can't be waited for."""
        until = time.monotonic() + seconds
        if self.cancelled.is_set():
            raise OutOfPatience(f"cancelled while waiting for {what}")
        if seconds > self.left():
            raise OutOfPatience(f"{what} would take {seconds:.1f} s more, and {self.seconds:g} s is all there is")
        while (rest := until - time.monotonic()) > 0:
            if self.cancelled.wait(rest):
                raise OutOfPatience(f"cancelled while waiting for {what}")


class Limiter:
    """At most `count` requests in any `seconds`. First come, first served; threads may share one."""

    def __init__(self, seconds: float, count: int = 1) -> None:
        self._seconds = seconds
        self._given: deque[float] = deque(maxlen=count)
        self._lock = threading.Lock()

    def turn(self, patience: Patience, what: str) -> None:
        """Blocks until it is this caller's turn. Raises OutOfPatience, and then takes no turn that it can give back."""
        with self._lock:
            now = time.monotonic()
            slot = now
            if len(self._given) == self._given.maxlen:
                slot = max(now, self._given[0] + paced(self._seconds) * _MARGIN)
            if slot - now > (MOST_IN_LINE if patience.elastic else patience.left()):
                raise OutOfPatience(
                    f"{what}: {slot - now:.0f} s of other requests come first at the pace that the platform allows, "
                    f"and {MOST_IN_LINE if patience.elastic else patience.seconds:g} s is all there is"
                )
            self._given.append(slot)
        patience.stand(slot - now)
        patience.pause(slot - now, f"a turn to {what}")

    def ahead(self) -> float:
        """Seconds until the last turn that was given out; 0 when nobody waits."""
        with self._lock:
            return max(0.0, self._given[-1] - time.monotonic()) if self._given else 0.0


class Shared(Generic[Answer]):
    """One reading for all that ask at the same moment.

    An answer is given to a caller only when its reading began after the caller came, or at most `age` seconds before
    that and after the last `forget`. So a reading that a caller's own write could have missed never reaches it.
    """

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._begun = float("-inf")
        self._floor = float("-inf")
        self._answer: Answer | None = None
        self._reading = False

    def forget(self) -> None:
        """What was read before this moment is not given out any more."""
        with self._turn:
            self._floor = time.monotonic()

    def get(
        self, read: Callable[[], Answer], patience: Patience, *, age: float = 0.0, forgotten: bool = False
    ) -> Answer:
        """The answer, read by this caller or by another. Raises what its own `read` raises, and OutOfPatience.

        `forgotten`: one from before the last `forget` will do, too: for who looks again and again anyway.
        """
        came = time.monotonic()
        with self._turn:
            oldest = came - age if forgotten else max(came - age, self._floor) if age else came
            while True:
                if self._answer is not None and self._begun >= oldest:
                    return self._answer
                if not self._reading:
                    self._reading = True
                    break
                if patience.why_over():
                    raise OutOfPatience(f"{patience.why_over()}: another request for the same is still on its way")
                self._turn.wait(_LOOK_SECONDS)
            begun = time.monotonic()
        answer: Answer | None = None
        try:
            answer = read()
        finally:
            with self._turn:
                self._reading = False
                if answer is not None:
                    self._answer, self._begun = answer, begun
                self._turn.notify_all()
        return answer
