"""What a picture of a sweep has to tell: the events that hold now.

Pure; `deliver` knows which were told already.

What a box has to tell: it is gone, preempted, drained or bills on; a cell hangs or failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from sweepstack.config.events import Kind
from sweepstack.core.journal import BEGINS
from sweepstack.launch.entries import finished
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.units import count
from sweepstack.onbox.host.platform import Told
from sweepstack.operations.events.event import Event, budget_event, stray
from sweepstack.status.boxes import stopped_by_us, unexplained_stop
from sweepstack.status.compose import BoxView, CellView, SweepView
from sweepstack.status.money import outlook_of
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.status.ways_on import out_of_files, out_of_hung

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
    held = [snapshot.approval, *(one.box.approval for one in there.values())]
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
        if one.native_id and one.proved:
            yield stray(
                f"{'claim/' if one.kind == 'claim' else ''}{one.platform}/{one.native_id}",
                f"box {' '.join(filter(None, (one.name, f'({one.native_id})')))}",
                why=one.why,
                stack=view.stack,
                next=one.next,
                now=snapshot.now,
                per_hour=one.price_per_hour,
            )


def of_box(snapshot: Snapshot, view: SweepView, box_snapshot: BoxSnapshot) -> Iterator[Event]:
    """The events of one box that hold now. Of a box that is gone nothing but that."""
    if box_snapshot.gone:
        yield from _gone(snapshot, view, box_snapshot)
        return
    box = box_snapshot.box
    if preempted := _preempted(snapshot, box_snapshot):
        last = box_snapshot.journal.last_at if box_snapshot.journal is not None else None
        yield _event(
            snapshot,
            box_snapshot,
            "preempted",
            last.isoformat() if last is not None else "",  # it may be taken again, once it has run on
            preempted,
            f"sweepctl status --stack {view.stack}",
        )
    for cell in view.cells:
        if cell.box == box.name and snapshot.holder_of(cell.name) is box_snapshot:
            yield from _of_cell(snapshot, box_snapshot, cell)
    yield from _held(snapshot, box_snapshot)
    yield from _drained(snapshot, box_snapshot)
    for shown in view.boxes:
        if shown.native_id == box.native_id:
            yield from _bills_on(snapshot, box_snapshot, shown)


def _event(
    snapshot: Snapshot, box_snapshot: BoxSnapshot, kind: Kind, which: str, sentence: str, next: str, cell: str = ""
) -> Event:
    """`which`: what tells this time from an earlier one on the same box."""
    bills = box_snapshot.price_per_hour if box_snapshot.phase not in ("stopped", "gone", "unknown") else None
    return Event(
        kind=kind,
        id="/".join(filter(None, (kind, box_snapshot.box.native_id, which))),
        stack=snapshot.state.stack,
        sentence=sentence,
        next=next,
        at=snapshot.now,
        box=box_snapshot.box.name,
        cell=cell or None,
        per_hour=bills,
    )


def _gone(snapshot: Snapshot, view: SweepView, box_snapshot: BoxSnapshot) -> Iterator[Event]:
    box = box_snapshot.box
    ends = snapshot.teardown is not None and box.native_id in snapshot.teardown.native_ids
    if ends or box.to_delete:
        return  # a person asked for it
    lost = sum(cell.state == "lost" and cell.box == box.name for cell in view.cells)
    with_it = f", and with it {count(lost, 'cell')} without a copy" if lost else ""
    sentence = f"box {box.name} ({box.native_id}) is gone from {box.adapter}{with_it}"
    yield _event(snapshot, box_snapshot, "gone", "", sentence, f"pulumi up --stack {view.stack}")


def _preempted(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> str:
    """That another customer has its place, or may have: its platform does not tell, and no stop of ours explains it."""
    box, bill = box_snapshot.box, snapshot.spent.of(box_snapshot.box.native_id) if snapshot.spent else None
    if box_snapshot.told is Told.PREEMPTED and not stopped_by_us(box_snapshot, bill):
        return f"box {box.name} ({box.native_id}) was {box_snapshot.said}"
    if box_snapshot.told is Told.TAKEN_OR_STOPPED and (why := unexplained_stop(box_snapshot, bill, snapshot.now)):
        return f"{why}. {box_snapshot.said}"
    return ""


def _of_cell(snapshot: Snapshot, box_snapshot: BoxSnapshot, cell: CellView) -> Iterator[Event]:
    """A cell that hangs, or has failed and is not tried again by itself."""
    progress, box, stack = box_snapshot.progress(cell.name), box_snapshot.box, snapshot.state.stack
    if progress is None:
        return
    which = f"{cell.name}/{progress.retry}/{progress.attempts}"
    if cell.name in box_snapshot.hung and cell.state == "running":
        doing = box_snapshot.patrol.running[cell.name] if box_snapshot.patrol is not None else None
        why = doing.why if doing is not None and doing.why else "nothing of it grew"
        sentence = f"cell {cell.name} hangs on box {box.name}: {why}"
        yield _event(snapshot, box_snapshot, "hung", which, sentence, out_of_hung(stack, cell.name)[0], cell.name)
    elif cell.state == "failed" and (progress.final or box_snapshot.seen.runner_alive is False):
        reason = cell.note or progress.reason or "no reason is on record"
        sentence = f"cell {cell.name} failed on box {box.name}: {reason}"
        logs = f"sweepctl logs --stack {stack} {cell.name}"
        yield _event(snapshot, box_snapshot, "failed", which, sentence, logs, cell.name)


def _held(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> Iterator[Event]:
    """That cells are not begun, since one left the wrong files: the box bills, and waits for a person."""
    if box_snapshot.held_by and box_snapshot.journal is not None:
        sentence = f"box {box_snapshot.box.name}: {box_snapshot.held_by}"
        following = out_of_files(snapshot.state.stack, box_snapshot.journal.hold)[0]
        yield _event(snapshot, box_snapshot, "held", _ran(box_snapshot), sentence, following)


def _drained(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> Iterator[Event]:
    """That every cell which its queue was given has ended. A queue that is given more, or a retry, drains again."""
    names = sorted(box_snapshot.launch.cells) if box_snapshot.launch is not None else []
    ran = [box_snapshot.progress(name) for name in names]
    ended = [one for one in ran if one is not None and finished(one, 0)]
    if not names or len(ended) < len(names):
        return
    states = [one.state for one in ended]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    sentence = f"box {box_snapshot.box.name} has nothing left to run: {counts}"
    following = f"sweepctl finish --stack {snapshot.state.stack}"
    yield _event(snapshot, box_snapshot, "drained", _ran(box_snapshot), sentence, following)


def _bills_on(snapshot: Snapshot, box_snapshot: BoxSnapshot, shown: BoxView) -> Iterator[Event]:
    """That the box should have stopped itself, once it had nothing to do, and could not."""
    for alarm in shown.alarms:
        if alarm.startswith(BEGINS):
            following = f"sweepctl finish --stack {snapshot.state.stack}"
            sentence = f"box {box_snapshot.box.name} {alarm}"
            yield _event(snapshot, box_snapshot, "lease", _ran(box_snapshot), sentence, following)


def _ran(box_snapshot: BoxSnapshot) -> str:
    """Changes when the box was given more to do, and with nothing else."""
    cells = box_snapshot.journal.cells if box_snapshot.journal is not None else {}
    return digest_of([[name, cells[name].retry, cells[name].attempts] for name in sorted(cells)])[7:19]
