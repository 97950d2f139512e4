"""`sweepctl verify`: reads and loads every file of every cell, and writes the receipt.

Without boxes or queues the copies are compared with the latest receipt: they are read whole again, and no receipt is
written. A copy that differs is reported with both digests, and every later command reads it again until it is restored.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sweepstack.cli.output import NO, UNSURE, YES, Out, moved, moved_json
from sweepstack.cli.progress import Progress
from sweepstack.core.records import SETTLED, Approval, ReceiptCell
from sweepstack.evidence.search_log import decided_prunes
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.verify import READER_VARIABLE, VerifyOutcome
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError, Unsure
from sweepstack.operations.sweep.cell_results import artifacts_of
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.engine_mend import put_back
from sweepstack.operations.sweep.roster_diff import Rosters, rosters
from sweepstack.operations.sweep.sources import Sources, blocked, usable, way_out
from sweepstack.operations.sweep.target import approval_of
from sweepstack.operations.sweep.verify import Reread, compare, forget, launched, verify_sweep
from sweepstack.status.ways_on import (
    by_checkpoint,
    by_files,
    first_hung,
    out_of_checkpoint,
    out_of_files,
    run_again,
    to_begin,
)
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
    if not sources.state.queues and (signs := launched(sources, store)):
        return reread(sources, store, out, f"no queue is in the state, and cells ran: {'; '.join(signs)}")
    plan = rosters(target, sources.state)
    try:
        outcome = run(sources, store, plan)
    except EvidenceError as error:
        raise blocked(str(error), sources, "verify") from error
    return report(sources, outcome, plan, out, store)


def run(sources: Sources, store: EvidenceStore, plan: Rosters) -> VerifyOutcome:
    """See `verify_sweep`; shows how far it is."""
    with Progress("verify", unit="bytes") as progress:
        progress.say("reading journals")
        return verify_sweep(sources, store, plan, progress.at)


def overlay(
    cells: tuple[ReceiptCell, ...],
    digest: str,
    approval: Approval | None,
    plan: Rosters,
    pruned: Collection[str] = (),
) -> list[Shown]:
    """The cells with their waivers. A waiver counts only for the receipt that it was given for. `pruned`: those that
    the rule of a search stopped, by its log."""
    waived = {}
    if approval is not None and approval.receipt == digest:
        waived = {waiver.cell: waiver.reason for waiver in approval.waive}
    shown = [
        Shown(cell.name, "waived", (waived[cell.name], *cell.reasons))
        if cell.name in waived and cell.state not in SETTLED
        else Shown(cell.name, cell.state, cell.reasons)
        for cell in cells
    ]
    stopped = [
        Shown(name, "pruned", (why,)) if name in pruned else Shown(name, "waived", (f"dropped: {why}",))
        for name, why in sorted(plan.dropped.items())
    ]
    shown += [Shown(name, "pending", ("in the stack file, and not brought up yet",)) for name in plan.ahead]
    return shown + stopped


def report(sources: Sources, outcome: VerifyOutcome, plan: Rosters, out: Out, store: EvidenceStore) -> int:
    """Prints the table and the receipt. Returns the exit code."""
    target, traffic = sources.target, store.traffic
    receipt, stack = outcome.receipt, target.stack
    pruned = decided_prunes(store.objects, plan.dropped)
    cells = overlay(receipt.cells, outcome.digest, approval_of(target), plan, pruned)
    bad = [cell for cell in cells if cell.state not in SETTLED]
    yes = bool(cells) and not bad and not outcome.unexpected
    untold = {cell.name for cell in bad} <= set(outcome.unknown) and not outcome.unexpected
    following = [f"pulumi up --stack {stack}"] if plan.ahead else _following(sources, outcome, cells)
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


def _following(sources: Sources, outcome: VerifyOutcome, cells: Sequence[Shown]) -> list[str]:
    bad = [cell for cell in cells if cell.state not in SETTLED]
    if {cell.state for cell in bad} == {"pending"} and not outcome.unexpected:
        now, states = take_snapshot(sources, files=False), {cell.name: cell.state for cell in cells}
        if begin := to_begin(sources.target.stack, now.box_snapshots, states, now.tended):
            return begin
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
        found = compare(store, receipt, artifacts_of(sources.target), progress.at)
    damaged = [cell for cell in found if cell.reasons]
    if damaged:
        forget(store, receipt, {cell.name for cell in damaged})
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
