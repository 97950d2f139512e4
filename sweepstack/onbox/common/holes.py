"""Keeps the holes of sparse files where these are read, sent and written.

What a file system says of its holes is not simply believed: some said it wrong of a file that was just written. The
file is flushed before, and a page of each MiB is read. Where a place can't have holes, the zeros are written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Union

CHUNK = 1 << 20
Chunk = Union[bytes, bytearray]
LEAST = 1 << 16
"""Bytes. Shorter runs of zeros are written: a hole saves little there."""
PAGE = 4096
_ZEROS = bytes(CHUNK)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def is_sparse(status: os.stat_result) -> bool:
    """Whether a file takes less room than it has bytes."""
    return status.st_blocks * 512 < status.st_size


def is_blank(chunk: Chunk) -> bool:
    """Whether these bytes are zeros, enough of them for a hole."""
    size = len(chunk)
    return size >= LEAST and not (chunk[0] or chunk[-1]) and chunk == (_ZEROS if size == CHUNK else bytes(size))


def zeros(size: int) -> bytes:
    """So many zeros, of which all calls share one copy where that is CHUNK."""
    return _ZEROS if size == CHUNK else bytes(size)


def read_into(file: Any, room: bytearray) -> Chunk:
    """The next bytes of a file, as many as `room` has at most: `room` itself where it is full, since a new one each
    time takes longer than to read a hole. Empty at the end."""
    count = file.readinto(room)
    return room if count == len(room) else bytes(room[:count])


def runs(chunk: Chunk) -> Iterator[tuple[bool, int, int]]:
    """Its parts, in order: whether one is zeros, where it begins and ends. Zeros begin at multiples of LEAST."""
    size = len(chunk)
    if is_blank(chunk):
        yield True, 0, size
        return
    begin, blank = 0, False
    for at in range(0, size - LEAST + 1, LEAST):
        now = not (chunk[at] or chunk[at + LEAST - 1]) and is_blank(chunk[at : at + LEAST])
        if now != blank:
            if begin < at:
                yield blank, begin, at
            begin, blank = at, now
    rest = size // LEAST * LEAST
    if blank and begin < rest < size:
        yield True, begin, rest
        begin, blank = rest, False
    if begin < size:
        yield blank, begin, size


def write(file: IO[bytes], chunk: Chunk) -> int:
    """Writes at the end of a file, holes in the place of zeros: how many bytes were written. Raises OSError."""
    written = 0
    for blank, begin, end in runs(chunk):
        if not (blank and _skip(file, end - begin)):
            written += file.write(chunk if end - begin == len(chunk) else chunk[begin:end])
    return written


def parts(reader: Any, status: os.stat_result, at: int = 0) -> Iterator[Chunk]:
    """The bytes of an open file of that status from `at` on, to its end, or a little further where it grew. A part is
    only good until the next one is asked for. Raises OSError."""
    room = bytearray(max(1, min(status.st_size - at + 1, CHUNK)))
    sparse = is_sparse(status) and _flushed(reader.fileno())
    reader.seek(at)
    while at <= status.st_size:
        data = _next_data(reader.fileno(), at, status.st_size) if sparse else at
        if data > at:
            for begin in range(at, data, CHUNK):
                yield zeros(min(CHUNK, data - begin))
            at = data
        if sparse:
            reader.seek(at)
        chunk = read_into(reader, room)
        if not chunk:
            return
        yield chunk
        at += len(chunk)


def _flushed(descriptor: int) -> bool:
    """Makes a file system know where the file's holes are; False where it does not tell."""
    try:
        os.fsync(descriptor)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return hasattr(os, "SEEK_DATA")
    except OSError:
        return False


def _next_data(descriptor: int, at: int, size: int) -> int:
    """Where the hole at `at` ends; `at` itself where there is none, or what should be zeros is not."""
    try:
        end = min(size, os.lseek(descriptor, at, os.SEEK_DATA))
    except OSError as error:
        end = size if error.errno == errno.ENXIO else at
    holds = any(os.pread(descriptor, PAGE, begin).strip(b"\0") for begin in range(at, end, CHUNK))
    return at if holds else end


def copy_file(source: Path, target: Path, hashed: Any = None) -> None:
    """Copies the bytes of a file into a new or an emptied one, and leaves its holes out. `hashed` (of hashlib) gets
    them, too. Raises OSError."""
    with open(source, "rb", buffering=0) as reader, open(target, "wb") as writer:
        status = os.fstat(reader.fileno())
        for chunk in parts(reader, status):
            if hashed is not None:
                hashed.update(chunk)
            if is_sparse(status):
                write(writer, chunk)
            else:
                writer.write(chunk)


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
