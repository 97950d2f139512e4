"""Masks the values of `job.secrets` in logs that are copied from a box."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import PlatformError

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel

SHORTEST_SECRET = 6
"""Characters. The runner masks no shorter ones in a log, either."""


def hidden_on(channel: Channel) -> list[bytes]:
    """The values of `job.secrets` on the box, the longest first: they stay in memory.

    Raises PlatformError, OSError where they can't be read: then no log may be copied.
    """
    try:
        found = json.loads(channel.read(box_layout.SECRETS))
    except FileNotFoundError:
        found = {}
    except ValueError as error:
        why = f"{box_layout.SECRETS} on the box can't be read, so no log is copied: {error}"
        raise PlatformError(why) from error
    values = found.values() if isinstance(found, dict) else ()
    words = {str(value) for value in values if len(str(value)) >= SHORTEST_SECRET}
    return sorted((word.encode() for word in words), key=len, reverse=True)


def masked(data: bytes, hidden: Sequence[bytes], *, cut: bool) -> bytes:
    """`data` with each value as so many asterisks. `cut`: its beginning was cut off, perhaps within a value: what is
    left of that one is masked, too."""
    rest = max((most for value in hidden for most in _rests(value, data)), default=0) if cut else 0
    data = b"*" * rest + data[rest:]
    for value in hidden:
        data = data.replace(value, b"*" * len(value))
    return data


def _rests(value: bytes, data: bytes) -> Iterator[int]:
    """How many bytes `data` begins with that `value` ends with, and not the whole of it."""
    for count in range(1, min(len(value), len(data) + 1)):
        if data[count - 1] == value[-1] and value.endswith(data[:count]):
            yield count
