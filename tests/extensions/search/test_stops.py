"""What a rule stopped is ended on its box at once; the engine's state follows later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sweepstack.core.budget import Budget
from sweepstack.core.records import Cell
from sweepstack.core.search_log import SearchLog, Step
from sweepstack.evidence.object_store import ObjectStore
from sweepstack.evidence.search_log import append, read_search_log
from sweepstack.extensions.search import rounds
from sweepstack.extensions.search.rounds import bring_in, tell_boxes
from sweepstack.onbox.common import box_layout
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.operations.tend import Round
from sweepstack.status.snapshot import Snapshot
from tests.unit.cli.support import STACK, Box, World

NAMES = ("s0", "s1", "s2")
STOPPED = {
    name: Step(kind="pruned", cell=name, rule="asha", rung=1, x=1, value=2, bound=1, among=4, metric="loss")
    for name in ("s1", "s2")
}


@pytest.fixture
def box(world: World) -> Box:
    """s0 and s1 run, s2 waits in the queue; the log stops s1 and s2."""
    world.monkeypatch.setattr(World, "cell", lambda _, name: Cell(name=name, params={"lr": 0.1}))
    drawn = [Step(kind="suggested", cell=name, number=number) for number, name in enumerate(NAMES)]
    append(world.store.objects, SearchLog(), [*drawn, *STOPPED.values()])
    return at_work(world, NAMES)


def at_work(world: World, names: Sequence[str]) -> Box:
    """A box that runs the first two of these cells."""
    box = world.add()
    box.launch(*names)
    for name in names[:2]:
        box.start(name)
    add(box, *names)
    box.alive()
    world.save()
    return box


def add(box: Box, *cells: str, **more: object) -> None:
    """Appends their lines to the queue, as `pulumi up` does."""
    with (box.root / box_layout.QUEUE).open("a") as queue:
        for cell in cells:
            queue.write(json.dumps({"op": "add", "cell": cell, "params": {}, **more}) + "\n")


def tell(world: World, snapshot: Snapshot) -> None:
    tell_boxes(world.store.objects, snapshot, STOPPED)


def told(box: Box) -> list[tuple[str, str]]:
    """(op, cell) of what stands in the queue behind its first lines."""
    lines = [json.loads(line) for line in (box.root / box_layout.QUEUE).read_text().splitlines()]
    return [(line["op"], line["cell"]) for line in lines[3:]]


def test_a_runner_is_told_once_and_of_cells_that_run(world: World, box: Box) -> None:
    snapshot = take_snapshot(open_sources(Target.find(STACK)))
    for _ in range(2):
        tell(world, snapshot)
        assert told(box) == [("drop", "s1")], "s0 is not stopped, and s2 never started"
    line = json.loads((box.root / box_layout.QUEUE).read_text().splitlines()[3])
    assert line == {"op": "drop", "cell": "s1", "reason": STOPPED["s1"].why}, "as `up` ends one that runs"


def test_without_a_runner_that_lives_and_where_none_is_stopped_nothing_is_written(world: World, box: Box) -> None:
    tell_boxes(world.store.objects, take_snapshot(open_sources(Target.find(STACK))), {})
    box.alive(False)
    tell(world, take_snapshot(open_sources(Target.find(STACK))))
    assert told(box) == []


def test_a_box_that_can_not_be_told_is_no_error(world: World, box: Box) -> None:
    """The engine brings the stop later, and says what is wrong there."""
    snapshot = take_snapshot(open_sources(Target.find(STACK)))
    (box.root / box_layout.QUEUE).write_bytes(b"torn")
    tell(world, snapshot)
    assert (box.root / box_layout.QUEUE).read_bytes() == b"torn"


@pytest.mark.parametrize("moment", ["before", "while the log is read", "after it was read"])
@pytest.mark.parametrize("brought_up", [True, False])
def test_a_cell_that_a_person_brought_back_meanwhile_is_not_ended(
    world: World, box: Box, moment: str, brought_up: bool
) -> None:
    """`retry` writes `kept`, and then `pulumi up` adds its line: wherever these come in between, the last word of the
    queue is theirs. What is on record a moment too late is no less safe: that `up` comes behind."""
    snapshot = take_snapshot(open_sources(Target.find(STACK)))

    def bring_back() -> None:
        objects = world.store.objects
        append(objects, read_search_log(objects), [Step(kind="kept", cell="s1", by="ann", reason="looked good")])
        if brought_up:
            add(box, "s1", retry=1)

    def read(objects: ObjectStore) -> SearchLog:
        if moment == "while the log is read":
            bring_back()
        found = read_search_log(objects)
        if moment == "after it was read":
            bring_back()
        return found

    if moment == "before":
        bring_back()
    world.monkeypatch.setattr(rounds, "read_search_log", read)
    tell(world, snapshot)
    late = moment == "after it was read" and not brought_up
    assert told(box) == [("drop", "s1")] * late + [("add", "s1")] * brought_up


def test_stops_alone_wait_for_the_engine_while_others_run(world: World) -> None:
    """Not for ever: `tend` lets them wait for a minute, and not at all with `--once`."""
    box = at_work(world, ("lr0.1", "lr0.3", "lr0.9"))
    world.write_stack_file(drop="{lr0.3: pruned by asha}")
    sources = open_sources(Target.find(STACK))
    snapshot = take_snapshot(sources)
    calls: list[list[str]] = []

    def run(words: object) -> int:
        calls.append([str(words)])
        return 0

    world.monkeypatch.setattr("sweepstack.operations.tend.preview", lambda *_: [])
    round_ = Round()
    bring_in(sources, snapshot, round_, run, lambda _: None, later=True)
    assert (calls, round_.tries_again, round_.searched) == ([], True, [])
    round_ = Round()
    bring_in(sources, snapshot, round_, run, lambda _: None)
    assert (len(calls), round_.searched) == (1, ["lr0.3"])
    box.alive(False)
    bring_in(sources, take_snapshot(open_sources(Target.find(STACK))), Round(), run, lambda _: None, later=True)
    assert len(calls) == 2, "nothing runs any more that could be kept from running"


@pytest.mark.parametrize(
    ("budget", "phase", "brought"),
    [
        (Budget(usd=1e-9, stop=True), "running", False),
        (Budget(usd=1e-9), "stopped", False),
        (Budget(usd=1e-9), "running", True),
        (Budget(usd=1000, stop=True), "stopped", True),
    ],
)
def test_a_used_up_budget_starts_no_box_for_new_cells(world: World, budget: Budget, phase: str, brought: bool) -> None:
    """What was drawn while it lasted stands in the log, and waits."""
    at_work(world, ("lr0.1", "lr0.3"))
    world.lrs = "[0.1, 0.3, 0.9, 2.0]"
    world.write_stack_file()
    sources = open_sources(Target.find(STACK))
    snapshot = take_snapshot(sources)
    boxes = tuple(replace(one, phase=phase) for one in snapshot.box_snapshots)
    calls: list[object] = []
    world.monkeypatch.setattr("sweepstack.operations.tend.preview", lambda *_: [])
    round_ = Round()
    now = replace(snapshot, budget=budget, box_snapshots=boxes)
    bring_in(sources, now, round_, lambda words: calls.append(words) or 0, lambda _: None)
    assert bool(calls) == brought
    assert round_.problems == ([] if brought else ["1 new cell of the search waits: the budget is used up"])
