"""Verifies every cell of the roster: compares it with its seal, reads it, loads it.

A cell is `verified` when its pulled manifest is this cell's and this config's, was sealed by a box of this sweep, is
the seal that a journal records last, and its folder holds exactly the manifest's files, each with its size and digest,
each artifact loading with its keys and with finite numbers; one of several files with a file at least, and its folder
loading as a whole. Nothing else verifies a cell: no log line, exit code or
file name. A cell that no reader came to an answer about stays `sealed`: neither good nor proved bad. Where its reader
does not take such a file, it is `unsupported`: that is final, and nothing against the file.

What is noticed across several cells is worth a person's look, and no mistake of one cell.

A `load: command` check runs in a private copy of the work dir that is here, not of the code that a cell ran: a check
that is mended is run again over what there is, without a new cell. What was taken is in the receipt by its digest,
which is that of the files that would ship (`core.workdir`).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import tee
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from sweepstack.core.printable import printable
from sweepstack.core.records import (
    LATER,
    LATER_STATES,
    SCHEMA,
    SETTLED,
    ArtifactSpec,
    Cell,
    CellState,
    FileEntry,
    Manifest,
    Receipt,
    ReceiptBox,
    ReceiptCell,
    ReceiptFile,
    ReceiptGroup,
)
from sweepstack.core.verify_rules import artifacts_digest
from sweepstack.core.workdir import collect
from sweepstack.evidence.artifact_groups import Group, groups_of, member_of
from sweepstack.evidence.cell_store import Copies, Folder, Known, each
from sweepstack.evidence.file_index import write_index
from sweepstack.evidence.manifest import (
    LOG,
    MANIFEST,
    ManifestRefused,
    binding_problem,
    manifest_digest,
    parse_manifest,
)
from sweepstack.evidence.seal_resolution import ReadBox, StateAndReason, SweepJournals, sweep_journals
from sweepstack.evidence.store import EvidenceStore
from sweepstack.loaders.base import LoadResult, Reader, Spec, some
from sweepstack.loaders.command import CODE
from sweepstack.loaders.pool import FileToRead, WorkersBroken, deadline_for, read_all
from sweepstack.onbox.common.canonical import canonical_json
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import ConfigError, EvidenceError
from sweepstack.onbox.common.groups import is_group
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.onbox.common.units import spell_bytes

if TYPE_CHECKING:
    from sweepstack.core.roster import Roster

__all__ = ["ReadBox", "VerifyOutcome", "VerifyRequest", "verify"]

READER_VARIABLE = "SWEEPSTACK_TORCH_READER"
"""`restricted` (the default: no torch needed) or `torch` (torch.load with weights_only=True, after the same pass)."""

DOUBTS, DOUBT = 20, 500
"""Of the sentences that a box doubts a cell with: how many are kept, and how many characters of each."""


HOLLOW = 100_000_000
"""Bytes of a file whose holes are worth a note."""


@dataclass(frozen=True)
class VerifyRequest:
    """What to verify, against what. `boxes`: those of the sweep now; of earlier ones the pulled journals count.

    `keep`: writes the receipt and its index; False only looks. `check`: what `load: command` runs; None where that code
    is not here. `reader`: None asks the environment
    (`READER_VARIABLE`). `workers`: None is one per core. `seconds`: how long a file of a size may take.
    """

    identity: str
    stack: str
    roster: Roster
    artifacts: tuple[ArtifactSpec, ...]
    store: EvidenceStore
    boxes: Sequence[ReadBox]
    check: CheckCode | None = None
    reader: Reader | None = None
    workers: int | None = None
    seconds: Callable[[int], float] = deadline_for
    keep: bool = True


@dataclass(frozen=True)
class VerifyOutcome:
    """The receipt, which is in the store already, and what it does not say.

    `unexpected`: names in the evidence's `cells/` that are on no roster. `unknown`: cells of which it could not be told
    whether they are good. `network`: whether a reader could have reached a network; None where none read. `stages`:
    seconds; those that begin with `worker.` are summed over the workers.
    """

    receipt: Receipt
    digest: str
    unexpected: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    network: bool | None = None
    stages: dict[str, float] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)
    """Cells whose copy is not what was sealed, and which a box that was read still has: pulling copies them again."""
    as_sealed: list[str] = field(default_factory=list)
    """Damaged cells whose copy is what was sealed: the job, most likely, would write the same again."""
    notes: list[str] = field(default_factory=list)
    """What is worth a person's look and fails no cell."""

    @property
    def ok(self) -> bool:
        """Is every cell settled, is there one at all, and nothing else?"""
        cells = self.receipt.cells
        return bool(cells) and not self.unexpected and all(cell.state in SETTLED for cell in cells)


@dataclass
class _Copy:
    """A pulled copy on its way to a verdict. `standing` is set when it is not the copy of the cell's last run.

    `place`, `name`: where it lies.
    """

    cell: Cell
    place: Copies
    name: str
    folder: Folder
    manifest: Manifest | None = None
    digest: str | None = None
    standing: StateAndReason | None = None
    specs: Mapping[str, Spec | None] = field(default_factory=dict)
    """How each file is read by itself; None: by its digest."""
    groups: list[Group] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    read: dict[str, LoadResult] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether its files say something of the cell: not those of a copy that is none."""
        return self.standing is None or self.standing.earlier

    @property
    def differs(self) -> bool:
        """Whether it is not what its manifest says, or its manifest is none that counts."""
        if self.standing is not None or self.manifest is None:
            return True
        found = {path: (result.bytes, result.sha256) for path, result in self.read.items()}
        return any(found.get(file.path) != (file.size, file.sha256) for file in self.manifest.files)

    @property
    def unknown(self) -> bool:
        """Whether a reader of one of its files came to no answer."""
        return any(result.unknown for _, result in self.results())

    def results(self) -> Iterator[tuple[str, LoadResult]]:
        """What reading found of each file, and of each folder as a whole."""
        yield from self.read.items()
        yield from (item for group in self.groups for item in group.read.items())


def verify(request: VerifyRequest, progress: Progress | None = None) -> VerifyOutcome:
    """Verifies every cell and writes the receipt and the index of its files. Same facts, same digest, on any machine.

    Blocks: reads every byte once. Idempotent. Raises EvidenceError when the records can't be read (then nothing is
    known), ConfigError when torch is asked for and is not there.
    """
    reader = _reader(request)
    specs = {spec.path: spec for spec in request.artifacts}
    clock = Clock()
    journals = sweep_journals(request.store, request.boxes)
    clock.lap("records")
    copies: list[_Copy] = []

    def looked() -> Iterator[_Copy]:
        store = request.store.copies
        for copy in each(
            store, lambda cell: _look(request, cell, store, cell.name, journals, specs), request.roster.cells
        ):
            copies.append(copy)
            yield copy

    _read(request, looked(), reader, clock, progress)
    clock.lap("read")
    found = sorted((_verdict(request, copy) for copy in copies), key=lambda cell: cell.name)
    cells = _with_aside(request, found, journals, specs, reader)
    receipt = Receipt(
        schema=LATER if any(_is_later(cell) for cell in cells) else SCHEMA,
        identity=request.identity,
        stack=request.stack,
        roster_digest=request.roster.digest,
        artifacts_digest=artifacts_digest(request.artifacts),
        boxes=tuple(
            ReceiptBox(
                box=view.box,
                native_id=view.native_id,
                generation=view.generation,
                journal_head=journal.head,
                cells=tuple(sorted(launch.cells)) if launch else (),
            )
            for view, journal, launch in journals.heads
        ),
        cells=tuple(cells),
        verified=sum(cell.state == "verified" for cell in cells),
        total=len(cells),
    )
    unexpected = _unexpected(request)
    digest = request.store.write_receipt(receipt) if request.keep else receipt.digest
    if request.keep:
        verified = {cell.name for cell in cells if cell.has_result}
        write_index(request.store.objects, digest, _index(request.store, copies, verified))
    clock.lap("receipt")
    states = {cell.name: cell.state for cell in cells}
    unknown = sorted(copy.cell.name for copy in copies if copy.unknown and states[copy.cell.name] == "sealed")
    said = {result.network for copy in copies for result in copy.read.values() if result.network is not None}
    network = any(said) if said else None
    differing = _differing(request, copies, states, journals)
    as_sealed = sorted(c.cell.name for c in copies if states[c.cell.name] == "damaged" and not c.differs)
    notes = doubts(cells, request.roster, journals)
    return VerifyOutcome(receipt, digest, unexpected, unknown, network, clock.stages, differing, as_sealed, notes)


def _is_later(cell: ReceiptCell) -> bool:
    """Whether it says what an earlier version does not know."""
    return cell.state in LATER_STATES or bool(cell.earlier or cell.aside or cell.groups)


def _differing(
    request: VerifyRequest, copies: Sequence[_Copy], states: Mapping[str, str], journals: SweepJournals
) -> list[str]:
    sealed = {
        name
        for view in request.boxes
        for name, progress in (view.journal.cells.items() if view.journal else ())
        if progress.state == "sealed"
    }
    return sorted(
        copy.cell.name
        for copy in copies
        if states[copy.cell.name] == "damaged"
        and copy.cell.name in sealed
        and copy.differs
        and journals.knows(copy.manifest)  # else it is our records that lack something
    )


def _with_aside(
    request: VerifyRequest,
    cells: Sequence[ReceiptCell],
    journals: SweepJournals,
    specs: dict[str, ArtifactSpec],
    reader: Reader,
) -> list[ReceiptCell]:
    """The same cells; where one has no result, and a copy of it that a pull put aside is good, with that: the newest
    one. It is judged as any copy is, and a journal must record its seal."""
    settled = {cell.name for cell in cells if cell.has_result}
    left = {
        cell.name: sorted(
            (
                copy
                for place, name in request.store.copies.aside(cell.name)
                if (copy := _look(request, cell, place, name, journals, specs)).standing and copy.counts
            ),
            key=lambda copy: copy.manifest.sealed_at if copy.manifest else datetime.min.replace(tzinfo=UTC),
        )
        for cell in request.roster.cells
        if cell.name not in settled
    }
    good: dict[str, ReceiptCell] = {}
    while tried := [left[name].pop() for name in left if left[name] and name not in good]:
        _read(request, tried, reader, Clock(), None)
        good |= {one.name: one for one in (_verdict(request, copy) for copy in tried) if one.earlier}
    words = "a copy of attempt {}, put aside by a pull, is good, and stays the result until a later one is verified"
    return [
        one.model_copy(
            update={
                "aside": good[one.name].manifest,
                "reasons": (*one.reasons, words.format(good[one.name].attempt)),
            }
        )
        if one.name in good
        else one
        for one in cells
    ]


def _look(
    request: VerifyRequest,
    cell: Cell,
    copies: Copies,
    name: str,
    journals: SweepJournals,
    specs: dict[str, ArtifactSpec],
) -> _Copy:
    """All that can be said of a copy without reading its files."""
    copy = _Copy(cell, copies, name, copies.look(name))
    if not copy.folder.exists:
        copy.standing = journals.without_copy(cell.name)
        return copy
    copy.reasons += copy.folder.problems
    try:
        data = copies.manifest(name) if MANIFEST in copy.folder.files else None
        if data is None:
            raise ManifestRefused(f"has no {MANIFEST}")
        manifest = parse_manifest(data, request.identity, cell.name)
        copy.manifest, copy.digest = manifest, manifest_digest(data)
    except ManifestRefused as refusal:
        copy.standing = StateAndReason("damaged", str(refusal))
        return copy
    except OSError as error:
        copy.standing = StateAndReason("damaged", f"its manifest can't be read: {error.strerror}")
        return copy
    problem = binding_problem(manifest, cell)
    copy.standing = (
        StateAndReason("damaged", problem) if problem else journals.copy_problem(cell.name, manifest, copy.digest)
    )
    if copy.counts:
        own = own_specs(specs, cell, manifest)
        copy.groups = groups_of(own, manifest)
        copy.specs = member_of(copy.groups) | {path: spec for path, spec in own.items() if not is_group(path)}
        copy.reasons += _folder_reasons(copy.folder, manifest, own, copy.groups)
    return copy


def own_specs(specs: Mapping[str, ArtifactSpec], cell: Cell, manifest: Manifest) -> dict[str, ArtifactSpec]:
    """The artifacts of one cell, by their names in it: placeholders are filled, as the box does it. A cell that an
    older runner sealed with such a name as it is written keeps it."""
    sealed = {file.path for file in manifest.files}
    named = (path if path in sealed else own_file(path, cell.name, cell.params) for path in specs)
    return dict(zip(named, specs.values(), strict=True))


def _folder_reasons(
    folder: Folder, manifest: Manifest, specs: Mapping[str, ArtifactSpec], groups: Sequence[Group]
) -> list[str]:
    named = {file.path: file for file in manifest.files}
    sealed = named.keys() | {group.path for group in groups if group.units}
    reasons = [f"{printable(path)} is not in its manifest" for path in sorted(folder.files.keys() - {MANIFEST, *named})]
    reasons += [f"{path} is not there" for path in sorted(named.keys() - folder.files.keys())]
    reasons += [f"{path} was not sealed with it" for path in sorted(specs.keys() - sealed)]
    if LOG not in named:
        reasons.append(f"{LOG} was not sealed with it")
    return reasons


def _read(
    request: VerifyRequest,
    looked: Iterable[_Copy],
    reader: Reader,
    clock: Clock,
    progress: Progress | None,
) -> None:
    """Reads the files of all copies that count, while the next copies are still being looked at."""
    said = VerifyProgress(progress)
    jobs: dict[int, tuple[FileToRead, _Copy, str, dict[str, LoadResult]]] = {}
    """By its identity: the job, the copy, the file or folder, and where its result goes."""
    check = request.check.root if request.check else None

    def here(copy: _Copy) -> dict[str, str]:
        name, files = copy.cell.name, _wanted(copy)
        said.to_fetch += sum(file.size for file in files)
        return copy.place.here(copy.name, files, lambda _, count: said.fetched(name, count)) if files else {}

    def work() -> Iterator[FileToRead]:
        ours, theirs = tee(looked)
        for copy, paths in zip(ours, each(request.store.copies, here, theirs), strict=True):
            wanted = _wanted(copy)
            for file in wanted:
                job = FileToRead(paths[file.path], copy.specs.get(file.path), file.sha256, file.size, check)
                jobs[id(job)] = (job, copy, file.path, copy.read)
                said.to_read += file.size
                yield job
            sizes = {file.path: file.size for file in wanted}
            for group in copy.groups:
                for unit, members in group.folders:
                    if not all(unit + member in sizes for member in members):
                        continue  # a file is missing, and that is said
                    place = paths[unit + members[0]].removesuffix(members[0])
                    size = sum(sizes[unit + member] for member in members)
                    job = FileToRead(place, group.spec, None, size, check, members)
                    jobs[id(job)] = (job, copy, unit, group.read)
                    yield job
        clock.lap("folders")

    def read(job: FileToRead, count: int) -> None:
        if not job.members:
            said.read(jobs[id(job)][1].cell.name, count)

    results = read_all(work(), reader=reader, workers=request.workers, seconds=request.seconds, progress=read)
    try:
        for job, result in results:
            _, _, path, place = jobs[id(job)]
            place[path] = result
            for stage, seconds in result.stages.items():
                clock.stages[f"worker.{stage}"] = clock.stages.get(f"worker.{stage}", 0.0) + seconds
    except WorkersBroken as error:
        raise EvidenceError(f"the processes that read files do not run here, so nothing is known: {error}") from error
    finally:
        results.close()  # a Ctrl-C ends the workers, too


def _wanted(copy: _Copy) -> list[FileEntry]:
    """The files to read: none of a copy that does not count, whatever it holds."""
    if not copy.counts or copy.manifest is None:
        return []
    return [file for file in copy.manifest.files if file.path in copy.folder.files]


def _verdict(request: VerifyRequest, copy: _Copy) -> ReceiptCell:
    manifest = copy.manifest
    reasons, untold, unsupported, notes = list(copy.reasons), list[str](), list[str](), list[str]()
    files: list[ReceiptFile] = []
    groups: tuple[ReceiptGroup, ...] = ()
    if copy.counts and manifest is not None:
        for file in sorted(manifest.files, key=lambda file: file.path):
            files.append(_file(file, copy.read.get(file.path), copy.specs.get(file.path), request.check))
        verdicts = {file.path: file.verdict for file in files}
        groups = tuple(group.record(manifest.files, verdicts) for group in copy.groups)
        for path, result in sorted(copy.results(), key=itemgetter(0)):
            if result.unknown:
                untold += [f"could not tell: {path} {reason}" for reason in result.reasons]
            elif result.unsupported:
                unsupported += [f"{path} {reason}" for reason in result.reasons]
            else:
                reasons += [f"{path} {reason}" for reason in result.reasons]
                notes += [f"{path}: {_reported(note)}" for note in result.notes]
        if manifest.skipped:
            notes.append(f"left out: {some([f'{path} is a {what}' for path, what in manifest.skipped])}")
        notes += [_hollow(file, manifest.sparse[file.path]) for file in manifest.files if _is_hollow(file, manifest)]
    doubted = [printable(doubt, DOUBT) for doubt in manifest.doubts[:DOUBTS]] if manifest is not None else []
    if manifest is not None and copy.standing is None:
        left = [one for one in manifest.left_running if not any(one in doubt for doubt in manifest.doubts)]
        if left:
            notes.append(f"left running at its end: {printable(', '.join(left[:DOUBTS]), DOUBT)}")
    # Damaged is what was proved to be so. What could not be found out is as it was: sealed, and not verified.
    state: CellState = "sealed" if untold else "suspect" if doubted else "verified"
    state = "damaged" if reasons else "unsupported" if unsupported else state
    reasons += unsupported + untold + doubted
    earlier = copy.standing is not None and copy.standing.earlier and state == "verified"
    if copy.standing is not None:
        state = copy.standing.state
        reasons = [reason for reason in (copy.standing.reason, *reasons) if reason]
    if earlier and manifest is not None:
        reasons.append(f"the copy of attempt {manifest.attempt} is good, and stays the result until a later one is")
    return ReceiptCell(
        name=copy.cell.name,
        config_digest=copy.cell.config_digest,
        state=state,
        box=manifest.box if manifest else None,
        generation=manifest.generation if manifest else None,
        attempt=manifest.attempt if manifest else None,
        manifest=copy.digest,
        files=tuple(files),
        reasons=tuple(reasons + notes),
        earlier=earlier,
        groups=groups,
    )


def _is_hollow(file: FileEntry, manifest: Manifest) -> bool:
    """Whether a file is far larger than its data."""
    data = manifest.sparse.get(file.path, file.size)
    return file.size >= HOLLOW and 0 <= data * 10 < file.size


def _hollow(file: FileEntry, data: int) -> str:
    size, held = spell_bytes(file.size), spell_bytes(data)
    return f"{file.path}: {held} of its {size} are data, the rest are holes: a bucket, which has none, takes all of it"


def _reported(note: str) -> str:
    """A note, marked where it would have failed the cell under another setting."""
    return f"{note}, reported only" if "non-finite" in note else note


def _file(file: FileEntry, result: LoadResult | None, spec: Spec | None, check: CheckCode | None) -> ReceiptFile:
    loader: str | None = spec.load if spec else None
    if spec is not None and spec.load == "command" and check is not None:
        loader = f"command {check.digest}"
    verdict = "is not there" if result is None else "; ".join(result.reasons) or "ok"
    return ReceiptFile(
        path=file.path,
        size=result.bytes if result else 0,
        sha256=result.sha256 if result else "",
        role=file.role,
        loader=loader,
        verdict=verdict,
    )


def _index(store: EvidenceStore, copies: Sequence[_Copy], verified: set[str]) -> dict[str, Known]:
    index: dict[str, Known] = {}
    for copy in copies:
        if copy.cell.name not in verified:
            continue
        for path, result in copy.read.items():
            stamp = store.copies.stamp(copy.cell.name, path, result.mtime_ns)
            index[f"{copy.cell.name}/{path}"] = (result.bytes, stamp, result.sha256)
        manifest = store.copies.manifest_known(copy.cell.name)
        if manifest is not None:
            index[f"{copy.cell.name}/{MANIFEST}"] = manifest
    return index


def _unexpected(request: VerifyRequest) -> list[str]:
    known = {cell.name for cell in request.roster.cells} | set(request.roster.dropped)
    return sorted(printable(name) for name in request.store.copies.cells() if name not in known)


def _reader(request: VerifyRequest) -> Reader:
    asked = request.reader or os.environ.get(READER_VARIABLE) or "restricted"
    if asked == "restricted":
        return "restricted"
    if asked != "torch":
        raise ConfigError(f"{READER_VARIABLE}={asked}: it is restricted or torch")
    if importlib.util.find_spec("torch") is None:
        raise ConfigError(
            f"{READER_VARIABLE}=torch, and torch is not installed here: `python -m pip install torch`, or unset it"
        )
    return "torch"


WEIGHTS = ("torch", "safetensors", "npz", "npy", "lightning", "gguf", "onnx", "hdf5", "keras", "skops", "flax")
"""Loaders of files that hold what a training run ends with."""


def doubts(cells: Sequence[ReceiptCell], roster: Roster, journals: SweepJournals) -> list[str]:
    """A sentence for each doubt."""
    return [*_same_weights(cells, roster), *_sealed_twice(cells, journals)]


def _same_weights(cells: Sequence[ReceiptCell], roster: Roster) -> list[str]:
    """Cells of different parameters all of whose weights are the same: one that is the same beside others that differ
    is a split or a frozen part, and cells of the same parameters repeat each other on purpose."""
    same = defaultdict(list)
    for cell in cells:
        weights = _weights(cell)
        if weights and cell.state == "verified":
            same[tuple(sorted(weights.values()))].append(cell.name)  # a file may have another name in each cell
    known = {cell.name: cell for cell in roster.cells}
    said = {cell.name: cell for cell in cells}
    found = []
    for names in sorted(names for names in same.values() if len(names) > 1):
        differing = some(_differing_axes([known[name] for name in names]))
        if differing:
            files = some(sorted(_weights(said[names[0]])))
            found.append(
                f"the same {files}, byte for byte, in {some(names)}, whose {differing} differ: does the job use it?"
            )
    return found


def _weights(cell: ReceiptCell) -> dict[str, str]:
    return {f.path: f.sha256 for f in cell.files if f.role == "artifact" and f.loader in WEIGHTS}


def _differing_axes(cells: Sequence[Cell]) -> list[str]:
    keys = sorted({key for cell in cells for key in cell.params})
    return [key for key in keys if len({canonical_json(cell.params.get(key)) for cell in cells}) > 1]


def _sealed_twice(cells: Sequence[ReceiptCell], journals: SweepJournals) -> list[str]:
    """Cells of which another box of the sweep has a result of its own, which ends with that box."""
    found = []
    for cell in cells:
        said = [(box, one) for box in journals.boxes if (one := box.journal.cells.get(cell.name))]
        if cell.state != "verified" or len(said) < 2:
            continue
        ours = max((one.retry for _, one in said if one.manifest == cell.manifest), default=0)
        others = [
            box.name
            for box, one in said
            if box.live and one.state == "sealed" and one.manifest != cell.manifest and one.retry >= ours
        ]
        if others:
            found.append(f"{cell.name}: {some(others)} sealed it, too; the copy here is that of {cell.box}")
    return found


Progress = Callable[[str, int, int], None]
"""Gets the cell that is being read, bytes read so far, and bytes in all; from any thread."""


class Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._begin = perf_counter()

    def lap(self, stage: str) -> None:
        """The stage ends that began with the last one's end."""
        now = perf_counter()
        self.stages[stage] = now - self._begin
        self._begin = now


class VerifyProgress:
    """Adds up what is brought here, where the evidence is not on this machine, and what workers read. A count that is
    slightly off does no harm, so there is no lock."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.to_fetch = self.to_read = 0
        self._fetched = self._read = 0

    def fetched(self, cell: str, count: int) -> None:
        """So many bytes of a cell came here."""
        self._fetched += count
        if self.progress:
            self.progress(f"fetching {cell}", min(self._fetched, self.to_fetch), self.to_fetch)

    def read(self, cell: str, count: int) -> None:
        """So many bytes of a cell were read."""
        self._read += count
        if self.progress:
            self.progress(cell, min(self._read, self.to_read), self.to_read)


@dataclass(frozen=True)
class CheckCode:
    """`root` is what a `loaders.pool.FileToRead` names as its `check`; `digest` is the work dir's (`sha256:<hex>`)."""

    root: str
    digest: str


@contextmanager
def check_code(workdir: Path, include: Sequence[str] = (), own: Iterable[str] = ()) -> Iterator[CheckCode]:
    """Copies what would ship from `workdir` into a temporary folder, which is removed at the end.

    Reads every file twice. Raises ConfigError as `sweepstack.core.workdir.collect` does, OSError.
    """
    shipment = collect(workdir, include, own)
    with tempfile.TemporaryDirectory(prefix="sweepstack-check-", ignore_cleanup_errors=True) as root:
        for file in shipment.files:
            target = Path(root, CODE, file.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(workdir / file.path, target)
            target.chmod(file.mode)
        yield CheckCode(root, shipment.digest)
