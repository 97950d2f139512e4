"""Finds which Python `python3` means on a machine, and another one where it is missing or old.

What pyenv, asdf and their like put in a PATH takes longer to find the interpreter than it takes to start. So a look
goes straight to what it was led to before. A memory of this computer's, and only for looks: whatever starts something
on a machine asks for `python3` there.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from sweepstack.onbox.common.canonical import write_atomically

if TYPE_CHECKING:
    from sweepstack.channel.ssh.options import Way

PYTHON = "python3"
PLACES = (
    # what profiles name as their images' interpreter; a test holds them to it
    "/root/miniconda3/bin/python",
    "/root/miniconda3/envs/myconda/bin/python",
    # where the installers of conda and the images of conda and PyTorch put theirs, unless they are told another place
    "$HOME/miniconda3/bin/python",
    "$HOME/miniforge3/bin/python",
    "$HOME/anaconda3/bin/python",
    "/opt/conda/bin/python",
)
"""Tried in this order where a session's PATH has no `python3` of 3.8 or newer: images that put conda into a login's
PATH alone. $HOME is the account's there."""
_FIND = (
    'q=python3; for p in {places}; do if [ -x "$p" ]; then for q in python3 "$p"; do '
    '"$q" -I -S -c "import sys;sys.exit(sys.version_info<(3,8))" </dev/null >/dev/null 2>&1 && break 2; '
    "q=python3; done; fi; done"
)
_PATH = re.compile(r"/[A-Za-z0-9_./+-]{1,250}")
"""Nothing in it means anything to a shell."""


def finding(python: str = PYTHON) -> str:
    """Shell text that leaves in `$q` what `python` means on the machine where it runs. For `python3` there is no single
    quote in it, and that is what the PATH has, unless this is missing or older than 3.8 and one of `PLACES` is neither:
    it is started to see that only where there is another one to take. Any other name is taken as it is."""
    if python != PYTHON:
        return f"q={shlex.quote(python)}"
    return _FIND.format(places=" ".join(f'"{place}"' for place in PLACES))


def interpreter_of(way: Way) -> str:
    """The interpreter's path over there, as it was seen last; else `python3`. It may have gone since."""
    with contextlib.suppress(OSError, ValueError):
        path = _file(way).read_text(encoding="ascii")
        if _PATH.fullmatch(path):
            return path
    return PYTHON


def remember(way: Way, path: str) -> None:
    """Remembers it, where it is a plain path and another one than is known. Never raises."""
    if not _PATH.fullmatch(path) or interpreter_of(way) == path:
        return
    with contextlib.suppress(OSError):
        write_atomically(_file(way), path.encode("ascii"))


def forget(way: Way) -> None:
    """It did not do: the next look asks for `python3`. Never raises."""
    with contextlib.suppress(OSError):
        _file(way).unlink()


def _file(way: Way) -> Path:
    return way.pin.path.with_name(".python")  # beside the key that the host has to show
