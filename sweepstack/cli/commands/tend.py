"""`sweepctl tend`: runs unattended: pulls, verifies and stops finished boxes. Never deletes.

`sweepctl tend`: runs its rounds, in the foreground, in cron or in CI. Never deletes a box.

A round pulls and verifies the cells that were sealed since the last one; moves waiting cells to idle boxes; stops boxes
with a drained queue (`when_done: stop`) or beyond the budget (`budget.stop`), if no unsaved data is lost by that;
notices boxes that are gone; and with `--replace` lets `pulumi up` rent these again. A runner can't do this itself: it
has no key for its own platform.

Moves waiting cells from another box's queue to an idle box, for `sweepctl tend`.

The engine does it, under the stack's lock: `pulumi up` with the queues as targets rents nothing and ends nothing. A
preview comes first. If it shows any change other than the cells of a queue, such as code that was edited since the last
`up`, nothing is done, and a person is told.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from sweepstack.billing.budget import to_stop
from sweepstack.billing.ledger import spent
from sweepstack.cli.collect import take_snapshot
from sweepstack.cli.commands.pull.fetch import fetch
from sweepstack.cli.commands.verify import receipt as verifying
from sweepstack.cli.events import Events
from sweepstack.cli.options import AsJson, Stack
from sweepstack.cli.output import NO, UNSURE, YES, No, Out, Unsure, count, note, size, span
from sweepstack.cli.progress import Progress
from sweepstack.cli.roster_diff import rosters
from sweepstack.cli.sources import Sources, open_sources, usable
from sweepstack.cli.target import Target, parse_duration
from sweepstack.core.own_stop import asked_to_stop
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import SETTLED
from sweepstack.evidence import box_logs, unsealed
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.platform import Phase, Wait
from sweepstack.operations.power import drained, judge_stop, stop_box
from sweepstack.operations.tend_claim import AlreadyTended, Tending, claim, let_go
from sweepstack.status.compose import SweepView, compose
from sweepstack.status.engine.call import find_engine
from sweepstack.status.engine.state import STOP, BoxEntry
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.ownership import renew


def command(
    interval: Annotated[str, typer.Option(metavar="60s", help="Time from the start of one round to the next.")] = "60s",
    once: Annotated[bool, typer.Option("--once", help="One round: for cron and CI.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Let `pulumi up` rent again the boxes that are proved gone. Costs money.")
    ] = False,
    timeout: Annotated[str, typer.Option(metavar="72h", help="When to end.")] = "72h",
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Pull, verify and stop finished boxes, round after round. Never deletes. Exit 0: nothing is left to do."""
    target, out = Target.find_sweep(stack), Out(as_json=json)
    return tend(target, parse_duration(interval), once, replace, parse_duration(timeout), out)


LEAST_SECONDS = 1.0
GRACE = timedelta(minutes=15)
"""Seconds that a claim lasts longer than a round: a pull may take long."""
REPLACEMENTS = 3
"""The most times that one run lets `pulumi up` rent a box of one name again."""


@dataclass
class Moves:
    """The memory of one run of `tend`. `tried`: the idle boxes and waiting cells at the last call of the engine."""

    tried: tuple[tuple[str, ...], tuple[str, ...]] = field(default=((), ()))


@dataclass
class Memory:
    """The memory of one run of `tend` between its rounds."""

    interval: timedelta
    replace: bool
    verified: set[tuple[str, str]] = field(default_factory=set)
    """(cell, manifest) of the seals that this run has pulled and verified."""
    replaced: dict[str, int] = field(default_factory=dict)
    moves: Moves = field(default_factory=Moves)
    stop: threading.Event = field(default_factory=threading.Event)
    engine: subprocess.Popen[bytes] | None = None


def tend(target: Target, interval: timedelta, once: bool, replace: bool, timeout: timedelta, out: Out) -> int:
    """Exit 0 if nothing is left to do and every cell is settled (with `once`: if the round went well); 1 if a person is
    needed, or the time is up; 2 if something is not known."""
    memory = Memory(max(interval, timedelta(seconds=LEAST_SECONDS)), replace)
    store = usable(open_sources(target), "tend")
    try:
        mine = claim(store, memory.interval + GRACE, None)
    except AlreadyTended as error:
        raise No(str(error), [f"sweepctl status --stack {target.stack}"]) from error
    events = Events()
    try:
        with _signals(memory):
            return _rounds(target, memory, mine, once, timeout, out, events)
    finally:
        let_go(store, mine)
        events.end()


def _rounds(
    target: Target, memory: Memory, mine: Tending, once: bool, timeout: timedelta, out: Out, events: Events
) -> int:
    deadline, number = time.monotonic() + timeout.total_seconds(), 0
    while True:
        number += 1
        begun = time.monotonic()
        round_ = _one_round(target, memory, events)
        print_round(round_, number, out, "" if once or round_.over else span(memory.interval.total_seconds()))
        if memory.stop.is_set():
            note("interrupted; nothing is half done, the next tend goes on from here")
            return 130
        if once or round_.over:
            out.next(round_.next)
            return round_.answer if not once else UNSURE if round_.unknown else NO if round_.problems else YES
        wait = memory.interval.total_seconds() - (time.monotonic() - begun)
        if time.monotonic() + max(wait, 0) > deadline:
            raise No(f"the time is up after {count(number, 'round')}", [f"sweepctl tend --stack {target.stack}"])
        if memory.stop.wait(max(wait, 0)):
            note("interrupted between two rounds; the next tend goes on from here")
            return 130
        mine = claim(usable(open_sources(target), "tend"), memory.interval + GRACE, mine)


def _one_round(target: Target, memory: Memory, events: Events) -> Round:
    """One round. An outage is a problem of this round only: the next round asks again."""
    try:
        sources = open_sources(target)
        store = usable(sources, "tend")
        round_, snapshot, view = look_at_boxes(sources, store, memory.verified)
        events.look(sources, snapshot, view)
        if not memory.stop.is_set():
            bring_in(sources, store, snapshot, round_, memory.verified)
        if not memory.stop.is_set():
            move_cells_to_idle(
                target.root, snapshot, round_, memory.moves, lambda words: _engine(memory, target, words)
            )
        if not memory.stop.is_set() and not round_.moved:  # no stop for a box that has just been given cells
            stop_finished_boxes(sources, store, snapshot, round_, memory.verified)
        if memory.replace and round_.gone and not memory.stop.is_set():
            _replace(sources, memory, round_)
        conclude(sources, round_, memory.verified, events)
        return round_
    except Unsure as error:
        return Round(unknown=[str(error)], next=list(error.next))
    except SweepstackError as error:
        return Round(unknown=[str(error)], next=[f"sweepctl status --stack {target.stack}"])


def _replace(sources: Sources, memory: Memory, round_: Round) -> None:
    """Lets `pulumi up` rent again the boxes that are proved gone and still wanted. `up` itself checks the budget."""
    target = sources.target
    wanted = target.file.sweep().get("boxes") or {}
    leaving = [box.name for box in sources.state.boxes if _want(wanted, box.name) == "gone"]
    if leaving:  # with an approval `up` would end them, so only a person may run it
        round_.problems.append(
            f"{target.file.shown} takes {', '.join(leaving)} out, so nothing is rented again: run pulumi up yourself"
        )
        return
    names = [
        name for name in round_.gone if _want(wanted, name) == "running" and memory.replaced.get(name, 0) < REPLACEMENTS
    ]
    if not names:
        return
    for name in names:
        memory.replaced[name] = memory.replaced.get(name, 0) + 1
    command = ["up", "--stack", target.stack, "--yes", "--non-interactive", "--skip-preview"]
    note("$ " + " ".join(["pulumi", *command]))
    code = _engine(memory, target, command)
    if code == 0:  # `up` rents no box if all its cells are verified
        there = {box.name for box in open_sources(target).state.boxes}
        round_.replaced += [name for name in names if name in there]
    else:
        round_.problems.append(f"`pulumi up` ended with {code}: {', '.join(names)} not rented again")


def _engine(memory: Memory, target: Target, words: Sequence[str]) -> int:
    """Runs the engine to its end, in its own session: we pass an interrupt on to it once, so that it ends cleanly."""
    memory.engine = subprocess.Popen(
        [find_engine(), *words], cwd=target.root, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
    )
    code, asked = None, False
    while code is None:
        try:
            code = memory.engine.wait(0.5)
        except subprocess.TimeoutExpired:
            if memory.stop.is_set() and not asked:
                asked = True
                os.kill(memory.engine.pid, signal.SIGINT)
    memory.engine = None
    return code


def _want(boxes: Mapping[str, Any], name: str) -> str:
    """`want` of a box in the stack file; `gone` for a box that it does not name."""
    box = boxes.get(name, {"want": "gone"})
    return str((box or {}).get("want", "running")) if isinstance(box, dict | None) else "gone"


@contextmanager
def _signals(memory: Memory) -> Iterator[None]:
    """The first SIGINT or SIGTERM lets the current step end; a second SIGINT stops at once."""

    def asked(number: int, _frame: FrameType | None) -> None:
        if memory.stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        memory.stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_round(round_: Round, number: int, out: Out, again: str) -> None:
    """Prints the round's line, or its JSON object on one line."""
    now = datetime.now(UTC).replace(microsecond=0)
    document: dict[str, Any] = {"time": now.isoformat().replace("+00:00", "Z"), "round": number, **round_.as_json()}
    if out.as_json:
        print(json.dumps(document, ensure_ascii=False), flush=True)
        return
    counts = ", ".join(f"{amount} {state}" for state, amount in round_.counts.items()) or "no cells"
    parts = [counts]
    if round_.pulled:
        parts.append(f"pulled {count(round_.pulled, 'cell')}, {size(round_.bytes)}")
    parts += [f"stopped {name}: {why}" for name, why in round_.stopped.items()]
    parts += [f"box {name} is kept: {why}" for name, why in round_.kept.items()]
    parts += [f"box {name} takes over {count(cells, 'cell')}" for name, cells in round_.moved.items()]
    parts += [f"rented again: {name}" for name in round_.replaced]
    parts += [f"box {name} is gone" for name in round_.gone if name not in round_.replaced]
    parts += [f"ALARM {alarm}" for alarm in round_.alarms]
    parts += [*round_.problems, *(f"UNKNOWN {why}" for why in round_.unknown)]
    text = "; ".join(" ".join(part.split()) for part in parts)
    out.line(f"{now:%H:%M:%S}  {text}" + (f"; again in {again}" if again else ""), wrap=False)


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


def look_at_boxes(sources: Sources, store: EvidenceStore, verified: Seals) -> tuple[Round, Snapshot, SweepView]:
    """The snapshot at the start of the round. Adds the cells of the latest receipt to `verified`."""
    snapshot = take_snapshot(sources)
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


def stop_finished_boxes(
    sources: Sources, store: EvidenceStore, snapshot: Snapshot, round_: Round, verified: Seals
) -> None:
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
            _stop_finished_box(store, box_snapshot, why, round_, verified)


def _drained(store: EvidenceStore, box_snapshot: BoxSnapshot) -> bool:
    return drained(store, box_snapshot.box.name, box_snapshot.box.generation, box_snapshot.seen)


def _stop_finished_box(
    store: EvidenceStore, box_snapshot: BoxSnapshot, why: str, round_: Round, verified: Seals
) -> None:
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
    snapshot = take_snapshot(sources)
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


PREVIEW_SECONDS = 300.0
CELLS = frozenset({"cells", "elsewhere"})
"""The inputs of a queue with its cells."""

Run = Callable[[Sequence[str]], int]
"""Runs the engine with these arguments to its end, and returns its exit code."""


def move_cells_to_idle(root: Path, snapshot: Snapshot, round_: Round, moves: Moves, run: Run) -> None:
    """Moves waiting cells to idle boxes. Calls the engine only once for the same boxes and cells."""
    idle = tuple(box_snapshot.box.name for box_snapshot in snapshot.box_snapshots if box_snapshot.idles)
    waits = tuple(sorted(name for box_snapshot in snapshot.box_snapshots for name in box_snapshot.waiting))
    if not idle or not waits or (idle, waits) == moves.tried:
        return
    moves.tried = (idle, waits)
    queues = [
        box_snapshot.queue.urn
        for box_snapshot in snapshot.box_snapshots
        if box_snapshot.queue is not None and not box_snapshot.gone
    ]
    targets = [word for urn in queues for word in ("--target", urn)]
    stack = snapshot.state.stack
    names = f"box {', '.join(idle)} {'has' if len(idle) == 1 else 'have'} nothing to do"
    try:
        steps = _preview(root, stack, targets)
    except SweepstackError as error:
        round_.problems.append(f"{names}, and the preview of moving cells failed: {error}")
        return
    more, other = _moved_and_other(steps, idle)
    if other:
        round_.problems.append(
            f"{names} and {len(waits)} cells wait elsewhere, but `pulumi up` would also change {', '.join(other)}: "
            f"type it yourself (pulumi up --stack {stack})"
        )
        return
    if not any(more.values()):
        return
    command = ["up", "--stack", stack, "--yes", "--non-interactive", "--skip-preview", *targets]
    note(f"$ pulumi {' '.join(command[:6])} --target {len(queues)} queues: {names}, and cells wait elsewhere")
    code = run(command)
    if code == 0:
        round_.moved = {box: count for box, count in more.items() if count}
    else:
        round_.problems.append(f"`pulumi up` of the queues ended with {code}: cells stay where they wait")


def _preview(root: Path, stack: str, targets: Sequence[str]) -> list[Mapping[str, Any]]:
    command = [find_engine(), "preview", "--json", "--stack", stack, "--non-interactive", *targets]
    try:
        found = subprocess.run(
            command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PREVIEW_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SweepstackError(str(error)) from error
    try:
        document = json.loads(found.stdout)
    except ValueError:
        document = None
    if found.returncode or not isinstance(document, dict):
        print(found.stderr, end="", file=sys.stderr)
        raise SweepstackError(f"`pulumi preview` ended with {found.returncode}")
    return [step for step in document.get("steps", []) if isinstance(step, dict)]


def _moved_and_other(steps: Sequence[Mapping[str, Any]], idle: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """From a preview: idle box → how many more cells it would have; and all other changes, as text."""
    more = dict.fromkeys(idle, 0)
    other: list[str] = []
    for step in steps:
        op, urn = str(step.get("op")), str(step.get("urn"))
        if op in ("same", "refresh", "read"):
            continue
        kind, name = urn.split("::")[2].rpartition("$")[2].rpartition(":")[2], urn.rpartition("::")[2]
        reasons = set(step.get("diffReasons") or step.get("detailedDiff") or ())
        if op != "update" or kind != "Queue" or not {reason.partition("[")[0] for reason in reasons} <= CELLS:
            if kind != "Stack":
                what = ", ".join(sorted(reasons - CELLS)) or op
                other.append(f"{kind.lower()} {name} ({what})")
            continue
        before, after = (_cells_of_queue(step.get(key)) for key in ("oldState", "newState"))
        if name in more:
            more[name] = len(after - before)
    return more, other


def _cells_of_queue(state: Any) -> set[str]:
    inputs = state.get("inputs") if isinstance(state, dict) else None
    cells = inputs.get("cells") if isinstance(inputs, dict) else None
    return {str(cell) for cell in cells} if isinstance(cells, list) else set()
