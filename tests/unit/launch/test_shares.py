"""Which box is to run which cell, by what is known: started cells stay, the rest is even, and no box is for nothing."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.core.journal import CellProgress, Journal
from sweepstack.core.records import Cell
from sweepstack.launch.cell_shares import AskedBox, BoxSeen, Shares, SplitFacts, SplitQuestion, by_names_alone, shares
from sweepstack.onbox.common.cell_durations import Took, durations
from sweepstack.onbox.common.longer import SOURCE

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def asked(cells: int, *boxes: str, **wants: str) -> SplitQuestion:
    made = tuple(Cell(name=f"seed{n}", params={"seed": n}) for n in range(cells))
    where = {box: AskedBox(want=wants.get(box, "running")) for box in boxes}
    return SplitQuestion(project="p", stack="s", pull_to="r", cells=made, boxes=where)


def box(*given: int, reachable: bool = True, there: bool = True, machine: str = "", **states: list[int]) -> BoxSeen:
    """`given`: cells of its queue; `running=[1]` …: how its journal has them."""
    cells = {
        f"seed{n}": CellProgress(f"seed{n}", state, started_at=NOW - timedelta(seconds=60), final=state == "failed")  # type: ignore[arg-type]
        for state, numbers in states.items()
        for n in numbers
    }
    names = frozenset(f"seed{n}" for n in (*given, *(n for numbers in states.values() for n in numbers)))
    return BoxSeen(there, machine, names, Journal(cells=cells), reachable)


def known(verified: int = 0, took: list[Took] | None = None, **boxes: BoxSeen) -> SplitFacts:
    names = {name.replace("_", "-"): seen for name, seen in boxes.items()}
    return SplitFacts(NOW, names, {f"seed{n}" for n in range(verified)}, {}, took or [])


def numbers(found: Shares, name: str) -> set[int]:
    return {int(cell.removeprefix("seed")) for cell in found.cells.get(name, ())}


def test_a_new_sweep_is_even_and_a_box_without_cells_is_not_declared() -> None:
    found = shares(asked(2, "a", "b", "c"), known())
    assert found.left == {"a": 1, "b": 1}
    assert list(found.cells) == ["a", "b"]
    assert shares(asked(6, "a", "b"), known()).left == {"a": 3, "b": 3}


def test_all_verified_declares_no_box_but_those_that_are_there() -> None:
    assert shares(asked(4, "a", "b"), known(4)).cells == {}
    found = shares(asked(4, "a", "b"), known(4, a=box(0, 1, sealed=[2])))
    assert found.left == {"a": 0}
    assert numbers(found, "a") == {0, 1, 2, 3}
    assert shares(asked(4, "a", "b"), known(4, a=box(0, there=False))).cells == {}


def test_while_a_teardown_is_open_its_boxes_are_declared() -> None:
    """Their create refuses, and says what to type. Where no cell is left, none would be rented, and `up` may clear."""
    both = {"a": AskedBox(want="gone"), "b": AskedBox()}
    left = asked(2, "a", "b").model_copy(update={"boxes": both})
    assert "b" in shares(left, SplitFacts(NOW, {}, {"seed0"}, ending={"b"})).cells
    assert "a" in shares(left, SplitFacts(NOW, {}, {"seed0"}, ending={"a"})).cells
    assert shares(asked(2, "a", "b"), SplitFacts(NOW, {}, {"seed0", "seed1"}, ending={"b"})).cells == {}


def test_a_box_whose_birth_record_is_lost_is_declared() -> None:
    """Its create asks the platform for it, and rents none for a finished sweep."""
    assert list(shares(asked(2, "a", "b"), SplitFacts(NOW, {}, {"seed0", "seed1"}, unrecorded={"b"})).cells) == ["b"]


def test_started_cells_stay_and_the_others_are_even() -> None:
    """Eight of twelve have started on a; a new box gets two of the four that have not."""
    found = shares(asked(12, "a", "b"), known(2, a=box(*range(12), sealed=[2, 3, 4], running=[5, 6], failed=[7])))
    assert numbers(found, "a") >= set(range(8))
    assert len(numbers(found, "b")) == 2
    assert found.left == {"a": 4, "b": 2}
    assert found.verified == 2


def test_what_can_not_be_taken_stays() -> None:
    """A box that does not answer keeps its queue: what has started there is not known."""
    silent = box(*range(6), reachable=False)
    assert numbers(shares(asked(6, "a", "b"), known(a=silent)), "a") == set(range(6))
    assert list(shares(asked(6, "a", "b"), known(a=silent)).cells) == ["a"]


def test_a_stopped_box_keeps_what_started_there_and_no_more() -> None:
    found = shares(asked(6, "a", "b", a="stopped"), known(a=box(*range(6), running=[0])))
    assert numbers(found, "a") == {0}
    assert numbers(found, "b") == {1, 2, 3, 4, 5}


def test_a_box_at_rest_is_woken_for_new_cells_and_not_for_those_of_others() -> None:
    resting = BoxSeen(given=frozenset({"seed0"}), journal=box(sealed=[0]).journal, reachable=True, resting=True)
    at_work = box(1, 2, 3, running=[1])
    assert shares(asked(4, "a", "b"), known(a=at_work, b=resting)).left == {"a": 3, "b": 0}
    assert shares(asked(6, "a", "b"), known(a=at_work, b=resting)).left == {"a": 3, "b": 2}
    assert shares(asked(4, "b"), known(b=resting)).left == {"b": 3}


def test_a_gone_box_and_an_old_generation_hold_nothing() -> None:
    found = shares(asked(4, "a", "b"), known(a=box(*range(4), running=[0], there=False)))
    assert found.left == {"a": 2, "b": 2}


def test_a_retry_is_work_again_on_its_box() -> None:
    seen = known(1, a=box(sealed=[0, 1]))
    again = SplitFacts(NOW, seen.boxes, {"seed0"}, {"seed1": 1}, [])
    assert shares(asked(2, "a"), again).left == {"a": 1}
    assert shares(asked(2, "a"), seen).left == {"a": 0}
    all_gone = SplitFacts(NOW, {}, {"seed0"}, {"seed1": 1}, [])
    assert shares(asked(2, "a", "b"), all_gone).left == {"a": 1}, "one box, and no second one"


def test_where_records_can_not_be_read_every_box_is_declared() -> None:
    found = by_names_alone(asked(2, "a", "b", "c"), "no evidence")
    assert list(found.cells) == ["a", "b", "c"]
    assert sum(found.left.values()) == 2


def test_by_measured_time_a_faster_box_gets_more() -> None:
    """b seals three times as fast; 12 are left."""
    took = [Took("seed0", "a", 90.0), Took("seed1", "a", 92.0), Took("seed2", "b", 30.0), Took("seed3", "b", 31.0)]
    found = shares(
        asked(16, "a", "b"), known(4, took, a=box(machine="a", sealed=[0, 1]), b=box(machine="b", sealed=[2, 3]))
    )
    assert found.left == {"a": 3, "b": 9}


def test_the_longest_cells_go_apart() -> None:
    """By one of two axes a cell takes ten times as long, whichever seed."""
    cells = tuple(Cell(name=f"w{w}-s{s}", params={"w": w, "s": s}) for w in (1, 8) for s in range(6))
    took = [Took("w1-s0", "a", 10.0), Took("w8-s0", "a", 100.0), Took("w1-s1", "b", 11.0), Took("w8-s1", "b", 97.0)]
    boxes = {"a": AskedBox(), "b": AskedBox()}
    ask = SplitQuestion(project="p", stack="s", pull_to="r", cells=cells, boxes=boxes)
    seen = SplitFacts(NOW, {}, {one.cell for one in took}, {}, took)
    found = shares(ask, seen)
    left = Counter(box for box, names in found.cells.items() for name in names if name[:2] == "w8" and name[4] > "1")
    assert left == {"a": 2, "b": 2}


@given(st.data())
def test_even_sticky_and_the_same_again(data: st.DataObject) -> None:
    """Whatever is where: what has not started and is to move or be placed is even; what was answered is answered again
    once it is so."""
    count = data.draw(st.integers(1, 20))
    names = data.draw(st.lists(st.sampled_from(["a", "b", "c"]), unique=True, min_size=1))
    where = {n: data.draw(st.sampled_from([*names, None])) for n in range(count)}
    state = {n: data.draw(st.sampled_from(["pending", "running", "sealed"])) for n in range(count)}
    verified = data.draw(st.integers(0, count))

    def seen(name: str, owner: dict[int, Any]) -> BoxSeen:
        mine = [n for n in owner if owner[n] == name]
        by = {word: [n for n in mine if state[n] == word and where[n] == name] for word in ("running", "sealed")}
        return box(*mine, **by)

    ask = asked(count, *names)
    first = shares(ask, known(verified, **{name: seen(name, where) for name in names}))
    owner = {n: name for name in names for n in numbers(first, name)}
    assert set(owner) == set(range(count)), "each cell is one box's"
    fixed = {n for n in range(count) if where[n] is not None and state[n] != "pending"}
    assert all(owner[n] == where[n] for n in fixed)
    loose = [n for n in range(verified, count) if n not in fixed]
    counts = Counter(owner[n] for n in loose)
    assert all(counts[name] <= ceil(len(loose) / len(names)) for name in names)
    second = shares(ask, known(verified, **{name: seen(name, owner) for name in names}))
    assert second.cells == first.cells


def test_the_factor_of_each_axis_is_found() -> None:
    cells = [Cell(name=f"{w}-{s}", params={"w": w, "s": s, "same": 1}) for w in (1, 2, 4) for s in range(5)]
    took = [
        Took(cell.name, "a", 10.0 * cell.params["w"] + cell.params["s"] / 10) for cell in cells if cell.params["s"] < 2
    ]
    params = {cell.name: cell.params for cell in cells}
    found = durations(params, took)
    assert found is not None
    for cell in cells:
        assert found.of(cell.params) == pytest.approx(10.0 * cell.params["w"], rel=0.1)
    assert found.speed("a") == found.speed("b") == 1.0
    assert durations(params, []) is None
    assert durations(params, [Took("another", "a", 3.0)]) is None


def test_a_cell_that_waits_for_another_one_is_with_it_and_no_box_is_rented_for_it() -> None:
    longer = Cell(name="longer", params={"seed": 0, SOURCE: "seed0"})
    longest = Cell(name="longest", params={"seed": 0, SOURCE: "longer"})
    made = asked(1, "a", "b")
    made = made.model_copy(update={"cells": (longest, *made.cells, longer)})
    assert list(shares(made, known()).left.values()) == [3]
    found = shares(made, known(a=box(sealed=[0])))
    assert found.cells == {"a": ("longest", "seed0", "longer")}
    assert found.left == {"a": 2}
    assert sorted(shares(made, known(1, a=box(sealed=[0]))).left.values()) in ([2], [0, 2], [1, 1])
