"""Keeps the holes of sparse files: long runs of zeros are skipped where a copy is written.

A copy is made of what is read, never of what a file system says of its holes: some say it wrong of a file that was just
written. Where a place can't have holes, the zeros are written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

CHUNK = 1 << 20
LEAST = 1 << 16
"""Bytes. Shorter runs of zeros are written: a hole saves little there."""
_ZEROS = bytes(CHUNK)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def is_sparse(status: os.stat_result) -> bool:
    """Whether a file takes less room than it has bytes."""
    return status.st_blocks * 512 < status.st_size


def is_blank(chunk: bytes) -> bool:
    """Whether these bytes are zeros, enough of them for a hole."""
    size = len(chunk)
    return size >= LEAST and not (chunk[0] or chunk[-1]) and chunk == (_ZEROS if size == CHUNK else bytes(size))


def zeros(size: int) -> bytes:
    """So many zeros, of which all calls share one copy where that is CHUNK."""
    return _ZEROS if size == CHUNK else bytes(size)


def write(file: IO[bytes], chunk: bytes) -> int:
    """Writes at the end of a file, holes in the place of zeros: how many bytes were written. Raises OSError."""
    if is_blank(chunk):
        return 0 if _skip(file, len(chunk)) else file.write(chunk)
    written = begin = 0
    for at, end in _blanks(chunk):
        written += file.write(chunk[begin:at])
        written += 0 if _skip(file, end - at) else file.write(chunk[at:end])
        begin = end
    return written + file.write(chunk[begin:] if begin else chunk)


def copy_file(source: Path, target: Path, hashed: Any = None) -> None:
    """Copies the bytes of a file into a new or an emptied one, and leaves its holes out. `hashed` (of hashlib) gets
    them, too. Raises OSError."""
    with open(source, "rb", buffering=0) as reader, open(target, "wb") as writer:
        sparse = is_sparse(os.fstat(reader.fileno()))
        while True:
            chunk = reader.read(CHUNK)
            if not chunk:
                return
            if hashed is not None:
                hashed.update(chunk)
            if sparse:
                write(writer, chunk)
            else:
                writer.write(chunk)


def _blanks(chunk: bytes) -> Iterator[tuple[int, int]]:
    """Where zeros begin and end in it, in steps of LEAST."""
    begin = -1
    for at in range(0, len(chunk) - LEAST + 1, LEAST):
        blank = not (chunk[at] or chunk[at + LEAST - 1]) and is_blank(chunk[at : at + LEAST])
        if blank and begin < 0:
            begin = at
        elif not blank and begin >= 0:
            yield begin, at
            begin = -1
    if begin >= 0:
        yield begin, len(chunk) // LEAST * LEAST


def _skip(file: IO[bytes], size: int) -> bool:
    """Makes the file longer without writing; False where it can't be."""
    end = file.tell() + size
    try:
        file.truncate(end)
        file.seek(end)
        return True
    except OSError as error:
        if error.errno in _FULL:
            raise
        return False
