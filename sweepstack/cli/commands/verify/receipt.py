"""`sweepctl verify`: reads and loads every file of every cell, and writes the receipt.

Without boxes or queues the copies are compared with the latest receipt: they are read whole again, and no receipt is
written. A copy that differs is reported with both digests, and every later command reads it again until it is restored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sweepstack.cli.output import NO, UNSURE, YES, Out, moved, moved_json
from sweepstack.cli.progress import Progress
from sweepstack.config.own_files import own_files
from sweepstack.core.records import SETTLED, Approval, ArtifactSpec, Cell, Receipt, ReceiptCell
from sweepstack.core.roster import Roster
from sweepstack.core.verify_rules import artifacts_digest
from sweepstack.core.workdir import located
from sweepstack.evidence import file_index
from sweepstack.evidence.manifest import ManifestRefused, parse_manifest
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.verify import READER_VARIABLE, BoxView, CheckCode, VerifyOutcome, VerifyRequest, check_code
from sweepstack.evidence.verify import Progress as Progressing
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
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.engine_mend import put_back
from sweepstack.operations.sweep.roster_diff import Rosters, rosters
from sweepstack.operations.sweep.sources import Sources, blocked, usable, way_out
from sweepstack.operations.sweep.target import approval_of
from sweepstack.status.engine.state import BoxEntry
from sweepstack.status.next_commands import (
    by_checkpoint,
    by_files,
    first_hung,
    out_of_checkpoint,
    out_of_files,
    run_again,
)
from sweepstack.teardown.launched import signs_of_a_launch
from sweepstack.teardown.refusal import accept, sure_first


@dataclass(frozen=True)
class Shown:
    """A cell as it is shown: its state in the receipt, or waived by an approval for this receipt."""

    name: str
    state: str
    reasons: tuple[str, ...]


def verify(sources: Sources, out: Out) -> int:
    """Exit 0 if every cell is verified or waived, 1 if not, 2 if that is not known.

    If the state has no box, or no queue for cells that ran, the copies are compared with the latest receipt, and no new
    receipt is written.
    """
    target, store = sources.target, usable(sources, "verify")
    if not sources.state.boxes:
        return reread(sources, store, out)
    if not sources.state.queues and (signs := _launched(sources, store)):
        return reread(sources, store, out, f"no queue is in the state, and cells ran: {'; '.join(signs)}")
    plan = rosters(target, sources.state)
    try:
        outcome = run(sources, store, plan)
    except EvidenceError as error:
        raise blocked(str(error), sources, "verify") from error
    return report(sources, outcome, plan, out, store)


def run(sources: Sources, store: EvidenceStore, plan: Rosters) -> VerifyOutcome:
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
    with Progress("verify", unit="bytes") as progress, _check(sources, artifacts) as check:
        progress.say("reading journals")
        boxes = [view_of(box, store, stack) for box in state.boxes]
        request = VerifyRequest(
            identity=store.marker.identity,
            stack=stack,
            roster=plan.roster,
            artifacts=artifacts,
            store=store,
            boxes=boxes,
            check=check,
        )

        def said(cell: str, done: int, total: int) -> None:
            progress.say(cell)
            progress.done, progress.total = done, total

        outcome = verify_cells(request, said)
    return replace(outcome, notes=[*outcome.notes, *_not_brought_up(sources, artifacts)])


def view_of(box: BoxEntry, store: EvidenceStore, stack: str) -> BoxView:
    """The box's journal, of which a copy is kept; for a box that is gone, the last copy.

    Raises Unsure if the box can't be read, cells were launched on it, and there is no copy.
    """
    journal, broken, alive, why = None, "", None, ""
    try:
        platform = box.context().platform
        if platform.get(box.native_id, box.account).phase is Phase.GONE:
            gone = not box_layout.surviving(box.teardown.kills, box.mounts)
            return BoxView(box.name, box.native_id, box.generation, None, gone=gone)
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
    return BoxView(box.name, box.native_id, box.generation, journal, broken=broken, runner_alive=alive)


def _launched(sources: Sources, store: EvidenceStore) -> list[str]:
    """Signs that cells were launched: in the journal of each box, then in every record.

    The state alone proves nothing: an interrupted destroy leaves it without its queues.
    """
    found = []
    for box in sources.state.boxes:
        view = view_of(box, store, sources.target.stack)  # its copy of the journal is read below
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


def overlay(cells: tuple[ReceiptCell, ...], digest: str, approval: Approval | None, plan: Rosters) -> list[Shown]:
    """The cells with their waivers. A waiver counts only for the receipt that it was given for."""
    waived = {}
    if approval is not None and approval.receipt == digest:
        waived = {waiver.cell: waiver.reason for waiver in approval.waive}
    shown = [
        Shown(cell.name, "waived", (waived[cell.name], *cell.reasons))
        if cell.name in waived and cell.state not in SETTLED
        else Shown(cell.name, cell.state, cell.reasons)
        for cell in cells
    ]
    shown += [Shown(name, "pending", ("in the stack file, and not brought up yet",)) for name in plan.ahead]
    return shown + [Shown(name, "waived", (f"dropped: {why}",)) for name, why in sorted(plan.dropped.items())]


def report(sources: Sources, outcome: VerifyOutcome, plan: Rosters, out: Out, store: EvidenceStore) -> int:
    """Prints the table and the receipt. Returns the exit code."""
    target, traffic = sources.target, store.traffic
    receipt, stack = outcome.receipt, target.stack
    cells = overlay(receipt.cells, outcome.digest, approval_of(target), plan)
    bad = [cell for cell in cells if cell.state not in SETTLED]
    yes = bool(cells) and not bad and not outcome.unexpected
    untold = {cell.name for cell in bad} <= set(outcome.unknown) and not outcome.unexpected
    following = [f"pulumi up --stack {stack}"] if plan.ahead else _following(sources, outcome, bad)
    out.document(
        {
            "receipt": outcome.digest,
            "verified": receipt.verified,
            "total": receipt.total,
            "cells": [{"name": cell.name, "state": cell.state, "reasons": list(cell.reasons)} for cell in cells],
            "unexpected": outcome.unexpected,
            "unknown": outcome.unknown,
            "notes": outcome.notes,
            "readers": {"network": {True: "reachable", False: "none", None: None}[outcome.network]},
            "moved": moved_json(traffic),
            "stages": {stage: round(seconds, 3) for stage, seconds in outcome.stages.items()},
            "next": following,
        }
    )
    shown = cells if len(cells) <= 60 else bad[:60]
    out.table(("CELL", "STATE", "NOTE"), ((cell.name, cell.state, "; ".join(cell.reasons)) for cell in shown))
    for name in outcome.unexpected:
        out.line(f"{name} lies in the evidence's cells/ and is no cell of this sweep: move it away", style="red")
    out.line(f"{receipt.verified} of {receipt.total} verified   receipt {outcome.digest}", style="bold")
    if traffic:
        out.line(moved(traffic))
    for note in [*plan.notes, *outcome.notes]:
        out.line(f"note   {note}")
    if outcome.network:
        out.line("note   the processes that read the files had network access: this system can't take it away")
    out.next(following)
    if yes and plan.unreadable:
        back = put_back(target, store)
        again = f"sweepctl verify --stack {stack}    (once that is fixed)"
        following = [back, again] if back else [again, way_out(stack)]
        raise Unsure(f"which cells are wanted can't be told: {plan.unreadable}", following)
    return YES if yes else UNSURE if bad and untold else NO


def _following(sources: Sources, outcome: VerifyOutcome, bad: list[Shown]) -> list[str]:
    return sure_first(_ways_on(sources, outcome, bad))


def _ways_on(sources: Sources, outcome: VerifyOutcome, bad: list[Shown]) -> list[str]:
    stack = sources.target.stack
    states = {cell.state for cell in bad}
    if outcome.unexpected or not outcome.receipt.cells:
        return [f"sweepctl verify --stack {stack}    (after that)"]
    if not bad:
        return [f"sweepctl approve --stack {stack}"]
    accepted = accept(stack, [cell.name for cell in bad], f"to accept {'it' if len(bad) == 1 else 'each'} as it is")
    again = f"sweepctl pull --stack {stack} --verify"
    at_work = states & {"running", "pending"}  # what will have a copy yet is nothing to accept
    done = f"sweepctl wait --stack {stack} done && sweepctl finish --stack {stack}"
    if "missing" in states:
        return [again, done if at_work else accepted]
    if "lost" in states:
        return [f"pulumi up --stack {stack}    (runs what was lost again)"]
    if outcome.differing:
        return [f"{again}    (copies again what differs)", done if at_work else accepted]
    cut, begin = dict[str, str](), list[str]()
    if "failed" in states and "running" not in states:
        seen = take_snapshot(sources, files=False)
        if wrong := by_files(seen, [cell.name for cell in bad]):
            return out_of_files(stack, wrong)
        cut = by_checkpoint(seen, [cell.name for cell in bad if cell.state == "failed"])
        begin = out_of_checkpoint(seen, cut)
    if at_work:
        if "running" in states and (hung := first_hung(stack, take_snapshot(sources, files=False).box_snapshots)):
            return hung  # a hung cell never becomes done
        return [done]
    first = min(bad, key=lambda cell: cell.state == "unsupported").name
    if set(outcome.unknown) >= {cell.name for cell in bad}:
        return [
            f"sweepctl verify --stack {stack}    (with more memory or time, or once the check is fixed)",
            accepted,
        ]
    judge = f"pulumi up --stack {stack} && sweepctl verify --stack {stack}    (after `artifacts` says what is good: "
    judge += "trains nothing again)"
    unsupported = [cell for cell in bad if cell.state == "unsupported"]
    by_torch = any(READER_VARIABLE in reason for cell in unsupported for reason in cell.reasons)
    helps = [f"{READER_VARIABLE}=torch sweepctl verify --stack {stack}    (reads what torch reads)"] * by_torch
    if len(unsupported) == len(bad):  # to train again gives the same file
        return [*helps, judge, accepted]
    first_ways = [f"sweepctl logs --stack {stack} {first}", *begin, *helps]
    others = [cell.name for cell in bad if cell.state != "unsupported" and cell.name not in cut]
    if not others:
        return [*first_ways, accepted]
    again = run_again(stack, others)
    if not outcome.as_sealed:
        return [*first_ways, accepted, again]
    mended = again.replace("    (", "    (once the job is mended, or it writes the same: ")
    return [*first_ways, judge, accepted, mended]


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


def reread(sources: Sources, store: EvidenceStore, out: Out, why: str = "no box is in the state") -> int:
    """Exit 0 if every verified copy is the same as in the latest receipt; 1 if not. Raises Unsure: no receipt.

    `why`: why no receipt is written. Never 0 with boxes in the state: their files were not read.
    """
    named = sources.target.named()
    digest = store.latest_receipt()
    if digest is None:
        raise Unsure(f"{why}; and there is no receipt: nothing was verified yet", _puts_back(sources))
    receipt = store.receipt(digest)
    with Progress("verify", unit="bytes") as progress:

        def said(cell: str, done: int, total: int) -> None:
            progress.say(cell)
            progress.done, progress.total = done, total

        found = compare(store, receipt, artifacts_of(sources.target), said)
    damaged = [cell for cell in found if cell.reasons]
    if damaged:
        _forget(store, receipt, {cell.name for cell in damaged})
    good = sum(cell.state == "verified" for cell in found)
    whole = _onwards(sources, store) if sources.state.boxes else [f"sweepctl results {named}"]
    following = _after_reread(sources, damaged) if damaged else whole
    out.document(
        {
            "stack": sources.target.stack,
            "receipt": digest,
            "reread": True,
            "verified": good,
            "total": receipt.total,
            "cells": [{"name": cell.name, "state": cell.state, "reasons": list(cell.reasons)} for cell in found],
            "next": following,
        }
    )
    shown = found if len(found) <= 60 else damaged[:60]
    out.table(("CELL", "STATE", "NOTE"), ((cell.name, cell.state, "; ".join(cell.reasons)) for cell in shown))
    words = f"{len(damaged)} damaged, put right or trained again" if damaged else "all that was verified is as it was"
    out.line(f"{good} of {receipt.total} verified: {words}   receipt {digest} (not changed)", style="bold")
    out.line(f"note   {why}: the copies in the evidence were read whole, and no receipt was written")
    out.next(following)
    return NO if damaged else UNSURE if sources.state.boxes else YES


def compare(
    store: EvidenceStore, receipt: Receipt, artifacts: tuple[ArtifactSpec, ...], said: Progressing | None = None
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

    def names(path: str) -> set[str]:
        return {path, *(own_file(path, cell.name, cell.params) for cell in cells)} if "{" in path else {path}

    return tuple(spec for spec in artifacts if any((path, spec.load) in loaded for path in names(spec.path)))


def _forget(store: EvidenceStore, receipt: Receipt, cells: set[str]) -> None:
    """Removes the damaged copies from the index of checked files, so that every command reads them again."""
    known = file_index.read_index(store.objects, receipt)
    left = {path: facts for path, facts in known.items() if path.partition("/")[0] not in cells}
    try:
        file_index.write_index(store.objects, receipt.digest, left)
    except EvidenceError:
        return  # the evidence can't be written; the damage was reported


def _after_reread(sources: Sources, damaged: list[Reread]) -> list[str]:
    named = sources.target.named()
    if sources.state.boxes:  # the boxes still have what was sealed
        return [f"sweepctl pull {named} --verify    (copies again what differs)", *_puts_back(sources)]
    what = "the copy" if len(damaged) == 1 else f"the {len(damaged)} copies"
    first = f"sweepctl verify {named}    (once {what} came back from a backup)"
    return [first] if sources.target.evidence else [first, *_puts_back(sources)]


def _onwards(sources: Sources, store: EvidenceStore) -> list[str]:
    """The command that continues an interrupted teardown; else the one that restores the queue."""
    try:
        torn = store.teardown() is not None
    except EvidenceError:
        torn = True  # the destroy reports what is wrong with the record
    return (
        [f"pulumi destroy --stack {sources.target.stack}    (goes on with the teardown)"]
        if torn
        else _puts_back(sources)
    )


def _puts_back(sources: Sources) -> list[str]:
    stack = sources.target.stack
    init = "" if sources.known else f"pulumi stack init {stack} && "
    does = "puts its queue back" if sources.state.boxes else "rents boxes, and runs them again"
    return [] if sources.target.evidence else [f"{init}pulumi up --stack {stack}    ({does})"]
