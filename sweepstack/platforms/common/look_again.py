"""Looking for what a create may have made whose answer was lost: lists lag behind, and an outage is no answer."""

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
    """What `look` finds, each time after so many seconds; None where nothing shows, or once it is cancelled. Without
    `cancelled` it is not to be cut: an id is worth more than the time."""
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
