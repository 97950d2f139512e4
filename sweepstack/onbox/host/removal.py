"""Removes a box's folder: the box stays listed until the end, and nothing outside of it is touched."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.errors import NotYetGone
from sweepstack.onbox.common.mount_points import mounted_below, refuse_mounted
from sweepstack.onbox.host.box_folders import read_facts

BUCKET = "fuse.rclone"
"""The file system type of a bucket that the runner mounts."""
UNMOUNT_SECONDS = 30.0
RENTED = "ended"
"""Folder below the platform's root: one file for each box that was made on a rented machine, which goes on billing when
the box is gone."""


def mark_ending(box: Path, *, facts: str, ending: str) -> None:
    """Marks the box: from now on nothing is started on it. It renames a file, since that works on a full disk, too.

    Raises NotYetGone when the box is a link. Idempotent.
    """
    if box.is_symlink():
        raise NotYetGone(
            f"{box} is a link to {os.readlink(box)}, which is not ours to delete: put the folder in its place"
        )
    try:
        os.rename(box / facts, box / ending)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            (box / ending).touch()
    except NotADirectoryError:
        box.unlink()


def record_rented(facts_file: Path, root: Path) -> None:
    """Records that a box is, or was, on a rented machine: when its folder is gone, the machine still bills. Does
    nothing for a machine that is not rented. Idempotent. Raises OSError."""
    try:
        facts = read_facts(facts_file)
    except (FileNotFoundError, ValueError):
        return  # its facts are lost; the command that ends the box knows that the machine is rented
    if facts.get("rented") is True:
        write_json_atomically(root / RENTED / f"{facts_file.parent.name}.json", facts)


def rented_record(native_id: str, root: Path) -> dict[str, Any] | None:
    """The recorded facts of a box that was on a rented machine; None without a record, {} when it can't be read."""
    try:
        return read_facts(root / RENTED / f"{native_id}.json")
    except FileNotFoundError:
        return None
    except ValueError:
        return {}


def rented_ids(root: Path) -> set[str]:
    """The ids of all boxes with such a record."""
    return {path.stem for path in (root / RENTED).glob("*.json")}


def empty(box: Path, *, keep: tuple[str, ...]) -> None:
    """Removes all files except `keep` (paths inside the box) and the folders that lead to them. Removes links, does not
    follow them. Idempotent.

    The kept files say whose box it was and what ran on it: if this is interrupted, the box is still listed, and the
    teardown check finds the same journal as before. Raises NotYetGone when something can't be removed.
    """
    _refuse_mounted(box)
    kept = {box / path for path in keep}
    kept_parents = {parent for path in kept for parent in path.parents}
    try:
        for parent, folders, files in os.walk(box, onerror=_raise):
            for path in [Path(parent, name) for name in folders]:
                if path in kept_parents and not path.is_symlink():
                    _open_up(path)
                    continue
                folders.remove(path.name)
                _remove(path)
            for path in (Path(parent, name) for name in files):
                if path not in kept:
                    path.unlink(missing_ok=True)
    except OSError as error:
        raise NotYetGone(f"{box} is only partly removed: {error}. Run it again") from error


def wipe(folder: Path) -> None:
    """Empties a folder; makes it if it is missing. Raises NotYetGone as `empty` does."""
    _refuse_mounted(folder)
    try:
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink(missing_ok=True)
            folder.mkdir()
        _open_up(folder)
        for name in os.listdir(folder):
            path = folder / name
            if path.is_dir() or path.is_symlink():
                _remove(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise NotYetGone(f"{folder} is only partly emptied: {error}. Run it again") from error


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
        return
    _open_up(path)
    for parent, folders, _ in os.walk(path, onerror=_raise):
        for name in folders:
            _open_up(Path(parent, name))
    shutil.rmtree(path)


def _open_up(folder: Path) -> None:
    """Makes a folder writable for this user: a read-only folder can't be emptied."""
    if not folder.is_symlink() and folder.stat().st_mode & 0o700 != 0o700:
        folder.chmod(0o700)


def _refuse_mounted(box: Path) -> None:
    """`refuse_mounted`, but a bucket that the box itself mounted is unmounted: its process was ended before, and a
    killed process leaves a dead mount behind."""
    for point, kind in mounted_below(box):
        if kind == BUCKET:
            _let_go(point)
    refuse_mounted(box, "box")


def _let_go(point: str) -> None:
    for program in ("fusermount3", "fusermount"):
        if shutil.which(program) is not None:
            with contextlib.suppress(OSError, subprocess.SubprocessError):  # the caller checks whether it is gone
                subprocess.run([program, "-uz", point], stderr=subprocess.DEVNULL, timeout=UNMOUNT_SECONDS, check=False)
            return


def _raise(error: OSError) -> None:
    raise error
