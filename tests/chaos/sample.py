"""The plans of `make test` and of `make proof`, in two halves: a file is what a worker of the tests gets."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest

from tests.chaos.plans import Plan, plan, platform_of
from tests.chaos.stage import Stage
from tests.simulators.rental import rental, rentals

DRAWN = 150
"""The suite chooses among the first seeds. `python -m tests.chaos --plans 1000` plays a thousand."""
TAIL = 60
HALVES = 2


def kinds(one: Plan) -> set[Hashable]:
    """What a plan has in it: each kind of step, of fault, and of strike with the call that it hits."""
    steps = {("step", step.what, step.way, step.key) for step in one.steps}
    faults = {("fault", fault["kind"]) for fault in one.faults}
    strikes = {("strike", strike["how"], strike["match"], strike["when"]) for strike in one.strikes}
    return {("boxes", one.boxes), ("stop", one.stop), *steps, *faults, *strikes}


def kinds_of_all(one: Plan) -> set[Hashable]:
    """The same, with what is the provider's own work counted once for all platforms: what people do, and when a signal
    comes. A fault is of its platform."""
    its = rental(one.platform)
    calls = {its.create: "create", its.read: "read", its.delete: "delete"}
    found: set[Hashable] = set()
    for what, *of in (kind for kind in kinds(one) if isinstance(kind, tuple)):
        if what == "fault":
            of = [one.platform, *of]
        elif what == "strike":
            how, match, when = of
            of = [how, calls.get(match, match), when]
        found.add((what, *of))
    return found


def seeds(half: int) -> list[Any]:
    """Every second of the fewest plans that have in them whatever the first 150 have, of each platform: about fifteen a
    platform. Of them, `make test` plays the fewest that have the same with `kinds_of_all`."""
    return _chosen()[half::HALVES]


@functools.cache
def _chosen() -> list[Any]:
    chosen = [
        seed
        for platform in rentals()
        for seed in _fewest([n for n in range(DRAWN) if platform_of(n) == platform], kinds)
    ]
    quick = _fewest(chosen, kinds_of_all)
    later = [seed for seed in chosen if seed not in quick]  # what each has in it, one of `quick` has, too
    return [*quick, *(pytest.param(seed, marks=pytest.mark.proof) for seed in later)]


def _fewest(of: Iterable[int], kinds: Callable[[Plan], set[Hashable]]) -> list[int]:
    plans = [plan(seed) for seed in of]
    missing: set[Hashable] = set().union(*map(kinds, plans))
    chosen = []
    while missing:
        best = max(plans, key=lambda one: len(kinds(one) & missing))  # the first of the best
        missing -= kinds(best)
        chosen.append(best.seed)
    return sorted(chosen)


def holds(stage: Stage, seed: int) -> None:
    """Plays the plan; what did not hold is told with the end of its story and the command that replays it."""
    verdict = stage.play(seed)
    told = "\n".join([*verdict.broken, "", *verdict.story[-TAIL:], "", f"replay: python -m tests.chaos {seed}"])
    assert not verdict.broken, f"seed {seed}\n{told}"
