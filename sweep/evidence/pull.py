"""Copies sealed cells from boxes into the evidence: real copies, resumable, checked, and in place by rename.

A copy is made below `<evidence>/.partial/<cell>/`; what a cut left there is gone on with. Every file is compared with
the box's manifest by size and SHA-256 before the folder gets its final name, so a cut never leaves a wrong file there.
A copy that another seal replaces is moved to `<evidence>/.superseded/`, not deleted.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sweep import onbox
from sweep.canonical import file_sha256, fsync_directory, write_atomically
from sweep.errors import EvidenceError, JournalDamaged, PlatformError
from sweep.evidence.files import read_folder, read_manifest_bytes
from sweep.evidence.manifest import MANIFEST, MAX_MANIFEST, ManifestRefused, manifest_digest, parse_manifest
from sweep.evidence.store import EvidenceStore
from sweep.journal import Journal
from sweep.model import FileEntry, Manifest

if TYPE_CHECKING:
    from sweep.channel.base import Channel

PARTIAL = ".partial"
SUPERSEDED = ".superseded"
SPARE_BYTES = 64 << 20
"""Left free on the disk, for records."""

SAFE_CELL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")

Progress = Callable[[str, int, int], None]
"""Gets a cell's name, its bytes here so far, and its bytes in all."""


@dataclass(frozen=True)
class PullResult:
    """What pulling one cell did.

    `pulled`: copied, wholly or in part. `current`: it was here and right. `absent`: no sealed copy there. `refused`:
    nothing was put in place, for `reasons`. `notes` are worth a person's look. `bytes` were copied from the box.
    """

    cell: str
    state: Literal["pulled", "current", "absent", "refused"]
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class BoxSource:
    """A box to pull from. `base`: the durable tier's folder for `channel`; empty where that is the volume's own root.

    `cells`: those wanted; None for all that its journal calls sealed. `volume_only`: the box is gone, and `channel` is
    that of a volume that outlived it; what was sealed is then known by the last pulled copy of the journal.
    """

    box: str
    generation: int
    channel: Channel
    base: str = onbox.DURABLE
    cells: Collection[str] | None = None
    volume_only: bool = False


@dataclass(frozen=True)
class BoxPull:
    """What pulling from one box did. `problem`: why it, or its journal, could not be read: cells may be missing."""

    box: str
    generation: int
    journal: Journal | None
    results: tuple[PullResult, ...] = ()
    problem: str = ""


def pull_all(
    boxes: Sequence[BoxSource], identity: str, store: EvidenceStore, progress: Progress | None = None
) -> list[BoxPull]:
    """Pulls journals and sealed cells of all boxes. Idempotent; blocks until done; a box that fails stops no other.

    Raises EvidenceError when another pull into the same evidence is running.
    """
    with _only_one(store):
        return [_pull_box(source, identity, store, progress) for source in boxes]


def pull_cell(
    channel: Channel,
    identity: str,
    cell: str,
    store: EvidenceStore,
    progress: Progress | None = None,
    *,
    base: str = onbox.DURABLE,
    sealed_as: str | None = None,
) -> PullResult:
    """Brings the sealed copy of `cell` here. Copies only what is not here and right; idempotent; never links.

    `sealed_as`: the manifest's digest by the box's journal; another manifest is refused. Raises Unreachable when the
    box is cut off on the way (call again: it goes on), EvidenceError when the evidence can't be written.
    """
    if not SAFE_CELL.fullmatch(cell):  # names in a journal are a box's word
        return PullResult(cell, "refused", ("it is no cell name",))
    folder = "/".join(part for part in (base, onbox.sealed_dir(identity, cell)) if part)
    try:
        data = channel.read(f"{folder}/{MANIFEST}", limit=MAX_MANIFEST + 1)
    except FileNotFoundError:
        return PullResult(cell, "absent", ("there is no sealed copy of it there",))
    try:
        manifest = parse_manifest(data, identity, cell)
        if sealed_as is not None and manifest_digest(data) != sealed_as:
            raise ManifestRefused("its manifest is not the one that the box's journal records; pull again")
        return _Puller(channel, folder, data, manifest, store, progress).run()
    except ManifestRefused as error:
        return PullResult(cell, "refused", (str(error),))
    except PlatformError:
        raise
    except OSError as error:
        raise EvidenceError(f"{cell} can't be written to {store.root}: {error.strerror}") from error


def _pull_box(source: BoxSource, identity: str, store: EvidenceStore, progress: Progress | None) -> BoxPull:
    journal: Journal | None = None
    results: list[PullResult] = []
    problem = ""
    try:
        journal = _journal_of(source, store)
        sealed = {name: cell.manifest for name, cell in journal.cells.items() if cell.state == "sealed"}
        wanted = sorted(sealed) if source.cells is None else [name for name in source.cells if name in sealed]
        for name in wanted:
            results.append(
                pull_cell(source.channel, identity, name, store, progress, base=source.base, sealed_as=sealed[name])
            )
    except (PlatformError, JournalDamaged, EvidenceError) as error:
        problem = str(error)
    return BoxPull(source.box, source.generation, journal, tuple(results), problem)


def _journal_of(source: BoxSource, store: EvidenceStore) -> Journal:
    if source.volume_only:
        return store.journal(source.box, source.generation) or Journal()
    try:
        data = source.channel.read(onbox.JOURNAL)
    except FileNotFoundError:
        data = b""
    return store.write_journal(source.box, source.generation, data)


@dataclass
class _Puller:
    channel: Channel
    folder: str
    data: bytes
    manifest: Manifest
    store: EvidenceStore
    progress: Progress | None
    copied_bytes: int = 0
    copied_files: int = 0
    notes: list[str] = field(default_factory=list)
    seen_folders: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)

    def run(self) -> PullResult:
        final = self.store.cell_dir(self.manifest.cell)
        if self._same_manifest(final):
            self._repair(final)
        else:
            self._replace(final)
        state: Literal["pulled", "current"] = "pulled" if self.copied_files else "current"
        return PullResult(self.manifest.cell, state, (), tuple(self.notes), self.copied_files, self.copied_bytes)

    @property
    def partial(self) -> Path:
        return self.store.root / PARTIAL / self.manifest.cell

    def _same_manifest(self, final: Path) -> bool:
        return MANIFEST in read_folder(final).files and read_manifest_bytes(final) == self.data

    def _repair(self, final: Path) -> None:
        """The folder is of this seal: files that are missing or wrong are copied anew, one by one."""
        if self._settled():
            self._say(sum(file.size for file in self.manifest.files))
            return
        self._tidy_partial()
        wrong = [file for file in self.manifest.files if not _is_right(final, file)]
        self._check_space(wrong)
        done = sum(file.size for file in self.manifest.files) - sum(file.size for file in wrong)
        for file in wrong:
            self._fetch(file, done)
            done += file.size
            target = _inside(final, file.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(_inside(self.partial, file.path), target)
            fsync_directory(target.parent)
        names = {file.path for file in self.manifest.files} | {MANIFEST}
        extra = sorted(read_folder(final).files.keys() - names)
        if extra:
            self.notes.append(f"{len(extra)} files in {final} are not the box's and fail the cell: move them away")
        shutil.rmtree(self.partial, ignore_errors=True)

    def _settled(self) -> bool:
        """Was exactly this copy verified, and is it untouched by size and mtime? Then it is not hashed again."""
        try:
            latest = self.store.latest_receipt()
            receipt = self.store.receipt(latest) if latest else None
        except EvidenceError:
            return False
        cell = next((c for c in receipt.cells if c.name == self.manifest.cell), None) if receipt else None
        if receipt is None or cell is None or cell.manifest != manifest_digest(self.data):
            return False
        return not self.store.check_files(receipt, [cell.name], full=False)

    def _replace(self, final: Path) -> None:
        """Builds the whole folder beside, then swaps it in. What is right in an older copy is copied from there."""
        self._tidy_partial()
        missing = [file for file in self.manifest.files if not _is_right(self.partial, file)]
        missing = [file for file in missing if not self._take_from(final, file)]
        self._check_space(missing)
        done = sum(file.size for file in self.manifest.files) - sum(file.size for file in missing)
        for file in missing:
            self._fetch(file, done)
            done += file.size
        self.copied_files += 0 if missing else 1  # a folder that only had to be swapped in still changed what is here
        self.partial.mkdir(parents=True, exist_ok=True)
        write_atomically(self.partial / MANIFEST, self.data)
        for parent, _, _ in os.walk(self.partial):
            fsync_directory(Path(parent))
        final.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(final):
            self._set_aside(final)
        os.rename(self.partial, final)
        fsync_directory(final.parent)

    def _tidy_partial(self) -> None:
        """Removes from an unfinished copy whatever is not the beginning of one of the files."""
        wanted = {file.path for file in self.manifest.files}
        folder = read_folder(self.partial)
        if folder.problems:
            _remove(self.partial)
            return
        for path in folder.files.keys() - wanted:
            (self.partial / path).unlink()

    def _take_from(self, final: Path, file: FileEntry) -> bool:
        if final.is_symlink() or not _is_right(final, file):
            return False
        target = _inside(self.partial, file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_inside(final, file.path), target, follow_symlinks=False)
        return _is_right(self.partial, file)

    def _fetch(self, file: FileEntry, done: int) -> None:
        self._check_there(file)
        target = _inside(self.partial, file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        for _ in (1, 2):
            resumed = target.stat().st_size if target.is_file() else 0
            here = 0

            def say(count: int) -> None:
                nonlocal here
                here += count
                self._say(done + here)

            self.channel.fetch(f"{self.folder}/{file.path}", target, say)
            self.copied_bytes += file.size - min(resumed, file.size)
            if _is_right(self.partial, file):
                self.copied_files += 1
                return
            _remove(target)  # the part it went on with was of something else: once more, from the start
        raise ManifestRefused(f"{file.path} on the box is not what its manifest says: size or sha256 differs")

    def _check_there(self, file: FileEntry) -> None:
        """The file on the box must be a file of that size, in folders that are folders: links are not followed."""
        parts = file.path.split("/")
        for depth in range(len(parts)):
            kind, size = self._listing("/".join(parts[:depth])).get(parts[depth], ("nothing", 0))
            last = depth == len(parts) - 1
            if kind != ("file" if last else "dir"):
                raise ManifestRefused(f"{file.path} on the box is {_what(kind)}, and its manifest names a file")
            if last and size != file.size:
                raise ManifestRefused(f"{file.path} on the box has {size:,} bytes, its manifest says {file.size:,}")

    def _listing(self, folder: str) -> dict[str, tuple[str, int]]:
        if folder not in self.seen_folders:
            try:
                entries = self.channel.listdir(f"{self.folder}/{folder}" if folder else self.folder)
            except (FileNotFoundError, NotADirectoryError):
                entries = []
            self.seen_folders[folder] = {entry.name: (entry.kind, entry.size) for entry in entries}
        return self.seen_folders[folder]

    def _check_space(self, files: Sequence[FileEntry]) -> None:
        needed = sum(file.size for file in files)
        here = sum(facts[0] for facts in read_folder(self.partial).files.values())
        free = shutil.disk_usage(self.store.root).free
        if needed and needed - min(here, needed) + SPARE_BYTES > free:
            raise EvidenceError(
                f"{self.manifest.cell} needs {needed / 1e9:.1f} GB and {self.store.root} has {free / 1e9:.1f} GB free: "
                f"make room there and pull again; nothing was changed"
            )

    def _set_aside(self, final: Path) -> None:
        kept = self.store.root / SUPERSEDED
        kept.mkdir(exist_ok=True)
        number = 1
        while os.path.lexists(kept / f"{final.name}-{number}"):
            number += 1
        os.rename(final, kept / f"{final.name}-{number}")
        fsync_directory(kept)
        self.notes.append(f"the copy of an earlier seal is kept in {kept / f'{final.name}-{number}'}")

    def _say(self, done: int) -> None:
        if self.progress:
            self.progress(self.manifest.cell, done, sum(file.size for file in self.manifest.files))


def _inside(root: Path, path: str) -> Path:
    """`path`, which was checked, below `root`; Raises ManifestRefused when a folder on the way here is none."""
    target = root
    for part in path.split("/")[:-1]:
        target = target / part
        if os.path.lexists(target) and (target.is_symlink() or not target.is_dir()):
            raise ManifestRefused(f"{target} here is not a folder: move it away and pull again")
    return root / path


def _is_right(root: Path, file: FileEntry) -> bool:
    """Is it a file of its own, of that size and digest?"""
    path = _inside(root, file.path)
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_size != file.size:
        return False
    return file_sha256(path) == file.sha256


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def _what(kind: str) -> str:
    return {"nothing": "not there", "link": "a link", "dir": "a folder", "file": "a file"}.get(kind, "no plain file")


@contextmanager
def _only_one(store: EvidenceStore) -> Iterator[None]:
    descriptor = os.open(store.root / ".pull.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EvidenceError(f"another pull into {store.root} is running; wait for it") from None
        yield
    finally:
        os.close(descriptor)
