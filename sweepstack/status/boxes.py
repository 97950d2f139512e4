"""What `status` shows of a box, and what everything that was ever rented costs.

Whether a box bills and does nothing, and for how long; `billing.cost.meter` adds up what that costs. And the trace of a
stop past the gate: a box that stands still although no record of ours says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from sweepstack.billing.cost import Running
from sweepstack.billing.deadlines import last_seen
from sweepstack.billing.ledger import Bill, Spent
from sweepstack.core.journal import SetupState, asked_to_stop, could_not_stop
from sweepstack.core.paths import docs_page
from sweepstack.onbox.common.units import count, parse_duration, skew_words
from sweepstack.onbox.host.platform import Told
from sweepstack.status.model import Bills, BoxView, bucket_view
from sweepstack.status.model import alarms as not_copied_alarms
from sweepstack.status.snapshot import BoxSnapshot, Snapshot

SETUP_WORDS: Mapping[SetupState, str] = {"started": "running", "finished": "done", "failed": "failed"}
FULL = 0.95
"""The used share of bytes or inodes from which on a warning is shown."""


def box_view(box_snapshot: BoxSnapshot, now: datetime, spent: Spent | None = None) -> BoxView:
    """One box of the state, as a person should see it."""
    thing = _thing(box_snapshot, spent)
    age = (now - box_snapshot.since).total_seconds() if box_snapshot.since else None
    patrol = box_snapshot.patrol
    return BoxView(
        name=box_snapshot.box.name,
        platform=box_snapshot.box.adapter,
        native_id=box_snapshot.box.native_id,
        phase=box_snapshot.phase,
        price_per_hour=box_snapshot.price_per_hour,
        cost=thing.so_far(now),
        age_seconds=age,
        where=_where(box_snapshot),
        idle=thing.idle,
        told=box_snapshot.told,
        note=box_snapshot.seen.account_problem
        or _handed(box_snapshot)
        or _said(box_snapshot)
        or (stranded_words(box_snapshot) if box_snapshot.by_hand and box_snapshot.stranded else "")
        or skew_words(box_snapshot.seen.skew),
        idle_seconds=idle_seconds(box_snapshot, now, setting_up=_setup(box_snapshot) == "running"),
        disk_used=patrol.disk.used if patrol else None,
        disk_free=patrol.disk.free if patrol else None,
        inodes_used=patrol.inodes.used if patrol else None,
        inodes_free=patrol.inodes.free if patrol else None,
        heartbeat_seconds=patrol.age(box_snapshot.there(now)) if patrol else None,
        setup=_setup(box_snapshot),
        blocked=str(box_snapshot.blocked.get("why") or "disk") if box_snapshot.blocked else None,
        alarms=tuple(_alarms(box_snapshot, now)),
        gpus=patrol.gpus if patrol else (),
        workers=box_snapshot.seen.workers,
        bucket=None if box_snapshot.gone else bucket_view(box_snapshot, now),
    )


def _said(box_snapshot: BoxSnapshot) -> str:
    """What its platform says of it, and what was in the way of knowing more; once, where one is in the other."""
    said, note = box_snapshot.said, box_snapshot.seen.note
    return note if said in note else said if note in said else f"{said}; {note}"


def _setup(box_snapshot: BoxSnapshot) -> str:
    """`running`, `done`, `failed`, `cut off` (its runner died meanwhile), or nothing where there is none. What failed
    with workers that have ended is nothing, too, while another one is there to try it."""
    if box_snapshot.setup is None or (box_snapshot.between_workers and box_snapshot.setup.state == "failed"):
        return ""
    cut_off = box_snapshot.setup.state == "started" and box_snapshot.seen.runner_alive is False
    return "cut off" if cut_off else SETUP_WORDS[box_snapshot.setup.state]


def _alarms(box_snapshot: BoxSnapshot, now: datetime) -> Iterator[str]:
    """Warnings about this box, the gravest first. Decided by facts of now, not by what a log said."""
    patrol, alive = box_snapshot.patrol, box_snapshot.seen.runner_alive
    if not box_snapshot.copied and not box_snapshot.seen.stopped and not box_snapshot.gone:
        there, price = box_snapshot.there(now), box_snapshot.price_per_hour
        stop = could_not_stop(box_snapshot.journal, there, price, box_snapshot.lease_note)
        if stop:
            yield stop
    if box_snapshot.setup is not None and _setup(box_snapshot) in ("failed", "cut off"):
        reason = box_snapshot.setup.reason
        yield f"set-up {_setup(box_snapshot)}" + (f": {reason}" if reason else "")
    elif box_snapshot.bare and not alive:
        yield f"it came up with {box_snapshot.bare} GPUs: nothing is started on it, and it bills"
    elif box_snapshot.stranded and not box_snapshot.by_hand:
        yield stranded_words(box_snapshot)
    alive = alive and not box_snapshot.by_hand  # what a person brings back may be minutes old
    began = box_snapshot.journal is not None and bool(box_snapshot.journal.entries) and box_snapshot.slots > 0
    if alive and patrol is None and began and not box_snapshot.between_workers:
        yield "its runner is alive and has not written one heartbeat"
    if alive and patrol is not None:
        if patrol.silent(box_snapshot.there(now)):
            yield (
                f"its runner is alive and has written nothing for {patrol.age(box_snapshot.there(now)):.0f} s "
                f"(a heartbeat comes every {patrol.interval:.0f} s): what follows is as of then"
            )
        for name, doing in patrol.running.items():
            if doing.verdict == "hung" and not any(alarm.startswith(f"{name} hung") for alarm in patrol.alarms):
                yield f"{name} is hung: {doing.why or 'nothing of it grew'}"
        yield from patrol.alarms
    if not alive and not box_snapshot.by_hand:
        yield from not_copied_alarms(box_snapshot)
    for what, used in (
        (("disk", patrol.disk.used), ("inodes", patrol.inodes.used)) if patrol and not box_snapshot.gone else ()
    ):
        said = patrol is not None and any(alarm.startswith(what) for alarm in patrol.alarms)
        if used is not None and used >= FULL and not said:
            yield f"{used:.0%} of its {what} are used"
    for what, words in box_snapshot.drift.items():
        if what != "gpus" or alive:  # else it was said above, with what follows
            yield f"it {words}"
    if box_snapshot.blocked:
        path, hint = box_snapshot.blocked.get("path"), box_snapshot.blocked.get("hint")
        at = f" at {path}" if path and path not in (hint or "") else ""
        lack = box_snapshot.blocked.get("why") or "disk"
        what = f"too little {lack}" if lack in ("disk", "inodes") else lack
        yield f"nothing new starts: {what}{at}{f'; {hint}' if hint else ''}"


def stranded_words(box_snapshot: BoxSnapshot) -> str:
    """That the runner of a box has ended before its cells: which, and what starts it again."""
    names = box_snapshot.stranded
    named = f"{', '.join(names[:3])}{', …' if names[3:] else ''}"
    cells = count(len(names), "cell")
    them = "it" if len(names) == 1 else "them"
    if box_snapshot.by_hand:
        wait = "waits" if len(names) == 1 else "wait"
        return f"{cells} {wait} for a session that you start by hand: {named}"
    return f"its runner is not alive, and {cells} did not finish: {named}; `pulumi up` resumes {them}"


def _where(box_snapshot: BoxSnapshot) -> str:
    """Its platform and address, where the adapter is a host; else what the platform says."""
    box = box_snapshot.box
    return f"{box.platform} {box.adapter.partition(':')[2]}" if box.platform else box_snapshot.where


def _handed(box_snapshot: BoxSnapshot) -> str:
    """What a person has to do before its bill ends, where its end was begun; "" where nothing is open."""
    known = box_snapshot.handed
    return known.rented_on if known is not None and known.verb == "destroy" and not box_snapshot.gone else ""


def things(snapshot: Snapshot) -> list[Running]:
    """Everything ever rented: the state's boxes, what the records say of others, and orphans without a record."""
    shown = {box_snapshot.box.native_id for box_snapshot in snapshot.box_snapshots}
    things = [_thing(box_snapshot, snapshot.spent) for box_snapshot in snapshot.box_snapshots]
    strange = {orphan.native_id: orphan for orphan in snapshot.orphans if orphan.kind == "box"}
    for birth in snapshot.births:
        if birth.native_id is None or birth.native_id in shown:
            continue
        orphan = strange.pop(birth.native_id, None)
        bill = snapshot.spent.of(birth.native_id) if snapshot.spent else None
        if orphan is None and birth.rests and bill is not None and bill.open is not None:
            price, begin = bill.open.price_per_hour, bill.open.begin
            known = bill.usd(snapshot.now)
            things.append(Running(price_per_hour=price, since=begin, known=known, unpriced=bill.unpriced))
            continue
        over = birth.ended_at if orphan is None else None  # what the records call ended and is there, bills
        things.append(
            Running(
                price_per_hour=birth.price_per_hour,
                since=birth.created_at or birth.begun_at,
                until=over,
                gone=orphan is None,
                known=bill.usd(snapshot.now) if bill and (bill.ended_at or orphan) else None,
                unpriced=bill.unpriced if bill and (bill.ended_at or orphan) else 0,
            )
        )
    things += [Running(orphan.price_per_hour, orphan.since) for orphan in strange.values()]
    return things


def per_hour(box_snapshot: BoxSnapshot, spent: Spent | None) -> float | None:
    """USD per hour of a box in its phase: of a stopped one by the ledger, else as it was looked up; None if unknown."""
    bill = spent.of(box_snapshot.box.native_id) if spent is not None else None
    if box_snapshot.phase == "stopped" and bill is not None and bill.open is not None and bill.open.phase == "stopped":
        return box_snapshot.price_per_hour if bill.per_hour is None else bill.per_hour
    return box_snapshot.price_per_hour


def _thing(box_snapshot: BoxSnapshot, spent: Spent | None) -> Running:
    bill = spent.of(box_snapshot.box.native_id) if spent else None
    return Running(
        price_per_hour=per_hour(box_snapshot, spent),
        since=box_snapshot.since,
        until=box_snapshot.journal.last_at if box_snapshot.gone and box_snapshot.journal is not None else None,
        gone=box_snapshot.gone,
        idle=is_idle(box_snapshot),
        # Of a box that is gone, too: until `pulumi up` closes its bill it is counted until now, here as in the ledger.
        known=bill.usd(spent.at) if bill is not None and spent is not None else None,
        unpriced=bill.unpriced if bill is not None else 0,
    )


def bills(snapshot: Snapshot) -> Bills:
    """Whether anything bills. A volume that this stack keeps does by the month; one that it mounts is another's."""
    if any(volume.guarded and volume.price_per_month != 0 for volume in snapshot.state.volumes):
        return "yes"
    if any(volume.price_per_month for volume in snapshot.left):
        return "yes"
    if any(one.price_per_hour is not None for one in snapshot.still_billed):
        return "yes"
    if any(not box_snapshot.gone for box_snapshot in snapshot.box_snapshots) or any(
        orphan.proved for orphan in snapshot.orphans
    ):
        unsure = all(box_snapshot.phase == "unknown" for box_snapshot in snapshot.box_snapshots) and not any(
            s.proved for s in snapshot.orphans
        )
        return "unknown" if unsure else "yes"
    open_ends = (*snapshot.orphans, *snapshot.still_billed, *(one for one in snapshot.left if one.may_bill))
    return "nothing" if snapshot.searched and not open_ends else "unknown"


def is_idle(box_snapshot: BoxSnapshot) -> bool | None:
    """Whether the box bills for nothing: its runner is not alive, or has nothing that it may start. None: unknown."""
    alive = box_snapshot.seen.runner_alive
    if alive is None:
        return None
    if box_snapshot.phase == "stopped":
        return False
    return not alive or (box_snapshot.blocked is not None and not box_snapshot.running)


def idle_seconds(box_snapshot: BoxSnapshot, now: datetime, *, setting_up: bool) -> float | None:
    """Seconds since a cell or the set-up ran there; 0 while one runs; None where that is not known."""
    alive = box_snapshot.seen.runner_alive
    if alive is None or box_snapshot.gone or box_snapshot.journal is None:
        return None
    if alive and (box_snapshot.running or setting_up):
        return 0.0
    last = box_snapshot.journal.last_at
    if last is not None:
        return max((box_snapshot.there(now) - last).total_seconds(), 0.0)
    return max((now - box_snapshot.since).total_seconds(), 0.0) if box_snapshot.since else None


def stopped_by_us(box_snapshot: BoxSnapshot, bill: Bill | None) -> bool:
    """Whether the box is to stand still, or a command of ours stopped it last."""
    last = bill.spans[-1] if bill is not None and bill.spans else None
    ours = last is not None and last.phase == "stopped" and not last.found
    return ours or box_snapshot.box.want != "running"


def unexplained_stop(box_snapshot: BoxSnapshot, bill: Bill | None, now: datetime) -> str:
    """Who may have stopped a box, where no command of ours did and its lease can't have; "" where one of them may have.

    A box's journal can't be read while it is stopped. What is certain without it: the lease was not over sooner than
    its time after the last sign of the box.
    """
    box, journal = box_snapshot.box, box_snapshot.journal
    seen = last_seen(journal, box_snapshot.since)
    said = box_snapshot.told is Told.PREEMPTED or box_snapshot.handed is not None or asked_to_stop(journal)
    if said or box.when_done == "stop" or box.to_delete or box_snapshot.gone:
        return ""
    if not box_snapshot.seen.stopped or seen is None or seen > now:  # by a clock that is ahead nothing is certain
        return ""
    if stopped_by_us(box_snapshot, bill):
        return ""
    if box.leased and now >= seen + timedelta(seconds=parse_duration(str(box.lease))):
        return ""
    ours = f"neither a command of ours nor its lease ({box.lease})" if box.leased else "no command of ours"
    return (
        f"box {box.name} ({box.native_id}) is stopped, and {ours} did that: it was up at {seen:%Y-%m-%d %H:%M} UTC. "
        f"Its platform did, a person at its console, or a job with the box's own key ({docs_page('security.md')})"
    )
