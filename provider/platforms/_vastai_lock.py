"""One command at a time makes a thing of one name: vast.ai has no idempotency key."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from provider.pace import OutOfPatience
from provider.platforms.base import Wait
from sweep.errors import Unreachable

_LOCKS = 256


@contextlib.contextmanager
def locked(what: str, wait: Wait) -> Iterator[None]:
    """Keeps this user's other processes from making the same thing at the same time. Raises OutOfPatience.

    It guards one home folder, no more: two computers are told apart by the tag alone, and a double is reported.
    """
    number = int(hashlib.sha256(what.encode()).hexdigest(), 16) % _LOCKS
    data = os.environ.get("XDG_DATA_HOME", "")
    folder = (Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share") / "sweepstack" / "vastai"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        holder = open(folder / f"lock-{number:02x}", "ab")  # noqa: SIM115 - closed below, after the caller's work
    except OSError as error:
        raise Unreachable(f"{folder} can't be used ({error.strerror}): nothing was made") from error
    with holder:
        why = wait.until(lambda: _taken(holder.fileno()), f"the lock {holder.name}, which another command holds")
        if why:
            raise OutOfPatience(why)
        yield


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
