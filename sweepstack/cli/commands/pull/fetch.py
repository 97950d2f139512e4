"""Copies sealed cells, journals and logs of unsealed attempts from all boxes into the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sweepstack.billing.egress import Egress, egress_words
from sweepstack.cli.output import NO, UNSURE, YES, Out, keep_for_error, moved, moved_json, size
from sweepstack.cli.progress import Progress
from sweepstack.core import trackers
from sweepstack.core.printable import printable
from sweepstack.evidence.pull import PullResult
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.unsealed import UNSEALED, Unsealed
from sweepstack.onbox.common.errors import EvidenceError, No
from sweepstack.onbox.common.units import count
from sweepstack.operations.pull import PullSummary, pull_sweep
from sweepstack.operations.sweep.egress import prices
from sweepstack.operations.sweep.roster_diff import rosters
from sweepstack.operations.sweep.sources import Sources, blocked, gives_up, usable
from sweepstack.status.ways_on import run_again, wakes
from sweepstack.teardown.refusal import GIVES_UP

LEFT = {
    "not_copied": "sealed, and not copied",
    "failed": "failed",
    "not_sealed": "not sealed yet",
    "not_seen": "not seen: no box that was reached has them",
}
"""Why a cell of the roster was not copied: the key in the JSON document → the text on the screen."""


def pull_and_verify(sources: Sources, out: Out) -> int:
    """Runs `pull`, and after exit 0 `verify`. The document of `verify`, or of its error, has that of the pull under
    `pull`."""
    from sweepstack.cli.commands.verify.receipt import verify

    first = _First(out)
    code = pull(sources, first, "pull --verify")
    if code != YES:
        first.tell()
        return code
    keep_for_error(pull=first.said)
    return verify(sources, _Second(first))


class _First(Out):
    """Keeps the document and the next commands of the pull until it is known whether a verify follows."""

    def __init__(self, out: Out) -> None:
        super().__init__(as_json=out.as_json)
        self.said: object = None
        self._next: Sequence[str] = ()

    def document(self, value: object) -> None:
        self.said = value

    def next(self, commands: Sequence[str]) -> None:
        self._next = commands

    def tell(self) -> None:
        """Prints what was kept: no verify follows."""
        super().document(self.said)
        super().next(self._next)


class _Second(Out):
    """Adds the document of the pull to that of the verify."""

    def __init__(self, first: _First) -> None:
        super().__init__(as_json=first.as_json)
        self._first = first

    def document(self, value: Any) -> None:
        super().document({**value, "pull": self._first.said})


def pull(sources: Sources, out: Out, verb: str = "pull") -> int:
    """Exit 0 if every sealed cell is copied; 1 if a copy was refused; 2 if a box was not reached. `verb`: what is typed
    to go on, after `sweepctl`."""
    store = usable(sources, verb)
    with Progress("pull", unit="bytes") as progress:
        summary = fetch(sources, store, progress, verb)
    return report(sources, summary, out, verb)


def fetch(sources: Sources, store: EvidenceStore, progress: Progress, verb: str) -> PullSummary:
    """As `operations.pull.pull_sweep`. Raises Unsure if the evidence can't be written, or another pull is running.
    `verb`: as in `pull`."""
    if sources.state.identity is None and not sources.state.boxes:
        status = f"sweepctl status --stack {sources.target.stack}"
        raise No("there is no box and no volume in the state: nothing to pull from", [status])
    progress_of: dict[str, tuple[int, int]] = {}

    def said(cell: str, done: int, total: int) -> None:
        before_done, before_total = progress_of.get(cell, (0, 0))
        progress.say(cell)
        progress.expect(total - before_total)
        progress.advance(done - before_done)
        progress_of[cell] = (done, total)

    try:
        return pull_sweep(sources.state, store, said)
    except EvidenceError as error:
        raise blocked(str(error), sources, verb) from error


def report(sources: Sources, summary: PullSummary, out: Out, verb: str) -> int:
    """Prints the table of copied cells. Returns the exit code."""
    stack = sources.target.stack
    with Progress("sending to trackers"):
        tracked = trackers.synced(sources)
    roster = rosters(sources.target, sources.state)
    brought = sum(result.bytes for _, result in summary.cells.values())
    here = {name for name, (_, result) in summary.cells.items() if result.state in ("pulled", "current")}
    left = [cell.name for cell in roster.cells if cell.name not in summary.cells]
    why_left = {why: [name for name in left if summary.why_left(name) == why] for why in LEFT}
    code = UNSURE if summary.problems else NO if summary.bad else YES
    billed = _billed(sources, summary)
    if code == YES:
        following = [f"sweepctl verify --stack {stack}"]
    elif code == NO and (wrong := [result.cell for result in summary.bad if not result.for_now]):
        again = f"sweepctl {verb} --stack {stack}    (where what is on the box was put right)"
        following = [run_again(stack, wrong), again, *gives_up(sources, GIVES_UP)]
    else:
        first = [wakes(stack, summary.resting)] if summary.resting else []
        again = f"sweepctl {verb} --stack {stack}    (goes on where this one stopped)"
        following = [*first, again, *gives_up(sources, "where that goes on failing")]
    out.document(
        {
            "stack": stack,
            "evidence": sources.evidence,
            "bytes": brought,
            "moved": moved_json(sources.store.traffic if sources.store else None),
            "egress": [one.as_json() for one in billed],
            "cells": [
                {
                    "name": name,
                    "state": result.state,
                    "box": box,
                    "files": result.files,
                    "bytes": result.bytes,
                    "reasons": list(result.reasons),
                    "notes": list(result.notes),
                }
                for name, (box, result) in sorted(summary.cells.items())
            ],
            "unsealed": [_as_json(box, one) for box, one in summary.unsealed],
            **why_left,
            "problems": summary.problems,
            "alarms": summary.alarms,
            "warnings": summary.warnings,
            **({"trackers": tracked} if tracked else {}),
            "next": following,
        }
    )
    out.table(
        ("CELL", "STATE", "BOX", "FILES", "COPIED", "NOTE"),
        (
            (
                name,
                result.state,
                box,
                str(result.files or ""),
                size(result.bytes) if result.bytes else "",
                _words(result),
            )
            for name, (box, result) in sorted(summary.cells.items())
        ),
    )
    out.line(f"{count(len(here), 'cell')} here, {size(brought)} copied to {sources.evidence}")
    if sources.store and sources.store.traffic:
        out.line(moved(sources.store.traffic))
    for line in (*_traffic(billed, stack), *_unsealed(summary, sources.evidence or "")):
        out.line(line)
    for why, names in why_left.items():
        if names:
            out.line(f"{count(len(names), 'cell')} {LEFT[why]}: {', '.join(names[:5])}{', …' if names[5:] else ''}")
    for problem in summary.problems:
        out.line(f"UNKNOWN {problem}", style="yellow")
    for warning in summary.warnings:
        out.line(f"warning  {warning}", style="yellow")
    for text, style in trackers.lines(tracked):
        out.line(text, style=style)
    for alarm in summary.alarms:
        out.line(alarm, style="bold red")
    out.next(following)
    return code


def _billed(sources: Sources, summary: PullSummary) -> list[Egress]:
    """What this pull copied out of boxes whose platform bills that."""
    copied = {box.name: 0 for box in sources.state.boxes}
    for name, result in summary.cells.values():
        copied[name] = copied.get(name, 0) + result.bytes
    boxes = [box for box in sources.state.boxes if copied[box.name]]
    births = sources.store.births() if sources.store and boxes else []
    known = prices(sources.target, [(box.native_id, box.platform, box.adapter) for box in boxes], births)
    return [
        Egress(box.name, box.native_id, copied[box.name], known[box.native_id])
        for box in boxes
        if box.native_id in known
    ]


def _traffic(billed: Sequence[Egress], stack: str) -> Iterator[str]:
    """What its platform bills of this pull: our ledger does not count it."""
    for one in billed:
        yield f"{size(one.bytes)} left box {one.box}, which is billed {egress_words(one.bytes, one.per_gb)}"
    if billed:
        yield f"the ledger shows it beside its total: sweepctl ledger --stack {stack}"


def _words(result: PullResult) -> str:
    return "; ".join((*result.reasons, *result.notes))


def _unsealed(summary: PullSummary, evidence: str) -> Iterator[str]:
    """Lines on the copied files of unsealed attempts, and on the largest files that were not copied."""
    if not summary.unsealed:
        return
    files = sum(len(one.files) for _, one in summary.unsealed)
    named = ", ".join(f"{one.cell} (attempt {one.attempt})" for _, one in summary.unsealed[:5])
    more = ", …" if summary.unsealed[5:] else ""
    copied = size(sum(one.bytes for _, one in summary.unsealed))
    yield f"kept of attempts without a seal: {count(files, 'file')}, {copied}: {named}{more}; in {evidence}/{UNSEALED}"
    left = [(file.size, one.cell, file) for _, one in summary.unsealed for file in one.left]
    for amount, cell, file in sorted(left, key=lambda entry: -entry[0])[:5]:
        yield f"left on the box: {cell} {printable(file.path)} {size(amount)}: {file.why}"
    rest = len(left[5:]) + sum(one.more for _, one in summary.unsealed)
    if rest:
        yield f"left on the box: {count(rest, 'file')} more: sweepctl pull --json"


def _as_json(box: str, one: Unsealed) -> dict[str, Any]:
    return {"box": box, **one.model_dump(mode="json"), "bytes": one.bytes}
