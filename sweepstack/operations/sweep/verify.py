"""Reads and loads every file of every cell of a sweep, as its receipt needs it.

Without boxes or queues the copies are compared with the latest receipt instead: they are read whole again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sweepstack.config.own_files import own_files
from sweepstack.core.records import ArtifactSpec, Cell, Receipt, ReceiptCell
from sweepstack.core.roster import Roster
from sweepstack.core.verify_rules import artifacts_digest
from sweepstack.core.workdir import located
from sweepstack.evidence import file_index
from sweepstack.evidence.manifest import ManifestRefused, parse_manifest
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.verify import CheckCode, Progress, ReadBox, VerifyOutcome, VerifyRequest, check_code
from sweepstack.evidence.verify import verify as verify_cells
from sweepstack.loaders.base import some
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import (
    ConfigError,
    EvidenceDamaged,
    EvidenceError,
    JournalDamaged,
    PlatformError,
    Unsure,
)
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations.sweep.cell_results import artifacts_of
from sweepstack.operations.sweep.roster_diff import Rosters
from sweepstack.operations.sweep.sources import Sources
from sweepstack.status.engine.state import BoxEntry
from sweepstack.teardown.launched import signs_of_a_launch


def verify_sweep(sources: Sources, store: EvidenceStore, plan: Rosters, said: Progress | None = None) -> VerifyOutcome:
    """Reads the journals of all boxes (and keeps copies), then every file. Raises Unsure if the cells are not known."""
    state, stack = sources.state, sources.target.stack
    if not state.boxes:
        raise Unsure("there is no box in the state: the last receipt stands", [f"sweepctl status --stack {stack}"])
    if not plan.complete:
        why = (
            "; ".join(plan.notes)
            or "the state's queues and the stack file name other cells than the boxes were rented for"
        )
        raise Unsure(f"which cells the sweep has is not known: {why}", [f"pulumi up --stack {stack}"])
    artifacts = _artifacts(sources)
    with _check(sources, artifacts) as check:
        boxes = [seen_now(box, store, stack) for box in state.boxes]
        request = VerifyRequest(
            identity=store.marker.identity,
            stack=stack,
            roster=plan.roster,
            artifacts=artifacts,
            store=store,
            boxes=boxes,
            check=check,
        )
        outcome = verify_cells(request, said)
    return replace(outcome, notes=[*outcome.notes, *_not_brought_up(sources, artifacts)])


def seen_now(box: BoxEntry, store: EvidenceStore, stack: str) -> ReadBox:
    """The box's journal, of which a copy is kept; for a box that is gone, the last copy.

    Raises Unsure if the box can't be read, cells were launched on it, and there is no copy.
    """
    journal, broken, alive, why = None, "", None, ""
    try:
        platform = box.context().platform
        if platform.get(box.native_id, box.account).phase is Phase.GONE:
            gone = not box_layout.surviving(box.teardown.kills, box.mounts)
            return ReadBox(box.name, box.native_id, box.generation, None, gone=gone)
        channel = platform.channel(box.native_id, box.account)
        try:
            data = channel.read(box_layout.JOURNAL)
        except FileNotFoundError:
            data = b""
        alive = channel.lock_held(box_layout.RUNNER_LOCK)
        journal = store.write_journal(box.name, box.generation, data)
    except (JournalDamaged, EvidenceDamaged) as error:
        broken = str(error)
    except (PlatformError, OSError) as error:
        why = str(error)
    if why and store.launch(box.name, box.generation) is not None and not _copied(store, box):
        raise Unsure(
            f"box {box.name} ({box.native_id}) can't be read, and no copy of its journal is here: {why}",
            [f"sweepctl status --stack {stack}"],
        )
    return ReadBox(box.name, box.native_id, box.generation, journal, broken=broken, runner_alive=alive)


def launched(sources: Sources, store: EvidenceStore) -> list[str]:
    """Signs that cells were launched: in the journal of each box, then in every record.

    The state alone proves nothing: an interrupted destroy leaves it without its queues.
    """
    found = []
    for box in sources.state.boxes:
        view = seen_now(box, store, sources.target.stack)  # its copy of the journal is read below
        if view.journal is None:
            found.append(f"the journal of box {box.name} could not be read")
        found += signs_of_a_launch(store, box.name, box.generation, box.native_id)
    return found


def _copied(store: EvidenceStore, box: BoxEntry) -> bool:
    try:
        return store.journal(box.name, box.generation) is not None
    except (EvidenceError, JournalDamaged):
        return False


def _artifacts(sources: Sources) -> tuple[ArtifactSpec, ...]:
    """The artifacts in the state's queues; if these differ, an `up` did not finish."""
    found = {queue.artifacts for queue in sources.state.queues}
    if len(found) > 1:
        raise Unsure(
            "the queues were given different artifacts: `pulumi up` did not finish",
            [f"pulumi up --stack {sources.target.stack}"],
        )
    if not found:
        raise Unsure("no queue is in the state: nothing was launched", [f"pulumi up --stack {sources.target.stack}"])
    return found.pop()


def _not_brought_up(sources: Sources, artifacts: tuple[ArtifactSpec, ...]) -> list[str]:
    """The note that the stack file names other artifacts than those that cells are sealed and judged by."""
    here = artifacts_of(sources.target)
    if not here or artifacts_digest(here) == artifacts_digest(artifacts):
        return []
    paths = sorted({spec.path for spec in set(here) ^ set(artifacts)})
    file, stack = sources.target.file.shown, sources.target.stack
    brings = f"`pulumi up --stack {stack}` brings that to the boxes"
    return [f"artifacts ({some(paths)}): {file} says other than what cells were judged by here; {brings}"]


@contextmanager
def _check(sources: Sources, artifacts: tuple[ArtifactSpec, ...]) -> Iterator[CheckCode | None]:
    """The code for `load: command`, if an artifact has it. Raises Unsure if the work dir can't be copied."""
    if not any(spec.load == "command" for spec in artifacts):
        yield None
        return
    stack, job = sources.target.stack, sources.state.queues[-1].job
    if job.workdir is None:
        raise Unsure("the state does not say where the check's code is", [f"pulumi up --stack {stack}"])
    try:
        root = sources.target.root
        with check_code(located(root, job.workdir), job.include, own_files(root)) as check:
            yield check
    except (ConfigError, OSError) as error:
        commands = [word for spec in artifacts if (word := spec.run)]
        raise Unsure(
            f"`{commands[0]}` is to judge artifacts, and its code can't be taken from here: {error}",
            [f"sweepctl verify --stack {stack}    (where {job.workdir} is)"],
        ) from error


@dataclass(frozen=True)
class Reread:
    """A cell as it is now. `reasons`: how its copy differs from the receipt; empty if it does not."""

    name: str
    was: str
    reasons: tuple[str, ...]

    @property
    def state(self) -> str:
        """The cell's state now."""
        return "damaged" if self.reasons else self.was


def compare(
    store: EvidenceStore, receipt: Receipt, artifacts: tuple[ArtifactSpec, ...], said: Progress | None = None
) -> list[Reread]:
    """Reads and loads every file of every cell that is verified in `receipt`. Writes nothing. Blocks."""
    before = {cell.name: cell for cell in receipt.cells}
    cells = {name: _cell(store, cell) for name, cell in before.items() if cell.state == "verified"}
    read = [cell for cell in cells.values() if isinstance(cell, Cell)]
    specs = _specs(receipt, artifacts, read)
    request = VerifyRequest(
        receipt.identity,
        receipt.stack,
        Roster(tuple(read), {}),
        specs,
        store,
        (),
        keep=False,
    )
    after = {cell.name: cell for cell in verify_cells(request, said).receipt.cells}
    found = []
    for name, cell in sorted(before.items()):
        why: tuple[str, ...] = ()
        if cell.state == "verified":
            known = cells[name]
            why = (known,) if isinstance(known, str) else _reasons(cell, after[name])
        found.append(Reread(name, cell.state, why))
    return found


def _cell(store: EvidenceStore, cell: ReceiptCell) -> Cell | str:
    """The cell with its parameters, from the manifest of its copy; or why that can't be read."""
    try:
        data = store.copies.manifest(cell.name)
        if data is None:
            return f"its copy {store.copies.shown(cell.name)} is not there any more, or has no manifest"
        return Cell(name=cell.name, params=parse_manifest(data, store.marker.identity, cell.name).params)
    except ManifestRefused as error:
        return str(error)
    except OSError as error:
        return f"its copy can't be read: {error.strerror}"


def _reasons(before: ReceiptCell, after: ReceiptCell) -> tuple[str, ...]:
    if after.state != "verified":
        return after.reasons or (after.state,)
    if after.manifest != before.manifest:
        return (f"its manifest is {after.manifest}, the receipt's {before.manifest}",)
    digests = {file.path: file.sha256 for file in after.files}
    return tuple(
        f"{file.path} has the sha256 {digests.get(file.path, 'of nothing')}, the receipt {file.sha256}"
        for file in before.files
        if digests.get(file.path) != file.sha256
    )


def _specs(receipt: Receipt, artifacts: tuple[ArtifactSpec, ...], cells: Sequence[Cell]) -> tuple[ArtifactSpec, ...]:
    """The artifacts to load: those that the receipt's cells have too. The user's own commands are not run again."""
    loaded = {(file.path, file.loader) for cell in receipt.cells for file in cell.files}
    loaded |= {(group.path, group.loader) for cell in receipt.cells for group in cell.groups}

    def names(path: str) -> set[str]:
        return {path, *(own_file(path, cell.name, cell.params) for cell in cells)} if "{" in path else {path}

    return tuple(spec for spec in artifacts if any((path, spec.load) in loaded for path in names(spec.path)))


def forget(store: EvidenceStore, receipt: Receipt, cells: set[str]) -> None:
    """Removes the damaged copies from the index of checked files, so that every command reads them again."""
    known = file_index.read_index(store.objects, receipt)
    left = {path: facts for path, facts in known.items() if path.partition("/")[0] not in cells}
    try:
        file_index.write_index(store.objects, receipt.digest, left)
    except EvidenceError:
        return  # the evidence can't be written; the damage was reported
