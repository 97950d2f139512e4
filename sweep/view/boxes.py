"""What to call a box, and what everything that was ever rented costs."""

from __future__ import annotations

from datetime import datetime

from sweep.cost import Running
from sweep.scene import Scene, Sight
from sweep.view.shapes import Bills, BoxView


def box_view(sight: Sight, now: datetime) -> BoxView:
    thing = _thing(sight)
    age = (now - sight.since).total_seconds() if sight.since else None
    return BoxView(
        name=sight.box.name,
        platform=sight.box.adapter,
        native_id=sight.box.native_id,
        phase=sight.phase,
        price_per_hour=sight.price_per_hour,
        cost=thing.so_far(now),
        age_seconds=age,
        where=sight.where,
        idle=thing.idle,
        note=sight.seen.account_problem or sight.seen.note,
    )


def things(scene: Scene) -> list[Running]:
    """Everything ever rented: the state's boxes, what the records say of others, and strangers without a record."""
    shown = {sight.box.native_id for sight in scene.sights}
    things = [_thing(sight) for sight in scene.sights]
    strange = {stranger.native_id: stranger for stranger in scene.strangers if stranger.kind == "box"}
    for birth in scene.births:
        if birth.native_id is None or birth.native_id in shown:
            continue
        stranger = strange.pop(birth.native_id, None)
        things.append(
            Running(
                price_per_hour=birth.price_per_hour,
                since=birth.created_at or birth.begun_at,
                until=birth.ended_at,
                gone=birth.ended_at is not None or stranger is None,
            )
        )
    things += [Running(stranger.price_per_hour, stranger.since) for stranger in strange.values()]
    return things


def _thing(sight: Sight) -> Running:
    alive = sight.seen.runner_alive
    last = sight.journal.entries[-1]["time"] if sight.gone and sight.journal and sight.journal.entries else None
    return Running(
        price_per_hour=sight.price_per_hour,
        since=sight.since,
        until=datetime.fromisoformat(str(last)) if last else None,
        gone=sight.gone,
        idle=None if alive is None else not alive,
    )


def bills(scene: Scene) -> Bills:
    if any(not sight.gone for sight in scene.sights) or any(stranger.proved for stranger in scene.strangers):
        unsure = all(sight.phase == "unknown" for sight in scene.sights) and not any(s.proved for s in scene.strangers)
        return "unknown" if unsure else "yes"
    return "nothing" if scene.searched and not scene.strangers else "unknown"
