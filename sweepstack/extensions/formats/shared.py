"""What readers of this extension share; it imports little, since some of them need no numpy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sweepstack.loaders.base import OpenFile, Spec, beyond, dotted
from sweepstack.loaders.scan import Region

MAX_NODES = 2_000_000
"""Values that are looked at: a few aliases can mean billions."""


class LibraryFile:
    """A file that a library reads by itself: our own pass over its bytes makes its digest alone."""

    regions: tuple[Region, ...] = ()

    def __init__(self, file: OpenFile, spec: Spec) -> None:
        self.file = file


def leaves(root: Any) -> Iterable[tuple[str, Any]]:
    """(dotted name, value) of all that is no dict and no list. Raises Unsupported where these are endless."""
    pending: list[tuple[str, Any]] = [("", root)]
    count = 0
    while pending:
        name, value = pending.pop()
        count += 1
        if count > MAX_NODES:
            raise beyond(f"holds more than {MAX_NODES:,} values")
        if isinstance(value, dict):
            pending.extend((dotted(name, str(key)), child) for key, child in reversed(value.items()))
        elif isinstance(value, list | tuple | set):
            pending.extend((dotted(name, str(at)), child) for at, child in reversed(list(enumerate(value))))
        else:
            yield name or "value", value
