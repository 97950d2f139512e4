"""When the last cell is through, over boxes of different speeds: `python -m bench.makespan_bench`. Fixed seeds, in
simulated time: the same on every machine.

Eight boxes, the fastest up to four times as fast as the slowest; cells whose times have a heavy tail. What decides is
the product's own code, in both ways in which boxes share out cells:

- one queue: workers on a common tier, each with the journal, the queue, the schedule and the order that a runner has;
- own queues: boxes without a common tier, which `launch.cell_shares` splits at the start, and again in each round of
  `sweepctl tend` that finds a box idle while cells wait elsewhere.

Costs are unknown (nothing was measured, and the axes say nothing of a cell's time) or known (a third is sealed, and the
axes say it up to 3 %). Unknown ones are compared with one first-in-first-out queue that costs nothing, known ones with
the longest-first schedule (LPT) by the true times and speeds.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sweepstack.core.journal import CellProgress, Journal
from sweepstack.core.records import Cell
from sweepstack.launch.cell_shares import AskedBox, BoxSeen, SplitFacts, SplitQuestion, shares
from sweepstack.onbox.common.canonical import canonical_json
from sweepstack.onbox.common.cell_durations import Took
from sweepstack.onbox.runner.records import Queue
from sweepstack.onbox.runner.schedule import Schedule
from sweepstack.onbox.runner.worker import Order
from sweepstack.onbox.runner.workers import SharedJournal

DRAWS, BOXES = 20, 8
FIFO_LIMIT, LPT_LIMIT = 1.02, 1.1
NOISE = 0.03
"""Standard deviation of a known cell's time around what its axes say."""
TYPICAL = 600.0
"""Seconds of a short cell on a box of speed 1."""
ROUND, MOVE = 60.0, 15.0
"""Seconds from one round of `tend` to the next (its default), and of a round that moves cells (an `up`)."""
IDENTITY = "abcdefghij"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Draw:
    """`seconds`: cell → what it takes on a box of speed 1; `sealed`: cell → the box that has sealed it before."""

    cells: tuple[Cell, ...]
    seconds: Mapping[str, float]
    speeds: Mapping[str, float]
    sealed: Mapping[str, str]

    @property
    def left(self) -> list[str]:
        return [cell.name for cell in self.cells if cell.name not in self.sealed]

    def took(self) -> list[Took]:
        return [Took(name, box, self.seconds[name] / self.speeds[box]) for name, box in self.sealed.items()]


def draw(seed: int, *, known: bool) -> Draw:
    dice = random.Random(seed)
    speeds = {f"box-{n}": dice.uniform(1, 4) for n in range(BOXES)}
    axes = {axis: {value: dice.paretovariate(1.2) for value in range(4)} for axis in ("width", "depth")}
    cells = [
        Cell(name=f"w{width}-d{depth}-s{n}", params={"width": width, "depth": depth, "seed": n})
        for n in range(dice.randint(8, 24))
        for width in range(4)
        for depth in range(4)
    ]
    dice.shuffle(cells)
    seconds = {
        cell.name: TYPICAL * axes["width"][cell.params["width"]] * axes["depth"][cell.params["depth"]]
        * dice.lognormvariate(0, NOISE)
        if known
        else TYPICAL * dice.paretovariate(1.5)
        for cell in cells
    }  # fmt: skip
    measured = dice.sample(sorted(seconds), len(cells) // 3) if known else []
    return Draw(tuple(cells), seconds, speeds, {name: dice.choice(sorted(speeds)) for name in measured})


@dataclass
class Outcome:
    """`ends`: box → when it was through with its last cell."""

    ends: dict[str, float] = field(default_factory=dict)

    @property
    def makespan(self) -> float:
        return max(self.ends.values())

    @property
    def box_hours(self) -> float:
        """Part of the box-hours of "all boxes until the end" that was paid, where a box stops when it has nothing."""
        return sum(self.ends.values()) / (len(self.ends) * self.makespan)


def longest_first(drawn: Draw) -> Outcome:
    """The longest cell next, to the box that is through with it first."""
    ends = dict.fromkeys(drawn.speeds, 0.0)
    for name in sorted(drawn.left, key=lambda name: -drawn.seconds[name]):
        best = min(ends, key=lambda box: ends[box] + drawn.seconds[name] / drawn.speeds[box])
        ends[best] += drawn.seconds[name] / drawn.speeds[best]
    return Outcome(ends)


def first_in_first_out(drawn: Draw) -> Outcome:
    """One queue that costs nothing: the next cell to the box that is free first."""
    free = [(0.0, box) for box in drawn.speeds]
    heapq.heapify(free)
    ends = dict.fromkeys(drawn.speeds, 0.0)
    for name in drawn.left:
        at, box = free[0]
        ends[box] = at + drawn.seconds[name] / drawn.speeds[box]
        heapq.heapreplace(free, (ends[box], box))
    return Outcome(ends)


class Puller:
    """One worker of a shared queue, in simulated time: the parts of `runner.worker` that decide what it takes."""

    def __init__(self, home: Path, name: str) -> None:
        self.journal = SharedJournal(home, name, {"worker": name}, lambda _: False)
        self.schedule = Schedule(Queue(home / "queue.jsonl", shared=True), self.journal, home / "none", IDENTITY)
        self.order = Order(self.schedule.queue, self.journal)
        self.cell = ""

    def seal(self, name: str, seconds: float) -> None:
        self.journal.append("cell-sealed", cell=name, attempt=1, config_digest="", manifest="", seconds=seconds)

    def claim(self) -> str:
        """The cell that it takes, "" for none."""
        self.order.learn()
        with self.journal.turn():
            self.schedule.take_in(())
            self.order.arrange(self.schedule.ready, 1)
            entry = self.schedule.pop((), lambda _: True)
            if entry is not None:
                self.start(entry.cell, entry.version)
        self.cell = entry.cell if entry is not None else ""
        return self.cell

    def start(self, name: str, version: str) -> None:
        self.schedule.announce()
        self.journal.append("cell-started", cell=name, attempt=1, config_digest="", version=version)


def one_queue(drawn: Draw, home: Path) -> Outcome:
    """All workers begin at once, and take from one queue until nothing is left."""
    home.mkdir()
    code = "sha256:" + "0" * 64
    lines = [
        {"op": "add", "cell": cell.name, "params": cell.params, "config_digest": cell.config_digest, "code": code,
         "run": "true"}
        for cell in drawn.cells
    ]  # fmt: skip
    (home / "queue.jsonl").write_bytes(b"".join(canonical_json(line) + b"\n" for line in lines))
    workers = {box: Puller(home, box) for box in drawn.speeds}
    for name, box in drawn.sealed.items():
        workers[box].start(name, "")
        workers[box].seal(name, drawn.seconds[name] / drawn.speeds[box])
    out = Outcome(dict.fromkeys(drawn.speeds, 0.0))
    free = [(0.0, box) for box in drawn.speeds]
    heapq.heapify(free)
    done = 0
    while free:
        at, box = heapq.heappop(free)
        worker = workers[box]
        if worker.cell:
            worker.seal(worker.cell, drawn.seconds[worker.cell] / drawn.speeds[box])
            out.ends[box] = at
            done += 1
        if name := worker.claim():
            heapq.heappush(free, (at + drawn.seconds[name] / drawn.speeds[box], box))
    for worker in workers.values():
        worker.journal.close()
    if done != len(drawn.left):
        raise RuntimeError(f"{done} cells ran of {len(drawn.left)}")
    return out


class Boxes:
    """Boxes with queues of their own, in simulated time."""

    def __init__(self, drawn: Draw) -> None:
        self.drawn = drawn
        self.asked = SplitQuestion(
            project="bench",
            stack="bench",
            pull_to="x",
            cells=drawn.cells,
            boxes={box: AskedBox() for box in drawn.speeds},
        )
        self.queues: dict[str, list[str]] = {box: [] for box in drawn.speeds}
        self.running: dict[str, tuple[str, float]] = {}
        self.sealed: dict[str, dict[str, float]] = {box: {} for box in drawn.speeds}
        for one in drawn.took():
            self.sealed[one.box][one.cell] = one.seconds
        self.given: dict[str, set[str]] = {box: set(self.sealed[box]) for box in drawn.speeds}
        self.ends = dict.fromkeys(drawn.speeds, 0.0)

    def split(self, at: float) -> None:
        """What an `up` does: asks `shares`, and moves what has not started."""
        now = NOW + timedelta(seconds=at)
        seen = {}
        for box in self.drawn.speeds:
            cells = {name: CellProgress(name, "sealed") for name in self.sealed[box]}
            if box in self.running:
                name, since = self.running[box]
                cells[name] = CellProgress(name, "running", started_at=NOW + timedelta(seconds=since))
            if self.given[box]:
                journal = Journal(cells=cells)
                seen[box] = BoxSeen(machine=box, given=frozenset(self.given[box]), journal=journal, reachable=True)
        took = [Took(name, box, seconds) for box, mine in self.sealed.items() for name, seconds in mine.items()]
        found = shares(self.asked, SplitFacts(now, seen, (), {}, took)).cells
        for box in self.drawn.speeds:
            mine = found.get(box, ())
            begun = {*self.sealed[box], *([self.running[box][0]] if box in self.running else [])}
            waits = [name for name in mine if name not in begun]
            kept = [name for name in self.queues[box] if name in set(waits)]
            self.queues[box] = [*kept, *(name for name in waits if name not in set(kept))]
            self.given[box] = set(mine)

    def run_until(self, at: float) -> None:
        """Lets each box run its own queue, in its order."""
        for box, speed in self.drawn.speeds.items():
            free = self.ends[box]
            while True:
                if box in self.running:
                    name, since = self.running[box]
                    free = since + self.drawn.seconds[name] / speed
                    if free > at:
                        break
                    del self.running[box]
                    self.sealed[box][name] = free - since
                    self.ends[box] = free
                if not self.queues[box]:
                    break
                self.running[box] = self.queues[box].pop(0), max(free, self.awake)

    awake = 0.0
    """When the last `up` ended: an idle box begins no cell before."""

    def through(self) -> bool:
        return not self.running and not any(self.queues.values())


def own_queues(drawn: Draw) -> Outcome:
    """One `up`, then a round of `tend` every minute: the rule of `operations.tend.move_cells_to_idle`."""
    world = Boxes(drawn)
    world.split(0.0)
    at, tried = 0.0, ((), ())  # type: ignore[var-annotated]
    world.run_until(at)
    while not world.through():
        at += ROUND
        world.run_until(at)
        idle = tuple(box for box in drawn.speeds if box not in world.running)
        waits = tuple(sorted(name for queue in world.queues.values() for name in queue))
        if idle and waits and (idle, waits) != tried:
            tried = idle, waits
            world.run_until(at + MOVE)
            world.awake = at + MOVE
            world.split(at + MOVE)
            world.run_until(at + MOVE)
    return Outcome(world.ends)


def ratios(ours: Sequence[Outcome], against: Sequence[Outcome]) -> dict[str, float]:
    found = [one.makespan / other.makespan for one, other in zip(ours, against, strict=True)]
    total = sum(one.makespan for one in ours) / sum(one.makespan for one in against)
    return {"median": statistics.median(found), "max": max(found), "total": total}


def measure() -> dict[str, Any]:
    """Makespans of all draws to the baseline's, and the part of the box-hours of "all until the end".

    `fifo_again`: the first-in-first-out queue with its cells in another order. So far apart are two draws of luck:
    which box gets the longest cell, and when.
    """
    found: dict[str, Any] = {"draws": DRAWS, "boxes": BOXES, "limits": {"unknown": FIFO_LIMIT, "known": LPT_LIMIT}}
    base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None  # nothing is to outlive a power cut here
    with tempfile.TemporaryDirectory(dir=base) as folder:
        for costs in ("unknown", "known"):
            drawn = [draw(seed, known=costs == "known") for seed in range(DRAWS)]
            plain = [first_in_first_out(one) for one in drawn]
            best = plain if costs == "unknown" else [longest_first(one) for one in drawn]
            ways = {
                "one_queue": [one_queue(one, Path(folder) / f"{costs}-{n}") for n, one in enumerate(drawn)],
                "own_queues": [own_queues(one) for one in drawn],
                "fifo": plain,
                "fifo_again": [first_in_first_out(replace(one, cells=one.cells[::-1])) for one in drawn],
            }
            found[costs] = {
                way: {
                    **ratios(outcomes, best),
                    "box_hours": statistics.median(one.box_hours for one in outcomes),
                }
                for way, outcomes in ways.items()
            }
    return found


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
