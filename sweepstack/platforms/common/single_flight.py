"""Single flight: callers that ask the same at the same time share one request and its answer.

So a preview of 100 boxes makes one list call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver

T = TypeVar("T")
WAIT_SECONDS = 600.0
"""The longest wait for another caller's request, without a deadline."""
_LOOK_SECONDS = 0.05
"""Between two looks at a deadline, which another thread may cancel."""


class SingleFlight(Generic[T]):
    """The answers to one request. Safe to share between threads.

    A caller gets an answer only if its request began after the caller came, or at most `max_age` seconds earlier and
    after the last `forget`. So a caller never gets an answer that may be from before its own write.
    """

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._kept: tuple[float, T] | None = None  # when its request began, and the answer
        self._failed: tuple[float, Exception] | None = None
        self._asking = False
        self._floor = 0.0

    def forget(self) -> None:
        """From now on no caller gets the answer of a request that began before this moment."""
        with self._turn:
            self._floor = time.monotonic()

    def get(
        self,
        ask: Callable[[], T],
        deadline: Deadline | None = None,
        *,
        max_age: float = 0.0,
        gather: float = 0.0,
        forgotten: bool = False,
    ) -> T:
        """The answer of `ask`, called by this caller or by another. `ask` blocks, and has a deadline of its own.

        A failure is shared like an answer, except DeadlineOver, which concerns only the caller whose deadline it is.
        `deadline`: how long to wait for another caller's request. `gather`: seconds that the caller which sends the
        request waits first, so that callers that come meanwhile share it. `forgotten`: also accept an answer from
        before the last `forget`, for callers that poll. Raises what `ask` raises; DeadlineOver; Unreachable.
        """
        came = time.monotonic()
        with self._turn:
            oldest = came - max_age if forgotten else max(came - max_age, self._floor)
            while True:
                if self._kept and self._kept[0] >= oldest:
                    return self._kept[1]
                if self._failed and self._failed[0] >= came:
                    raise self._failed[1]
                if not self._asking:
                    self._asking = True
                    begun = time.monotonic()
                    break
                self._wait(deadline)
        if gather > 0:
            time.sleep(gather)
            begun = time.monotonic()
        return self._asked(ask, begun)

    def keep(self, begun: float, answer: T) -> None:
        """Keeps an answer that came with the answer to another request, which began at `begun` (monotonic)."""
        with self._turn:
            if self._kept is None or self._kept[0] < begun:
                self._kept = begun, answer

    def kept(self, max_age: float) -> T | None:
        """The cached answer if `get` would return it, else None. Sends no request."""
        with self._turn:
            oldest = max(time.monotonic() - max_age, self._floor)
            return self._kept[1] if self._kept and self._kept[0] >= oldest else None

    def _wait(self, deadline: Deadline | None) -> None:
        if deadline is None:
            if not self._turn.wait(WAIT_SECONDS):
                raise Unreachable("another request for the same got no answer")
            return
        if why := deadline.why_over():
            raise DeadlineOver(f"{why}: another request for the same is still on its way")
        self._turn.wait(_LOOK_SECONDS)

    def _asked(self, ask: Callable[[], T], begun: float) -> T:
        failed: Exception | None = None
        answer: T | None = None
        try:
            answer = ask()
            return answer
        except DeadlineOver:
            raise
        except Exception as error:
            failed = error
            raise
        finally:
            with self._turn:
                self._asking = False
                if failed is not None:
                    self._failed = begun, failed
                elif answer is not None:
                    self._kept = begun, answer
                self._turn.notify_all()
