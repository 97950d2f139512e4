"""Copies sealed cells from boxes into the evidence: resumable, checked, put in place whole.

A copy is made below `<evidence>/.partial/<cell>/`; what a cut left there is gone on with. Every file is compared with
the box's manifest by size and SHA-256 before the folder gets its final name, so a cut never leaves a wrong file there.
A copy that another seal replaces is moved to `<evidence>/.superseded/`, not deleted.

Into object storage a cell goes by way of this machine's cache. A file comes from the box only when neither the bucket
nor the cache has it right; the manifest goes up last, so that a cell counts only when all of it is there.

Of an unsealed attempt files are copied within bounds, and the rest is named.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from sweepstack.core.journal import Journal
from sweepstack.core.records import FileEntry
from sweepstack.evidence import box_logs
from sweepstack.evidence.box_logs import hidden_on, masked
from sweepstack.evidence.changing_copies import log_goes_on, put
from sweepstack.evidence.manifest import (
    MANIFEST,
    MAX_MANIFEST,
    ManifestRefused,
    RefusedForNow,
    manifest_digest,
    parse_manifest,
)
from sweepstack.evidence.pull_cell import (
    PARTIAL,
    BoxFiles,
    CellCopy,
    Progress,
    PullResult,
    Settled,
    inside,
    is_right,
    require_room,
)
from sweepstack.evidence.s3.cell_store import S3Copies, is_local, seal_of
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.unsealed import (
    LOG,
    NAMED,
    KeptFile,
    LeftFile,
    Unsealed,
    UnsealedOfBox,
    ended_unsealed,
    key_of,
    name_of,
    of_box,
    record_of,
    recorded,
)
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import fsync_directory, sha256_hex
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import (
    EvidenceDamaged,
    EvidenceError,
    JournalDamaged,
    PlatformError,
    Unreachable,
)
from sweepstack.onbox.common.locks import take

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel

__all__ = ["BoxPull", "BoxSource", "PullResult", "pull_all", "pull_cell"]

SAFE_CELL = re.compile(box_layout.CELL_NAME)


@dataclass(frozen=True)
class BoxSource:
    """A box to pull from. `base`: the durable tier's folder for `channel`; empty where that is the volume's own root.

    `cells`: those wanted; None for all that its journal calls sealed. `volume_only`: the box is gone, and `channel` is
    that of a volume that outlived it; what was sealed is then known by the last kept copy of the journal.
    """

    box: str
    generation: int
    channel: Channel
    base: str = box_layout.DURABLE
    cells: Collection[str] | None = None
    volume_only: bool = False


@dataclass(frozen=True)
class BoxPull:
    """What pulling from one box did. `problem`: why it, or its journal, could not be read: cells may be missing.

    `unsealed`: what was copied now of attempts that ended without a seal; never a verified artifact. `warnings`: which
    of the box's own logs could not be copied, and why.
    """

    box: str
    generation: int
    journal: Journal | None
    results: tuple[PullResult, ...] = ()
    problem: str = ""
    unsealed: tuple[Unsealed, ...] = ()
    warnings: tuple[str, ...] = ()


def pull_all(
    boxes: Sequence[BoxSource], identity: str, store: EvidenceStore, progress: Progress | None = None
) -> list[BoxPull]:
    """Pulls journals, boxes' own logs, sealed cells, and what other ended attempts left. Idempotent; blocks until
    done; a box that fails stops no other.

    Raises EvidenceError when another pull into the same evidence is running, or it can't be written.
    """
    with only_one(store):
        settled = Settled(store)
        return [_pull_box(source, identity, store, progress, settled) for source in boxes]


def pull_cell(
    channel: Channel,
    identity: str,
    cell: str,
    store: EvidenceStore,
    progress: Progress | None = None,
    *,
    base: str = box_layout.DURABLE,
    sealed_as: str | None = None,
    settled: Settled | None = None,
) -> PullResult:
    """Brings the sealed copy of `cell` here. Copies only what is not here and right; idempotent; never links.

    `sealed_as`: the manifest's digest by the box's journal; another manifest is refused. `settled`: read once for many
    cells. Raises Unreachable when the box is cut off on the way (call again: it goes on), EvidenceError when the
    evidence can't be written.
    """
    if not SAFE_CELL.fullmatch(cell):  # names in a journal come from a box
        return PullResult(cell, "refused", ("it is no cell name",))
    folder = "/".join(part for part in (base, box_layout.sealed_dir(identity, cell)) if part)
    try:
        data = channel.read(f"{folder}/{MANIFEST}", limit=MAX_MANIFEST + 1)
    except FileNotFoundError:
        return PullResult(cell, "absent", ("there is no sealed copy of it there",))
    try:
        manifest = parse_manifest(data, identity, cell)
        if sealed_as is not None and manifest_digest(data) != sealed_as:
            raise RefusedForNow("its manifest is not the one that the box's journal records; pull again")
        kind = ObjectCopy if isinstance(store.copies, S3Copies) else CellCopy
        return kind(channel, folder, data, manifest, store, progress, settled or Settled(store)).run()
    except ManifestRefused as error:
        return PullResult(cell, "refused", (str(error),), for_now=isinstance(error, RefusedForNow))
    except PlatformError:
        raise
    except OSError as error:
        raise EvidenceError(f"{cell} can't be written to {store.shown}: {error.strerror}") from error


def _pull_box(
    source: BoxSource, identity: str, store: EvidenceStore, progress: Progress | None, settled: Settled
) -> BoxPull:
    journal: Journal | None = None
    results: list[PullResult] = []
    unsealed: list[Unsealed] = []
    warnings: list[str] = []
    problem = ""
    whole = not source.volume_only and source.cells is None
    try:
        journal = _journal_and_logs(source, store, warnings) if whole else _journal_of(source, store)
        sealed = {name: cell.manifest for name, cell in journal.cells.items() if cell.state == "sealed"}
        wanted = sorted(sealed) if source.cells is None else [name for name in source.cells if name in sealed]
        for name in wanted:
            results.append(
                pull_cell(
                    source.channel,
                    identity,
                    name,
                    store,
                    progress,
                    base=source.base,
                    sealed_as=sealed[name],
                    settled=settled,
                )
            )
        if whole:
            unsealed = bring(source.channel, source.box, source.generation, journal, store)
    except (PlatformError, JournalDamaged, EvidenceError) as error:
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename or store.shown}: {error.strerror}"
    return BoxPull(source.box, source.generation, journal, tuple(results), problem, tuple(unsealed), tuple(warnings))


def _journal_and_logs(source: BoxSource, store: EvidenceStore, warnings: list[str]) -> Journal:
    """The journal; and the box's own logs, also where the journal does not read: they may say why."""
    before = box_logs.copied_logs(store, source.box, source.generation)
    box_logs.prefetch_logs(source.channel, before)
    try:
        journal = _journal_of(source, store)
    except (JournalDamaged, EvidenceDamaged):
        warnings += box_logs.copy(source.channel, before, store, "").problems
        raise
    warnings += box_logs.copy(source.channel, before, store, journal.head).problems
    return journal


def _journal_of(source: BoxSource, store: EvidenceStore) -> Journal:
    if source.volume_only:
        return store.journal(source.box, source.generation) or Journal()
    try:
        data = source.channel.read(box_layout.JOURNAL)
    except FileNotFoundError:
        data = b""
    return store.write_journal(source.box, source.generation, data)


@contextmanager
def only_one(store: EvidenceStore) -> Iterator[None]:
    """Holds the evidence's workplace on this machine. Raises EvidenceError while another pull holds it, and where
    that can't be written."""
    try:
        store.workplace.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(store.workplace / ".pull.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise EvidenceError(f"{store.workplace} can't be written: {error.strerror}; nothing was pulled") from error
    try:
        if not take(descriptor):
            raise EvidenceError(f"another pull into {store.shown} is running; wait for it")
        yield
    finally:
        os.close(descriptor)


class ObjectCopy(BoxFiles):
    """One sealed cell on its way from a box into a bucket."""

    def run(self) -> PullResult:
        """Stores what is not there and right. Raises ManifestRefused, Unreachable, EvidenceError, OSError."""
        copies = self.store.copies
        assert isinstance(copies, S3Copies)
        if self.settled.holds(self.manifest.cell, manifest_digest(self.data)):
            self._say(self.total)
            return PullResult(self.manifest.cell, "current")
        if stays := self.later_here():
            return PullResult(self.manifest.cell, "current", (), (stays,))
        self._tidy_partial()
        done = 0

        def say(count: int) -> None:
            nonlocal done
            done += count
            self._say(done)

        put = copies.put(self.data, self.manifest, self._bring, say)
        shutil.rmtree(self.partial, ignore_errors=True)
        state: Literal["pulled", "current"] = "pulled" if put.files else "current"
        return PullResult(self.manifest.cell, state, (), (*self.notes, *put.notes), put.files, self.copied_bytes)

    def _bring(self, file: FileEntry) -> Path:
        """The file in the cache, which gets it from the box where need be."""
        target = self.store.workplace / "cells" / self.manifest.cell / seal_of(manifest_digest(self.data)) / file.path
        if is_local(target, file):
            return target
        if not is_right(self.partial, file):
            self._check_space([file])
            progress, self.progress = self.progress, None  # what counts for a person is that it is in the bucket
            try:
                self._fetch(file, 0)
            finally:
                self.progress = progress
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(inside(self.partial, file.path), target)
        fsync_directory(target.parent)
        return target


MOST_BYTES = 64 << 20
"""Of one cell, from one box, all its attempts together. Later attempts come first."""
MOST_FILES = 200
"""Of one attempt. Its log comes first, then the smallest files."""
LOG_BYTES = 8 << 20
"""Of one log: its end, where it is longer."""
LOG_END_BYTES = 64 << 10
"""Of a log, also where MOST_BYTES is used up."""
WALK_FILES = 100_000
WALK_SECONDS = 20.0

_LONGEST_NAME = 255


def bring(channel: Channel, box: str, generation: int, journal: Journal, store: EvidenceStore) -> list[Unsealed]:
    """Copies what every attempt that ended unsealed left on the box; returns those that were copied now. Idempotent.

    A file that can't be read on a box which answers is named as left, with the reason. Raises Unreachable when the box
    is cut off on the way (call again: it goes on), EvidenceError when the evidence can't be written. Costs nothing.
    """
    running = any(progress.state == "running" for progress in journal.cells.values())
    dead = running and not channel.lock_held(box_layout.RUNNER_LOCK)
    over = set(ended_unsealed(journal, dead=False))
    before = {(one.cell, one.attempt): one for one in of_box(store, box, generation).attempts}
    wanted = [
        one
        for one in ended_unsealed(journal, dead=dead)
        if SAFE_CELL.fullmatch(one[0]) and (one not in before or (one in over and not before[one].ended))
    ]
    if not wanted:
        return []
    work = _Work(channel, box, generation, store, before)
    brought: list[Unsealed] = []
    try:
        listed = work.listed(wanted)
        for one in reversed(wanted):  # later attempts of a cell first
            brought.append(work.bring(*one, *listed[one], ended=one in over))
    finally:
        work.close()
        if brought:
            _write(store, box, generation, brought)
    return brought


def _write(store: EvidenceStore, box: str, generation: int, brought: Sequence[Unsealed]) -> None:
    def change(known: UnsealedOfBox | None) -> UnsealedOfBox:
        attempts = {(one.cell, one.attempt): one for one in (*(known.attempts if known else ()), *brought)}
        ordered = tuple(attempts[key] for key in sorted(attempts))
        return UnsealedOfBox(box=box, generation=generation, attempts=ordered)

    store.update_record(record_of(box, generation), UnsealedOfBox, change)


class AttemptFile(NamedTuple):
    """A file that an attempt left: its path inside the attempt's folder, its bytes, and where it is read from on the
    box; "" where it is none that can be copied, `why`. `linked`: another file may be the same."""

    path: str
    size: int
    source: str
    why: str = ""
    linked: bool = False


Files = list[AttemptFile]


class _Work:
    """One box's attempts on their way into the evidence."""

    def __init__(
        self,
        channel: Channel,
        box: str,
        generation: int,
        store: EvidenceStore,
        before: Mapping[tuple[str, int], Unsealed],
    ) -> None:
        self._channel, self._box, self._generation, self._store = channel, box, generation, store
        self._before = before
        self._used: dict[str, int] = {}
        for (cell, _), one in before.items():
            self._used[cell] = self._used.get(cell, 0) + one.bytes
        self._secrets: list[bytes] | None = None
        self._folder = store.workplace / PARTIAL / ".unsealed"

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def listed(self, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[Files, str]]:
        """The files of each attempt, and what was in the way of listing all of them."""
        folders = {box_layout.attempt_dir(*one): one for one in wanted}
        listing = self._channel.walk(list(folders), limit=WALK_FILES, seconds=WALK_SECONDS)
        if listing.problem and len(wanted) > 1:  # one attempt with very many files must not hide the others
            return {one: found for one in wanted for found in self.listed([one]).values()}
        found: dict[tuple[str, int], tuple[Files, str]] = {one: ([], listing.problem) for one in wanted}
        depth = len(box_layout.CELLS.split("/")) + 2

        def add(path: str, size: int, source: str, why: str = "", linked: bool = False) -> None:
            parts = path.split("/")
            one = folders.get("/".join(parts[:depth]))
            inside = "/".join(parts[depth:])
            if one is not None and (inside in (LOG, "out") or inside.startswith("out/")):
                found[one][0].append(AttemptFile(inside, size, source, why, linked))

        for path, size, _ in listing.files:
            add(path, size, path)
        for other in self._channel.others(list(folders), seconds=WALK_SECONDS):
            cell = folders.get("/".join(other.path.split("/")[:depth]), ("", 0))[0]
            if self._is_of(cell, other.means):
                add(other.path, other.size, other.means, linked=True)
            else:
                add(other.path, 0, "", f"it is {other.what}"[:200])
        return found

    def _is_of(self, cell: str, path: str) -> bool:
        """Whether a file of the box lies in a folder of this cell."""
        tier = f"{box_layout.DURABLE}/{self._store.marker.identity}/checkpoints"
        return path.startswith(tuple(f"{folder}/{cell}/" for folder in (box_layout.CELLS, "scratch/sweep", tier)))

    def bring(self, cell: str, attempt: int, files: Files, problem: str, *, ended: bool) -> Unsealed:
        """Copies what fits, and names the rest."""
        before = self._before.get((cell, attempt))
        used = self._used.get(cell, 0) - (before.bytes if before else 0)
        room = MOST_BYTES - used
        wanted: Files = []
        left: list[LeftFile] = []
        kept: list[KeptFile] = []
        for one in sorted(files, key=lambda file: (file.path != LOG, file.linked, file.size, file.path)):
            path, size, told = one.path, one.size, recorded(one.path)
            if one.why:
                left.append(LeftFile(path=told[:_LONGEST_NAME], size=size, why=recorded(one.why)))
            elif path == LOG:
                most = max(min(LOG_BYTES, room), LOG_END_BYTES)
                kept += self._log(cell, attempt, size, most, left)
                room -= min(size, most)
            elif not _fits_a_name(told):
                left.append(LeftFile(path=told[:_LONGEST_NAME], size=size, why="its name is too long for a copy"))
            elif len(wanted) + 1 >= MOST_FILES:
                left.append(LeftFile(path=told, size=size, why=f"{MOST_FILES} files of an attempt are copied"))
            elif size > room:
                why = f"{MOST_BYTES >> 20} MiB of a cell are copied from a box"
                left.append(LeftFile(path=told, size=size, why=why))
            else:
                wanted.append(one)
                room -= size
        kept += self._files(cell, attempt, wanted, left)
        left.sort(key=lambda file: -file.size)
        # What was copied while its processes may have gone on, and is not there any more, is still in the evidence.
        copies = {file.path: file for file in (*(before.files if before else ()), *kept)}
        self._used[cell] = used + sum(file.size for file in copies.values())
        return Unsealed(
            cell=cell,
            attempt=attempt,
            ended=ended,
            files=tuple(sorted(copies.values(), key=lambda file: file.path)),
            left=tuple(left[:NAMED]),
            more=len(left[NAMED:]),
            more_bytes=sum(file.size for file in left[NAMED:]),
            note=problem,
        )

    def _log(self, cell: str, attempt: int, size: int, most: int, left: list[LeftFile]) -> Iterator[KeptFile]:
        """The log, or its end; secrets masked as the runner masks them: it had no time to, where it was killed."""
        require_room(self._store, min(size, most), f"the log of {cell}")
        start = max(0, size - most)
        try:
            data = self._channel.read(f"{box_layout.attempt_dir(cell, attempt)}/{LOG}", offset=start, limit=most)
        except Unreachable:
            raise
        except (PlatformError, OSError) as error:
            left.append(LeftFile(path=LOG, size=size, why=_why(error)))
            return
        if self._secrets is None:
            self._secrets = hidden_on(self._channel)
        yield self._keep(cell, attempt, LOG, masked(data, self._secrets, cut=start > 0), start)

    def _files(self, cell: str, attempt: int, wanted: Files, left: list[LeftFile]) -> Iterator[KeptFile]:
        if not wanted:
            return
        # Twice: once on the way, once in its place.
        require_room(self._store, 2 * sum(one.size for one in wanted), f"what {cell} left")
        self.close()
        self._folder.mkdir(parents=True)
        targets = [self._folder / str(number) for number in range(len(wanted))]
        try:
            self._channel.fetch_many([(one.source, target) for one, target in zip(wanted, targets, strict=True)])
        except Unreachable:
            raise
        except (PlatformError, OSError):
            pass  # one of them can't be read: they are asked for one by one
        for (path, size, source, *_), target in zip(wanted, targets, strict=True):
            data = _whole(target, size)
            if data is None:
                try:
                    data = self._channel.read(source, limit=size)
                except Unreachable:
                    raise
                except (PlatformError, OSError) as error:
                    left.append(LeftFile(path=recorded(path), size=size, why=_why(error)))
                    continue
            yield self._keep(cell, attempt, recorded(path), data, 0)

    def _keep(self, cell: str, attempt: int, path: str, data: bytes, start: int) -> KeptFile:
        before = self._before.get((cell, attempt))
        known = next((file for file in before.files if file.path == path), None) if before else None

        def goes_on(one: bytes, other: bytes) -> bool:
            starts = [start if found is data else known.start if known else 0 for found in (one, other)]
            return log_goes_on((starts[0], one), (starts[1], other))

        key = key_of(self._box, self._generation, cell, attempt, path)
        there = put(self._store.objects, key, data, goes_on)
        begins = start if there is data else known.start if known else 0
        return KeptFile(path=path, size=len(there), sha256=sha256_hex(there), start=begins)


def _whole(path: Path, size: int) -> bytes | None:
    """What was fetched; None where it is not all there."""
    try:
        return path.read_bytes() if path.stat().st_size == size else None
    except FileNotFoundError:
        return None


def _why(error: Exception) -> str:
    words = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return f"it can't be read on the box: {words}"[:200]


def _fits_a_name(path: str) -> bool:
    return all(len(name_of(part)) <= _LONGEST_NAME - 16 for part in path.split("/"))
