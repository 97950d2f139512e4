"""Copies sealed cells, journals and logs of unsealed attempts from all boxes into the evidence."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sweepstack.billing.egress import Egress, egress_words
from sweepstack.cli.egress import prices
from sweepstack.cli.output import NO, UNSURE, YES, No, Out, count, keep_for_error, moved, moved_json, size
from sweepstack.cli.progress import Progress
from sweepstack.cli.roster_diff import rosters
from sweepstack.cli.sources import Sources, blocked, gives_up, usable
from sweepstack.core.journal import CellProgress
from sweepstack.core.own_stop import could_not_stop
from sweepstack.core.printable import printable
from sweepstack.evidence import unsealed
from sweepstack.evidence.pull import BoxPull, BoxSource, PullResult, pull_all
from sweepstack.evidence.pull_cell import Settled
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.unsealed import UNSEALED, Unsealed
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged, SweepstackError
from sweepstack.onbox.host.platform import BoxRecord, Phase, Told
from sweepstack.operations.lease import renew_lease
from sweepstack.platforms.registry import load_platform, volume_channel
from sweepstack.status.engine.state import BoxEntry
from sweepstack.status.next_commands import run_again, wakes
from sweepstack.teardown.ownership import renew
from sweepstack.teardown.ways import GIVES_UP

KEEP_ON_SECONDS = 60.0
"""Seconds between two signs to a box that it is being read."""


LEFT = {
    "not_copied": "sealed, and not copied",
    "failed": "failed",
    "not_sealed": "not sealed yet",
    "not_seen": "not seen: no box that was reached has them",
}
"""Why a cell of the roster was not copied: the key in the JSON document → the text on the screen."""


@dataclass
class PullSummary:
    """The result of one pull: each cell's box and result, and the boxes that could not be reached.

    `unsealed`: attempts without a seal that were copied now, with their boxes. `said`: each cell's state in the
    journals that were read. `alarms`: of boxes that should have ended their own bill and could not. `warnings`: logs of
    boxes that could not be copied.
    """

    cells: dict[str, tuple[str, PullResult]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unsealed: list[tuple[str, Unsealed]] = field(default_factory=list)
    said: dict[str, CellProgress] = field(default_factory=dict)
    alarms: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    resting: list[tuple[BoxEntry, Told | None]] = field(default_factory=list)
    """Boxes that were not reached since they stand still, each with what its platform tells."""

    def add(self, pulls: Collection[BoxPull]) -> None:
        """Adds results. A cell that was copied already keeps its first result."""
        for pull in pulls:
            if pull.problem:
                self.problems.append(f"box {pull.box}: {pull.problem}")
            self.unsealed += [(pull.box, one) for one in pull.unsealed]
            self.warnings += [f"box {pull.box}: {warning}" for warning in pull.warnings]
            if stop := could_not_stop(pull.journal, datetime.now(UTC), None):
                self.alarms.append(f"ALARM  box {pull.box}: {stop}")
            for name, progress in (pull.journal.cells if pull.journal else {}).items():
                if name not in self.said or self.said[name].state in ("pending", "dropped"):
                    self.said[name] = progress
            for result in pull.results:
                before = self.cells.get(result.cell)
                if before is None or before[1].state in ("absent", "refused"):
                    self.cells[result.cell] = (pull.box, result)

    def why_left(self, cell: str) -> str:
        """Why a cell is not in `cells`: a key of LEFT."""
        said = self.said.get(cell)
        if said is None:
            return "not_seen" if self.problems else "not_sealed"
        if said.state == "sealed":
            return "not_copied"
        return "failed" if said.state == "failed" and said.final else "not_sealed"

    @property
    def bad(self) -> list[PullResult]:
        """Sealed cells that could not be copied."""
        return [result for _, result in self.cells.values() if result.state in ("absent", "refused")]


def pull_and_verify(sources: Sources, out: Out) -> int:
    """Runs `pull`, and after exit 0 `verify`. The document of `verify`, or of its error, has that of the pull under
    `pull`."""
    from sweepstack.cli.commands.verify.receipt import verify

    first = _First(out)
    code = pull(sources, first)
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


def pull(sources: Sources, out: Out) -> int:
    """Exit 0 if every sealed cell is copied; 1 if a copy was refused; 2 if a box was not reached."""
    store = usable(sources, "pull")
    with Progress("pull", unit="bytes") as progress:
        summary = fetch(sources, store, progress)
    return report(sources, summary, out)


def fetch(sources: Sources, store: EvidenceStore, progress: Progress) -> PullSummary:
    """Copies from the boxes, then from the volumes that outlived their boxes. Resumable, idempotent.

    Raises Unsure if the evidence can't be written, or another pull is running.
    """
    try:
        return _fetch(sources, store, progress)
    except EvidenceError as error:
        raise blocked(str(error), sources, "pull") from error


def _fetch(sources: Sources, store: EvidenceStore, progress: Progress) -> PullSummary:
    identity = store.marker.identity
    if sources.state.identity is None and not sources.state.boxes:
        raise No("there is no box and no volume in the state: nothing to pull from", ["sweepctl status"])
    progress_of: dict[str, tuple[int, int]] = {}

    armed, leased = _armed(sources), [box for box in sources.state.boxes if box.leased]
    last_sign = 0.0

    def said(cell: str, done: int, total: int) -> None:
        nonlocal last_sign
        if (armed or leased) and time.monotonic() - last_sign > KEEP_ON_SECONDS:
            last_sign = time.monotonic()
            _keep_on(armed)
            for box in leased:  # boxes are pulled one after the other: their leases may be shorter than that takes
                renew_lease(box.context().channel)
        before_done, before_total = progress_of.get(cell, (0, 0))
        progress.say(cell)
        progress.expect(total - before_total)
        progress.advance(done - before_done)
        progress_of[cell] = (done, total)

    summary = PullSummary()
    _keep_on(armed)
    live, dead = _sources(sources, store, summary)
    answering = {(source.box, source.generation) for source in live}
    leased = [box for box in leased if (box.name, box.generation) in answering]
    pulls = pull_all(live, identity, store, said)
    summary.add(pulls)
    told = {name for pull in pulls if pull.journal for name, cell in pull.journal.cells.items() if cell.manifest}
    for source in dead:
        sealed = _sealed_by(store, source.box, source.generation) - told
        if sealed:
            wanted = BoxSource(source.box, source.generation, source.channel, cells=sorted(sealed), volume_only=True)
            summary.add(pull_all([wanted], identity, store, said))
    return summary


def _armed(sources: Sources) -> list[BoxEntry]:
    """The boxes that end their own bill once their queue is drained: they wait while a pull runs."""
    return [box for box in sources.state.boxes if box.ends_itself]


def _keep_on(boxes: Sequence[BoxEntry]) -> None:
    """Tells these boxes that a pull runs. If that fails, the pull goes on."""
    for box in boxes:
        with contextlib.suppress(SweepstackError, OSError):
            box.context().channel().write(box_layout.KEEP_ON, b"")


def _sources(sources: Sources, store: EvidenceStore, summary: PullSummary) -> tuple[list[BoxSource], list[BoxSource]]:
    """The boxes that answer, and the volumes of boxes that do not. First those boxes of which nothing outlives them:
    where a balance or a deadline is short, what has no copy elsewhere must come first."""
    live: list[BoxSource] = []
    dead: list[BoxSource] = []
    named = set()
    for box in sorted(sources.state.boxes, key=lambda box: bool(box_layout.surviving(box.teardown.kills, box.mounts))):
        named.add((box.name, box.generation))
        record: BoxRecord | None = None
        try:
            platform = box.context().platform
            record = platform.get(box.native_id, box.account)
            if record.phase is not Phase.GONE:
                channel = platform.channel(box.native_id, box.account)
                renew(channel)
                live.append(BoxSource(box.name, box.generation, channel))
                continue
        except SweepstackError as error:
            if record is not None and record.phase is Phase.STOPPED and (here := _here_at_rest(store, box)) is not None:
                summary.cells |= {name: (box.name, PullResult(name, "current")) for name in here}
                continue
            summary.problems.append(f"box {box.name}: {error}")
            if record is not None and record.phase.at_rest:
                summary.resting.append((box, record.told))
        dead += _by_volume(box.name, box.generation, box.adapter, box.mounts)
    for birth in store.births():
        if (birth.box, birth.generation) not in named:
            dead += _by_volume(birth.box, birth.generation, birth.platform, birth.mounts)
    return live, dead


def _here_at_rest(store: EvidenceStore, box: BoxEntry) -> list[str] | None:
    """The sealed cells of a box that we stopped, if all of them, and all that its attempts without a seal left, is here
    already: nothing more is to be had from it. Else None."""
    try:
        journal = store.journal_at_rest(box.name, box.generation, box.native_id)
        if journal is None or unsealed.missing(store, box.name, box.generation, journal, dead=True):
            return None
        here = Settled(store)
        sealed = {name: cell.manifest or "" for name, cell in journal.cells.items() if cell.state == "sealed"}
        return list(sealed) if all(here.holds(name, manifest) for name, manifest in sealed.items()) else None
    except (EvidenceError, JournalDamaged):
        return None


def _by_volume(box: str, generation: int, adapter: str, mounts: Mapping[str, str]) -> list[BoxSource]:
    """The durable volume of a box that does not answer, if the volume can be read."""
    volume = mounts.get(box_layout.DURABLE)
    if volume is None:
        return []
    try:
        channel = volume_channel(load_platform(adapter), volume, box_layout.DURABLE)
    except SweepstackError:
        return []
    return [BoxSource(box, generation, channel, volume_only=True)]


def _sealed_by(store: EvidenceStore, box: str, generation: int) -> set[str]:
    try:
        journal = store.journal(box, generation)
    except (EvidenceError, JournalDamaged):
        return set()
    return {name for name, cell in journal.cells.items() if cell.state == "sealed"} if journal else set()


def report(sources: Sources, summary: PullSummary, out: Out) -> int:
    """Prints the table of copied cells. Returns the exit code."""
    stack = sources.target.stack
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
        again = f"sweepctl pull --stack {stack}    (where what is on the box was put right)"
        following = [run_again(stack, wrong), again, *gives_up(sources, GIVES_UP)]
    else:
        first = [wakes(stack, summary.resting)] if summary.resting else []
        again = f"sweepctl pull --stack {stack}    (goes on where this one stopped)"
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
