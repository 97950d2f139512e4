"""Reads a long file of lines in pieces all over it, where all of it would take too long."""

from __future__ import annotations

from collections.abc import Callable

PIECES = 32
PIECE_BYTES = 8 << 10
WHOLE_BYTES = PIECES * PIECE_BYTES
"""A file of up to so many bytes is read whole."""


def is_sampled(size: int) -> bool:
    """Whether only pieces of a file of this size are read."""
    return size > WHOLE_BYTES


def pieces(read: Callable[[int, int], bytes], size: int) -> list[bytes]:
    """Whole lines of the file, in its order: all of a short one, else of evenly spread pieces, the first and the last
    among them. `read`: (offset, limit) → bytes, fewer at the end; what it raises is raised."""
    if not is_sampled(size):
        return [_lines(_whole(read, 0, size))]
    last = size - PIECE_BYTES
    offsets = [last * index // (PIECES - 1) for index in range(PIECES)]
    found = []
    for offset in offsets:
        data = _whole(read, offset, PIECE_BYTES)
        found.append(_lines(data if offset == 0 else data[data.find(b"\n") + 1 :]))
    return found


def _whole(read: Callable[[int, int], bytes], offset: int, limit: int) -> bytes:
    parts = []
    while limit > 0 and (data := read(offset, limit)):
        parts.append(data)
        offset, limit = offset + len(data), limit - len(data)
    return b"".join(parts)


def _lines(data: bytes) -> bytes:
    """Without a torn last line."""
    return data[: data.rfind(b"\n") + 1]
