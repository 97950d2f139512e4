"""`sweepctl status` of a sweep: its cells, boxes and costs, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sweepstack.cli.events import Events
from sweepstack.cli.output import NO, UNSURE, YES, Out, warm
from sweepstack.cli.progress import Progress
from sweepstack.cli.render import render
from sweepstack.core import trackers
from sweepstack.launch.retries import recorded_retries
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.operations.events.event import Event
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import Sources, open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.compose import SweepView, compose
from sweepstack.status.engine.call import ExportCall
from sweepstack.status.snapshot import Snapshot


def status(target: Target, out: Out, begun: ExportCall | None = None) -> int:
    """Exit code: 1 if something runs that is not in the state, 2 if that is not known, else 0."""
    if not out.as_json:
        warm()
    with Progress("looking"):
        sources = open_sources(target, begun)
        kept = target.is_store or any(volume.guarded for volume in sources.state.volumes)
    if kept:
        from sweepstack.cli.commands.status.store import status_store

        return status_store(sources, out)
    with Progress("looking"):
        snapshot, view = picture(sources, files=out.as_json)  # only the JSON document shows files
    events = Events()
    hold = events.look(sources, snapshot, view)
    tracked = trackers.links(sources.state)
    if out.as_json:
        out.document(status_document(view, hold) | ({"trackers": tracked} if tracked else {}))
    render(view, out, more=trackers.lines(tracked))
    events.end()
    return exit_code(sources, snapshot, view)


def picture(sources: Sources, *, files: bool) -> tuple[Snapshot, SweepView]:
    """What is there now, and what it is called: with `--next`, too, so that both name the same next command."""
    snapshot = take_snapshot(sources, files=files)
    snapshot = replace(snapshot, to_run_again=tuple(to_run_again(sources, snapshot)))
    return snapshot, compose(snapshot)


def status_document(view: SweepView, events: Sequence[Event]) -> dict[str, Any]:
    """The documented shape of `--json`."""
    return view.as_json() | {"events": [event.as_json() for event in events]}


def to_run_again(sources: Sources, snapshot: Snapshot) -> Iterator[str]:
    """The cells of retries that no `pulumi up` has brought to the boxes yet.

    `finish` would end the boxes without running these cells, and a later `up` would rent boxes for them.
    """
    try:
        asked = recorded_retries(sources.store) if sources.store is not None else {}
    except EvidenceError:
        return  # `retry` and `up` report it themselves
    copies = {cell.name: cell.manifest for cell in snapshot.receipt.cells} if snapshot.receipt else {}
    for cell in snapshot.roster:
        if (retry := asked.get(cell.name)) is None:
            continue
        ran = [
            progress.retry
            for box_snapshot in snapshot.box_snapshots
            if (progress := box_snapshot.progress(cell.name)) is not None
        ]
        same = retry.manifest is not None and copies.get(cell.name) == retry.manifest
        if (max(ran) < retry.retry if ran else same) and not any(
            one.retry_at_hand(cell.name) >= retry.retry for one in snapshot.box_snapshots
        ):
            yield cell.name


def exit_code(sources: Sources, snapshot: Snapshot, view: SweepView) -> int:
    """The exit code for the question "is everything that runs in the state?"."""
    if view.unknown:
        return NO
    untold = view.bills == "unknown" or not snapshot.searched
    return UNSURE if untold and (sources.evidence or sources.problem) else YES
