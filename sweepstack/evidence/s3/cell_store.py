"""Pulled copies in object storage. A seal has its own folder; no object is overwritten.

    cells/<cell>/manifest.json          which seal counts; written last, so that a cut leaves the one before
    cells/<cell>/<seal>/<path>          `seal`: the first 16 digits of the manifest's digest
    superseded/cells/<cell>/<seal>      the manifest of a seal that another one took the place of; its files stay

Files are read through a cache on this machine: each is used only when its SHA-256 is that of the manifest, and the
object is proved to be the same by the checksum that the server took when it came. Nothing is downloaded twice.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sweepstack.core.printable import printable
from sweepstack.core.records import FileEntry, Manifest
from sweepstack.evidence import location
from sweepstack.evidence.cell_store import Copies, Facts, Fetching, Folder, Known, Sealed, Stamp, each
from sweepstack.evidence.changing_copies import SUPERSEDED, write_once
from sweepstack.evidence.manifest import MANIFEST, MAX_MANIFEST, manifest_digest
from sweepstack.evidence.object_store import ABSENT
from sweepstack.evidence.s3.object_store import Item, S3Store
from sweepstack.evidence.s3.objects import Head, digest, download, fits, head, upload
from sweepstack.onbox.common.canonical import file_sha256, hex_of
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.platforms.common.s3_client import PARALLEL, NotThere

_SEAL = re.compile(r"[0-9a-f]{16}")
MANY = 64
"""Above this, one listing of everything is quicker than one a cell."""

Bring = Callable[[FileEntry], Path]
"""Gives a local file with the bytes of an entry, which is hashed again before it counts."""


@dataclass(frozen=True)
class Put:
    """What storing one cell did: files that went up, their bytes, and what is worth a person's look."""

    files: int = 0
    bytes: int = 0
    notes: tuple[str, ...] = ()


class S3Copies:
    """`cache` is a folder of this user for this sweep; it may be deleted at any time. `known`: what the last verifying
    wrote down of the objects whose bytes it had hashed; asked once, when a checksum alone can't tell. `kept`: the seal
    of a copy that a pull put aside, which is the only copy then.
    """

    parallel = PARALLEL

    def __init__(
        self, objects: S3Store, cache: Path, known: Callable[[], Mapping[str, Known]] = dict, kept: str = ""
    ) -> None:
        self.objects = objects
        self.cache = cache
        self._ask_known, self._kept = known, kept
        self._known: Mapping[str, Known] | None = None
        self._read: dict[tuple[str, str], Path | None] = {}
        self._lock = threading.Lock()
        self._heads: dict[tuple[str, str], Head] = {}
        self._manifests: dict[str, bytes] = {}

    def shown(self, cell: str) -> str:
        return self.objects.shown(_folder(cell))

    def cells(self) -> list[str]:
        return self.objects.names(location.CELLS)

    def aside(self, cell: str) -> list[tuple[Copies, str]]:
        seals = self.objects.names(_aside(cell))
        return [(S3Copies(self.objects, self.cache, self._ask_known, seal), cell) for seal in seals]

    def look(self, cell: str, manifest: str | None = None) -> Folder:
        return self._listed(cell, self.objects.items(_folder(cell)), manifest)

    def look_all(self, cells: Mapping[str, str | None]) -> dict[str, Folder]:
        if len(cells) <= MANY:
            return dict(zip(cells, each(self, lambda cell: self.look(cell, cells[cell]), cells), strict=True))
        found: dict[str, list[Item]] = {cell: [] for cell in cells}
        for item in self.objects.items(location.CELLS):
            found.get(item.key.split("/")[1], []).append(item)
        return {cell: self._listed(cell, items, cells[cell]) for cell, items in found.items()}

    def manifest(self, cell: str) -> bytes | None:
        held = self.objects.read(f"{_aside(cell)}/{self._kept}" if self._kept else _pointer(cell))
        with self._lock:
            if held is None:
                self._manifests.pop(cell, None)
                return None
            self._manifests[cell] = held.data
            self._heads[cell, MANIFEST] = Head(len(held.data), held.tag, "", "")
        return held.data[: MAX_MANIFEST + 1]

    def manifest_known(self, cell: str) -> Known | None:
        with self._lock:
            data, seen = self._manifests.get(cell), self._heads.get((cell, MANIFEST))
        return (
            None
            if data is None or seen is None
            else (
                seen.size,
                seen.stamp,
                hex_of(manifest_digest(data)),
            )
        )

    def manifest_is(self, cell: str, digest: str | None, facts: Facts, known: Known | None, *, full: bool) -> bool:
        meant = known is not None and digest is not None and known[2] == hex_of(digest)
        if not full and meant and known is not None and _same_object(facts, known):
            return True
        data = self.manifest(cell)
        return data is not None and manifest_digest(data) == digest

    def unchanged(self, cell: str, file: Sealed, facts: Facts, known: Known | None, *, full: bool) -> bool:
        meant = known is not None and known[2] == file.sha256
        if not full and meant and known is not None and _same_object(facts, known):
            self.objects.traffic.add(unchanged=file.size)
            return True
        key = self._key(cell, file.path)
        found = head(self.objects, key)
        if found is None:
            return False
        same = found.is_content(file.sha256)
        if same is None and meant and known is not None and known[:2] == (found.size, found.stamp):
            same = True
        if same is None:
            return digest(self.objects, key, found) == file.sha256
        self.objects.traffic.add(unchanged=file.size if same else 0)
        return same

    def here(self, cell: str, files: Sequence[FileEntry], fetching: Fetching | None = None) -> dict[str, str]:
        paths = {}
        for file in files:
            key = self._key(cell, file.path)
            found = head(self.objects, key)
            if found is None:
                raise EvidenceError(f"{self.objects.shown(key)} vanished while it was read: run the command again")
            local = self.local(cell, file.path)
            if is_local(local, file) and self._is_object(cell, local, file, found):
                self.objects.traffic.add(unchanged=file.size)
            else:
                say = None if fetching is None else lambda count, path=file.path: fetching(path, count)
                download(self.objects, key, found, local, say)
            with self._lock:
                self._heads[cell, file.path] = found
            paths[file.path] = os.fspath(local)
        return paths

    def stamp(self, cell: str, path: str, mtime_ns: int) -> Stamp:
        return self._heads[cell, path].stamp

    def read(self, cell: str, path: str, offset: int = 0, limit: int = -1) -> bytes | None:
        local = self._to_read(cell, path)
        if local is None:
            return None
        with local.open("rb") as handle:
            handle.seek(offset)
            return handle.read(limit)

    def untouched(self, cell: str, files: Mapping[str, tuple[int, Stamp]]) -> bool:
        return False  # `look_all` lists many at once; there is nothing quicker

    def size(self, cell: str, path: str) -> int | None:
        local = self._to_read(cell, path)
        return None if local is None else local.stat().st_size

    def _to_read(self, cell: str, path: str) -> Path | None:
        """The file in the cache; looked for once by this object, since who reads a log asks a hundred times."""
        if (cell, path) not in self._read:
            local: Path | None = None
            data = self.manifest(cell)
            if data is not None:
                files = Manifest.model_validate_json(data).files
                entry = next((file for file in files if file.path == path), None)
                if entry is not None and head(self.objects, self._key(cell, path)) is not None:
                    local = Path(self.here(cell, [entry])[path])
            self._read[cell, path] = local
        return self._read[cell, path]

    # Writing

    def put(self, data: bytes, manifest: Manifest, bring: Bring, say: Callable[[int], None] | None = None) -> Put:
        """Stores one sealed cell: its files, then its manifest `data`. Uploads only what is not there and right.

        Idempotent, resumable. A wrong object is taken away first; that of another seal stays where it is. `say` gets
        bytes that are there, as they come to be. Raises EvidenceError.
        """
        cell, seal = manifest.cell, seal_of(manifest_digest(data))
        there = {item.key: item for item in self.objects.items(f"{_folder(cell)}/{seal}")}
        notes: list[str] = []
        files = sent = 0
        for file in manifest.files:
            key = f"{_folder(cell)}/{seal}/{file.path}"
            if key in there and self._right(cell, seal, key, file):
                self.objects.traffic.add(unchanged=file.size)
                if say:
                    say(file.size)
                continue
            right = bring(file)
            if key in there:  # only now: what is wrong there is more than nothing
                self.objects.remove(key)
                notes.append(f"{file.path} there was not what the box sealed: put there again")
            upload(self.objects, key, right, file.sha256, say)
            files, sent = files + 1, sent + file.size
        held = self.objects.read(_pointer(cell))
        if held is not None and held.data != data:
            write_once(self.objects, f"{_aside(cell)}/{seal_of(manifest_digest(held.data))}", held.data)
        if held is None or held.data != data:
            self.objects.write(_pointer(cell), data, over=held.tag if held else ABSENT)
            files += 0 if files else 1
            if held is not None:
                notes.append(f"the copy of an earlier seal is kept below {self.shown(cell)}")
        extra = there.keys() - {f"{_folder(cell)}/{seal}/{file.path}" for file in manifest.files}
        if extra:
            notes.append(f"{len(extra)} objects in {self.shown(cell)}/{seal} fail the cell: delete them")
        with self._lock:
            self._manifests[cell] = data
        return Put(files, sent, tuple(notes))

    def _right(self, cell: str, seal: str, key: str, file: FileEntry) -> bool:
        found = head(self.objects, key)
        if found is None or found.size != file.size:
            return False
        known = found.is_content(file.sha256)
        if known is not None:
            return known
        local = self.cache / location.CELLS / cell / seal / file.path
        if not is_local(local, file):
            download(self.objects, key, found, local)
            return is_local(local, file)
        return self._is_object(cell, local, file, found) or digest(self.objects, key, found) == file.sha256

    # Here

    def local(self, cell: str, path: str) -> Path:
        """Where the cache has, or would have, a file of the seal that counts now."""
        return self.cache / location.CELLS / self._key(cell, path).removeprefix(f"{location.CELLS}/")

    def _is_object(self, cell: str, local: Path, file: FileEntry, found: Head) -> bool:
        """Has the object the bytes of `local`, which were just found to be those of the entry?"""
        if found.size != file.size:
            return False
        same = found.is_content(file.sha256)
        if same is not None:
            return same
        with self._lock:
            if self._known is None:
                self._known = self._ask_known()
        if self._known.get(f"{cell}/{file.path}") == (found.size, found.stamp, file.sha256):
            return True
        return fits(self.objects, local, found, file.sha256)

    def _key(self, cell: str, path: str) -> str:
        """The key of a file of the seal that counts. Raises NotThere when the cell has none."""
        data = self._manifests.get(cell)
        if data is None:
            data = self.manifest(cell)
        if data is None:
            raise NotThere(f"{self.objects.shown(_pointer(cell))} is not there")
        return f"{_folder(cell)}/{seal_of(manifest_digest(data))}/{path}"

    def _listed(self, cell: str, items: Sequence[Item], manifest: str | None) -> Folder:
        base = f"{_folder(cell)}/"
        named = {item.key.removeprefix(base): item for item in items}
        folder = Folder(exists=False)
        pointer = named.pop(MANIFEST, None)
        with self._lock:
            self._manifests.pop(cell, None)
        data = self.manifest(cell) if pointer and manifest is None else None
        seal = seal_of(manifest_digest(data) if data is not None else manifest or "")
        if pointer is not None:
            folder.exists = True
            folder.files[MANIFEST] = (pointer.size, (pointer.etag,))  # of one that was put aside it is not asked
        for name, item in sorted(named.items()):
            first, _, path = name.partition("/")
            if not path or not _SEAL.fullmatch(first):
                folder.exists = True
                folder.problems.append(f"{printable(name)} lies beside the copy, and no box sealed it")
            elif first == seal:
                folder.files[path] = (item.size, (item.etag,))
        return folder


def seal_of(digest_of_manifest: str) -> str:
    """The folder of a seal."""
    return hex_of(digest_of_manifest)[:16]


def is_local(path: Path, file: FileEntry) -> bool:
    """Is this local file what the entry says, by all its bytes?"""
    try:
        return path.stat().st_size == file.size and file_sha256(path) == file.sha256
    except (FileNotFoundError, NotADirectoryError):
        return False


def _same_object(facts: Facts, known: Known) -> bool:
    """By a listing: size and ETag as they were."""
    stamp, before = facts[1], known[1]
    return isinstance(stamp, tuple) and isinstance(before, tuple) and (facts[0], stamp[0]) == (known[0], before[0])


def _folder(cell: str) -> str:
    if not cell or cell in (".", "..") or "/" in cell or "\0" in cell:
        raise EvidenceError(f"{cell!r} is no cell name")
    return f"{location.CELLS}/{cell}"


def _pointer(cell: str) -> str:
    return f"{_folder(cell)}/{MANIFEST}"


def _aside(cell: str) -> str:
    """Where the manifests are of seals that others took the place of."""
    return f"{SUPERSEDED}/{_folder(cell)}"
