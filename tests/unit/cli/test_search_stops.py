"""What a rule stopped is ended on its box at once; the engine's state follows later."""

from __future__ import annotations

import json

import pytest

from sweepstack.core.search_log import Step
from sweepstack.onbox.common import box_layout
from sweepstack.operations.search import bring_in, tell_boxes
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.operations.tend import Round
from tests.unit.cli.support import STACK, Box, World

STOPPED = {
    name: Step(kind="pruned", cell=name, rule="asha", rung=1, x=1, value=2, bound=1, among=4, metric="loss")
    for name in ("lr0.3", "lr0.9")
}


@pytest.fixture
def box(world: World) -> Box:
    """lr0.1 and lr0.3 run; lr0.9 waits in the queue."""
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.start("lr0.1")
    box.start("lr0.3")
    queue = [{"op": "add", "cell": name, "params": {}} for name in box.cells]
    (box.root / box_layout.QUEUE).write_text("".join(json.dumps(line) + "\n" for line in queue))
    box.alive()
    world.save()
    return box


def told(box: Box) -> list[tuple[str, str]]:
    """(op, cell) of what stands in the queue behind its first lines."""
    lines = [json.loads(line) for line in (box.root / box_layout.QUEUE).read_text().splitlines()]
    return [(line["op"], line["cell"]) for line in lines[3:]]


def test_a_runner_is_told_once_and_of_cells_that_run(world: World, box: Box) -> None:
    sources = open_sources(Target.find(STACK))
    snapshot = take_snapshot(sources)
    for _ in range(2):
        tell_boxes(snapshot, STOPPED)
        assert told(box) == [("drop", "lr0.3")], "lr0.1 is not stopped, and lr0.9 never started"
    line = json.loads((box.root / box_layout.QUEUE).read_text().splitlines()[3])
    assert line == {"op": "drop", "cell": "lr0.3", "reason": STOPPED["lr0.3"].why}, "as `up` ends one that runs"


def test_without_a_runner_that_lives_and_where_none_is_stopped_nothing_is_written(world: World, box: Box) -> None:
    tell_boxes(take_snapshot(open_sources(Target.find(STACK))), {})
    box.alive(False)
    tell_boxes(take_snapshot(open_sources(Target.find(STACK))), STOPPED)
    assert told(box) == []


def test_a_box_that_can_not_be_told_is_no_error(world: World, box: Box) -> None:
    """The engine brings the stop later, and says what is wrong there."""
    snapshot = take_snapshot(open_sources(Target.find(STACK)))
    (box.root / box_layout.QUEUE).write_bytes(b"torn")
    tell_boxes(snapshot, STOPPED)
    assert (box.root / box_layout.QUEUE).read_bytes() == b"torn"


def test_stops_alone_wait_for_the_engine_while_others_run(world: World, box: Box) -> None:
    """Not for ever: `tend` lets them wait for a minute, and not at all with `--once`."""
    world.write_stack_file(drop="{lr0.3: pruned by asha}")
    sources = open_sources(Target.find(STACK))
    snapshot = take_snapshot(sources)
    calls: list[list[str]] = []

    def run(words: object) -> int:
        calls.append([str(words)])
        return 0

    world.monkeypatch.setattr("sweepstack.operations.search.preview", lambda *_: [])
    round_ = Round()
    bring_in(sources, snapshot, round_, run, lambda _: None, later=True)
    assert (calls, round_.search_waits, round_.searched) == ([], True, [])
    round_ = Round()
    bring_in(sources, snapshot, round_, run, lambda _: None)
    assert (len(calls), round_.searched) == (1, ["lr0.3"])
    box.alive(False)
    bring_in(sources, take_snapshot(open_sources(Target.find(STACK))), Round(), run, lambda _: None, later=True)
    assert len(calls) == 2, "nothing runs any more that could be kept from running"
