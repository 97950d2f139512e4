"""Checks before each start of a cell, and at its end, that the code on this box matches its digest.

The launcher writes a list of the version's files (path, mode, SHA-256); the list's digest is the version's name, so a
changed list does not count. Cells run in the code's folder and may leave files there; so may a set-up.

    a shipped file that was changed, or is missing     no cell is started
    a file that Python could import instead of one     no cell is started: `json.py` beside `train.py`
    what a set-up made or changed                      is part of the version: it is recorded when the set-up ends
    other files (data, logs, folders of runs)          are ignored
    a compiled file older than its source's change     is removed: Python judges it by a time that anything can set"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from sweepstack.onbox.common.box_layout import short
from sweepstack.onbox.common.canonical import handle_sha256, hex_of, sha256_hex, write_json_atomically

IMPORTABLE = (".py", ".so", ".pyc", ".pyd", ".pth")
READ_FIRST = (*IMPORTABLE, ".sh", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".txt")
ALWAYS_BYTES = 64 << 20
"""So many bytes are read at every check. Files beyond that are read again only when their times or size differ."""
SETTLED_SECONDS = 2.0
"""A file that changed so shortly before it was read may change again without a new time stamp."""
SHOWN = 3
MOST = 200
"""The most files that the journal names."""
MADE = "made"


class Problem(NamedTuple):
    """Why no cell is started: the reason, and the files that must be shipped again."""

    reason: str
    files: list[str]


class CodeCheck:
    """Checks of the code on this box, with a cache of digests. Safe to share between threads."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._seen: dict[str, tuple[tuple[int, ...], str]] = {}  # file → what its inode said, and its SHA-256 then

    def problem(self, code: str, prepared: bool = True) -> Problem | None:
        """Why the code does not match; None when it is as shipped, or as its set-up left it. Reads the files; blocks.

        `prepared`: whether its set-up has ended. Before that, files besides the shipped ones are not checked.
        """
        folder = self._home / "code" / hex_of(code)
        if not folder.is_dir():
            return Problem(f"code {short(code)} is not on this box", [])
        listed = self._listed(code)
        if listed is None:
            return Problem(f"the list of the files of code {short(code)} is not on this box, or was changed", [])
        made = self._made(code)
        budget, wrong, missing = ALWAYS_BYTES, [], []
        for path in sorted(listed, key=lambda one: (not one.endswith(READ_FIRST), one)):
            wanted = [made[path]] if path in made else [listed[path]]
            found, read = self._look(folder / path, budget)
            budget -= read
            if found is None:
                missing.append(path)
            elif found not in wanted:
                wrong.append(path)
        foreign = self._foreign(folder, listed, made) if prepared else []
        self._drop_old_compiled(folder, listed)
        if not (wrong or missing or foreign):
            return None
        parts = [
            f"{_names(paths)} {what}"
            for paths, what in (
                (wrong, f"on this box is not what was shipped as code {short(code)}"),
                (missing, f"of code {short(code)} is missing on this box"),
                (
                    foreign,
                    f"is not of code {short(code)}, and Python could import it: remove it from data/sweep/code there",
                ),
            )
            if paths
        ]
        return Problem("; ".join(parts), [*wrong, *missing][:MOST])

    def prepared(self, code: str) -> None:
        """Records the files that a set-up made or changed in the code's folder: from now on they must stay so. Raises
        OSError."""
        folder, listed = self._home / "code" / hex_of(code), self._listed(code)
        if listed is None:
            return
        now = {path: self._look(folder / path, ALWAYS_BYTES)[0] for path in listed}
        made = {path: found for path, found in now.items() if found is not None and found != listed[path]}
        for path in self._importable(folder, listed):
            found = self._look(folder / path, ALWAYS_BYTES)[0]
            if path not in listed and found is not None:
                made[path] = found
        write_json_atomically(self._list_of(code, MADE), made)

    def signature(self, code: str) -> tuple[int, int]:
        """A value that changes when the launcher ships the version again."""
        with contextlib.suppress(OSError):
            status = self._list_of(code).stat()
            return status.st_mtime_ns, status.st_ino
        return 0, 0

    # -- what should be there

    def _list_of(self, code: str, kind: str = "files") -> Path:
        return self._home / "shipped" / f"{hex_of(code)}.{kind}.json"

    def _listed(self, code: str) -> dict[str, str] | None:
        """path → mode and SHA-256 of the shipped files; None when there is no list with this digest."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            data = self._list_of(code).read_bytes()
            if sha256_hex(data) == hex_of(code):
                return {str(path): f"{mode:o} {sha256}" for path, mode, sha256 in json.loads(data)}
        return None

    def _made(self, code: str) -> dict[str, str]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._list_of(code, MADE).read_bytes())
            if isinstance(found, dict):
                return found
        return {}

    # -- what is there

    def _look(self, file: Path, budget: int) -> tuple[str | None, int]:
        """Mode and SHA-256 of a file (None when it is no regular file), and how many bytes were read for that."""
        try:
            with open(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb", buffering=0) as handle:
                status = os.fstat(handle.fileno())
                if not stat.S_ISREG(status.st_mode):
                    return None, 0
                mode = "755" if status.st_mode & stat.S_IXUSR else "644"
                key = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
                known = self._seen.get(str(file))
                if known is not None and known[0] == key and status.st_size > budget:
                    return f"{mode} {known[1]}", 0
                began = time.time()
                sha256 = handle_sha256(handle)
        except OSError:
            return None, 0
        if began - status.st_ctime > SETTLED_SECONDS:
            self._seen[str(file)] = key, sha256
        return f"{mode} {sha256}", status.st_size

    def _foreign(self, folder: Path, listed: dict[str, str], made: dict[str, str]) -> list[str]:
        found = []
        for path in self._importable(folder, listed):
            if path not in listed and (path not in made or self._look(folder / path, ALWAYS_BYTES)[0] != made[path]):
                found.append(path)
        return sorted(found)

    @staticmethod
    def _importable(folder: Path, listed: Iterable[str]) -> list[str]:
        """The files that Python could import from the shipped files' folders: modules in them, and packages."""
        found = []
        for below in sorted({path.rpartition("/")[0] for path in listed} | {""}):
            prefix = f"{below}/" if below else ""
            with contextlib.suppress(OSError), os.scandir(folder / below) as entries:
                for entry in entries:
                    if entry.is_dir():
                        starts = (f"__init__{suffix}" for suffix in IMPORTABLE)
                        found += [f"{prefix}{entry.name}/{one}" for one in starts if _is_file(entry.path, one)]
                    elif entry.name.endswith(IMPORTABLE):
                        found.append(prefix + entry.name)
        return found

    @staticmethod
    def _drop_old_compiled(folder: Path, listed: Iterable[str]) -> None:
        sources: dict[str, dict[str, str]] = {}
        for path in listed:
            below, _, name = path.rpartition("/")
            if name.endswith(".py"):
                sources.setdefault(below, {})[name[:-3]] = path
        for below, names in sources.items():
            with contextlib.suppress(OSError), os.scandir(folder / below / "__pycache__") as entries:
                for entry in entries:
                    source = names.get(entry.name.partition(".")[0])
                    with contextlib.suppress(OSError):
                        if source and entry.stat().st_mtime_ns < os.stat(folder / source).st_ctime_ns:
                            os.unlink(entry.path)


def _is_file(folder: str, name: str) -> bool:
    return os.path.isfile(os.path.join(folder, name))


def _names(paths: list[Any]) -> str:
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(map(str, paths[:SHOWN])) + more
