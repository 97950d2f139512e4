"""Looks several times for what a create with a lost answer may have made: lists lag behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from sweepstack.onbox.common.errors import OutcomeUnknown, PlatformError, one_line
from sweepstack.onbox.host.platform import Wait
from sweepstack.platforms.common.rate_limit import paced

T = TypeVar("T")
R = TypeVar("R")


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


def sent_or_found(
    send: Callable[[], R], look: Callable[[], T | None], pauses: Iterable[float], name: str, wait: Wait
) -> R | T:
    """What `send` returns, which may make a box; after a lost answer what `look` finds (`look_again`). Costs what
    `send` costs. Raises what `send` raises; OutcomeUnknown when its answer is lost and nothing is found."""
    try:
        return send()
    except OutcomeUnknown as error:
        wait.progress(f"{name}: {one_line(error)}; looking for it by its tag")
        found = look_again(look, pauses, wait.cancelled)
        if found is None:
            raise
        return found
