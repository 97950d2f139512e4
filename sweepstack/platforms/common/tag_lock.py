"""A file lock for each tag: this machine runs one create of a tag at a time.

No rental platform refuses a second box with the same name. Two commands of one person that run at once would both
look, find nothing, and both rent. The lock is a file in the user's data folder; the kernel releases it when the process
that holds it ends, in whatever way. The platform's list may be out of date for the second command, so the first leaves
a note of what it made beside the lock (`tag_memory`). The lease in the evidence protects against other machines.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.common.locks import take
from sweepstack.onbox.common.xdg import data_folder
from sweepstack.onbox.host.platform import Wait
from sweepstack.platforms.common.tag_memory import Memory


@contextlib.contextmanager
def hold_tag_lock(
    platform: str, account: str, tag: str, wait: Wait, tell: Callable[[bool], None] = lambda asked: None
) -> Iterator[Memory]:
    """Holds the lock of this tag, and gives the `Memory` that earlier holders on this machine left. `tell`: as in
    `Memory`.

    Blocks while another process holds the lock. Raises PlatformError upon the deadline or a cancel of `wait`, and when
    the folder can't be written: nothing was rented then."""
    name = hashlib.sha256("\0".join((platform, account, tag)).encode()).hexdigest()[:32]
    path = _folder() / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PlatformError(
            f"nothing was rented: two creates of {tag} at once can't be kept apart, since {path.parent} can't be "
            f"written ({error.strerror}): `export XDG_DATA_HOME=…`, a folder that is yours"
        ) from error
    try:
        if why := wait.until(lambda: take(handle), f"another create of {tag} on this machine to end"):
            raise PlatformError(f"nothing was rented: {why}")
        first = os.fstat(handle).st_size == 0
        os.write(handle, b"held\n")
        yield Memory(path.with_suffix(".json"), platform, tag, wait, first=first, tell=tell)
    finally:
        os.close(handle)


def _folder() -> Path:
    return data_folder() / "locks"
