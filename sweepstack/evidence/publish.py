"""Publishes evidence: copies a folder to object storage, checks it, and closes the folder.

The order makes every cut harmless. All is copied; the folder is closed by a pointer, so that nothing is written there
any more; all is compared again, and what changed meanwhile copied; what was found is recorded; and the marker, without
which the new place can't be opened, comes last. The same command goes on after a cut.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from sweepstack.core.records import Record
from sweepstack.evidence import file_index, location
from sweepstack.evidence.cell_store import SUPERSEDED, FolderCopies, Known
from sweepstack.evidence.location import MARKER, MOVED, PUBLISHED, Marker, MovedEvidence, Published, parse_record
from sweepstack.evidence.manifest import MANIFEST, manifest_digest
from sweepstack.evidence.object_store import ABSENT, FolderStore
from sweepstack.evidence.pull import only_one
from sweepstack.evidence.s3.cell_store import seal_of
from sweepstack.evidence.s3.object_store import S3Store, Traffic
from sweepstack.evidence.s3.objects import Head, fits, head, upload
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import canonical_json, digest_of, file_sha256, hex_of
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.platforms.common.s3_client import PARALLEL

UNDER_WAY = f"{location.RECORDS}/publishing.json"
_OWN = (MARKER, MOVED)

Progress = Callable[[str, int, int], None]
"""Gets the key that was found right, and bytes so far and in all."""


class Publishing(Record):
    """Who is publishing what to here; taken away at the end."""

    source: str
    identity: str


@dataclass(frozen=True)
class Publication:
    """What publishing did. `notes`: what could not be copied (links), and so was never evidence."""

    uri: str
    objects: int
    bytes: int
    traffic: Traffic
    notes: tuple[str, ...] = ()


def publish(source: str, target: str, progress: Progress | None = None) -> Publication:
    """Copies the evidence folder `source` to `target` (`s3://bucket/prefix`), and closes the folder. Resumable.

    Idempotent; blocks until every object was found right by its checksum. Costs what the storage costs. Raises
    EvidenceError: not a folder of this host, a target that is in use, no answer; then nothing is closed, or the folder
    is closed and the same command goes on.
    """
    old, new = location.object_store_at(source), location.object_store_at(target)
    if not isinstance(old, FolderStore) or not isinstance(new, S3Store):
        raise EvidenceError(f"evidence is published from a folder to s3://bucket/prefix, not from {source} to {target}")
    marker, moved = location.marker_on(old), location.moved_on(old)
    if marker is None:
        raise EvidenceError(f"{old.shown()} {old.missing().format(MARKER)}: there is nothing to publish")
    if moved is not None and moved.to != new.uri:
        raise EvidenceError(f"the evidence in {old.shown()} was published to {moved.to} already")
    done = _claim(old, new, marker)
    if done is not None:
        _close(old, new, marker)
        new.remove(UNDER_WAY)
        return Publication(new.uri, done.objects, done.bytes, new.traffic)
    store = EvidenceStore(old, marker)
    with only_one(store):
        work = _Work(store, new, progress)
        work.copy()
        _close(old, new, marker)
        seen = work.copy()  # what was written while the first round went on
        _tidy(new, seen)
    published = Published(
        source=old.uri,
        identity=marker.identity,
        at=datetime.now(UTC),
        objects=len(seen),
        bytes=sum(found.size for found, _ in seen.values()),
        digest=digest_of(sorted([key, sha256] for key, (_, sha256) in seen.items())),
    )
    _write_known(store, EvidenceStore(new, marker), seen)
    new.write(f"{location.RECORDS}/{PUBLISHED}", _bytes(published))
    held = old.read(MARKER)
    assert held is not None
    new.write(MARKER, held.data, over=ABSENT)
    new.remove(UNDER_WAY)
    return Publication(new.uri, published.objects, published.bytes, new.traffic, tuple(work.notes))


def succession_problem(old: str, new: str, identity: str) -> str:
    """Why evidence at `new` is not that of `old`, whole; empty when `sweepctl pull --to` brought it there."""
    try:
        store = EvidenceStore.open(new)
        published = store.record(PUBLISHED, Published)
    except EvidenceError as error:
        return str(error)
    if store.marker.identity != identity or (published and published.identity != identity):
        return f"the evidence at {new} belongs to another sweep ({store.marker.identity})"
    if published is None or published.source != old:
        return f"{new} was not published from {old}; `sweepctl pull --to {new}` on that host brings everything there"
    return ""


def arrival_problem(new: str, project: str, stack: str) -> str:
    """Why no sweep's evidence was ever published to `new` for this stack; empty when it was."""
    try:
        store = EvidenceStore.open(new)
        published = store.record(PUBLISHED, Published)
    except EvidenceError as error:
        return str(error)
    if (store.marker.project, store.marker.stack) != (project, stack):
        return f"{new} holds the evidence of {store.marker.project}/{store.marker.stack}"
    return "" if published else f"{new} holds evidence that was not published there"


def _claim(old: FolderStore, new: S3Store, marker: Marker) -> Published | None:
    """Makes the place ours for as long as it takes; what was published there before, by this folder, if all was."""
    there = location.marker_on(new)
    if there is not None:
        held = new.read(f"{location.RECORDS}/{PUBLISHED}")
        published = parse_record(Published, held.data, new.shown(PUBLISHED)) if held else None
        if there != marker or published is None or published.source != old.uri:
            raise EvidenceError(
                f"{new.uri} holds evidence already ({there.project}/{there.stack}, {there.identity}); name another "
                f"prefix"
            )
        return published
    ours = _bytes(Publishing(source=old.uri, identity=marker.identity))
    held = new.read(UNDER_WAY)
    if held is None:
        if new.items(""):
            raise EvidenceError(f"{new.uri} is not empty, and no publishing left it so; name another prefix")
        new.write(UNDER_WAY, ours, over=ABSENT)
    elif held.data != ours:
        raise EvidenceError(f"something else is being published to {new.uri}; name another prefix")
    new.proves_conditions(UNDER_WAY)
    return None


def _close(old: FolderStore, new: S3Store, marker: Marker) -> None:
    if location.moved_on(old) is None:
        old.write(MOVED, _bytes(MovedEvidence(to=new.uri, identity=marker.identity, at=datetime.now(UTC))))


class _Work:
    """One folder on its way, as often as asked. Gives key → what the server has, and the SHA-256 of the file."""

    def __init__(self, store: EvidenceStore, new: S3Store, progress: Progress | None) -> None:
        self.store = store
        self.new = new
        self.progress = progress
        self.notes: list[str] = []

    def copy(self) -> dict[str, tuple[Head, str]]:
        self.notes.clear()
        wanted = dict(self._wanted())
        sizes = {key: path.stat().st_size for key, path in wanted.items()}
        total, done = sum(sizes.values()), 0
        there = {item.key for item in self.new.items("")}
        seen = {}

        def one(key: str) -> tuple[Head, str]:
            return self._one(key, wanted[key], key in there)

        with ThreadPoolExecutor(PARALLEL) as pool:
            for key, found in zip(wanted, pool.map(one, wanted), strict=True):
                seen[key] = found
                done += sizes[key]
                if self.progress:
                    self.progress(key, done, total)
        return seen

    def _one(self, key: str, path: Path, there: bool) -> tuple[Head, str]:
        sha256 = file_sha256(path)
        found = head(self.new, key) if there else None
        if found is not None and found.size == path.stat().st_size and fits(self.new, path, found, sha256):
            self.new.traffic.add(unchanged=found.size)
            return found, sha256
        if found is not None:
            self.new.remove(key)
        return upload(self.new, key, path, sha256), sha256

    def _wanted(self) -> Iterator[tuple[str, Path]]:
        root = self.store.workplace
        copies = FolderCopies(root / location.CELLS)
        for cell in copies.cells():
            yield from self._cell(copies, cell)
        for path in self._files(root):
            key = path.relative_to(root).as_posix()
            kept = key.startswith(f"{SUPERSEDED}/")
            hidden = any(part.startswith(".") for part in Path(key).parts) and not kept
            index = key.startswith(f"{location.RECORDS}/files-")  # of this folder's times: it means nothing there
            if not hidden and not index and key not in _OWN and not key.startswith(f"{location.CELLS}/"):
                yield key.lstrip(".") if kept else key, path

    def _cell(self, copies: FolderCopies, cell: str) -> Iterator[tuple[str, Path]]:
        """All that lies there under the seal that its manifest names: what was damaged is damaged there, too."""
        folder = copies.folder(cell)
        if folder.is_file() and not folder.is_symlink():
            yield f"{location.CELLS}/{cell}", folder
            return
        looked = copies.look(cell)
        self.notes += [f"{cell}: {problem}; it is not copied" for problem in looked.problems]
        data = copies.manifest(cell)
        seal = "unsealed" if data is None else seal_of(manifest_digest(data))
        for path in looked.files:
            name = MANIFEST if path == MANIFEST else f"{seal}/{path}"
            yield f"{location.CELLS}/{cell}/{name}", folder / path

    def _files(self, root: Path) -> Iterator[Path]:
        for parent, _, names in os.walk(root):
            for name in sorted(names):
                path = Path(parent) / name
                if path.is_file() and not path.is_symlink():
                    yield path


def _tidy(new: S3Store, seen: dict[str, tuple[Head, str]]) -> None:
    """Takes away what an earlier round brought and the folder has no more: a record that was closed meanwhile."""
    for item in new.items(""):
        if item.key not in seen and item.key != UNDER_WAY:
            new.remove(item.key)


def _write_known(old: EvidenceStore, new: EvidenceStore, seen: dict[str, tuple[Head, str]]) -> None:
    """What spares downloads there: the objects beside the digests of the local bytes that they were made of."""
    held = old.objects.read(f"{location.RECORDS}/latest-receipt")
    if held is None:
        return
    known: dict[str, Known] = {}
    for key, (found, sha256) in seen.items():
        parts = key.split("/")
        if parts[0] == location.CELLS and parts[2:] == [MANIFEST]:
            data = FolderCopies(old.workplace / location.CELLS).manifest(parts[1])
            digest = hex_of(manifest_digest(data)) if data is not None else ""
            known[f"{parts[1]}/{MANIFEST}"] = (found.size, found.stamp, digest)
        elif parts[0] == location.CELLS and len(parts) > 3:
            known[f"{parts[1]}/{'/'.join(parts[3:])}"] = (found.size, found.stamp, sha256)
    file_index.write_index(new.objects, held.data.decode("ascii", "replace").strip(), known)


def _bytes(record: Record) -> bytes:
    return canonical_json(record.model_dump(mode="json", by_alias=True)) + b"\n"
