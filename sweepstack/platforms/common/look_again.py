"""Looks several times for what a create with a lost answer may have made: lists lag behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from sweepstack.onbox.common.errors import PlatformError
from sweepstack.platforms.common.rate_limit import paced

T = TypeVar("T")


def look_again(
    look: Callable[[], T | None], pauses: Iterable[float], cancelled: threading.Event | None = None
) -> T | None:
    """The first find of `look`, which is called after each of the `pauses` (seconds); None when it finds nothing, or
    after a cancel. A PlatformError of `look` counts as no find. Without `cancelled` it can't be ended early: to learn
    the id of a box that may bill is worth the time."""
    cut = cancelled or threading.Event()
    for seconds in pauses:
        if seconds and cut.wait(paced(seconds)):
            return None
        try:
            found = look()
        except PlatformError:
            continue
        if found is not None:
            return found
    return None
