"""The split of cells over boxes: even, sticky, the same in every process, and near to longest-first by time."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.launch.cell_shares import SLACK, Worker, by_count, by_time, ends

NAMES = st.lists(st.text("abcxyz-0123456789", min_size=1, max_size=6), unique=True, max_size=40)
BOXES = st.lists(st.sampled_from([f"box-{n}" for n in range(9)]), unique=True, min_size=1, max_size=6)


@pytest.mark.parametrize(("cells", "boxes"), [(2, 2), (6, 2), (8, 2), (9, 2), (7, 3), (1, 2), (0, 2)])
def test_no_box_gets_two_cells_more_than_another(cells: int, boxes: int) -> None:
    """The example's six went 4 to 2; two cells on two boxes went 2 to 0."""
    names, where = [f"lr{n}-seed{n % 2}" for n in range(cells)], [f"box-{n}" for n in range(boxes)]
    counts = Counter(by_count(names, where).values())
    assert max(counts[box] for box in where) - min(counts[box] for box in where) <= 1
    assert sum(counts.values()) == cells


@given(NAMES, BOXES, st.data())
def test_the_split_is_even_whatever_is_held(names: list[str], boxes: list[str], data: st.DataObject) -> None:
    holders = st.sampled_from([*boxes, "box-that-left"])
    held = data.draw(st.dictionaries(st.sampled_from(names), holders)) if names else {}
    owner = by_count(names, boxes, held)
    counts = Counter(owner.values())
    assert set(owner) == set(names)
    assert all(counts[box] <= ceil(len(names) / len(boxes)) for box in boxes)
    assert all(counts[box] >= len(names) // len(boxes) for box in boxes)
    mine = Counter(held[name] for name in held if held[name] in boxes)
    # The fewest moves: what a box holds beyond its share has to go, and nothing else does.
    larger = sorted(mine.values(), reverse=True)[: len(names) % len(boxes)]
    least = len(names) // len(boxes)
    needed = sum(max(count - least, 0) for count in mine.values()) - sum(1 for count in larger if count > least)
    moved = sum(owner[name] != held[name] for name in held if held[name] in boxes)
    assert moved == needed


@given(NAMES, BOXES, st.randoms())
def test_the_order_of_cells_and_boxes_means_nothing(names: list[str], boxes: list[str], random: object) -> None:
    owner = by_count(names, boxes)
    assert by_count(reversed(names), list(reversed(boxes)), dict(reversed(owner.items()))) == owner
    assert by_count(names, boxes, owner) == owner, "what is split moves again"


@given(NAMES, NAMES, BOXES)
def test_cells_that_are_added_move_none_that_is_placed_beyond_the_share(
    names: list[str], more: list[str], boxes: list[str]
) -> None:
    """An even split only grows: no cell that has a box has to leave it."""
    owner = by_count(names, boxes)
    after = by_count([*names, *more], boxes, owner)
    assert all(after[name] == owner[name] for name in names)


@given(NAMES, BOXES)
def test_a_box_that_is_added_takes_its_share_and_the_others_exchange_nothing(
    names: list[str], boxes: list[str]
) -> None:
    owner = by_count(names, boxes)
    after = by_count(names, [*boxes, "new"], owner)
    moved = [name for name in names if after[name] != owner[name]]
    assert all(after[name] == "new" for name in moved)
    assert len(moved) == len(names) // (len(boxes) + 1)


def test_of_unequal_shares_the_idle_box_gets_the_larger() -> None:
    """One cell waits behind another: the box that has nothing to do takes it."""
    assert by_count(["x"], ["a", "b"], {"x": "a"}, {"a": 1}) == {"x": "b"}
    assert by_count(["x"], ["a", "b"], {"x": "a"}, {"a": 1, "b": 1}) == {"x": "a"}


def test_another_process_splits_alike() -> None:
    """Whatever its hash seed is: the preview and the up are two processes."""
    names, boxes = [f"cell-{n}" for n in range(50)], ["a", "b", "c"]
    code = f"from sweepstack.launch.cell_shares import by_count; print(sorted(by_count({names}, {boxes}).items()))"
    root = Path(__file__).resolve().parents[3]
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert said == {str(sorted(by_count(names, boxes).items()))}


def test_without_boxes_there_is_no_split() -> None:
    assert by_count(["a"], []) == {}
    assert by_time({"a": 1.0}, {}) == {}


WORKERS = st.builds(
    Worker,
    slots=st.integers(1, 4),
    speed=st.floats(0.25, 4),
    busy=st.lists(st.floats(0, 500), max_size=3).map(tuple),
)


@given(
    st.dictionaries(st.text("abc123", min_size=1, max_size=4), st.floats(0.5, 1000), max_size=25),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), WORKERS, min_size=1),
    st.data(),
)
def test_by_time_the_last_box_is_through_about_as_early_as_longest_first(
    seconds: dict[str, float], boxes: dict[str, Worker], data: st.DataObject
) -> None:
    held = (
        data.draw(st.dictionaries(st.sampled_from(sorted(seconds)), st.sampled_from(sorted(boxes)))) if seconds else {}
    )
    owner = by_time(seconds, boxes, held)
    assert set(owner) == set(seconds)
    fresh = by_time(seconds, boxes)
    assert ends(owner, seconds, boxes) <= SLACK * ends(fresh, seconds, boxes) + 1e-6
    again = by_time(dict(reversed(seconds.items())), dict(reversed(boxes.items())), owner)
    assert again == owner, "what is split moves again, or the order counts"


def test_by_time_cells_stay_where_they_are_while_that_is_good_enough() -> None:
    seconds = dict.fromkeys("abcdefgh", 10.0)
    held = dict(zip("abcdefgh", "xyxyyxyx", strict=True))
    assert by_time(seconds, {"x": Worker(), "y": Worker()}, held) == held


def test_an_idle_box_takes_cells_of_a_busy_one() -> None:
    seconds = dict.fromkeys("abcd", 100.0)
    owner = by_time(seconds, {"x": Worker(busy=(90.0,)), "y": Worker()}, dict.fromkeys("abcd", "x"))
    assert Counter(owner.values()) == {"x": 2, "y": 2}
    assert Counter(by_time(seconds, {"x": Worker(speed=3.0), "y": Worker()}).values()) == {"x": 3, "y": 1}
    two = {"x": Worker(slots=2), "y": Worker(slots=2)}
    assert Counter(by_time({"a": 5.0, "b": 5.0}, two).values()) == {"x": 1, "y": 1}, "of equal ends, the emptier box"
