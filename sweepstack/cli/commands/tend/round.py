"""One round of `sweepctl tend`: looks at the boxes, pulls and verifies, stops. Ends no box."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sweepstack.billing.budget import to_stop
from sweepstack.billing.ledger import spent
from sweepstack.cli.collect import look
from sweepstack.cli.commands.pull.fetch import fetch
from sweepstack.cli.commands.verify import receipt as verifying
from sweepstack.cli.events import Events
from sweepstack.cli.output import NO, UNSURE, YES, Unsure, note
from sweepstack.cli.progress import Progress
from sweepstack.cli.roster_diff import rosters
from sweepstack.cli.sources import Sources, open_sources
from sweepstack.core.own_stop import asked_to_stop
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import SETTLED
from sweepstack.evidence import box_logs, unsealed
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.platform import Phase, Wait
from sweepstack.operations.power import drained, judge_stop, stop_box
from sweepstack.status.compose import SweepView, compose
from sweepstack.status.engine.state import STOP, BoxEntry
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.ownership import renew

STOP_SECONDS = 300.0
HOLD_SECONDS = 20.0
Seals = set[tuple[str, str]]


@dataclass
class Round:
    """What a round found and did. `kept`: boxes that should stop and do not, with why; `answer`: the exit code if
    nothing is left to do (`over`)."""

    counts: dict[str, int] = field(default_factory=dict)
    pulled: int = 0
    bytes: int = 0
    receipt: str | None = None
    stopped: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    moved: dict[str, int] = field(default_factory=dict)
    """Box → the number of waiting cells that were moved to it."""
    alarms: list[str] = field(default_factory=list)
    """What a person must do about an account, as `status` shows it; it changes no exit code."""
    problems: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)
    over: bool = False
    answer: int = YES

    def as_json(self) -> dict[str, Any]:
        """The documented shape of a line of `--json`."""
        return vars(self).copy()


def look_at(sources: Sources, store: EvidenceStore, verified: Seals) -> tuple[Round, Snapshot, SweepView]:
    """The snapshot at the start of the round. Adds the cells of the latest receipt to `verified`."""
    snapshot = look(sources)
    view = compose(snapshot)
    if snapshot.receipt is not None:
        verified |= {(cell.name, cell.manifest) for cell in snapshot.receipt.cells if cell.manifest is not None}
    round_ = Round(
        counts=view.counts(),
        gone=[box_snapshot.box.name for box_snapshot in snapshot.box_snapshots if box_snapshot.gone],
    )
    round_.unknown += [
        f"box {box_snapshot.box.name}: {box_snapshot.seen.account_problem or box_snapshot.seen.note}"
        for box_snapshot in snapshot.box_snapshots
        if not box_snapshot.gone and not box_snapshot.reachable
    ]
    _hold(snapshot)
    return round_, snapshot, view


def _hold(snapshot: Snapshot) -> None:
    """Renews the owner's hold of the boxes. Waits only shortly: the next round does it again."""

    def renewed(box: BoxEntry) -> None:
        with contextlib.suppress(SweepstackError, OSError):
            renew(box.context().channel())

    held = [
        box_snapshot.box
        for box_snapshot in snapshot.box_snapshots
        if box_snapshot.reachable and box_snapshot.phase == Phase.RUNNING
    ]
    in_parallel({box.native_id: partial(renewed, box) for box in held}, HOLD_SECONDS)


def bring_in(sources: Sources, store: EvidenceStore, snapshot: Snapshot, round_: Round, verified: Seals) -> None:
    """Pulls and verifies, if a sealed cell is in no receipt."""
    fresh = bool(_seals(snapshot.box_snapshots) - verified)
    if not fresh and not _logs_to_copy(store, snapshot):
        return
    with Progress("pull", unit="bytes") as progress:
        summary = fetch(sources, store, progress)
    round_.pulled = sum(1 for _, result in summary.cells.values() if result.state == "pulled")
    round_.bytes = sum(result.bytes for _, result in summary.cells.values())
    round_.problems += [f"{result.cell}: {'; '.join(result.reasons)}" for result in summary.bad]
    round_.unknown += summary.problems
    for warning in summary.warnings:
        note(warning)
    if not fresh:
        return
    try:
        outcome = verifying.run(sources, store, rosters(sources.target, sources.state))
    except Unsure as error:
        round_.unknown.append(str(error))
        return
    round_.receipt = outcome.digest
    if not summary.problems and not summary.bad:
        # Damaged ones too: reading them again would find the same, until they are sealed anew.
        verified |= _seals(snapshot.box_snapshots)


def _logs_to_copy(store: EvidenceStore, snapshot: Snapshot) -> bool:
    """Whether a box that answers has logs without a copy: of an attempt without a seal, or, once its runner has ended,
    its own logs."""
    for box_snapshot in snapshot.box_snapshots:
        box, journal = box_snapshot.box, box_snapshot.seen.journal
        dead = box_snapshot.seen.runner_alive is False
        if journal is None:
            continue
        if unsealed.missing(store, box.name, box.generation, journal, dead=dead):
            return True
        if dead and box_logs.due(store, box.name, box.generation, journal):
            return True
    return False


def _seals(box_snapshots: Iterable[BoxSnapshot]) -> Seals:
    return {
        (name, progress.manifest)
        for box_snapshot in box_snapshots
        if box_snapshot.journal is not None
        for name, progress in box_snapshot.journal.cells.items()
        if progress.state == "sealed" and progress.manifest is not None
    }


def rest(sources: Sources, store: EvidenceStore, snapshot: Snapshot, round_: Round, verified: Seals) -> None:
    """Stops boxes with a drained queue, beyond the budget, or on which nothing was launched long after their lease, if
    no unsaved data is lost by that."""
    broke = set(to_stop(snapshot.budget, spent(store, snapshot.now) if snapshot.spent is None else snapshot.spent))
    bare = {one.birth.native_id for one in snapshot.billing_unheld if one.long_over}
    for box_snapshot in snapshot.box_snapshots:
        if box_snapshot.phase != Phase.RUNNING or not box_snapshot.reachable:
            continue
        due = box_snapshot.box.when_done == STOP or asked_to_stop(box_snapshot.journal)
        done = due and not box_snapshot.seen.runner_alive and _drained(store, box_snapshot)
        left = box_snapshot.box.native_id in bare and not box_snapshot.seen.runner_alive
        if done or left or box_snapshot.box.native_id in broke:
            why = "its queue is drained" if done else "the budget is used up"
            why = "nothing was launched on it, and its lease is long over" if left else why
            _let_rest(store, box_snapshot, why, round_, verified)


def _drained(store: EvidenceStore, box_snapshot: BoxSnapshot) -> bool:
    return drained(store, box_snapshot.box.name, box_snapshot.box.generation, box_snapshot.seen)


def _let_rest(store: EvidenceStore, box_snapshot: BoxSnapshot, why: str, round_: Round, verified: Seals) -> None:
    box = box_snapshot.box
    if box.teardown.stop is None:
        round_.kept[box.name] = f"{why}, and {box.adapter} has no stop"
        return
    left = sorted(name for name, _ in _seals([box_snapshot]) - verified)
    if left:
        round_.kept[box.name] = f"{why}, and {', '.join(left[:3])} could not be pulled and verified yet"
        return
    pause = judge_stop(box.context(STOP), box.teardown.paths, None, full=False)
    if not pause.verdict.allowed:
        round_.kept[box.name] = f"{why}, and a stop would lose {pause.risk.words(pause.facts.kills)}"
        return
    profile = box.teardown.stop.price_per_hour
    try:
        record = stop_box(
            pause,
            dict(box.teardown.paths),
            price_after=profile,
            wait=Wait(deadline=STOP_SECONDS),
            say=lambda _line: None,
            issued=box.teardown.stop.issue,
        )
    except SweepstackError as error:
        round_.problems.append(f"box {box.name} could not be stopped: {error}")
        return
    price = record.bills_at_rest(profile)
    after = "at a price that is not known" if price is None else f"${spell_rate(price)}/h"
    round_.stopped[box.name] = f"{why}; {after} from now"


def conclude(sources: Sources, round_: Round, verified: Seals, events: Events) -> None:
    """Completes the round: the states of the cells now, what there is to tell, whether anything is left to do, what to
    type next."""
    changed = round_.pulled or round_.receipt or round_.stopped or round_.replaced or round_.moved
    sources = open_sources(sources.target) if changed else sources
    snapshot = look(sources)
    view = compose(snapshot)
    events.look(sources, snapshot, view)
    round_.counts = view.counts()
    round_.next, round_.alarms = list(view.next), list(view.alarms)
    at_work = any(box_snapshot.seen.runner_alive for box_snapshot in snapshot.box_snapshots)
    waits = any(
        box_snapshot.seen.runner_alive is None and not box_snapshot.gone for box_snapshot in snapshot.box_snapshots
    )
    fresh = _seals(snapshot.box_snapshots) - verified
    round_.over = not (at_work or waits or fresh or round_.unknown or round_.replaced or round_.moved)
    if not round_.over:
        return
    settled = all(cell.state in SETTLED for cell in view.cells)
    round_.answer = YES if settled and not round_.kept and not round_.problems else NO
    if view.bills == "unknown":
        round_.answer = UNSURE
