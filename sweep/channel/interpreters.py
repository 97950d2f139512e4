"""Which interpreter `python3` led to on a machine: a look goes straight to it, without asking the shell's shims again.

What pyenv, asdf and their like put in a PATH takes longer to find the interpreter than it takes to start. A memory of
this computer's, and only for looks: whatever starts something on a machine asks for `python3` there.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from sweep.canonical import write_atomically
from sweep.channel.ssh_options import Way

PYTHON = "python3"
_PATH = re.compile(r"/[A-Za-z0-9_./+-]{1,250}")
"""Nothing in it means anything to a shell."""


def known(way: Way) -> str:
    """The interpreter's path over there, as it was seen last; else `python3`. It may have gone since."""
    with contextlib.suppress(OSError, ValueError):
        path = _file(way).read_text(encoding="ascii")
        if _PATH.fullmatch(path):
            return path
    return PYTHON


def keep(way: Way, path: str) -> None:
    """Remembers it, where it is a plain path and another one than is known. Never raises."""
    if not _PATH.fullmatch(path) or known(way) == path:
        return
    with contextlib.suppress(OSError):
        write_atomically(_file(way), path.encode("ascii"))


def forget(way: Way) -> None:
    """It did not do: the next look asks for `python3`. Never raises."""
    with contextlib.suppress(OSError):
        _file(way).unlink()


def _file(way: Way) -> Path:
    return way.pin.path.with_name(".python")  # beside the key that the host has to show
