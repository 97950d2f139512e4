"""`sweepctl tend`: pulls, verifies and stops finished boxes, unattended. Never deletes a box.

A round pulls and verifies the cells that were sealed since the last one; moves waiting cells to idle boxes; stops boxes
with a drained queue (`when_done: stop`) or beyond the budget (`budget.stop`), if no unsaved data is lost by that;
notices boxes that are gone; and with `--replace` lets `pulumi up` rent these again. What a round moves and stops is in
`operations.tend`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType, ModuleType
from typing import Annotated, Any

import typer

from sweepstack.cli.commands.pull.fetch import fetch
from sweepstack.cli.commands.verify import receipt as verifying
from sweepstack.cli.events import Events
from sweepstack.cli.options import AsJson, Stack, parse_duration
from sweepstack.cli.output import NO, UNSURE, YES, Out, note, size, span
from sweepstack.cli.progress import Progress
from sweepstack.config.searched import search_of
from sweepstack.core.extensions import not_here, part_of
from sweepstack.core.records import SETTLED
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import ConfigError, No, SweepstackError, Unsure
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.roster_diff import rosters
from sweepstack.operations.sweep.sources import Sources, open_sources, usable
from sweepstack.operations.sweep.target import Target
from sweepstack.operations.tend import (
    AlreadyTended,
    Round,
    Seals,
    Tending,
    Tried,
    begin,
    claim,
    let_go,
    move_cells_to_idle,
    seals,
    stop_finished_boxes,
    to_bring_in,
)
from sweepstack.status.compose import compose
from sweepstack.status.engine.call import find_engine
from sweepstack.status.snapshot import Snapshot


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
AGAIN_SECONDS = 60.0
"""The most between a round that could not bring cells to the queues, and the next one."""
REPLACEMENTS = 3
"""The most times that one run lets `pulumi up` rent a box of one name again."""


@dataclass
class Memory:
    """The memory of one run of `tend` between its rounds."""

    interval: timedelta
    replace: bool
    once: bool
    verb: str
    """What is typed to go on, after `sweepctl`."""
    verified: set[tuple[str, str]] = field(default_factory=set)
    """(cell, manifest) of the seals that this run has pulled and verified."""
    replaced: dict[str, int] = field(default_factory=dict)
    tried: Tried = field(default_factory=list)
    brought: float = field(default_factory=time.monotonic)
    """When the engine last brought what was decided of a search (monotonic)."""
    watch: Any = None
    """The `Watch` of the search, since the last round; None where there is none."""
    stop: threading.Event = field(default_factory=threading.Event)
    engine: subprocess.Popen[bytes] | None = None


def tend(target: Target, interval: timedelta, once: bool, replace: bool, timeout: timedelta, out: Out) -> int:
    """Exit 0 if nothing is left to do and every cell is settled (with `once`: if the round went well); 1 if a person is
    needed, or the time is up; 2 if something is not known."""
    verb = " ".join(["tend", *["--once"] * once, *["--replace"] * replace])
    memory = Memory(max(interval, timedelta(seconds=LEAST_SECONDS)), replace, once, verb)
    store = usable(open_sources(target), verb)
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
        most = AGAIN_SECONDS if round_.tries_again else memory.interval.total_seconds()
        wait = min(memory.interval.total_seconds(), most) - (time.monotonic() - begun)
        if time.monotonic() + max(wait, 0) > deadline:
            raise No(
                f"the time is up after {count(number, 'round')}", [f"sweepctl {memory.verb} --stack {target.stack}"]
            )
        if _wait(memory, max(wait, 0.0)):
            note("interrupted between two rounds; the next tend goes on from here")
            return 130
        mine = claim(usable(open_sources(target), memory.verb), memory.interval + GRACE, mine)


def _wait(memory: Memory, seconds: float) -> bool:
    """Waits for the next round. Meanwhile a search stops cells of this machine as soon as they come to a rung; then the
    next round is due, and also when one has ended that another one may follow. Returns whether to end."""
    ends = time.monotonic() + seconds
    while memory.watch is not None and (left := ends - time.monotonic()) > 0:
        if memory.stop.wait(min(memory.watch.SECONDS, left)):
            return True
        if stopped := memory.watch.look():
            note(f"search: stops {', '.join(stopped)}")
        if stopped or memory.watch.has_room:
            return memory.stop.is_set()
    return memory.stop.wait(max(ends - time.monotonic(), 0.0))


def _one_round(target: Target, memory: Memory, events: Events) -> Round:
    """One round. An outage is a problem of this round only: the next round asks again."""
    memory.watch = None
    try:
        sources = open_sources(target)
        store = usable(sources, memory.verb)
        snapshot = take_snapshot(sources)
        view = compose(snapshot)
        round_ = begin(snapshot, view, memory.verified)
        events.look(sources, snapshot, view)
        search = _rounds_of_search(sources)
        searches = search is not None and search.search_on(sources, store, snapshot, view, round_)  # ends what costs
        if not memory.stop.is_set():
            bring_in(sources, store, snapshot, round_, memory)
        if not memory.stop.is_set() and search is not None and searches:
            _bring_search(search, sources, snapshot, round_, memory)
        if not memory.stop.is_set() and not round_.searched:
            _bring_longer(target, store, snapshot, round_, memory)
        if not memory.stop.is_set() and not (round_.searched or round_.begun):
            engine = partial(_engine, memory, target)
            move_cells_to_idle(target.root, snapshot, round_, memory.tried, engine, note)
        given = round_.moved or round_.searched or round_.begun  # a box that has just been given cells is not stopped
        if not memory.stop.is_set() and not given:
            stop_finished_boxes(store, snapshot, round_, memory.verified)
        if memory.replace and round_.gone and not memory.stop.is_set():
            _replace(sources, memory, round_)
        conclude(sources, round_, memory.verified, events)
        if search is not None and searches:
            memory.watch = part_of("search", "watch").Watch(sources, store, snapshot)
        return round_
    except Unsure as error:
        return Round(unknown=[str(error)], next=list(error.next))
    except SweepstackError as error:
        return Round(unknown=[str(error)], next=[f"sweepctl status --stack {target.stack}"])


def _rounds_of_search(sources: Sources) -> ModuleType | None:
    """What a round does of a search; None where the sweep has none: that reads no more than its stack file. Raises
    ConfigError where the extension is not installed."""
    if search_of(sources.target.file.sweep()) is None:
        return None
    rounds: ModuleType | None = part_of("search", "rounds")
    if rounds is None:
        raise ConfigError(f"search: needs {not_here('search')}")
    return rounds


def _bring_search(search: ModuleType, sources: Sources, snapshot: Snapshot, round_: Round, memory: Memory) -> None:
    later = not memory.once and time.monotonic() - memory.brought < search.LATER_SECONDS
    search.bring_in(sources, snapshot, round_, partial(_engine, memory, sources.target), note, later=later)
    if round_.searched:
        memory.brought = time.monotonic()


def _bring_longer(target: Target, store: EvidenceStore, snapshot: Snapshot, round_: Round, memory: Memory) -> None:
    """Cells that begin where another one ended, once that is verified."""
    longer = part_of("longer", "rounds") if any(one.unsourced for one in snapshot.box_snapshots) else None
    if longer is not None:
        longer.bring_in(target.root, store, snapshot, round_, partial(_engine, memory, target), note)


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
    parts += [f"search: {what}" if not what.startswith("search") else what for what in round_.search]
    parts += [f"{count(len(round_.begun), 'cell')} may begin now"] if round_.begun else []
    parts += [f"box {name} takes over {count(cells, 'cell')}" for name, cells in round_.moved.items()]
    parts += [f"rented again: {name}" for name in round_.replaced]
    parts += [f"box {name} is gone" for name in round_.gone if name not in round_.replaced]
    parts += [f"ALARM {alarm}" for alarm in round_.alarms]
    parts += [*round_.problems, *(f"UNKNOWN {why}" for why in round_.unknown)]
    text = "; ".join(" ".join(part.split()) for part in parts)
    out.line(f"{now:%H:%M:%S}  {text}" + (f"; again in {again}" if again else ""), wrap=False)


def bring_in(sources: Sources, store: EvidenceStore, snapshot: Snapshot, round_: Round, memory: Memory) -> None:
    """Pulls and verifies, if a sealed cell is in no receipt."""
    pulls, fresh = to_bring_in(store, snapshot, memory.verified)
    if not pulls:
        return
    with Progress("pull", unit="bytes") as progress:
        summary = fetch(sources, store, progress, memory.verb)
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
        memory.verified |= seals(snapshot.box_snapshots)


def conclude(sources: Sources, round_: Round, verified: Seals, events: Events) -> None:
    """Completes the round: the states of the cells now, what there is to tell, whether anything is left to do, what to
    type next."""
    given = round_.moved or round_.searched or round_.begun
    changed = round_.pulled or round_.receipt or round_.stopped or round_.replaced or given
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
    fresh = seals(snapshot.box_snapshots) - verified
    goes_on = round_.replaced or given or round_.tries_again
    round_.over = not (at_work or waits or fresh or round_.unknown or goes_on)
    if not round_.over:
        return
    settled = all(cell.state in SETTLED for cell in view.cells)
    round_.answer = YES if settled and not round_.kept and not round_.problems else NO
    if view.bills == "unknown":
        round_.answer = UNSURE
