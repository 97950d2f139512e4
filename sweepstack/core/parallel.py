"""Asking several things at once, each of which may never answer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from time import monotonic
from typing import TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")

AT_FIRST = 8
STILL_SECONDS = 0.05


def in_parallel(tasks: Mapping[KeyT, Callable[[], ValueT]], seconds: float) -> dict[KeyT, ValueT]:
    """The results of what finished within `seconds`, by key. What did not is left behind and dies with the process.

    `AT_FIRST` tasks begin at once. Each time none has finished for `STILL_SECONDS`, as many again begin: so a hundred
    machines are all asked within a quarter of a second, and none waits for one that hangs. Tasks that only work on this
    machine stay few: a hundred threads of Python that all want to run spend half of the CPU on taking turns.
    An exception of a task is raised here.
    """
    results: dict[KeyT, ValueT] = {}
    errors: list[BaseException] = []
    waiting = deque(tasks.items())
    finished = threading.Semaphore(0)

    def runner() -> None:
        while True:
            try:
                key, task = waiting.popleft()
            except IndexError:
                return
            try:
                results[key] = task()
            except BaseException as error:
                errors.append(error)
            finished.release()

    deadline = monotonic() + seconds
    begun, done, more = 0, 0, AT_FIRST
    while done < len(tasks) and (left := deadline - monotonic()) > 0:
        for _ in range(min(more, len(waiting))):
            threading.Thread(target=runner, daemon=True).start()
            begun += 1
        if finished.acquire(timeout=min(left, STILL_SECONDS) if waiting else left):
            done, more = done + 1, 0
        else:
            more = begun
    waiting.clear()  # a thread that is late takes nothing more
    if errors:
        raise errors[0]
    return dict(results)
