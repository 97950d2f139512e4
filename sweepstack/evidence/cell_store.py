"""The pulled copies of cells, as folders of this host."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from sweepstack.core.printable import printable
from sweepstack.core.records import FileEntry, ReceiptFile
from sweepstack.evidence.manifest import MANIFEST, MAX_MANIFEST, manifest_digest
from sweepstack.onbox.common.canonical import file_sha256, hex_of
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceError

SUPERSEDED = ".superseded"
"""The folder beside the copies, where a pull puts one that it replaces: as `<cell>-N`."""

Stamp = int | tuple[str, ...]
"""What tells that a file is untouched: mtime_ns in a folder; what the server says of an object."""
Facts = tuple[int, Stamp]
"""Size in bytes, and stamp."""
Known = tuple[int, Stamp, str]
"""Size, stamp and SHA-256 (bare hex) of a file when it was last read whole."""
Sealed = FileEntry | ReceiptFile
"""A file as its manifest names it, or as verifying found it."""
ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")
Fetching = Callable[[str, int], None]
"""Gets the path of a file that is brought here to be read, and the bytes since the last call."""


@dataclass
class Folder:
    """A cell's copy: plain files by path inside it, with their facts; `problems` are what is not a plain copy."""

    exists: bool = False
    files: dict[str, Facts] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Copies(Protocol):
    """One copy a cell. What can't be known raises EvidenceError, or OSError; a copy that is absent is proved to be."""

    def shown(self, cell: str) -> str:
        """Where the copy lies, for people."""
        ...

    @property
    def parallel(self) -> int:
        """How many cells may well be asked for at once."""
        ...

    def cells(self) -> list[str]:
        """Names of everything that lies where copies do."""
        ...

    def aside(self, cell: str) -> list[tuple[Copies, str]]:
        """The copies of a cell that pulls put aside, each as the copy of that name; other cells' may be among them."""
        ...

    def look(self, cell: str, manifest: str | None = None) -> Folder:
        """Lists the copy. What can't be read is a problem in it, never "no files".

        `manifest`: the digest of the manifest that it should have, which may spare asking for that.
        """
        ...

    def look_all(self, cells: Mapping[str, str | None]) -> dict[str, Folder]:
        """The same for many: cell → digest of the manifest that it should have."""
        ...

    def manifest(self, cell: str) -> bytes | None:
        """The copy's manifest, or None when it has none that is a plain file."""
        ...

    def manifest_known(self, cell: str) -> Known | None:
        """What spares reading the manifest again, after it was read; None where nothing does."""
        ...

    def manifest_is(self, cell: str, digest: str | None, facts: Facts, known: Known | None, *, full: bool) -> bool:
        """Has the copy the manifest with this digest? `known` and `full`: see `unchanged`."""
        ...

    def unchanged(self, cell: str, file: Sealed, facts: Facts, known: Known | None, *, full: bool) -> bool:
        """Is this file what `file` says? `known`, written when it was read whole, may spare reading it.

        `full`: only where the place itself proves the content; a size and a time do not.
        """
        ...

    def here(self, cell: str, files: Sequence[FileEntry], fetching: Fetching | None = None) -> dict[str, str]:
        """Where the bytes of files, as the copy has them now, can be read on this machine. Brings them if need be."""
        ...

    def stamp(self, cell: str, path: str, mtime_ns: int) -> Stamp:
        """The stamp of a file that was just read from where `here` had it, whose time was `mtime_ns` then."""
        ...

    def read(self, cell: str, path: str, offset: int = 0, limit: int = -1) -> bytes | None:
        """A part of a file of the copy; None when there is no such plain file."""
        ...

    def untouched(self, cell: str, files: Mapping[str, tuple[int, Stamp]]) -> bool:
        """Whether the copy certainly holds these files with these sizes and stamps, each a plain file of its own, and
        nothing else. A quick yes for ten thousand cells; False says nothing, and `look` then says what it is."""
        ...

    def size(self, cell: str, path: str) -> int | None:
        """The size of a file of the copy; None when there is no such plain file."""
        ...


class FolderCopies:
    """`<root>/<cell>/<path>`."""

    parallel = 1

    def __init__(self, root: Path) -> None:
        self.root = root
        self._below = os.fspath(root)
        self._manifests: dict[str, Known] = {}
        """Of those that were read: size and time from before that, and the digest of what was read."""

    def folder(self, cell: str) -> Path:
        """Where the copy of a cell lies. `cell` must be a plain cell name."""
        return Path(self._at(cell))

    def _at(self, cell: str) -> str:
        if not cell or cell in (".", "..") or "/" in cell or "\0" in cell:
            raise EvidenceError(f"{cell!r} is no cell name")
        return f"{self._below}/{cell}"

    def shown(self, cell: str) -> str:
        return str(self.folder(cell))

    def cells(self) -> list[str]:
        try:
            return sorted(os.listdir(self.root))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise EvidenceError(f"{self.root} can't be read: {error.strerror}") from error

    def aside(self, cell: str) -> list[tuple[Copies, str]]:
        kept = FolderCopies(self.root.parent / SUPERSEDED)
        return [(kept, name) for name in kept.cells() if name.rpartition("-")[0] == cell]

    def look(self, cell: str, manifest: str | None = None) -> Folder:
        return read_folder(self._at(cell))

    def look_all(self, cells: Mapping[str, str | None]) -> dict[str, Folder]:
        return {cell: self.look(cell) for cell in cells}

    def manifest(self, cell: str) -> bytes | None:
        self._manifests.pop(cell, None)
        found = _open_manifest(self._at(cell))
        if found is None:
            return None
        before, data = found  # a change after the first shows in its time, or in the digest
        self._manifests[cell] = before.st_size, before.st_mtime_ns, hex_of(manifest_digest(data))
        return data

    def manifest_known(self, cell: str) -> Known | None:
        return self._manifests.get(cell)

    def manifest_is(self, cell: str, digest: str | None, facts: Facts, known: Known | None, *, full: bool) -> bool:
        if not full and digest is not None and known == (*facts, hex_of(digest)):
            return True
        data = self.manifest(cell)
        return data is not None and manifest_digest(data) == digest

    def unchanged(self, cell: str, file: Sealed, facts: Facts, known: Known | None, *, full: bool) -> bool:
        if not full and known == (*facts, file.sha256):
            return True
        return file_sha256(self.folder(cell) / file.path) == file.sha256

    def untouched(self, cell: str, files: Mapping[str, tuple[int, Stamp]]) -> bool:
        root = self._at(cell)
        try:
            if not stat.S_ISDIR(os.lstat(root).st_mode) or set(os.listdir(root)) != files.keys():
                return False
            for path, facts in files.items():
                status = os.lstat(f"{root}/{path}")
                if (status.st_size, status.st_mtime_ns) != facts or status.st_nlink != 1:
                    return False
                if not stat.S_ISREG(status.st_mode):
                    return False
        except OSError:
            return False
        return True

    def here(self, cell: str, files: Sequence[FileEntry], fetching: Fetching | None = None) -> dict[str, str]:
        folder = self._at(cell)
        return {file.path: f"{folder}/{file.path}" for file in files}

    def stamp(self, cell: str, path: str, mtime_ns: int) -> Stamp:
        return mtime_ns

    def read(self, cell: str, path: str, offset: int = 0, limit: int = -1) -> bytes | None:
        try:
            descriptor = os.open(self._plain(cell, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    return None
                left = max(status.st_size - offset, 0)
                return _read_at(descriptor, offset, left if limit < 0 else min(limit, left))
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise EvidenceError(f"{self.folder(cell) / path} can't be read: {error.strerror}") from error

    def size(self, cell: str, path: str) -> int | None:
        try:
            status = os.lstat(self._plain(cell, path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise EvidenceError(f"{self.folder(cell) / path} can't be read: {error.strerror}") from error
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def _plain(self, cell: str, path: str) -> str:
        """A file's place, no folder on the way to which is a link."""
        target = self._at(cell)
        for part in path.split("/"):
            if os.path.islink(target):
                raise FileNotFoundError(path)
            target = f"{target}/{part}"
        return target


def _read_at(descriptor: int, offset: int, limit: int) -> bytes:
    parts = []
    while limit > 0 and (part := os.pread(descriptor, limit, offset)):
        parts.append(part)
        offset, limit = offset + len(part), limit - len(part)
    return b"".join(parts)


def each(copies: Copies, ask: Callable[[ItemT], AnswerT], items: Iterable[ItemT]) -> Iterator[AnswerT]:
    """`ask` of each item, in order: one by one as the answers are taken; all at once, side by side, where the place is
    far away."""
    if copies.parallel == 1:
        return map(ask, items)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(copies.parallel) as pool:
        return iter(list(pool.map(ask, items)))


def find_seal(copies: Copies, cell: str, digest: str, *, aside: bool = False) -> tuple[Copies, str, bytes] | None:
    """The copy that has this manifest, in its place or put aside: where, under which name, and the manifest's bytes;
    None where there is none. `aside`: only one that was put aside. Raises EvidenceError."""
    for place, name in (*(() if aside else ((copies, cell),)), *copies.aside(cell)):
        try:
            data = place.manifest(name)
        except OSError as error:
            raise EvidenceError(f"{place.shown(name)} can't be read: {error.strerror}") from error
        if data is not None and manifest_digest(data) == digest:
            return place, name, data
    return None


def read_folder(root: Path | str) -> Folder:
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
        for path, entry in _walk(os.fspath(root), ""):
            _note(folder, path, entry.stat(follow_symlinks=False))
    except OSError as error:
        folder.problems.append(f"its folder can't be read: {error.strerror}")
    return folder


def read_manifest_bytes(root: Path) -> bytes | None:
    """The pulled manifest, or None when there is none that is a file of its own. Raises OSError."""
    found = _open_manifest(os.fspath(root))
    return None if found is None else found[1]


def _open_manifest(root: str) -> tuple[os.stat_result, bytes] | None:
    """The same with its facts from before it was read."""
    try:
        descriptor = os.open(f"{root}/{MANIFEST}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        parts, left = [], MAX_MANIFEST + 1
        while left and (part := os.read(descriptor, min(left, status.st_size + 1))):
            parts.append(part)
            left -= len(part)
        return status, b"".join(parts)
    finally:
        os.close(descriptor)


def _walk(root: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(root) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, path + "/")
            else:
                yield path, entry


def _note(folder: Folder, path: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        folder.problems.append(f"{printable(path)} is a link, not a copy")
    elif not stat.S_ISREG(status.st_mode):
        folder.problems.append(f"{printable(path)} is not a regular file")
    elif status.st_nlink > 1:
        shares = "shares its bytes with another name (a hard link), so it is not a copy"
        folder.problems.append(f"{printable(path)} {shares}")
    else:
        folder.files[path] = (status.st_size, status.st_mtime_ns)
