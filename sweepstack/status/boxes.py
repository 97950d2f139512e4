"""What `status` shows of a box, and what everything that was ever rented costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from sweepstack.billing.cost import Running
from sweepstack.billing.ledger import Spent
from sweepstack.billing.outlived_volume import Leftover
from sweepstack.core.journal import SetupState
from sweepstack.core.own_stop import could_not_stop
from sweepstack.onbox.common.units import skew_words
from sweepstack.status.idle import idle_seconds, is_idle
from sweepstack.status.model import Bills, BoxView
from sweepstack.status.snapshot import Scene, Sight

SETUP_WORDS: Mapping[SetupState, str] = {"started": "running", "finished": "done", "failed": "failed"}
FULL = 0.95
"""The used share of bytes or inodes from which on a warning is shown."""


def box_view(sight: Sight, now: datetime, spent: Spent | None = None) -> BoxView:
    """One box of the state, as a person should see it."""
    thing = _thing(sight, spent)
    age = (now - sight.since).total_seconds() if sight.since else None
    patrol = sight.patrol
    return BoxView(
        name=sight.box.name,
        platform=sight.box.adapter,
        native_id=sight.box.native_id,
        phase=sight.phase,
        price_per_hour=sight.price_per_hour,
        cost=thing.so_far(now),
        age_seconds=age,
        where=_where(sight),
        idle=thing.idle,
        note=sight.seen.account_problem or _handed(sight) or sight.seen.note or skew_words(sight.seen.skew),
        idle_seconds=idle_seconds(sight, now, setting_up=_setup(sight) == "running"),
        disk_used=patrol.disk.used if patrol else None,
        disk_free=patrol.disk.free if patrol else None,
        inodes_used=patrol.inodes.used if patrol else None,
        inodes_free=patrol.inodes.free if patrol else None,
        heartbeat_seconds=patrol.age(sight.there(now)) if patrol else None,
        setup=_setup(sight),
        blocked=str(sight.blocked.get("why") or "disk") if sight.blocked else None,
        alarms=tuple(_alarms(sight, now)),
        gpus=patrol.gpus if patrol else (),
    )


def _setup(sight: Sight) -> str:
    """`running`, `done`, `failed`, `cut off` (its runner died meanwhile), or nothing where there is none."""
    if sight.setup is None:
        return ""
    cut_off = sight.setup.state == "started" and sight.seen.runner_alive is False
    return "cut off" if cut_off else SETUP_WORDS[sight.setup.state]


def _alarms(sight: Sight, now: datetime) -> Iterator[str]:
    """Warnings about this box, the gravest first. Decided by facts of now, not by what a log said."""
    patrol, alive = sight.patrol, sight.seen.runner_alive
    if not sight.copied and not sight.seen.stopped and not sight.gone:
        stop = could_not_stop(sight.journal, sight.there(now), sight.price_per_hour)
        if stop:
            yield stop
    if sight.setup is not None and _setup(sight) in ("failed", "cut off"):
        yield f"set-up {_setup(sight)}{': ' if sight.setup.reason else ''}{sight.setup.reason or ''}"
    elif sight.stranded:
        yield stranded_words(sight)
    if alive and patrol is None and sight.journal is not None and sight.journal.entries:
        yield "its runner is alive and has not written one heartbeat"
    if alive and patrol is not None:
        if patrol.silent(sight.there(now)):
            yield (
                f"its runner is alive and has written nothing for {patrol.age(sight.there(now)):.0f} s "
                f"(a heartbeat comes every {patrol.interval:.0f} s): what follows is as of then"
            )
        for name, doing in patrol.running.items():
            if doing.verdict == "hung" and not any(alarm.startswith(f"{name} hung") for alarm in patrol.alarms):
                yield f"{name} is hung: {doing.why or 'nothing of it grew'}"
        yield from patrol.alarms
    for what, used in (("disk", patrol.disk.used), ("inodes", patrol.inodes.used)) if patrol and not sight.gone else ():
        said = patrol is not None and any(alarm.startswith(what) for alarm in patrol.alarms)
        if used is not None and used >= FULL and not said:
            yield f"{used:.0%} of its {what} are used"
    if sight.blocked:
        path, hint = sight.blocked.get("path"), sight.blocked.get("hint")
        at = f" at {path}" if path and path not in (hint or "") else ""
        yield f"nothing new starts: too little {sight.blocked.get('why') or 'disk'}{at}{f'; {hint}' if hint else ''}"


def stranded_words(sight: Sight) -> str:
    """That the runner of a box has ended before its cells: which, and what starts it again."""
    names = sight.stranded
    named = f"{', '.join(names[:3])}{', …' if names[3:] else ''}"
    count = f"{len(names)} cell{'' if len(names) == 1 else 's'}"
    them = "it" if len(names) == 1 else "them"
    return f"its runner is not alive, and {count} did not finish: {named}; `pulumi up` resumes {them}"


def _where(sight: Sight) -> str:
    """Its platform and address, where the adapter is a host; else what the platform says."""
    box = sight.box
    return f"{box.platform} {box.adapter.partition(':')[2]}" if box.platform else sight.where


def _handed(sight: Sight) -> str:
    """What a person has to do before its bill ends, where its end was begun; "" where nothing is open."""
    known = sight.handed
    return known.rented_on if known is not None and known.verb == "destroy" and not sight.gone else ""


def things(scene: Scene) -> list[Running]:
    """Everything ever rented: the state's boxes, what the records say of others, and orphans without a record."""
    shown = {sight.box.native_id for sight in scene.sights}
    things = [_thing(sight, scene.spent) for sight in scene.sights]
    strange = {orphan.native_id: orphan for orphan in scene.orphans if orphan.kind == "box"}
    for birth in scene.births:
        if birth.native_id is None or birth.native_id in shown:
            continue
        orphan = strange.pop(birth.native_id, None)
        bill = scene.spent.of(birth.native_id) if scene.spent else None
        if orphan is None and birth.rests and bill is not None and bill.open is not None:
            price, begin = bill.open.price_per_hour, bill.open.begin
            things.append(Running(price_per_hour=price, since=begin, known=bill.usd(scene.now)))
            continue
        over = birth.ended_at if orphan is None else None  # what the records call ended and is there, bills
        things.append(
            Running(
                price_per_hour=birth.price_per_hour,
                since=birth.created_at or birth.begun_at,
                until=over,
                gone=orphan is None,
                known=bill.usd(scene.now) if bill and (bill.ended_at or orphan) else None,
            )
        )
    things += [Running(orphan.price_per_hour, orphan.since) for orphan in strange.values()]
    return things


def _thing(sight: Sight, spent: Spent | None) -> Running:
    bill = spent.of(sight.box.native_id) if spent else None
    stopped = bill is not None and bill.open is not None and bill.open.phase == "stopped" and sight.phase == "stopped"
    return Running(
        price_per_hour=bill.open.price_per_hour if stopped and bill and bill.open else sight.price_per_hour,
        since=sight.since,
        until=sight.journal.last_at if sight.gone and sight.journal is not None else None,
        gone=sight.gone,
        idle=is_idle(sight),
        # Of a box that is gone, too: until `pulumi up` closes its bill it is counted until now, here as in the ledger.
        known=bill.usd(spent.at) if bill is not None and spent is not None else None,
    )


def bills(scene: Scene) -> Bills:
    """Whether anything bills. A volume that this stack keeps does by the month; one that it mounts is another's."""
    if any(volume.guarded and volume.price_per_month != 0 for volume in scene.state.volumes):
        return "yes"
    if any(volume.usd_per_month for volume in scene.left):
        return "yes"
    if any(one.price_per_hour is not None for one in scene.still_billed):
        return "yes"
    if any(not sight.gone for sight in scene.sights) or any(orphan.proved for orphan in scene.orphans):
        unsure = all(sight.phase == "unknown" for sight in scene.sights) and not any(s.proved for s in scene.orphans)
        return "unknown" if unsure else "yes"
    open_ends = (*scene.orphans, *scene.still_billed, *filter(_unsure, scene.left))
    return "nothing" if scene.searched and not open_ends else "unknown"


def _unsure(volume: Leftover) -> bool:
    """Whether it may bill by the month: a platform did not say whether it is there, or what it costs."""
    own_disk = volume.platform == "local" or ":" in volume.platform  # of this computer, or a host: costs nothing itself
    return volume.usd_per_month is None and not own_disk
