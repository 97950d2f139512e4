"""What a picture of a sweep has to tell: the events that hold now.

Pure; `deliver` knows which were told already.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from sweepstack.onbox.common.canonical import digest_of
from sweepstack.operations.events.box import of_box
from sweepstack.operations.events.budget import budget_event
from sweepstack.operations.events.event import Event
from sweepstack.operations.events.stray import stray
from sweepstack.status.compose import SweepView
from sweepstack.status.money import outlook_of
from sweepstack.status.snapshot import Snapshot

BEFORE_EXPIRY = timedelta(hours=12)
"""So long before it expires an approval is told of; one that holds for less than two days, in its last quarter."""


def events_of(snapshot: Snapshot, view: SweepView) -> list[Event]:
    """All that holds now: box by box, then what concerns the sweep. Each has the same id at each look."""
    found = [event for box_snapshot in snapshot.box_snapshots for event in of_box(snapshot, view, box_snapshot)]
    for of_sweep in (_clocks, _budget, _balances, _verified, _approvals, _policies, _strays):
        found += of_sweep(snapshot, view)
    return found


def _clocks(snapshot: Snapshot, view: SweepView) -> Iterator[Event]:
    boxes = {box_snapshot.box.native_id: box_snapshot for box_snapshot in snapshot.box_snapshots}
    for clock in view.clocks:
        if not clock.soon:
            continue
        day = f"{clock.at:%Y-%m-%d}" if clock.at is not None else f"since-{clock.since:%Y-%m-%d}"
        price = boxes[clock.native_id].price_per_hour if clock.native_id in boxes else None
        yield Event(
            kind="clock",
            id=f"clock/{clock.native_id}/{clock.what}/{day}",
            stack=view.stack,
            sentence=f"box {clock.box}: {clock.text()}",
            next=f"sweepctl finish --stack {view.stack}",
            at=snapshot.now,
            box=clock.box,
            per_hour=price or None,
        )


def _budget(snapshot: Snapshot, view: SweepView) -> Iterator[Event]:
    found = outlook_of(snapshot, view.meter, view.eta_seconds)
    if found is None or snapshot.budget is None:
        return
    use, seen = found
    told = budget_event(snapshot.budget, use, seen, stack=view.stack, per_hour=view.meter.per_hour, now=snapshot.now)
    if told is not None:
        yield told


def _balances(snapshot: Snapshot, view: SweepView) -> Iterator[Event]:
    """A balance that does not last: once a day as long as that is so, since it may have been filled up between."""
    for runway in view.runways:
        if runway.short:
            yield Event(
                kind="balance",
                id=f"balance/{runway.left.platform}/{snapshot.now:%Y-%m-%d}",
                stack=view.stack,
                sentence=f"the balance ends the boxes: {runway.lasts()}",
                next=f"add money at {runway.left.platform}; sweepctl pull --stack {view.stack}",
                at=snapshot.now,
                per_hour=runway.per_hour,
            )


def _verified(snapshot: Snapshot, view: SweepView) -> Iterator[Event]:
    if not view.settled:
        return
    which = digest_of(sorted([cell.name, cell.config_digest or ""] for cell in view.cells))[7:19]
    words = ", ".join(f"{number} {state}" for state, number in view.counts().items())
    there = any(not box_snapshot.gone for box_snapshot in snapshot.box_snapshots)
    rate = view.meter.per_hour if there else 0.0
    yield Event(
        kind="verified",
        id=f"verified/{which}",
        stack=view.stack,
        sentence=f"every cell is settled: {words}; ${view.meter.so_far:.2f} so far",
        next=f"sweepctl {'finish' if there else 'results'} --stack {view.stack}",
        at=snapshot.now,
        per_hour=rate or None,
    )


def _approvals(snapshot: Snapshot, view: SweepView) -> Iterator[Event]:
    """An approval that a person gave, that has not ended its boxes yet, and that expires soon or has expired."""
    there = {one.box.native_id: one for one in snapshot.box_snapshots if not one.gone}
    held = [snapshot.approval, *(one.box.approval_in_state()[0] for one in there.values())]
    if snapshot.teardown is not None:
        return  # what has begun may be finished past it
    for approval in {one.expires: one for one in held if one is not None}.values():
        actions = [action for action in approval.actions if action.native_id in there]
        named = [there[action.native_id] for action in actions]
        early = min(BEFORE_EXPIRY, (approval.expires - approval.at) / 4)
        if not named or snapshot.now < approval.expires - early:
            continue
        what = ", ".join(dict.fromkeys(f"{action.verb} box {action.box}" for action in actions))
        when = "has expired" if snapshot.now >= approval.expires else "expires"
        rate = sum(one.price_per_hour or 0.0 for one in named)
        yield Event(
            kind="approval",
            id=f"approval/{approval.expires:%Y-%m-%dT%H:%M:%SZ}",
            stack=view.stack,
            sentence=f"the approval to {what} {when} at {approval.expires:%Y-%m-%d %H:%M} UTC",
            next=f"sweepctl finish --stack {view.stack}",
            at=snapshot.now,
            box=named[0].box.name if len(named) == 1 else None,
            per_hour=rate or None,
        )


def _policies(snapshot: Snapshot, view: SweepView) -> Iterator[Event]:
    """An approval of a weaker policy: the team is told before it comes into force."""
    approval = snapshot.weaker_policy
    if approval is not None:
        yield Event(
            kind="policy",
            id=f"policy/{approval.by}/{approval.at:%Y-%m-%dT%H:%M:%SZ}",
            stack=view.stack,
            sentence=f"{approval.by} approved a weaker policy; it holds until {approval.expires:%Y-%m-%d %H:%M} UTC",
            next=f"sweepctl policy --stack {view.stack}",
            at=snapshot.now,
            box=None,
        )


def _strays(snapshot: Snapshot, view: SweepView) -> Iterator[Event]:
    for one in view.unknown:
        if one.native_id is not None and one.proved:
            yield stray(
                f"{'claim/' if one.kind == 'claim' else ''}{one.platform}/{one.native_id}",
                f"box {' '.join(filter(None, (one.box, f'({one.native_id})')))}",
                why=one.why,
                stack=view.stack,
                next=one.next,
                now=snapshot.now,
                per_hour=one.price_per_hour,
            )
