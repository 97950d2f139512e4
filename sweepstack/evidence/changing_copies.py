"""Writes copies of what may still change, and keeps what such a copy replaces.

What is there and is not how the new bytes begin (a log that was truncated, a file that was written anew) is kept under
`superseded/`, by its digest, and a later copy that another computer wrote meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Callable

from sweepstack.evidence.object_store import ABSENT, ObjectStore
from sweepstack.onbox.common.canonical import sha256_hex
from sweepstack.onbox.common.errors import EvidenceChanged

SUPERSEDED = "superseded"
EDGE = 4096
"""Bytes after a cut that are not compared: what is left of a secret is masked there."""
_TRIES = 10

GoesOn = Callable[[bytes, bytes], bool]
"""Whether the second bytes have all of the first ones, and go on from there."""


def put(
    objects: ObjectStore,
    key: str,
    data: bytes,
    goes_on: GoesOn = lambda before, now: now.startswith(before),
    clean: Callable[[bytes], bytes] = bytes,
    aside: Callable[[str, str], str] = lambda key, digest: f"{SUPERSEDED}/{key}.{digest}",
) -> bytes:
    """Writes `data` under a key. Returns what is there then: `data`, or a later copy that was there. Idempotent.

    `clean`: what is there is compared, and kept, as this makes it. `aside`: key and 12 digits of the SHA-256 of what
    is kept → where. Raises EvidenceError.
    """
    for left in reversed(range(_TRIES)):
        held = objects.read(key)
        there = None if held is None else clean(held.data)
        if there is not None and (there == data or goes_on(data, there)):
            return there
        if there is not None and not goes_on(there, data):
            write_once(objects, aside(key, sha256_hex(there)[:12]), there)
        try:
            objects.write(key, data, over=held.tag if held is not None else ABSENT)
            return data
        except EvidenceChanged:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def write_once(objects: ObjectStore, key: str, data: bytes) -> None:
    """Writes what has to be kept, under a key that names its digest: one that is there already has these bytes."""
    if objects.read(key) is None:
        objects.write(key, data)


def log_goes_on(before: tuple[int, bytes], now: tuple[int, bytes]) -> bool:
    """The same of two parts of a log, each with the offset at which it begins: where both have it, it is the same."""
    (first, old), (second, new) = before, now
    end = first + len(old)
    begin = max(first + (EDGE if first else 0), second + (EDGE if second else 0))
    return second + len(new) >= end and old[begin - first :] == new[begin - second : max(end - second, 0)]
