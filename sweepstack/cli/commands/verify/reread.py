"""`sweepctl verify` without boxes or queues: compares the copies with the latest receipt.

The copies are read whole again, and no receipt is written. A copy that differs from the receipt is reported with both
digests, and every later command reads it again until it is restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweepstack.cli.artifact_specs import artifacts_of
from sweepstack.cli.output import NO, UNSURE, YES, Out, Unsure
from sweepstack.cli.progress import Progress
from sweepstack.cli.sources import Sources
from sweepstack.core.records import ArtifactSpec, Cell, Receipt, ReceiptCell
from sweepstack.core.roster import Roster
from sweepstack.evidence import file_index
from sweepstack.evidence.manifest import ManifestRefused, parse_manifest
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.verify import Progress as Progressing
from sweepstack.evidence.verify import VerifyRequest, verify
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.onbox.common.placeholders import own_file


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
        raise Unsure(f"{why}; and there is no receipt: nothing was verified yet", _up(sources))
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
    following = _following(sources, damaged) if damaged else whole
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
    after = {cell.name: cell for cell in verify(request, said).receipt.cells}
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


def _following(sources: Sources, damaged: list[Reread]) -> list[str]:
    named = sources.target.named()
    if sources.state.boxes:  # the boxes still have what was sealed
        return [f"sweepctl pull {named} --verify    (copies again what differs)", *_up(sources)]
    what = "the copy" if len(damaged) == 1 else f"the {len(damaged)} copies"
    first = f"sweepctl verify {named}    (once {what} came back from a backup)"
    return [first] if sources.target.evidence else [first, *_up(sources)]


def _onwards(sources: Sources, store: EvidenceStore) -> list[str]:
    """The command that continues an interrupted teardown; else the one that restores the queue."""
    try:
        torn = store.teardown() is not None
    except EvidenceError:
        torn = True  # the destroy reports what is wrong with the record
    return [f"pulumi destroy --stack {sources.target.stack}    (goes on with the teardown)"] if torn else _up(sources)


def _up(sources: Sources) -> list[str]:
    stack = sources.target.stack
    init = "" if sources.known else f"pulumi stack init {stack} && "
    does = "puts its queue back" if sources.state.boxes else "rents boxes, and runs them again"
    return [] if sources.target.evidence else [f"{init}pulumi up --stack {stack}    ({does})"]
