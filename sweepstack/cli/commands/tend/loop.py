"""`sweepctl tend`: looks after a sweep while nobody does. Foreground, cron or CI; one line a round; never deletes.

A round pulls and verifies what was sealed since the last, gives boxes with nothing to do cells that wait in the queues
of others, stops boxes whose queue is drained (`when_done: stop`) or
that run past the budget (`budget.stop`) where that kills nothing unsaved, notices boxes that are gone, and with
`--replace` lets `pulumi up` rent those anew. What a runner on a box can't do itself is done here: it has no key to its
own platform.
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
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

from sweepstack.cli.budget_alerts import BudgetAlerts
from sweepstack.cli.commands.tend import moves as tend_moves
from sweepstack.cli.commands.tend import round as tend_round
from sweepstack.cli.commands.tend.round import Round
from sweepstack.cli.output import NO, UNSURE, YES, No, Out, Unsure, count, note, size, span
from sweepstack.cli.sources import Sources, open_sources, usable
from sweepstack.cli.target import Target
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.operations.tend_lease import AlreadyTended, Tending, claim, let_go
from sweepstack.status.engine.call import find_engine

LEAST_SECONDS = 1.0
GRACE = timedelta(minutes=15)
"""How much longer than a round a claim lasts: a pull may take long."""
REPLACEMENTS = 3
"""How often in one run `pulumi up` is asked to rent a box of one name again."""


@dataclass
class Keeper:
    """What one run of `tend` remembers from round to round."""

    interval: timedelta
    replace: bool
    verified: set[tuple[str, str]] = field(default_factory=set)
    """(cell, manifest) of seals that were pulled and verified by this run."""
    replaced: dict[str, int] = field(default_factory=dict)
    moves: tend_moves.Moves = field(default_factory=tend_moves.Moves)
    stop: threading.Event = field(default_factory=threading.Event)
    engine: subprocess.Popen[bytes] | None = None


def tend(target: Target, interval: timedelta, once: bool, replace: bool, timeout: timedelta, out: Out) -> int:
    """Exit 0 when nothing is left to tend and every cell is settled (with `once`: when the round went well); 1 when
    somebody is needed, or the time is up; 2 when something could not be told."""
    keeper = Keeper(max(interval, timedelta(seconds=LEAST_SECONDS)), replace)
    store = usable(open_sources(target))
    try:
        mine = claim(store, keeper.interval + GRACE, None)
    except AlreadyTended as error:
        raise No(str(error), [f"sweepctl status --stack {target.stack}"]) from error
    alerts = BudgetAlerts()
    try:
        with _signals(keeper):
            return _rounds(target, keeper, mine, once, timeout, out, alerts)
    finally:
        let_go(store, mine)
        alerts.end()


def _rounds(
    target: Target, keeper: Keeper, mine: Tending, once: bool, timeout: timedelta, out: Out, alerts: BudgetAlerts
) -> int:
    deadline, number = time.monotonic() + timeout.total_seconds(), 0
    while True:
        number += 1
        begun = time.monotonic()
        round_ = _one(target, keeper, alerts)
        tell(round_, number, out, "" if once or round_.over else span(keeper.interval.total_seconds()))
        if keeper.stop.is_set():
            note("interrupted; nothing is half done, the next tend goes on from here")
            return 130
        if once or round_.over:
            out.next(round_.next)
            return round_.answer if not once else UNSURE if round_.unknown else NO if round_.problems else YES
        wait = keeper.interval.total_seconds() - (time.monotonic() - begun)
        if time.monotonic() + max(wait, 0) > deadline:
            raise No(f"the time is up after {count(number, 'round')}", [f"sweepctl tend --stack {target.stack}"])
        if keeper.stop.wait(max(wait, 0)):
            note("interrupted between two rounds; the next tend goes on from here")
            return 130
        mine = claim(usable(open_sources(target)), keeper.interval + GRACE, mine)


def _one(target: Target, keeper: Keeper, alerts: BudgetAlerts) -> Round:
    """One round. An outage is a problem of this round, not the end: the next asks again."""
    try:
        sources = open_sources(target)
        store = usable(sources)
        round_, scene, view = tend_round.look_at(sources, store, keeper.verified)
        alerts.look(sources, scene, view)
        if not keeper.stop.is_set():
            tend_round.bring_in(sources, store, scene, round_, keeper.verified)
        if not keeper.stop.is_set():
            tend_moves.level(target.root, scene, round_, keeper.moves, lambda words: _engine(keeper, target, words))
        if not keeper.stop.is_set() and not round_.moved:  # what has just been given cells does not rest
            tend_round.rest(sources, store, scene, round_, keeper.verified)
        if keeper.replace and round_.gone and not keeper.stop.is_set():
            _replace(sources, keeper, round_)
        tend_round.conclude(sources, store, round_, keeper.verified)
        return round_
    except Unsure as error:
        return Round(unknown=[str(error)], next=list(error.next))
    except SweepstackError as error:
        return Round(unknown=[str(error)], next=[f"sweepctl status --stack {target.stack}"])


def _replace(sources: Sources, keeper: Keeper, round_: Round) -> None:
    """`pulumi up` rents boxes anew that are proved gone and still wanted. It refuses by itself past the budget."""
    target = sources.target
    wanted = target.file.sweep().get("boxes") or {}
    leaving = [box.name for box in sources.state.boxes if _want(wanted, box.name) == "gone"]
    if leaving:  # an approval may be there, and then `up` would end them: that is a person's to run
        round_.problems.append(
            f"{target.file.shown} takes {', '.join(leaving)} out, so nothing is rented again: run pulumi up yourself"
        )
        return
    names = [
        name for name in round_.gone if _want(wanted, name) == "running" and keeper.replaced.get(name, 0) < REPLACEMENTS
    ]
    if not names:
        return
    for name in names:
        keeper.replaced[name] = keeper.replaced.get(name, 0) + 1
    command = ["up", "--stack", target.stack, "--yes", "--non-interactive", "--skip-preview"]
    note("$ " + " ".join(["pulumi", *command]))
    code = _engine(keeper, target, command)
    if code == 0:  # one whose cells are all verified is not rented: nothing is left to train on it
        there = {box.name for box in open_sources(target).state.boxes}
        round_.replaced += [name for name in names if name in there]
    else:
        round_.problems.append(f"`pulumi up` ended with {code}: {', '.join(names)} not rented again")


def _engine(keeper: Keeper, target: Target, words: Sequence[str]) -> int:
    """Runs the engine to its end. Its own session: an interrupt at the terminal is handed on once, by us, and lets it
    come to a clean end."""
    keeper.engine = subprocess.Popen(
        [find_engine(), *words], cwd=target.root, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
    )
    code, asked = None, False
    while code is None:
        try:
            code = keeper.engine.wait(0.5)
        except subprocess.TimeoutExpired:
            if keeper.stop.is_set() and not asked:
                asked = True
                os.kill(keeper.engine.pid, signal.SIGINT)
    keeper.engine = None
    return code


def _want(boxes: Mapping[str, Any], name: str) -> str:
    """What the stack file wants of a box: one that it does not name is to go."""
    box = boxes.get(name, {"want": "gone"})
    return str((box or {}).get("want", "running")) if isinstance(box, dict | None) else "gone"


@contextmanager
def _signals(keeper: Keeper) -> Iterator[None]:
    """The first SIGINT or SIGTERM lets the step at hand end; a second one of SIGINT stops at once."""

    def asked(number: int, _frame: FrameType | None) -> None:
        if keeper.stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        keeper.stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tell(round_: Round, number: int, out: Out, again: str) -> None:
    """The round's one line, or one JSON object on one line."""
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
    parts += [*round_.problems, *(f"UNKNOWN {why}" for why in round_.unknown)]
    text = "; ".join(" ".join(part.split()) for part in parts)
    out.line(f"{now:%H:%M:%S}  {text}" + (f"; again in {again}" if again else ""), wrap=False)
