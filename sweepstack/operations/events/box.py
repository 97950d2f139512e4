"""What a box has to tell: it is gone, preempted, drained or bills on; a cell hangs or failed."""

from __future__ import annotations

from collections.abc import Iterator

from sweepstack.config.events import Kind
from sweepstack.core.own_stop import BEGINS
from sweepstack.launch.entries import finished
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.host.platform import Told
from sweepstack.operations.events.event import Event
from sweepstack.status.compose import BoxView, CellView, SweepView
from sweepstack.status.next_commands import out_of_files, out_of_hung
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.status.unexplained import stopped_by_us, unexplained_stop


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
    if ends or box.to_delete or box.want == "gone":
        return  # a person asked for it
    lost = sum(cell.state == "lost" and cell.box == box.name for cell in view.cells)
    with_it = f", and with it {lost} cell{'' if lost == 1 else 's'} without a copy" if lost else ""
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
