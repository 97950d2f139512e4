"""Confines a reader's process: no network, and the first to be ended when memory runs out."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys

LARGEST_WRITE = 1 << 30
"""Of a user's own check, in bytes; a reader itself writes less."""
_NEW_NETWORK = 0x40000000
_NEW_USER = 0x10000000
_DEATH_SIGNAL = 1

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def leave_network() -> bool:
    """Moves this process, which must have one thread, to a network of its own without any interface up. Irreversible.

    True when nothing can be reached any more, by this process and all that it starts. False where the system does not
    let us (macOS; a kernel or container without user namespaces): then nothing has changed.
    """
    if _libc is None:
        return False
    # With the right to do so, the first is enough, and leaves files that only root may read readable.
    return any(_libc.unshare(flags) == 0 for flags in (_NEW_NETWORK, _NEW_USER | _NEW_NETWORK))


def first_to_go() -> None:
    """Asks the kernel to end this process before others when memory runs out: a loader is easily run again."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as handle:
        handle.write("1000")


def die_with_parent() -> None:
    """The kernel kills this process when its parent ends. For a child between fork and exec."""
    if _libc is not None:
        _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)


def limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Sets one limit of this process as far as the system takes it; None leaves the hard one."""
    with contextlib.suppress(ValueError, OSError):
        ceiling = resource.getrlimit(kind)[1] if hard is None else hard
        resource.setrlimit(kind, (soft if ceiling == resource.RLIM_INFINITY else min(soft, ceiling), ceiling))


def mapped_bytes() -> int:
    """Address space of this process now; 0 where that is not told."""
    try:
        with open("/proc/self/statm") as handle:
            return int(handle.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
