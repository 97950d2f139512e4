"""Writes files of a box: resumes copies, appends whole lines, makes folders appear at once."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import IO

from sweepstack.onbox.common.canonical import fsync_directory
from sweepstack.onbox.common.errors import PlatformError

CHUNK = 1 << 20


def open_target(target: Path) -> IO[bytes]:
    """Opens a partial copy to continue it. A symbolic or hard link is removed first, so that the file that it shares
    its bytes with is not changed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(target, flags | os.O_EXCL, 0o644)
    except FileNotFoundError:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, flags, 0o644)
    except FileExistsError:
        status = os.lstat(target)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            target.unlink()
        descriptor = os.open(target, flags, 0o644)
    return os.fdopen(descriptor, "r+b")


def append_lines(file: Path, data: bytes) -> None:
    """Appends to a file, made if missing, and fsyncs it: all of `data` is added, or nothing. Raises PlatformError when
    the file ends in a torn line, OSError."""
    created = not file.exists()
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        before = os.fstat(descriptor).st_size
        if before and os.pread(descriptor, 1, before - 1) != b"\n":
            whole = _end_of_last_line(descriptor, before)
            raise PlatformError(
                f"{file} ends in a torn line (a power cut?), so nothing was appended. Cut it off with "
                f"`truncate -s {whole} {file}` and run the command again"
            )
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except BaseException:
            os.ftruncate(descriptor, before)  # leave no half line on a full disk
            raise
    finally:
        os.close(descriptor)
    if created:
        fsync_directory(file.parent)


def _end_of_last_line(descriptor: int, size: int) -> int:
    end = size
    while end:
        begin = max(0, end - CHUNK)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def copy_in(source: Path, target: Path, mode: int) -> None:
    """Copies a file to a new one, makes parent folders, and fsyncs it. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as original, target.open("xb") as copy:
        shutil.copyfileobj(original, copy, CHUNK)
        copy.flush()
        os.fchmod(copy.fileno(), mode)
        os.fsync(copy.fileno())


def appear(staged: Path, folder: Path) -> None:
    """Renames the folder `staged` to `folder`. A `folder` that is there already stays. Raises OSError."""
    try:
        os.rename(staged, folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return  # another command shipped the same tree first
    fsync_directory(folder.parent)
