"""Canonical JSON, digests, and atomic writes.

All digests that sweepstack compares are made here, so that the same facts give the same bytes on every machine.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from io import FileIO
from pathlib import Path
from typing import Any

from sweepstack.onbox.common import holes

DIGEST_PREFIX = "sha256:"
DIGEST = re.compile(DIGEST_PREFIX + "[0-9a-f]{64}")
GENESIS = "0" * 64
"""The hash of the line before a journal's first line, and the head of an empty journal."""
CHUNK = 1 << 18
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: Any) -> bytes:
    """`value` as sorted, compact, ASCII-only JSON. Raises ValueError for NaN and infinities: they are not JSON."""
    return _ENCODER.encode(value).encode("ascii")


def sha256_hex(data: bytes) -> str:
    """The SHA-256 of `data` as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def digest_of(value: Any) -> str:
    """`sha256:<64 hex>` over the canonical JSON of `value`."""
    return digest_of_bytes(canonical_json(value))


def digest_of_bytes(data: bytes) -> str:
    """`sha256:<64 hex>` over `data` itself."""
    return DIGEST_PREFIX + sha256_hex(data)


def hex_of(digest: str) -> str:
    """The 64 hex digits of a digest. A text without the prefix is returned as it is."""
    return digest[len(DIGEST_PREFIX) :] if digest.startswith(DIGEST_PREFIX) else digest


def file_sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's content as hex. Reads the whole file; raises OSError as `open` does."""
    with open(path, "rb", buffering=0) as handle:
        return handle_sha256(handle)


def handle_sha256(handle: FileIO) -> str:
    """The SHA-256 of an open file as hex, from its position to its end."""
    status = os.fstat(handle.fileno())
    if holes.is_sparse(status):
        return _sparse_sha256(handle, status)
    size = status.st_size  # a buffer of a whole CHUNK takes longer to make than a small file to read
    hashed, room = hashlib.sha256(), memoryview(bytearray(min(max(size + 1, 1 << 12), CHUNK)))
    while True:
        count = handle.readinto(room)
        if not count:
            return hashed.hexdigest()
        hashed.update(room[:count])


def _sparse_sha256(handle: FileIO, status: os.stat_result) -> str:
    hashed = hashlib.sha256()
    for chunk in holes.parts(handle, status, handle.tell()):
        hashed.update(chunk)
    return hashed.hexdigest()


def fsync_directory(directory: Path) -> None:
    """fsync of a folder: the names in it survive a power cut, on file systems that can do that."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Writes `data` under `path` as temp file → fsync → rename → fsync of the folder.

    A reader sees the old content or the new, never a part. Parent folders are made. Idempotent.
    """
    import tempfile  # slow to import, and commands that only read don't need it

    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fchmod(handle.fileno(), mode)
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    fsync_directory(path.parent)


def write_json_atomically(path: Path, value: Any) -> None:
    """Writes the canonical JSON of `value` and a final newline to `path`, atomically."""
    write_atomically(path, canonical_json(value) + b"\n")
