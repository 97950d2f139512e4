"""Cells on boxes of this machine are judged between two rounds of `tend`, by the log and as in a round."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sweepstack.config.search import SearchConfig
from sweepstack.core.budget import Budget
from sweepstack.core.records import Cell
from sweepstack.core.search_log import SearchLog, Step
from sweepstack.evidence.search_log import append, read_search_log
from sweepstack.extensions.search import rounds, watch
from sweepstack.extensions.search.watch import Watch
from sweepstack.onbox.common import box_layout
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.compose import compose
from tests.unit.cli.support import STACK, Box, World

ASKED = SearchConfig.model_validate(
    {
        "axes": {"lr": {"uniform": [0, 1]}},
        "at_most": {"cells": 8},
        "at_once": 3,
        "metric": "loss",
        "stop": {"rule": "asha", "rungs": [2], "factor": 2, "least": 2},
    }
)

ROSTER = tuple(Cell(name=f"s{number}", params={"lr": 0.1}) for number in range(3))


@pytest.fixture
def box(world: World) -> Box:
    """s0 and s1 run, and their curves have not begun; s2 waits. Of eight cells three were drawn."""
    world.monkeypatch.setattr(World, "cell", lambda _, name: Cell(name=name, params={"lr": 0.1}))
    for module in (watch, rounds):
        world.monkeypatch.setattr(module, "search_of", lambda _: ASKED)
    world.monkeypatch.setattr(rounds, "_why_not", lambda _search, _sources, now: "no" if now.teardown else "")
    drawn = [Step(kind="suggested", cell=f"s{number}", number=number) for number in range(3)]
    append(world.store.objects, SearchLog(), drawn)
    box = world.add()
    box.launch("s0", "s1", "s2")
    for name in ("s0", "s1"):
        box.start(name)
    lines = [json.dumps({"op": "add", "cell": name, "params": {}}) + "\n" for name in box.cells]
    (box.root / box_layout.QUEUE).write_text("".join(lines))
    box.alive()
    world.save()
    return box


def begun(world: World) -> Watch:
    sources = open_sources(Target.find(STACK))
    found = Watch(sources, world.store, replace(take_snapshot(sources), roster=ROSTER))
    assert found.look() == ()
    return found


def step(box: Box, cell: str, number: int, loss: float) -> None:
    """A cell writes a row."""
    path = box.root / box_layout.attempt_dir(cell, 1) / "out" / "metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as curve:
        curve.write(json.dumps({"step": number, "loss": loss}) + "\n")


def kinds(world: World) -> list[tuple[str, str]]:
    return [(line.kind, line.cell) for line in read_search_log(world.store.objects).steps[3:]]


@pytest.mark.parametrize("file", ["metrics.jsonl", "metr*.jsonl"])
def test_the_worse_of_two_is_stopped_as_soon_as_it_comes_to_the_rung(world: World, box: Box, file: str) -> None:
    world.metrics_file = file
    world.save()
    seen = begun(world)
    step(box, "s0", 1, 9.0)
    assert (seen.look(), kinds(world)) == ((), []), "no rung"
    step(box, "s0", 2, 1.0)
    assert (seen.look(), kinds(world)) == ((), [("reached", "s0")])
    step(box, "s1", 2, 3.0)
    assert seen.look() == ("s1",)
    assert kinds(world) == [("reached", "s0"), ("reached", "s1"), ("pruned", "s1")], "and none is drawn"
    last = json.loads((box.root / box_layout.QUEUE).read_text().splitlines()[-1])
    assert (last["op"], last["cell"]) == ("drop", "s1")
    assert seen.look() == ()


def test_a_cell_that_began_since_the_round_is_seen_too(world: World, box: Box) -> None:
    seen = begun(world)
    step(box, "s0", 2, 1.0)
    seen.look()
    box.start("s2")
    step(box, "s2", 2, 3.0)
    assert seen.look() == ("s2",)


def test_nothing_is_decided_once_a_teardown_has_begun(world: World, box: Box) -> None:
    seen = begun(world)
    world.open_teardown(None, box)
    step(box, "s0", 2, 1.0)
    step(box, "s1", 2, 3.0)
    assert (seen.look(), kinds(world)) == ((), [])


def test_without_a_rule_no_curve_is_looked_at(world: World, box: Box) -> None:
    bare = ASKED.model_copy(update={"stop": None})
    world.monkeypatch.setattr(watch, "search_of", lambda _: bare)
    world.monkeypatch.setattr(watch, "curve_of", lambda *_: pytest.fail("looked"))
    seen = begun(world)
    step(box, "s0", 2, 1.0)
    assert (seen.look(), seen.has_room) == ((), False)


@pytest.mark.parametrize(("most", "metrics", "room"), [(8, True, True), (3, True, False), (8, False, True)])
def test_a_cell_that_ends_makes_room_for_one_that_may_be_drawn(
    world: World, box: Box, most: int, metrics: bool, room: bool
) -> None:
    """With the default interval a box that had run all it had idled for a minute; also where cells have no curve."""
    if not metrics:
        world.monkeypatch.setattr(watch, "files_of", lambda *_: ((), None))
    asked = ASKED.model_copy(update={"stop": None, "at_most": ASKED.at_most.model_copy(update={"cells": most})})
    world.monkeypatch.setattr(watch, "search_of", lambda _: asked)
    seen = begun(world)
    box.start("s2")
    assert (seen.look(), seen.has_room) == ((), False), "one more runs"
    box.seal("s0")
    assert (seen.look(), seen.has_room) == ((), room)


def test_a_cell_that_a_rule_stopped_is_no_more_room_than_its_stop(world: World, box: Box) -> None:
    seen = begun(world)
    step(box, "s0", 2, 1.0)
    step(box, "s1", 2, 3.0)
    assert (seen.look(), seen.has_room) == (("s1",), False)
    box.log("cell-dropped", cell="s1", reason="search")
    assert (seen.look(), seen.has_room) == ((), False)


@pytest.mark.parametrize(("usd", "drawn"), [(1000.0, ("s3",)), (1e-9, ())])
def test_nothing_is_drawn_for_a_budget_that_is_used_up(world: World, box: Box, usd: float, drawn: tuple[str]) -> None:
    step(box, "s0", 1, 1.0)
    box.seal("s0")
    sources = open_sources(Target.find(STACK))
    snapshot = replace(take_snapshot(sources), roster=ROSTER, budget=Budget(usd=usd))
    decided = rounds.decide(sources, world.store, snapshot, compose(snapshot))
    assert (decided.drawn, decided.note) == (drawn, "")
