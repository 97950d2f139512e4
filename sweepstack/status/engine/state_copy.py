"""Finds the newest copy of a damaged state file that can still be read."""

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
    if not url.startswith("file://"):
        return ""
    root = Path(url.removeprefix("file://")).expanduser() / _FOLDER
    for file in (root / "stacks" / project / f"{stack}.json", root / "stacks" / f"{stack}.json"):
        if file.exists() and not _reads(file):
            return f". Next: {_command(file, root, stack)}"
    return ""


def _command(file: Path, root: Path, stack: str) -> str:
    copies = [file.with_name(f"{file.name}.bak"), *root.glob(f"backups/{file.parent.name}/{stack}/*.json")]
    there = sorted((copy for copy in copies if copy.is_file()), key=lambda copy: copy.stat().st_mtime_ns, reverse=True)
    aside = away(file, "broken")
    good = next((copy for copy in there if _reads(copy)), None)
    if good is not None:  # what does not read may be newer, and is kept
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
