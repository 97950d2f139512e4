"""File locks: an exclusive flock, which the kernel releases when the process that holds it ends."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable

PAUSE_SECONDS = 0.02


def take(descriptor: int, seconds: float = 0.0, cancelled: Callable[[], bool] = bool) -> bool:
    """Takes the lock of an open file; tries for `seconds`, with 0 once. False when another process holds it, or once
    `cancelled()`, which is asked between the tries.

    Try for a second where other processes call `is_held`: it holds the lock for a moment.
    """
    ends = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= ends or cancelled():
                return False
        time.sleep(PAUSE_SECONDS)


def is_held(descriptor: int) -> bool:
    """Whether another process holds the lock of an open file. If none does, this takes a shared lock until the file is
    closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
