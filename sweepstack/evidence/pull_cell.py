"""Brings one sealed cell here: keeps right files, copies the others, names only the whole."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sweepstack.core.records import FileEntry, Manifest
from sweepstack.evidence.cell_store import SUPERSEDED, read_folder, read_manifest_bytes
from sweepstack.evidence.check_files import FileCheck
from sweepstack.evidence.manifest import MANIFEST, ManifestRefused, RefusedForNow, manifest_digest, parse_manifest
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.aside import set_aside
from sweepstack.onbox.common.box_layout import SEALED
from sweepstack.onbox.common.canonical import file_sha256, fsync_directory, write_atomically
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged
from sweepstack.onbox.common.holes import copy_file
from sweepstack.onbox.common.units import spell_bytes

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel

PARTIAL = ".partial"
SMALL_BYTES = 1 << 20
"""Files up to this are brought together, and from their beginning after a cut."""
MOST_WALKED = 100_000
WALK_SECONDS = 20.0
"""Of one question about all files of a cell. What it leaves out is asked for folder by folder."""
SPARE_BYTES = 64 << 20
"""Left free on the disk, for records."""

Progress = Callable[[str, int, int], None]
"""Gets a cell's name, its bytes here so far, and its bytes in all."""


@dataclass(frozen=True)
class PullResult:
    """What pulling one cell did.

    `pulled`: copied, wholly or in part. `current`: it was here and right. `absent`: no sealed copy there. `refused`:
    nothing was put in place, for `reasons`; `for_now`: the next pull may get it. `notes` are worth a person's look.
    `bytes` were copied from the box.
    """

    cell: str
    state: Literal["pulled", "current", "absent", "refused"]
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    for_now: bool = False


class Settled:
    """Which copies the latest receipt calls verified and are untouched by size and mtime: not hashed again."""

    def __init__(self, store: EvidenceStore) -> None:
        self._check: FileCheck | None = None
        try:
            latest = store.latest_receipt()
            if latest:
                self._check = FileCheck(store, store.receipt(latest), full=False)
        except EvidenceError:
            pass  # a convenience only: everything is hashed

    def holds(self, cell: str, manifest: str) -> bool:
        """Is the copy of `cell` verified as this seal, and as it was then?"""
        if self._check is None or cell not in self._check.cells:
            return False
        return self._check.cells[cell].manifest == manifest and not self._check.cell(cell)


@dataclass
class BoxFiles:
    """The files of one sealed cell on their way from a box. `data`: the bytes of its manifest, which was checked."""

    channel: Channel
    folder: str
    data: bytes
    manifest: Manifest
    store: EvidenceStore
    progress: Progress | None
    settled: Settled
    copied_bytes: int = 0
    copied_files: int = 0
    notes: list[str] = field(default_factory=list)
    seen_folders: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)
    seen_files: dict[str, int] | None = None
    """Plain files of the cell on the box in folders that are none but folders, with their bytes; None before the look.
    What is in here is there; of what is not, nothing is said."""
    whole: dict[str, str] = field(default_factory=dict)
    """SHA-256 → the first file with these bytes that was asked for: they are not brought twice."""
    total: int = field(init=False)
    """Bytes of all files."""
    partial: Path = field(init=False)
    """Where the copy is made."""

    def __post_init__(self) -> None:
        self.total = sum(file.size for file in self.manifest.files)
        self.partial = self.store.workplace / PARTIAL / self.manifest.cell

    def later_here(self) -> str:
        """Why the copy of another seal that is here stays; "" where it goes, or where there is none.

        A box whose volume is read once more may have sealed the cell before another box did. The copy stays where
        no later retry of a person led to the other seal; if it is the last that its box sealed, and is whole.
        """
        try:
            data = self.store.copies.manifest(self.manifest.cell)
            if data is None or manifest_digest(data) == manifest_digest(self.data):
                return ""
            here = parse_manifest(data, self.manifest.identity, self.manifest.cell)
            if here.config_digest != self.manifest.config_digest:
                return ""
            same_box = here.box == self.manifest.box
            if here.generation <= self.manifest.generation if same_box else here.retry < self.manifest.retry:
                return ""
            journal = self.store.journal(here.box, here.generation)
            seals = [
                entry["manifest"]
                for entry in (journal.entries if journal is not None else ())
                if entry["event"] in SEALED and entry["cell"] == here.cell
            ]
            if seals[-1:] != [manifest_digest(data)] or not self._is_whole(here):
                return ""
        except (ManifestRefused, JournalDamaged, EvidenceError, OSError):
            return ""
        return f"{self.manifest.box} sealed it before {here.box} did, whose copy is here and stays"

    def _is_whole(self, here: Manifest) -> bool:
        copies = self.store.copies
        return all(copies.unchanged(here.cell, file, (file.size, 0), None, full=True) for file in here.files)

    def _tidy_partial(self) -> None:
        """Removes from an unfinished copy whatever is not the beginning of one of the files."""
        wanted = {file.path for file in self.manifest.files}
        folder = read_folder(self.partial)
        if folder.problems:
            _remove(self.partial)
            return
        for path in folder.files.keys() - wanted:
            (self.partial / path).unlink()

    def _fetch(self, file: FileEntry, done: int) -> None:
        self._check_there(file)
        target = inside(self.partial, file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        twin = self.whole.setdefault(file.sha256, file.path)
        if twin != file.path and self._take(inside(self.partial, twin), file):
            self.copied_files += 1
            return
        for _ in (1, 2):
            resumed = target.stat().st_size if target.is_file() else 0
            here = 0

            def say(count: int) -> None:
                nonlocal here
                here += count
                self._say(done + here)

            self.channel.fetch(f"{self.folder}/{file.path}", target, say)
            self.copied_bytes += file.size - min(resumed, file.size)
            if is_right(self.partial, file):
                self.copied_files += 1
                return
            _remove(target)  # the part it went on with was of something else: once more, from the start
        raise ManifestRefused(f"{file.path} on the box is not what its manifest says: size or sha256 differs")

    def _take(self, source: Path, file: FileEntry) -> bool:
        """Copies a file that is here already. False where that is not what the manifest says of `file`."""
        target = inside(self.partial, file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            copy_file(source, target)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if is_right(self.partial, file):
            return True
        _remove(target)
        return False

    def _fetch_small(self, files: Sequence[FileEntry], done: int) -> int:
        """Brings those that are small, all together; returns `done` and their bytes. What came wrong is fetched again
        by `_fetch`, alone."""
        small = [file for file in files if file.size <= SMALL_BYTES]
        for file in small:
            self._check_there(file)
        here = done

        def say(count: int) -> None:
            nonlocal here
            here += count
            self._say(here)

        wanted = [(f"{self.folder}/{file.path}", inside(self.partial, file.path)) for file in small]
        self.channel.fetch_many(wanted, say)  # it makes the folders
        for file in small:
            if is_right(self.partial, file):
                self.copied_files += 1
                self.copied_bytes += file.size
            else:
                _remove(inside(self.partial, file.path))
                self._fetch(file, done)
        return done + sum(file.size for file in small)

    def _check_there(self, file: FileEntry) -> None:
        """The file on the box must be a file of that size, in folders that are folders: links are not followed."""
        if self.seen_files is None:
            walked = self.channel.walk([self.folder], limit=MOST_WALKED, seconds=WALK_SECONDS).files
            self.seen_files = {path.removeprefix(f"{self.folder}/"): size for path, size, _ in walked}
        if self.seen_files.get(file.path) == file.size:
            return
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
        here = {path: facts[0] for path, facts in read_folder(self.partial).files.items()}
        needed = (self._room(file.path, file.size) - self._room(file.path, here.get(file.path, 0)) for file in files)
        require_room(self.store, sum(max(0, one) for one in needed), self.manifest.cell)

    def _room(self, path: str, size: int) -> int:
        """The bytes that so much of a file takes: its holes stay holes here."""
        return min(size, max(0, self.manifest.sparse.get(path, size)))

    def _say(self, done: int) -> None:
        if self.progress:
            self.progress(self.manifest.cell, done, self.total)


class CellCopy(BoxFiles):
    """One sealed cell on its way from a box into a folder."""

    def run(self) -> PullResult:
        """Copies what is not here and right. Raises ManifestRefused, Unreachable, EvidenceError, OSError."""
        final = self.store.cell_dir(self.manifest.cell)
        if self._same_manifest(final):
            self._repair(final)
        elif stays := self.later_here():
            return PullResult(self.manifest.cell, "current", (), (stays,))
        else:
            self._replace(final)
        state: Literal["pulled", "current"] = "pulled" if self.copied_files else "current"
        return PullResult(self.manifest.cell, state, (), tuple(self.notes), self.copied_files, self.copied_bytes)

    def _same_manifest(self, final: Path) -> bool:
        return MANIFEST in read_folder(final).files and read_manifest_bytes(final) == self.data

    def _repair(self, final: Path) -> None:
        """The folder is of this seal: files that are missing or wrong are copied anew, one by one."""
        if self.settled.holds(self.manifest.cell, manifest_digest(self.data)):
            self._say(self.total)
            return
        self._tidy_partial()
        wrong = [file for file in self.manifest.files if not is_right(final, file)]
        self._check_space(wrong)
        done = self.total - sum(file.size for file in wrong)
        for file in wrong:
            self._fetch(file, done)
            done += file.size
            target = inside(final, file.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._set_aside(target, file.path)
            os.replace(inside(self.partial, file.path), target)
            fsync_directory(target.parent)
        names = {file.path for file in self.manifest.files} | {MANIFEST}
        folder = read_folder(final)
        self.notes += [f"{problem}, in {final}: move it away" for problem in folder.problems]
        extra = folder.files.keys() - names
        if extra:
            self.notes.append(f"{len(extra)} files in {final} are not the box's and fail the cell: move them away")
        shutil.rmtree(self.partial, ignore_errors=True)

    def _replace(self, final: Path) -> None:
        """Builds the whole folder beside, then swaps it in. What is right in an older copy is copied from there."""
        self._tidy_partial()
        missing: Sequence[FileEntry] = self.manifest.files
        if self.partial.is_dir():
            missing = [file for file in missing if not is_right(self.partial, file)]
        if final.is_dir() and not final.is_symlink():
            missing = [file for file in missing if not self._take_from(final, file)]
        self._check_space(missing)
        done = self.total - sum(file.size for file in missing)
        done = self._fetch_small(missing, done)
        for file in missing:
            if file.size > SMALL_BYTES:
                self._fetch(file, done)
                done += file.size
        self.copied_files += 0 if missing else 1  # a folder that only had to be swapped in still changed what is here
        self.partial.mkdir(parents=True, exist_ok=True)
        write_atomically(self.partial / MANIFEST, self.data)
        for parent, _, _ in os.walk(self.partial):
            fsync_directory(Path(parent))
        final.parent.mkdir(parents=True, exist_ok=True)
        self._set_aside(final)
        os.rename(self.partial, final)
        fsync_directory(final.parent)

    def _take_from(self, final: Path, file: FileEntry) -> bool:
        return is_right(final, file) and self._take(inside(final, file.path), file)

    def _set_aside(self, path: Path, inside_cell: str = "") -> None:
        """`inside_cell`: of one file of the copy, which is not what was sealed."""
        cell = self.manifest.cell
        stem = Path(self.store.root, SUPERSEDED, f"{cell}-files" if inside_cell else cell, inside_cell)
        kept = set_aside(path, stem)
        if kept is not None:
            fsync_directory(kept.parent)
            wrong = f"{inside_cell} here was not what the box sealed, and"
            self.notes.append(f"{wrong if inside_cell else 'the copy of an earlier seal'} is kept in {kept}")


def require_room(store: EvidenceStore, needed: int, what: str) -> None:
    """Raises EvidenceError where the disk of the store's workplace has no room for `needed` bytes and the reserve."""
    free = shutil.disk_usage(store.workplace).free
    if needed and needed + SPARE_BYTES > free:
        raise EvidenceError(
            f"{what} needs {spell_bytes(needed)}, and {spell_bytes(SPARE_BYTES)} more have to stay free for records: "
            f"{store.workplace} has {spell_bytes(free)} free. Make room there and pull again; nothing was changed"
        )


def inside(root: Path, path: str) -> Path:
    """`path`, which was checked, below `root`; Raises ManifestRefused when a folder on the way here is none."""
    return Path(_inside(os.fspath(root), path))


def _inside(root: str, path: str) -> str:
    target = root
    for part in path.split("/")[:-1]:
        target = f"{target}/{part}"
        try:
            real = stat.S_ISDIR(os.lstat(target).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            break  # nor is there anything below
        if not real:
            raise RefusedForNow(f"{target} here is not a folder: move it away and pull again")
    return f"{root}/{path}"


def is_right(root: Path, file: FileEntry) -> bool:
    """Is it a file of its own, of that size and digest?"""
    path = _inside(os.fspath(root), file.path)
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
