"""Asking several things at once, each of which may never answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


def in_parallel(tasks: Mapping[KeyT, Callable[[], ValueT]], seconds: float) -> dict[KeyT, ValueT]:
    """The results of what finished within `seconds`, by key. What did not is left behind and dies with the process.

    An exception of a task is raised here.
    """
    results: dict[KeyT, ValueT] = {}
    errors: list[BaseException] = []

    def runner(key: KeyT, task: Callable[[], ValueT]) -> None:
        try:
            results[key] = task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=runner, args=item, daemon=True) for item in tasks.items()]
    deadline = datetime.now(UTC).timestamp() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - datetime.now(UTC).timestamp()))
    if errors:
        raise errors[0]
    return dict(results)
