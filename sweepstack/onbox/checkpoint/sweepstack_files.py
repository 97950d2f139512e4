"""Checkpoint files: each is whole or not there, even when the process is killed while it saves.

Part of the checkpoint helper (see sweepstack_checkpoint.py): Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "SWEEPSTACK_CHECKPOINT_DIR"
KEEP = 2
ASIDE = ".aside"
_NAME = re.compile(r"step-([0-9]{12,})-([0-9a-f]{64})\.ckpt")
_CHUNK = 1 << 20


class Checkpoint:
    """The checkpoints of one cell: `step-<step>-<sha256 of the content>.ckpt`, in a folder of their own.

    The name holds the digest, so that one rename makes a checkpoint appear together with its proof. For one process at
    a time: in a job of several ranks, rank 0 saves.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        """`directory`: made if it is missing; None for the one in SWEEPSTACK_CHECKPOINT_DIR, which the box sets. Raises
        RuntimeError when there is neither."""
        where = directory if directory is not None else os.environ.get(VARIABLE)
        if not where:
            raise RuntimeError(f"no folder for checkpoints: give one, or set {VARIABLE}")
        self.directory = Path(where)
        self.directory.mkdir(parents=True, exist_ok=True)
        for parent in list(self.directory.absolute().parents)[:2]:  # the folder's name must survive a power cut, too
            with contextlib.suppress(PermissionError):
                _sync_folder(parent)

    def load_latest(self) -> Path | None:
        """The newest whole checkpoint; None when there is none. Reads the file to compare its digest.

        If it is damaged, the one before it is taken. An unfinished save is never taken.
        """
        for _, path, digest in self._saved():
            with contextlib.suppress(OSError):
                if _sha256(path) == digest:
                    return path
        return None

    def save(self, write: Callable[[Path], Any], step: int) -> Path:
        """Calls `write` with the path of a file to make, and makes it the newest checkpoint. Returns its final path.

        Blocks until it is on the disk. The checkpoint before it is kept; older ones are removed once this one is safe.
        On a full disk they are removed first, and `write` is called a second time; the newest whole one always stays.
        After any other error (the exception of `write` is passed on) the earlier checkpoints are still there.
        """
        if step < 0:
            raise ValueError(f"step {step} is negative")
        try:
            path = self._write(write, step)
        except Exception as error:
            if not self._made_room(error):
                raise
            path = self._write(write, step)
        _sync_folder(self.directory)
        self._tidy(path, step)
        return path

    def _write(self, write: Callable[[Path], Any], step: int) -> Path:
        staged = self.directory / f".{os.getpid()}.tmp"
        try:
            write(staged)
            if not staged.is_file():
                raise RuntimeError(
                    f"write() made no file {staged}; some libraries add a suffix: give them an open file"
                )
            with open(staged, "rb+") as handle:
                os.fsync(handle.fileno())
            path = self.directory / f"step-{step:012d}-{_sha256(staged)}.ckpt"
            ahead = max((_mtime(one) for number, one, _ in self._saved() if number == step), default=0)
            if _mtime(staged) <= ahead:  # of two saves of one step the last counts, also where the clock was set back
                os.utime(staged, ns=(ahead + 1_000_000, ahead + 1_000_000))
            os.replace(staged, path)
        except BaseException:
            with contextlib.suppress(OSError):
                staged.unlink()
            raise
        return path

    def _made_room(self, error: Exception) -> bool:
        """Removes older checkpoints if the save may have failed because the disk is full. Whether it removed any."""
        newest = self.load_latest()
        if newest is None or not isinstance(error, (OSError, RuntimeError)):
            return False
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        # torch gives no errno: its writer fails with a RuntimeError. Then judge by the free space.
        if not full and shutil.disk_usage(self.directory).free > 2 * newest.stat().st_size:
            return False
        others = [path for _, path, _ in self._saved() if path != newest]
        others += self.directory.glob(f".*{ASIDE}")
        _remove([*others, *self.directory.glob(".*.tmp")])
        return bool(others)

    def _saved(self) -> list[tuple[int, Path, str]]:
        """All files with a checkpoint's name, newest first: (step, path, digest)."""
        found = []
        for path in self.directory.iterdir():
            match = _NAME.fullmatch(path.name)
            if match:
                found.append((int(match[1]), path, match[2]))
        return sorted(found, key=lambda one: (one[0], _mtime(one[1])), reverse=True)

    def _tidy(self, newest: Path, step: int) -> None:
        """Removes all but the newest checkpoint and the one before it. The last save counts as the newest, also when a
        run went back (later steps were damaged, or could not be read at that moment) or began again: the latest of
        those is kept under another name until the run has got as far."""
        others = [path for _, path, _ in self._saved() if path != newest]
        before = [path for path in others if _step_of(path) <= step][: KEEP - 1]
        others += self.directory.glob(f".*{ASIDE}")
        later = max((path for path in others if _step_of(path) > step), key=_step_of, default=None)
        _remove([*(path for path in others if path not in (*before, later)), *self.directory.glob(".*.tmp")])
        if later is not None and not later.name.endswith(ASIDE):
            with contextlib.suppress(OSError):
                os.replace(later, later.with_name(f".{later.name}{ASIDE}"))


def _step_of(path: Path) -> int:
    """The step of a checkpoint, also of one that was put aside; -1 for another file."""
    match = _NAME.fullmatch(path.name[1 : -len(ASIDE)] if path.name.endswith(ASIDE) else path.name)
    return int(match[1]) if match else -1


def _sha256(path: Path) -> str:
    hashed = hashlib.sha256()
    with open(path, "rb", buffering=0) as handle:
        for chunk in iter(lambda: handle.read(_CHUNK), b""):
            hashed.update(chunk)
    return hashed.hexdigest()


def _remove(paths: list[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: a file system that can't fsync folders
            raise
    finally:
        os.close(descriptor)
