"""Nothing that a copy replaces is lost: what has the name gets another one first.

Python 3.8 and the standard library.
"""

from __future__ import annotations

import os
from pathlib import Path


def make_way(path: Path) -> None:
    """Before a file of this name is written: a folder that has the name is set aside. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        set_aside(path)


def set_aside(path: Path, stem: Path | None = None) -> Path | None:
    """Renames the file or folder that has this name to the first free `<stem>-N`, on the same file system; makes the
    folder of `stem`. `stem`: `<path>.superseded` where none is given. Returns its new name, None where nothing has this
    name. Killed at any moment, it leaves the one name or the other. Raises OSError. For one process at a time."""
    if not os.path.lexists(path):
        return None
    stem = stem or path.with_name(f"{path.name}.superseded")
    stem.parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while os.path.lexists(f"{stem}-{number}"):
        number += 1
    aside = Path(f"{stem}-{number}")
    os.rename(path, aside)
    return aside
