"""The names of this computer: the one that it has, and those that a person said it had before.

Evidence in a folder, a local backend, and the account of the boxes on this machine are all named with the host. After a
rename they are where they were, and a person says so, once (`sweepctl adopt BOX`).
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.xdg import data_folder


def names() -> tuple[str, ...]:
    """This computer's name, then its earlier ones. A file that does not read has none."""
    here = socket.gethostname()
    return (here, *(name for name in _earlier() if name != here))


def also_known_as(name: str) -> Path:
    """Records that this computer was `name` before, and gives the file. Idempotent. Raises SweepstackError."""
    path = _file()
    if name not in names():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json_atomically(path, {"schema": 1, "earlier": [*_earlier(), name]})
        except OSError as error:
            raise SweepstackError(f"{path} could not be written: {error.strerror}") from error
    return path


def _earlier() -> list[str]:
    try:
        found = json.loads(_file().read_bytes())["earlier"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in found if isinstance(name, str) and name] if isinstance(found, list) else []


def _file() -> Path:
    return data_folder() / "host-names.json"
