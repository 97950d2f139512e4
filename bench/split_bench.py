"""How well cells are split over boxes: `python -m bench.split_bench`. Fixed seeds, no machines: pure simulation.

The real function (`launch.cell_shares.shares`) is asked as the program asks it. Then each box runs its cells in the
order of the roster, as a runner does, by times that the split does not know: it knows what a few sealed cells took.
Against the longest-first schedule (LPT) by the true times, and against the rule before (rendezvous hashing).
"""

from __future__ import annotations

import hashlib
import heapq
import json
import random
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sweepstack.core.journal import CellProgress, Journal
from sweepstack.core.records import Cell
from sweepstack.launch.cell_shares import AskedBox, BoxSeen, SplitFacts, SplitQuestion, shares
from sweepstack.onbox.common.cell_durations import Took

DRAWS = 20
LIMIT = 1.1
NOISE = 0.03
"""Standard deviation of a cell's time around what its axes say."""


def draw(seed: int) -> tuple[SplitQuestion, SplitFacts, dict[str, float], dict[str, float]]:
    """A sweep of which some cells are sealed; the others wait in the queues of all boxes but the last, which is idle.
    With the true seconds of each cell, and the speed of each box."""
    dice = random.Random(seed)
    boxes = [f"box-{n}" for n in range(dice.randint(2, 5))]
    slots = dice.choice((1, 1, 1, 2))
    axes = {"width": {w: 60 * w * dice.uniform(0.8, 1.25) for w in (1, 2, 4, 8)}, "lr": {0.1: 1.0, 0.3: 1.2}}
    seeds = range(dice.randint(9, 40))
    cells = [
        Cell(name=f"w{width}-lr{lr}-s{n}", params={"width": width, "lr": lr, "seed": n})
        for width in axes["width"]
        for lr in axes["lr"]
        for n in seeds
    ]
    true = {
        cell.name: axes["width"][cell.params["width"]] * axes["lr"][cell.params["lr"]] * dice.lognormvariate(0, NOISE)
        for cell in cells
    }
    speeds = {box: dice.choice((1.0, 1.0, 2.0)) for box in boxes}
    sealed = set(dice.sample([cell.name for cell in cells], len(cells) // 3))
    given: dict[str, list[str]] = {box: [] for box in boxes}
    for cell in cells:
        given[dice.choice(boxes if cell.name in sealed else boxes[:-1])].append(cell.name)
    took = [
        Took(name, box, true[name] / speeds[box]) for box, names in given.items() for name in names if name in sealed
    ]
    seen = {
        box: BoxSeen(
            machine=box,
            given=frozenset(names),
            journal=Journal(cells={n: CellProgress(n, "sealed") for n in names if n in sealed}),
            reachable=True,
        )
        for box, names in given.items()
    }
    where = {box: AskedBox(slots=slots) for box in boxes}
    asked = SplitQuestion(project="bench", stack="bench", pull_to="x", cells=tuple(cells), boxes=where)
    return asked, SplitFacts(datetime(2026, 1, 1, tzinfo=UTC), seen, (), {}, took), true, speeds


def makespan(
    names: Mapping[str, Sequence[str]], asked: SplitQuestion, true: Mapping[str, float], speed: Mapping[str, float]
) -> float:
    """Seconds until the last box is through, each taking its cells in the order given."""
    ends = []
    for box, mine in names.items():
        free = [0.0] * asked.boxes[box].slots
        for name in mine:
            heapq.heapreplace(free, free[0] + true[name] / speed[box])
        ends.append(max(free))
    return max(ends)


def longest_first(
    left: Sequence[str], asked: SplitQuestion, true: Mapping[str, float], speed: Mapping[str, float]
) -> float:
    """LPT: the longest cell next, to the slot that is through with it first."""
    slots = [[0.0, box] for box, known in asked.boxes.items() for _ in range(known.slots)]
    for name in sorted(left, key=lambda name: -true[name]):
        best = min(slots, key=lambda slot: slot[0] + true[name] / speed[str(slot[1])])  # type: ignore[operator]
        best[0] += true[name] / speed[str(best[1])]  # type: ignore[operator]
    return max(float(slot[0]) for slot in slots)


def rendezvous(left: Sequence[str], boxes: Sequence[str]) -> dict[str, list[str]]:
    """The rule before: each cell to the box whose hash with it is the highest."""
    found: dict[str, list[str]] = {box: [] for box in boxes}
    for name in left:
        found[max(boxes, key=lambda box: hashlib.sha256(f"{box}\0{name}".encode()).digest())].append(name)
    return found


def measure() -> dict[str, Any]:
    """Ratios to LPT of all draws, and by how many cells two boxes of a new sweep differ."""
    ours, before, uneven, moved = [], [], [], []
    for seed in range(DRAWS):
        asked, known, true, speed = draw(seed)
        sealed = {one.cell for one in known.took}
        left = [cell.name for cell in asked.cells if cell.name not in sealed]
        best = longest_first(left, asked, true, speed)
        found = shares(asked, known)
        mine = {box: [name for name in names if name not in sealed] for box, names in found.cells.items()}
        ours.append(makespan(mine, asked, true, speed) / best)
        before.append(makespan(rendezvous(left, list(asked.boxes)), asked, true, speed) / best)
        held = {name: box for box, seen in known.boxes.items() for name in seen.given if name not in sealed}
        moved.append(sum(held[name] != box for box, names in mine.items() for name in names) / len(left))
        new = Counter({box: len(names) for box, names in shares(asked, SplitFacts(known.now)).cells.items()})
        uneven.append(max(new[box] for box in asked.boxes) - min(new[box] for box in asked.boxes))
    return {
        "draws": DRAWS,
        "limit": LIMIT,
        "ratio": {"median": statistics.median(ours), "max": max(ours)},
        "rendezvous": {"median": statistics.median(before), "max": max(before)},
        "moved": statistics.median(moved),
        "uneven": max(uneven),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
