"""A plan: what a seed says that people do and what goes wrong meanwhile. The same seed gives the same plan."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulators.faults import Choice, draw
from tests.simulators.runpod import MENU as RUNPOD_MENU

PLATFORMS = ("runpod", "vastai")
CREATE = {"runpod": "POST /v2/pods", "vastai": "PUT /api/v0/asks/{id}/"}
READ = {"runpod": "GET /v2/pods*", "vastai": "GET /api/v[01]/instances/*"}
DELETE = {"runpod": "DELETE /v2/pods/{id}", "vastai": "DELETE /api/v0/instances/{id}/"}
_V_LIST, _V_ONE = "GET /api/v1/instances/", "GET /api/v0/instances/{id}/"
_V_CREATE, _V_DELETE, _V_SEARCH = CREATE["vastai"], DELETE["vastai"], "POST /api/v0/bundles/"
_V_READS = "GET /api/v[01]/*"
VAST_MENU = (
    *(Choice("too_many", "*", {"retry_after": [None, 1]}) for _ in range(2)),
    Choice("error_before", "*", {"status": [500, 502, 503]}),
    Choice("error_after", _V_CREATE, {"status": [500, 502, 504]}),
    Choice("error_after", _V_DELETE, {"status": [500, 502]}),
    Choice("lost_answer", _V_CREATE, {"reset": [False, True]}),
    Choice("lost_answer", _V_DELETE, {"reset": [False, True]}),
    Choice("lost_request", "*", {"reset": [False, True]}),
    Choice("truncated", "*"),
    Choice("html_before", "*", {"status": [502, 403, 524]}),
    Choice("html_after", _V_CREATE, {"status": [502, 524]}),
    Choice("html_ok", _V_READS),
    Choice("not_json", "*"),
    Choice("success_false", _V_READS),
    Choice("stale_list", _V_LIST, {"seconds": [30.0, 60.0]}),
    Choice("null_read", _V_ONE),
    Choice("empty_list", _V_LIST),
    Choice("snatched", _V_CREATE, {"gpus": [False, True]}),
    Choice("lacks_credit", _V_CREATE),
    Choice("spend_limit", _V_CREATE, {"status": [400, 403]}),
    Choice("stuck", _V_CREATE),
    Choice("oci", _V_CREATE),
    Choice("dies", _V_CREATE),
    Choice("destroy_slow", _V_DELETE, {"reads": [1, 5]}),
    Choice("destroy_ignored", _V_DELETE),
    Choice("preempted", _V_READS),
    Choice("vanished", _V_READS),
    Choice("odd_status", _V_READS, {"word": ["migrating", "paused"]}),
    Choice("search_quota", _V_SEARCH),
    Choice("auth", _V_READS, {"status": [401, 404]}),
)
"""What a seed draws from on vast.ai. Hangs are left out: they cost real time, and the suite has them one by one."""
MENUS: dict[str, Sequence[Choice]] = {
    # A key does not change its account between two calls: whole commands with another key are steps of a plan.
    "runpod": [choice for choice in RUNPOD_MENU if choice.kind != "foreign_account"],
    "vastai": VAST_MENU,
}
WAYS_OUT = ("verify", "abandon", "bare")
"""How a person lets boxes go: a receipt, a word by name, or an approval without a receipt (nothing was launched)."""


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
    """The plan of a seed: even seeds on RunPod, odd ones on vast.ai."""
    dice = random.Random(f"plan {seed}")
    platform = PLATFORMS[seed % 2]
    boxes = 2 if dice.random() < 0.2 else 1
    stop = dice.random() < 0.5
    rules = draw(seed, MENUS[platform], most=6, latest=6)
    faults = tuple(
        {"kind": rule.kind, "match": rule.match, "nth": rule.nth, "times": rule.times, **rule.params} for rule in rules
    )
    steps = _steps(dice, boxes)
    return Plan(seed, platform, boxes, stop, steps, (*faults, *_outage(seed, platform)), _strikes(dice, platform))


def _outage(seed: int, platform: str) -> tuple[dict[str, Any], ...]:
    """In every third plan the platform answers no read for longer than a reader asks again: nobody knows anything."""
    dice = random.Random(f"outage {seed}")
    if dice.random() > 0.35:
        return ()
    kind, params = dice.choice(
        (("error_before", {"status": 502}), ("lost_request", {}), ("html_before", {"status": 503}))
    )
    match = READ[platform]
    return ({"kind": kind, "match": match, "nth": dice.randint(2, 20), "times": dice.randint(5, 15), **params},)


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


def _strikes(dice: random.Random, platform: str) -> tuple[dict[str, Any], ...]:
    """None in every second plan; else one to three signals."""
    if dice.random() < 0.4:
        return ()
    found = []
    for _ in range(dice.randint(1, 3)):
        how = dice.choice(("kill", "kill", "kill", "cancel", "interrupt"))
        match = dice.choice((CREATE[platform], CREATE[platform], READ[platform], DELETE[platform], "*"))
        nth = dice.randint(1, 2) if match in (CREATE[platform], DELETE[platform]) else dice.randint(1, 25)
        found.append({"how": how, "match": match, "nth": nth, "when": dice.choice(("before", "after"))})
    return tuple(found)
