"""Many who ask the same question at the same time get one answer to share: a preview of 100 boxes is one list call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from sweepstack.onbox.common.errors import Unreachable

T = TypeVar("T")
WAIT_SECONDS = 600.0


class Shared(Generic[T]):
    """The answer of `ask`, shared by threads. `ask` blocks, and has a deadline of its own."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._turn = threading.Condition()
        self._kept: tuple[float, T] | None = None  # when its question was asked, and the answer
        self._flight: float | None = None
        self._failed: tuple[float, Exception] | None = None
        self._floor = 0.0

    def get(self, max_age: float, *, gather: float = 0.0) -> T:
        """An answer to a question that was asked at most `max_age` seconds before this call, and after the last
        `invalidate`. With 0 it is one that was asked later than now. A failure is shared like an answer.

        `gather`: who asks waits so long first, so that those who come meanwhile need no question of their own.
        """
        called = time.monotonic()
        while True:
            with self._turn:
                needed = max(called - max_age, self._floor)
                if self._kept and self._kept[0] >= needed:
                    return self._kept[1]
                if self._failed and self._failed[0] >= max(called, self._floor):
                    raise self._failed[1]
                if self._flight is None:
                    self._flight = begun = time.monotonic()
                    break
                if not self._turn.wait(WAIT_SECONDS):
                    raise Unreachable("the answer that others wait for did not come")
        if gather > 0:
            time.sleep(gather)
            begun = time.monotonic()
        return self._asked(begun)

    def invalidate(self) -> None:
        """Nobody who asks from now on gets an answer to a question that was asked before."""
        with self._turn:
            self._floor = time.monotonic()

    def _asked(self, begun: float) -> T:
        try:
            answer = self._ask()
        except Exception as error:
            with self._turn:
                self._flight, self._failed = None, (begun, error)
                self._turn.notify_all()
            raise
        except BaseException:
            with self._turn:
                self._flight = None
                self._turn.notify_all()
            raise
        with self._turn:
            self._flight, self._kept = None, (begun, answer)
            self._turn.notify_all()
        return answer
