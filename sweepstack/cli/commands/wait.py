"""`sweepctl wait`: blocks until the cells are done, can't become done any more, or the time is up."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Annotated, Literal, get_args

import typer

from sweepstack.cli.events import Events
from sweepstack.cli.options import AsJson, Stack, one_of, parse_duration
from sweepstack.cli.output import YES, Out, span
from sweepstack.cli.progress import Progress
from sweepstack.cli.render import headline, own_stops
from sweepstack.core.records import ENDED
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import No, SweepstackError
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import Sources, open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.boxes import stranded_words
from sweepstack.status.compose import SweepView, compose
from sweepstack.status.snapshot import Snapshot

What = Literal["done", "verified", "first-step"]
POLL_SECONDS = 2.0
PATIENCE = 3
"""How many snapshots in a row must show nothing alive before the wait gives up."""


def command(
    what: Annotated[str, typer.Argument(metavar="[done|verified|first-step]", help="What to wait for.")] = "done",
    timeout: Annotated[str, typer.Option(metavar="12h", help="When to stop waiting.")] = "24h",
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Wait until cells are done, or verified, or one made a step. Exit 0 only for yes."""
    wanted: What = one_of(what, *get_args(What))
    return wait(Target.find_sweep(stack), wanted, parse_duration(timeout), Out(as_json=json))


def wait(target: Target, what: What, timeout: timedelta, out: Out) -> int:
    """Exit 0 only if it has come true; 1 if it can't any more or the time is up. Waits through an outage of a box."""
    deadline = time.monotonic() + timeout.total_seconds()
    sources = open_sources(target)
    events = Events()
    try:
        return _wait(sources, what, deadline, timeout, out, events)
    finally:
        events.end()


def _wait(sources: Sources, what: What, deadline: float, timeout: timedelta, out: Out, events: Events) -> int:
    target, still = sources.target, 0
    with Progress(f"waiting for {what}") as progress:
        while True:
            snapshot = take_snapshot(sources)
            view = compose(snapshot)
            events.look(sources, snapshot, view)
            progress.say(headline(view).partition("   ")[2])
            if reached(what, snapshot, view):
                break
            hopeless = no_hope(what, snapshot, view)
            still = still + 1 if hopeless else 0
            if still >= PATIENCE:
                raise No("\n".join([hopeless, *own_stops(view)]), list(view.next))
            if time.monotonic() + POLL_SECONDS > deadline:
                left = ", ".join(f"{number} {state}" for state, number in view.counts().items())
                again = f"sweepctl wait --stack {target.stack} {what}"
                late = f"not {what} within {span(timeout.total_seconds())}: {left or 'no cells'}"
                raise No("\n".join([late, *own_stops(view)]), [again])
            time.sleep(POLL_SECONDS)
    return _answer(target, what, view, out)


def reached(what: What, snapshot: Snapshot, view: SweepView) -> bool:
    """Whether it has come true."""
    if what == "first-step":
        return any(cell.state in ENDED or cell.step for cell in view.cells) or _wrote_something(snapshot)
    if what == "done":
        return bool(view.cells) and all(cell.state in ENDED for cell in view.cells)
    return view.settled


def no_hope(what: What, snapshot: Snapshot, view: SweepView) -> str:
    """Why waiting longer is useless; "" if it may help."""
    if not snapshot.box_snapshots:
        return "there is no box: nothing will happen"
    if any(
        box_snapshot.seen.runner_alive
        or not (box_snapshot.reachable or box_snapshot.gone or box_snapshot.seen.stopped)  # an outage ends by itself
        for box_snapshot in snapshot.box_snapshots
    ):
        # The other boxes may run for hours, and a box with a dead runner bills all the time.
        if (hung := _only_hung(snapshot)) is not None:
            return f"{hung} is hung, and nothing else runs: waiting does not help"
        dead = next((box_snapshot for box_snapshot in snapshot.box_snapshots if box_snapshot.stranded), None)
        return f"box {dead.box.name}: {stranded_words(dead)}" if dead is not None else ""
    if snapshot.tended:
        return ""  # it brings further cells, or ends
    left = [cell for cell in view.cells if cell.state not in ENDED]
    if left and (held := next((one for one in snapshot.box_snapshots if one.held_by), None)) is not None:
        return f"box {held.box.name}: {held.held_by}"
    if left:
        named = ", ".join(f"{cell.name} ({cell.state})" for cell in left[:5])
        return f"no runner is alive, and {count(len(left), 'cell')} did not finish: {named}{', …' if left[5:] else ''}"
    # All cells are sealed: only `sweepctl verify`, which may run now, can make them verified.
    return ""


def _only_hung(snapshot: Snapshot) -> str | None:
    """A hung cell, if all running cells are hung: none of them ends without a person."""
    if any(not box_snapshot.reachable and not box_snapshot.gone for box_snapshot in snapshot.box_snapshots):
        return None
    at_work = [
        (box_snapshot, name)
        for box_snapshot in snapshot.box_snapshots
        if box_snapshot.seen.runner_alive
        for name in box_snapshot.running
    ]
    hung = [name for box_snapshot, name in at_work if name in box_snapshot.hung]
    return hung[0] if hung and len(hung) == len(at_work) else None


def _wrote_something(snapshot: Snapshot) -> bool:
    for box_snapshot in snapshot.box_snapshots:
        if not box_snapshot.reachable or box_snapshot.journal is None:
            continue
        try:
            channel = box_snapshot.box.context().channel()
            for name, progress in box_snapshot.journal.cells.items():
                if progress.state == "running" and channel.size(
                    f"{box_layout.attempt_dir(name, progress.attempts)}/log.txt"
                ):
                    return True
        except (SweepstackError, OSError):
            continue
    return False


def _answer(target: Target, what: What, view: SweepView, out: Out) -> int:
    out.document(
        {"stack": target.stack, "for": what, "reached": True, "cells": view.counts(), "alarms": own_stops(view)}
    )
    out.line(headline(view), style="bold")
    for line in own_stops(view):
        out.line(line, style="bold red")
    following = list(view.next)
    if what == "first-step":
        following = [f"sweepctl wait --stack {target.stack} done"]
    elif what == "done" and not view.settled:
        following = [f"sweepctl finish --stack {target.stack}"]
    out.next(following)
    return YES
