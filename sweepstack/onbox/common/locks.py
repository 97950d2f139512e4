"""The lock of a file: an exclusive flock, which the kernel frees when its holder ends."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable

PAUSE_SECONDS = 0.02


def take(descriptor: int, seconds: float = 0.0, cancelled: Callable[[], bool] = bool) -> bool:
    """Takes the lock of an open file, trying for so long; with 0, once. False where another process has it.

    `cancelled` is asked between tries: once it says so, the answer is False. Where others look by `is_held`, try for a
    second: a look has the lock for a moment.
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
    """Whether another process has the lock of an open file. Where none has, it is shared until the file is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
