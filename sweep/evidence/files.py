"""Pulled files as they lie here: what a cell's folder holds, and whether that is still what a receipt says."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.canonical import DIGEST_PREFIX, digest_of, file_sha256, write_json_atomically
from sweep.evidence import place
from sweep.evidence.manifest import MANIFEST, MAX_MANIFEST, manifest_digest
from sweep.loaders.base import printable
from sweep.model import Receipt, ReceiptCell

if TYPE_CHECKING:
    from sweep.evidence.store import EvidenceStore


@dataclass
class Folder:
    """A cell's folder: plain files by path inside it (size, mtime_ns); `problems` are what is not a plain copy."""

    exists: bool = False
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_folder(root: Path) -> Folder:
    """Lists a cell's folder, following nothing. A folder that can't be read has a problem, never "no files"."""
    folder = Folder()
    try:
        status = os.lstat(root)
    except FileNotFoundError:
        return folder
    except OSError as error:
        folder.exists = True
        folder.problems.append(f"its folder can't be read: {error.strerror}")
        return folder
    folder.exists = True
    if not stat.S_ISDIR(status.st_mode):
        folder.problems.append("its folder is a link" if stat.S_ISLNK(status.st_mode) else "its folder is a file")
        return folder
    try:
        for path, entry in _walk(root, ""):
            _note(folder, path, entry.stat(follow_symlinks=False))
    except OSError as error:
        folder.problems.append(f"its folder can't be read: {error.strerror}")
    return folder


def read_manifest_bytes(root: Path) -> bytes | None:
    """The pulled manifest, or None when there is none that is a file of its own. Raises OSError."""
    try:
        descriptor = os.open(root / MANIFEST, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as handle:
        if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
            return None
        return handle.read(MAX_MANIFEST + 1)


def write_index(store: EvidenceStore, receipt_digest: str, seen: dict[str, tuple[int, int, str]]) -> None:
    """Remembers size, mtime_ns and SHA-256 of files (`<cell>/<path>`) as they were when the receipt was made."""
    index = {"schema": 1, "receipt": receipt_digest, "files": {path: list(facts) for path, facts in seen.items()}}
    write_json_atomically(_index_path(store, receipt_digest), index)


def check_files(store: EvidenceStore, receipt: Receipt, cells: Iterable[str], *, full: bool) -> list[str]:
    """See EvidenceStore.check_files."""
    check = FileCheck(store, receipt, full=full)
    return [f"{name}: {problem}" if name in check.cells else problem for name in cells for problem in check.cell(name)]


class FileCheck:
    """Compares pulled copies with one receipt, cell by cell. Reads the index once."""

    def __init__(self, store: EvidenceStore, receipt: Receipt, *, full: bool) -> None:
        self.cells = {cell.name: cell for cell in receipt.cells if cell.state == "verified"}
        self._store = store
        self._states = {cell.name: cell.state for cell in receipt.cells}
        self._index = {} if full else _read_index(store, receipt)

    def cell(self, name: str) -> list[str]:
        """Why a cell's copy is not what the receipt says; empty when it is."""
        cell = self.cells.get(name)
        if cell is None:
            return [f"{name} is {self._states.get(name, 'not')} in the receipt"]
        return list(_check_cell(self._store, cell, self._index))


def _check_cell(store: EvidenceStore, cell: ReceiptCell, index: dict[str, tuple[int, int, str]]) -> Iterator[str]:
    root = store.cell_dir(cell.name)
    folder = read_folder(root)
    if not folder.exists:
        yield f"its pulled copy {root} is not there any more"
        return
    yield from folder.problems
    expected = {file.path for file in cell.files} | {MANIFEST}
    for path in sorted(folder.files.keys() - expected):
        yield f"{printable(path)} was not there when the receipt was made"
    try:
        manifest = read_manifest_bytes(root)
        if manifest is None or manifest_digest(manifest) != cell.manifest:
            yield f"{MANIFEST} changed after the receipt"
        for file in cell.files:
            facts = folder.files.get(file.path)
            if facts is None:
                yield f"{file.path} is not there any more"
            elif facts[0] != file.size:
                yield f"{file.path} has {facts[0]:,} bytes, not {file.size:,}"
            elif index.get(f"{cell.name}/{file.path}") != (*facts, file.sha256) and (
                file_sha256(root / file.path) != file.sha256
            ):
                yield f"{file.path} changed after the receipt"
    except OSError as error:
        yield f"its pulled copy can't be read: {error.strerror}"


def _walk(root: Path, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(root) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path), path + "/")
            else:
                yield path, entry


def _note(folder: Folder, path: str, status: os.stat_result) -> None:
    shown = printable(path)
    if stat.S_ISLNK(status.st_mode):
        folder.problems.append(f"{shown} is a link, not a copy")
    elif not stat.S_ISREG(status.st_mode):
        folder.problems.append(f"{shown} is not a regular file")
    elif status.st_nlink > 1:
        folder.problems.append(f"{shown} shares its bytes with another name (a hard link), so it is not a copy")
    else:
        folder.files[path] = (status.st_size, status.st_mtime_ns)


def _index_path(store: EvidenceStore, receipt_digest: str) -> Path:
    return store.root / place.RECORDS / f"files-{receipt_digest.removeprefix(DIGEST_PREFIX)}.json"


def _read_index(store: EvidenceStore, receipt: Receipt) -> dict[str, tuple[int, int, str]]:
    """The index of this receipt, or nothing when it does not read: then files are hashed, which is slow and right."""
    digest = digest_of(receipt.model_dump(mode="json", by_alias=True))
    try:
        found = json.loads(_index_path(store, digest).read_bytes())
        if found["receipt"] != digest:
            return {}
        return {str(path): (int(size), int(mtime), str(sha)) for path, (size, mtime, sha) in found["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
