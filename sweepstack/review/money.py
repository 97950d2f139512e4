"""What the sweep costs now, what it will if it is kept, and what this change adds or saves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweepstack.billing.balance import MONTH_HOURS
from sweepstack.onbox.common.units import spell_rate
from sweepstack.review.live import Live
from sweepstack.review.model import Ending, Money
from sweepstack.review.plan import MAKING, Plan, Step


def money_of(plan: Plan, live: Live, endings: tuple[Ending, ...]) -> Money:
    """The figures. What a new box costs is what the preview says, else what the stack file says, else unknown."""
    adds, saves, unknown = 0.0, 0.0, []
    for step in _made(plan):
        price = _price(plan, step)
        if price is None:
            most = step.new.get("max_price")
            unknown.append(
                f"{step.name}: {f'at most ${spell_rate(most)}/h' if isinstance(most, int | float) else 'not known'}"
            )
        adds += price or 0.0
    for one in endings:
        box = live.box(one.native_id, one.name) if one.what == "box" and not one.gone else None
        if box is None:
            continue
        price = box.price_per_hour
        left = box.stopped_per_hour if one.verb == "stopped" else 0.0
        if price is None or left is None:
            unknown.append(f"{one.name}: what it saves is not known")
        saves += max((price or 0.0) - (left or 0.0), 0.0) if left is not None else 0.0
    for step in plan.of("Box", frozenset({"update"})):
        was, price = _number(step.before.get("price_per_hour")), _number(step.new.get("price_per_hour"))
        if step.old.get("want") == "stopped" and step.new.get("want") == "running":
            box = live.box(step.native_id, step.name)
            adds += max((_first(price, was) or 0.0) - ((box.price_per_hour if box else 0.0) or 0.0), 0.0)
        elif step.new.get("want", "running") == "running" and price != _number(step.old.get("price_per_hour")):
            more = (price or 0.0) - (was or 0.0)
            adds, saves = adds + max(more, 0.0), saves + max(-more, 0.0)
        if (bid := _number(step.new.get("bid"))) is not None and bid != _number(step.old.get("bid")):
            unknown.append(f"{step.name}: up to ${spell_rate(bid)}/h by its new bid")
    now = live.money
    return Money(
        per_hour=now.per_hour,
        so_far=now.so_far,
        idle=now.idle,
        per_day=now.per_hour * 24 + now.volumes_per_month * 24 / MONTH_HOURS,
        per_month=now.per_hour * MONTH_HOURS + now.volumes_per_month,
        adds=adds,
        saves=saves,
        volumes=_volumes(plan, live, endings),
        unknown=tuple(unknown),
        incomplete=now.incomplete,
        at_the_end=now.at_the_end,
        lines=now.lines,
    )


def _made(plan: Plan) -> list[Step]:
    """One step for each box that is rented."""
    return list({step.urn: step for step in plan.of("Box", MAKING) if step.new}.values())


def made(plan: Plan) -> tuple[str, ...]:
    """The boxes and volumes that the plan makes: `box box-2`."""
    volumes = {step.urn: step for step in plan.of("Volume", MAKING) if step.new and not step.new.get("kept")}
    boxes = sorted(f"box {step.name}" for step in _made(plan))
    return (*boxes, *(f"volume {step.name}" for step in volumes.values()))


def _price(plan: Plan, step: Step) -> float | None:
    placed: Any = step.new.get("placed")
    told = placed.get("price_per_hour") if isinstance(placed, Mapping) else None
    return _first(plan.price_of(step.name), _number(step.new.get("price_per_hour")), _number(told))


def _volumes(plan: Plan, live: Live, endings: tuple[Ending, ...]) -> float:
    """USD a month that the plan's volumes add, less those that end."""
    found = 0.0
    for step in {step.urn: step for step in plan.of("Volume", MAKING)}.values():
        size, price = _number(step.new.get("size_gb")), _number(step.new.get("price_per_gb_month"))
        found += 0.0 if step.new.get("kept") else (size or 0.0) * (price or 0.0)
    for step in plan.of("Volume", frozenset({"update"})):
        found += _per_month(step.new, live, step) - _per_month(step.old, live, step)
    for one in endings:
        volume = live.volume(one.native_id) if one.what == "volume" else None
        found -= (volume.usd_per_month or 0.0) if volume is not None else 0.0
    return found


def _per_month(inputs: Mapping[str, Any], live: Live, step: Step) -> float:
    """USD a month of a volume by its inputs; its platform's price of a GB where the inputs name none."""
    size, price, seen = _number(inputs.get("size_gb")), _number(inputs.get("price_per_gb_month")), None
    if price is None and (seen := live.volume(step.native_id)) and seen.size_gb and seen.usd_per_month is not None:
        price = seen.usd_per_month / seen.size_gb
    return 0.0 if inputs.get("kept") else (size or 0.0) * (price or 0.0)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
