"""Artifacts of several files: a folder (`model/`), or a pattern (`shards-*.tar`, `checkpoint-*/`).

`*` and `?` stand for characters of one part of a path, and not for a dot at its beginning, as in a shell. A folder
means all files below it.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Iterable, Pattern

WILD = "*?"


def is_group(path: str) -> bool:
    """Whether an artifact's name means several files."""
    return path.endswith("/") or any(char in path for char in WILD)


def unit_of(pattern: str, path: str) -> str:
    """What of a pattern the file `path` belongs to: its folder, with a slash at its end, or itself; "" for no part."""
    found = _compiled(pattern).fullmatch(path)
    return found[1] if found is not None else ""


def means(pattern: str, path: str) -> bool:
    """Whether a name, or a pattern for one, means the file `path` itself; a folder does not mean what lies in it."""
    return unit_of(pattern, path) == path if is_group(pattern) else pattern == path


def members(pattern: str, paths: Iterable[str]) -> dict[str, list[str]]:
    """Unit → its files, both sorted: of `checkpoint-*/` one unit a folder, of `shards-*.tar` one a file."""
    found: dict[str, list[str]] = {}
    for path in sorted(paths):
        unit = unit_of(pattern, path)
        if unit:
            found.setdefault(unit, []).append(path)
    return found


def is_there(folder: Path, path: str) -> bool:
    """Whether a file that this name means lies below `folder`; links to folders are not followed."""
    if not is_group(path):
        return (folder / path).is_file()
    below = (os.path.relpath(os.path.join(top, name), folder) for top, _, names in os.walk(folder) for name in names)
    return any(unit_of(path, one) for one in below)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Pattern[str]:
    parts = "/".join(_part(part) for part in pattern.rstrip("/").split("/"))
    return re.compile(f"({parts}/).+" if pattern.endswith("/") else f"({parts})", re.DOTALL)


def _part(part: str) -> str:
    wild = {"*": "[^/]*", "?": "[^/]"}
    hidden = r"(?!\.)" if part[:1] in wild else ""
    return hidden + "".join(wild.get(char, re.escape(char)) for char in part)
