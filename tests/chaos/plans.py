"""A plan: what a seed says that people do and what goes wrong meanwhile. The same seed gives the same plan."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field
from typing import Any

from tests.simulators.faults import draw
from tests.simulators.rental import Rental, rental, rentals

WAYS_OUT = ("verify", "abandon", "bare")
"""What ends boxes: a receipt, an abandonment by name, or an approval without receipt (nothing was launched)."""


@dataclass(frozen=True)
class Step:
    """One thing that somebody does. `what`: up, twice, refresh, destroy, run, seal, approve, revoke, vanish, deafen,
    hear; `key`: "own" or "other"; `way`: of an approval."""

    what: str
    key: str = "own"
    way: str = ""
    box: int = 0

    def __str__(self) -> str:
        more = [self.way] if self.way else []
        more += ["with another account's key"] if self.key != "own" else []
        more += [f"box-{self.box}"] if self.what in ("vanish",) else []
        return " ".join([self.what, *more])


@dataclass(frozen=True)
class Plan:
    """See the module. `faults` and `strikes` as `platform_process` takes them; `stop`: the profile can pause a box."""

    seed: int
    platform: str
    boxes: int
    stop: bool
    steps: tuple[Step, ...]
    faults: tuple[dict[str, Any], ...] = field(default=())
    strikes: tuple[dict[str, Any], ...] = field(default=())


def plan(seed: int) -> Plan:
    """The plan of a seed. The platforms take turns: the first one, by name, has the seed 0."""
    dice = random.Random(f"plan {seed}")
    platform = platform_of(seed)
    its = rental(platform)
    boxes = 2 if dice.random() < 0.2 else 1
    stop = dice.random() < 0.5 and its.whole
    rules = draw(seed, its.menu, most=6, latest=6)
    faults = tuple(
        {"kind": rule.kind, "match": rule.match, "nth": rule.nth, "times": rule.times, **rule.params} for rule in rules
    )
    steps = _steps(dice, boxes)
    return Plan(seed, platform, boxes, stop, steps, (*faults, *_outage(seed, its)), _strikes(dice, its))


def platform_of(seed: int) -> str:
    """Whose turn it is."""
    return rentals()[seed % len(rentals())]


def _outage(seed: int, its: Rental) -> tuple[dict[str, Any], ...]:
    """In every third plan the platform answers no read for longer than a reader asks again: nobody knows anything."""
    dice = random.Random(f"outage {seed}")
    if dice.random() > 0.35:
        return ()
    kind, params = dice.choice(
        (("error_before", {"status": 502}), ("lost_request", {}), ("html_before", {"status": 503}))
    )
    return ({"kind": kind, "match": its.read, "nth": dice.randint(2, 20), "times": dice.randint(5, 15), **params},)


def _steps(dice: random.Random, boxes: int) -> tuple[Step, ...]:
    up = functools.partial(_up, dice, boxes)
    steps = [up()]
    if dice.random() < 0.35:
        steps.append(_aside(dice, boxes))
    if dice.random() < 0.7:
        steps += [Step("run"), *([Step("seal")] if dice.random() < 0.7 else [])]
    if dice.random() < 0.5:
        steps.append(_aside(dice, boxes))
    for _ in range(dice.randint(0, 2)):
        steps.append(up())
    if dice.random() < 0.8:
        steps += [Step("approve", way=dice.choice(WAYS_OUT)), up()]
    if dice.random() < 0.3:
        steps.append(_aside(dice, boxes))
    steps.append(Step("destroy", key="other" if dice.random() < 0.08 else "own"))
    if dice.random() < 0.4:
        steps += [up(), Step("destroy")]
    return tuple(steps)


def _up(dice: random.Random, boxes: int) -> Step:
    """With another account's key only where there is one box: two in two accounts are not for one person to end."""
    what = "twice" if dice.random() < 0.15 else "up"
    return Step(what, key="other" if dice.random() < 0.06 and boxes == 1 else "own")


def _aside(dice: random.Random, boxes: int) -> Step:
    """Something beside the way from `up` to `destroy`."""
    kinds = ("refresh", "destroy", "vanish", "preempt", "deafen", "hear", "revoke", "approve", "seal", "preview")
    what = dice.choice(kinds)
    return Step(what, way=dice.choice(WAYS_OUT) if what == "approve" else "", box=dice.randrange(boxes))


def _strikes(dice: random.Random, its: Rental) -> tuple[dict[str, Any], ...]:
    """None in every second plan; else one to three signals."""
    if dice.random() < 0.4:
        return ()
    found = []
    for _ in range(dice.randint(1, 3)):
        how = dice.choice(("kill", "kill", "kill", "cancel", "interrupt"))
        match = dice.choice((its.create, its.create, its.read, its.delete, "*"))
        nth = dice.randint(1, 2) if match in (its.create, its.delete) else dice.randint(1, 25)
        found.append({"how": how, "match": match, "nth": nth, "when": dice.choice(("before", "after"))})
    return tuple(found)
