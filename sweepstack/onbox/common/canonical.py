"""Canonical JSON, digests, and files that are either whole or not there.

Everything that sweepstack compares by digest passes through here, so that two operators on two machines
get the same bytes for the same facts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

DIGEST_PREFIX = "sha256:"
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: Any) -> bytes:
    """`value` as sorted, compact, ASCII-only JSON. Raises ValueError for NaN and infinities: they are not JSON."""
    return _ENCODER.encode(value).encode("ascii")


def sha256_hex(data: bytes) -> str:
    """The SHA-256 of `data` as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def digest_of(value: Any) -> str:
    """`sha256:<64 hex>` over the canonical JSON of `value`."""
    return DIGEST_PREFIX + sha256_hex(canonical_json(value))


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content as hex. Reads the whole file; raises OSError as `open` does."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def fsync_directory(directory: Path) -> None:
    """Makes a rename in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Writes `data` under `path` as temp file → fsync → rename → fsync of the folder.

    A reader sees the old content or the new, never a part. Parent folders are made. Idempotent.
    """
    import tempfile  # slow to import, and a look writes nothing

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
