"""Which waiting cells start first, by `priority` of spec.json: no line of a queue says it, no cell changes by it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.onbox.harness import Box

NAMES = ["lr0.1-seed0", "lr0.1-seed1", "lr0.3-seed0", "lr0.3-seed1"]


def fill(box: Box) -> None:
    for lr in (0.1, 0.3):
        for seed in (0, 1):
            box.add(f"lr{lr}-seed{seed}", f"python steps.py {{seed}} {{out}} {box.control}", lr=lr, seed=seed)


def order(box: Box) -> list[str]:
    return [str(one["cell"]) for one in box.events("cell-started")]


@pytest.mark.parametrize(
    ("priority", "places"),
    [
        (None, "0123"),
        ([{"seed": 1}], "1302"),
        ([{"cell": "lr0.3-seed0"}, {"seed": 1, "lr": 0.1}], "2103"),
        ([{"seed": True}, {"seed": 1.0, "lr": 0.3}], "3012"),
    ],
)
def test_cells_start_by_priority_and_else_as_they_stand(box: Box, priority: list[Any] | None, places: str) -> None:
    box.set(**({"priority": priority} if priority else {}))
    fill(box)
    box.run(*NAMES)
    assert order(box) == [NAMES[int(place)] for place in places]


def test_a_new_priority_holds_for_cells_that_wait_and_no_cell_runs_again(box: Box) -> None:
    fill(box)
    held = box.hold(NAMES[0])
    runner = box.start()
    box.in_the_middle(NAMES[0])
    box.set(priority=[{"lr": 0.3, "seed": 1}, {"lr": 0.3}])
    held.unlink()
    assert runner.ended() == 0, box.log()
    assert order(box) == [NAMES[0], NAMES[3], NAMES[2], NAMES[1]]
    box.set(priority=[{"lr": 0.1}])
    box.run(*NAMES)
    assert len(order(box)) == len(NAMES), "a sealed cell started again"


def test_a_cell_that_was_begun_goes_on_before_all_others(box: Box) -> None:
    fill(box)
    held = box.hold(NAMES[0])
    runner = box.start()
    box.in_the_middle(NAMES[0])
    runner.kill()
    held.unlink()
    box.set(priority=[{"cell": NAMES[3]}])
    box.run(*NAMES)
    assert order(box)[:3] == [NAMES[0], NAMES[0], NAMES[3]]
