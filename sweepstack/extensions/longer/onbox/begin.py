"""Lays the sealed artifacts of a cell into the folder of checkpoints of the one that begins from it.

They come from the sealed copy on this box's durable tier, or from what was sent there; and only as the manifest names
them whose digest stands in the line of the queue. They are copied beside, read back, flushed, and get the folder's name
by one rename, and only while nothing lies under it: a cell that has a checkpoint goes on from that. Killed at any
moment, this leaves a whole folder or none.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from sweepstack.onbox.common.canonical import canonical_json, file_sha256, fsync_directory, write_atomically
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.holes import copy_file
from sweepstack.onbox.common.longer import MARK, sent_name
from sweepstack.onbox.runner.records import Entry, say
from sweepstack.onbox.runner.sealing import MANIFEST, CellFailure, flush_and_forget, manifest_digest


class NotHere(SweepstackError):
    """A copy can't be used. The message says why, in a few words."""


class Beginnings:
    """What cells of this box begin from. For the thread of the main loop; the copies are made by another one."""

    def __init__(self, cells: Path, checkpoints: Path, wake: Callable[[], None]) -> None:
        """`cells`, `checkpoints`: of the durable tier. `wake`: called when a copy is made."""
        self._cells, self._checkpoints, self._wake = cells, checkpoints, wake
        self._copies: dict[tuple[Path, str], Future[str]] = {}
        self._made: set[tuple[Path, str]] = set()  # those of them that are made, as `news` found
        self._refused: dict[str, str] = {}

    @property
    def busy(self) -> bool:
        """Whether a cell waits for a copy, until `news` has told that it is made: between the two no runner may take
        its queue for drained."""
        return len(self._copies) > len(self._made)

    def news(self) -> bool:
        """Whether a copy was made since the last call, and so a cell may start that could not."""
        made = {key for key, copy in self._copies.items() if copy.done()} - self._made
        self._made |= made
        return bool(made)

    def ready(self, entry: Entry) -> bool | None:
        """Whether a cell may start, as far as what it begins from goes. None: that is being copied. Never blocks.

        For a cell that this process may claim, at a moment at which no other may: what was copied gets its place here.
        """
        folder = self._checkpoints / entry.cell / entry.checkpoints
        if not entry.source[0] or _holds(folder):
            return True
        key = folder, entry.source[1]
        copy = self._copies.get(key)
        if copy is None and not self.busy:
            copy = self._copies[key] = Future()
            # Nothing waits for it at the end of the runner: what it leaves counts for nothing.
            threading.Thread(target=self._run, args=(copy, entry, _staged(folder)), daemon=True).start()
        if copy is None or key not in self._made:
            return None
        del self._copies[key]
        self._made.discard(key)
        problem = copy.result()
        if not problem:
            os.rename(_staged(folder), folder)  # an empty folder gives way, one with a file in it does not
            fsync_directory(folder.parent)
            killed = folder.parent.glob(_staged(folder, "*").name)  # what others began, and left behind
            for needless in (folder.parent / sent_name(entry.source[1]), *killed):
                shutil.rmtree(needless, ignore_errors=True)
            say(f"{entry.cell} begins from {entry.source[0]} ({entry.source[1]})")
        else:
            self._refused[entry.cell] = problem
        return True

    def must_begin(self, cell: str) -> None:
        """Raises CellFailure where what the cell begins from could not be had."""
        problem = self._refused.pop(cell, "")
        if problem:
            raise CellFailure(problem)

    def _run(self, copy: Future[str], entry: Entry, staged: Path) -> None:
        try:
            copy.set_result(self._stage(entry, staged))
        except BaseException as error:
            copy.set_exception(error)
        self._wake()

    def _stage(self, entry: Entry, staged: Path) -> str:
        """Makes the copy beside. Returns why it could not; "" where it is whole and on the disk."""
        source, manifest = entry.source
        why = []
        for place, where in (
            (self._cells / source, "its sealed copy here"),
            (staged.parent / sent_name(manifest), "what was sent here"),
        ):
            try:
                shutil.rmtree(staged, ignore_errors=True)
                staged.mkdir(parents=True)
                copy_artifacts(place, manifest, staged)
                mark = canonical_json({"cell": source, "manifest": manifest})
                write_atomically(staged / MARK, mark + b"\n")
                for folder, _, _ in os.walk(staged):
                    fsync_directory(Path(folder))
                return ""
            except (NotHere, OSError) as error:
                why.append(f"{where}: {error}")
        shutil.rmtree(staged, ignore_errors=True)
        return (
            f"what it begins from can't be had on this box, {source} as {manifest[:19]}… ({'; '.join(why)}). "
            "Next: sweepctl retry of this cell, and pulumi up, which sends it again"
        )


def copy_artifacts(place: Path, manifest: str, target: Path) -> None:
    """Copies the artifacts of the sealed copy `place` into `target`, under the names that the job gave them. Raises
    NotHere unless its manifest has this digest and each file is what that says; OSError."""
    try:
        data = (place / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotHere("it is not there") from None
    if manifest_digest(data) != manifest:
        raise NotHere("it is another one")
    found = json.loads(data)
    names = dict(found.get("names") or {})
    for file in found["files"]:
        if file["role"] == "artifact":
            written = os.fsdecode(unquote_to_bytes(names[file["path"]])) if file["path"] in names else file["path"]
            _copy(place, file, target / _plain(written))


def _plain(path: str) -> Path:
    parts = Path(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise NotHere(f"{path[:80]!r} is no path in a folder")
    return Path(path)


def _copy(place: Path, file: dict[str, Any], target: Path) -> None:
    source = place / _plain(str(file["path"]))
    if not stat.S_ISREG(os.lstat(source).st_mode):
        raise NotHere(f"{file['path']} is no file")
    target.parent.mkdir(parents=True, exist_ok=True)
    open(target, "xb").close()  # two files never get one name
    copy_file(source, target)
    flush_and_forget(target)
    if os.stat(target).st_size != file["size"] or file_sha256(target) != file["sha256"]:
        raise NotHere(f"{file['path']} is not what was sealed")


def _staged(folder: Path, process: object = "") -> Path:
    """Where a process makes its copy; by default this one."""
    return folder.with_name(f".{folder.name}.begins-{process or os.getpid()}")


def _holds(folder: Path) -> bool:
    """Whether anything lies there. What can't be listed counts as something."""
    with contextlib.suppress(FileNotFoundError):
        return bool(os.listdir(folder))
    return False
