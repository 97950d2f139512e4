"""Looks at the file of the engine's state: for a good copy of a damaged one, and for a word in it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path

from sweepstack.onbox.common.errors import SweepstackError

_FOLDER = ".pulumi"
"""Of the engine, in a backend that is a folder: `stacks/PROJECT/STACK.json`, and copies beside it and in `backups`."""

_BACKUPS = "~", ".old"
"""What `install -b` adds to the name of a file that it replaces: GNU, and BSD or macOS."""


def way_back(backend: Callable[[], str], stack: str, project: str) -> str:
    """`Next: …`, the command that puts a copy of the state file in its place, or takes the file away where none reads;
    what has its name now goes out of the way first, and is kept.

    "" where the file reads, is not there, or can't be looked at from here: the engine's own words say what is wrong.
    `backend` tells the URL, and may raise SweepstackError. Reads only, and no other project's file. What has happened
    since the copy was made is found again by its tag, by the next `pulumi up`.
    """
    try:
        url = backend()
    except SweepstackError:
        return ""
    root = _folder(url)
    for file in _files(root, stack, project) if root is not None else ():
        if root is not None and file.exists() and not _reads(file):
            return f". Next: {_command(file, root, stack)}"
    return ""


def may_hold(word: str, stack: str, project: str) -> bool:
    """Whether the state may hold `word`, without the engine: True where the environment names no folder as backend, or
    where the file can't be read."""
    root = _folder(os.environ.get("PULUMI_BACKEND_URL", ""))
    if root is None:
        return True
    try:
        files = _files(root, stack, project)
        packed = any(file.with_suffix(".json.gz").exists() for file in files)
        return packed or any(word.encode() in file.read_bytes() for file in files if file.exists())
    except OSError:
        return True


def _folder(url: str) -> Path | None:
    """The engine's folder in a backend that is one."""
    return Path(url.removeprefix("file://")).expanduser() / _FOLDER if url.startswith("file://") else None


def _files(root: Path, stack: str, project: str) -> tuple[Path, Path]:
    return root / "stacks" / project / f"{stack}.json", root / "stacks" / f"{stack}.json"


def _command(file: Path, root: Path, stack: str) -> str:
    copies = [file.with_name(f"{file.name}.bak"), *root.glob(f"backups/{file.parent.name}/{stack}/*.json")]
    there = sorted((copy for copy in copies if copy.is_file()), key=lambda copy: copy.stat().st_mtime_ns, reverse=True)
    aside = away(file, "broken")
    good = next((copy for copy in there if _reads(copy)), None)
    if good is not None:  # what does not read may be newer, and is kept
        if file.is_file() and not any(os.path.lexists(f"{file}{end}") for end in _BACKUPS):
            replaces = shlex.join(["install", "-b", "-m", "600", str(good), str(file)])
            return f"{replaces}    (its newest copy; keeps what was there)"
        return f"{aside} && {shlex.join(['cp', str(good), str(file)])}    (its newest copy)"
    return f"{aside} && pulumi stack init {stack}    (no copy of it reads; `pulumi up` then adopts the boxes)"


def away(path: Path, why: str) -> str:
    """The command that moves a file or a folder aside, to a name beside it that is free."""
    names = chain([f"{path}.{why}"], (f"{path}.{why}-{number}" for number in count(2)))
    return shlex.join(["mv", str(path), next(name for name in names if not os.path.lexists(name))])


def _reads(file: Path) -> bool:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("checkpoint", found.get("deployment")), dict)
