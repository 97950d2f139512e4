"""A wait that is too short for a box to be ready, and long enough for its request to be sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweepstack.onbox.common.errors import PlatformError, StillCreating
from sweepstack.onbox.host.platform import Wait

SECONDS = (0.2, 1.0, 5.0, 25.0)


def out_of_time(call: Callable[[Wait], Any], why: str = "") -> StillCreating:
    """What `call` raises once it has rented, or started, a box and the time is over, and says `why`. On a busy machine
    a short wait may be over before anything was sent, or before the box came so far: then a longer one is tried.
    Blocks for 32 s at most."""
    before: PlatformError | None = None
    for seconds in SECONDS:
        try:
            call(Wait(seconds))
        except StillCreating as error:
            if why in str(error):
                return error
            before = error
        except PlatformError as error:
            before = error
        else:
            raise AssertionError(f"it was ready within {seconds:g} s")
    raise AssertionError(f"nothing was sent, or it does not say {why!r}") from before
