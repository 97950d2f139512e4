"""The plans that every `make test` plays, in two halves: a file is what a worker of the tests gets."""

from __future__ import annotations

from collections.abc import Hashable

from tests.chaos.plans import Plan, plan, platform_of
from tests.chaos.stage import Stage
from tests.simulators.rental import rentals

DRAWN = 150
"""The suite chooses among the first seeds. `python -m tests.chaos --plans 1000` plays a thousand."""
TAIL = 60


def kinds(one: Plan) -> set[Hashable]:
    """What a plan has in it: each kind of step, of fault, and of strike with the call that it hits."""
    steps = {("step", step.what, step.way, step.key) for step in one.steps}
    faults = {("fault", fault["kind"]) for fault in one.faults}
    strikes = {("strike", strike["how"], strike["match"], strike["when"]) for strike in one.strikes}
    return {("boxes", one.boxes), ("stop", one.stop), *steps, *faults, *strikes}


HALVES = 2


def seeds(half: int) -> list[int]:
    """Every second of the fewest plans that have in them whatever the first 150 have: about twenty a platform."""
    chosen = [
        seed for platform in rentals() for seed in _fewest([n for n in range(DRAWN) if platform_of(n) == platform])
    ]
    return chosen[half::HALVES]


def _fewest(of: list[int]) -> list[int]:
    plans = [plan(seed) for seed in of]
    missing, chosen = set().union(*map(kinds, plans)), []
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
