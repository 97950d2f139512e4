"""The roster: names, what makes them, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.core.cells import CellsConfig
from sweepstack.core.records import Cell
from sweepstack.core.roster import SAFE_NAME, Roster, examine, expand
from sweepstack.launch.cell_shares import by_count
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import ConfigError


def roster(**cells: Any) -> Roster:
    return expand(CellsConfig.model_validate(cells))


def refusal(**cells: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        roster(**cells)
    assert caught.value.problems
    return str(caught.value)


def test_names_come_from_the_axes_in_axis_order() -> None:
    made = roster(base={"epochs": 20}, grid={"lr": [0.1, 0.03], "seed": [0, 1]})
    assert made.names == ("lr0.1-seed0", "lr0.1-seed1", "lr0.03-seed0", "lr0.03-seed1")
    assert made.cells[3].params == {"epochs": 20, "lr": 0.03, "seed": 1}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (0.1, "x0.1"),
        (1e-4, "x0.0001"),
        (1e-5, "x1e-05"),
        (20, "x20"),
        (20.0, "x20.0"),
        (True, "xtrue"),
        ("vit", "xvit"),
    ],
)
def test_values_are_spelled_readably(value: Any, name: str) -> None:
    assert roster(grid={"x": [value]}).names == (name,)


def test_a_fraction_that_came_as_text_is_the_same_cell() -> None:
    as_text, as_number = roster(grid={"lr": ["0.1"], "seed": ["3"]}), roster(grid={"lr": [0.1], "seed": [3]})
    assert as_text.digest == as_number.digest
    assert roster(grid={"v": ["1.10"]}).cells[0].params == {"v": "1.10"}  # no number spells it so


def test_a_default_added_to_base_renames_nothing_and_changes_the_config() -> None:
    before, after = roster(grid={"lr": [0.1]}), roster(base={"epochs": 3}, grid={"lr": [0.1]})
    assert before.names == after.names
    assert before.digest != after.digest
    assert before.cells[0].config_digest != after.cells[0].config_digest


def test_the_digest_does_not_depend_on_how_cells_are_written() -> None:
    grid = roster(grid={"lr": [0.1, 0.03], "seed": [0, 1]})
    listed = roster(
        list=[
            {"lr": 0.03, "seed": 1},
            {"seed": 0, "lr": 0.03},
            {"lr": 0.1, "seed": 0},
            {"lr": 0.1, "seed": 1},
        ]
    )
    assert grid.digest == listed.digest


def test_zip_goes_together_and_crosses_the_grid() -> None:
    made = roster(grid={"seed": [0, 1]}, zip={"width": [64, 128], "depth": [2, 4]})
    assert made.names == (
        "seed0-width64-depth2",
        "seed0-width128-depth4",
        "seed1-width64-depth2",
        "seed1-width128-depth4",
    )
    assert "width has 2, depth has 1" in refusal(zip={"width": [1, 2], "depth": [1]})


def test_exclude_and_include_work_on_matching_cells() -> None:
    made = roster(
        base={"warmup": 0},
        grid={"lr": [0.1, 0.03], "seed": [0, 1]},
        exclude=[{"lr": 0.1, "seed": 1}],
        include=[{"lr": "0.03", "warmup": 5}],
    )
    assert {cell.name: cell.params["warmup"] for cell in made.cells} == {
        "lr0.1-seed0": 0,
        "lr0.03-seed0": 5,
        "lr0.03-seed1": 5,
    }


def test_numbers_match_by_value_and_booleans_are_none() -> None:
    assert roster(grid={"x": [1, 2]}, exclude=[{"x": 1.0}]).names == ("x2",)
    assert roster(grid={"x": [True, 1]}, exclude=[{"x": 1}]).names == ("xtrue",)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"grid": {"lr": [1]}, "exclude": [{"lr": 2}]}, "cells.exclude[0]: matches no cell"),
        ({"grid": {"lr": [1]}, "exclude": [{"rl": 1}]}, 'no such axis; did you mean "lr"?'),
        ({"grid": {"lr": [1]}, "exclude": [{}]}, "matches no cell"),
        ({"grid": {"lr": [1]}, "include": [{"lr": 2, "w": 1}]}, "use cells.add"),
        ({"grid": {"lr": [1]}, "include": [{"w": 1}]}, "an axis to match"),
        ({"grid": {"lr": [1, 2]}, "include": [{"lr": 1, "w": 1}, {"lr": 1, "w": 2}]}, "cells.include[0] sets it"),
        ({"list": [{"lr": 1}], "exclude": [{"lr": 1}]}, "needs cells.grid or cells.zip"),
        ({"grid": {"lr": [1]}, "list": [{"lr": 2}]}, "use cells.add"),
        ({"grid": {"lr": [1]}, "zip": {"lr": [2]}}, "is in cells.grid too"),
        ({"grid": {"lr": []}}, "at least one value"),
        ({"grid": {"lr": [0.1, "0.1"]}}, "0.1 is listed twice"),
        ({"grid": {"out": [1]}}, "{out} is filled in by the runner"),
        ({"grid": {"l-r": [1]}}, "expected a parameter's name"),
        ({"grid": {"lr": [None]}}, 'quote it: "null"'),
        ({"grid": {"lr": [float("nan")]}}, "finite"),
        ({"grid": {"lr": [[1]]}}, "ends up in a command line"),
        ({"base": {"lr": {"a": 1}}, "grid": {"s": [1]}}, "cells.base.lr: "),
        ({"list": [{}]}, "expected parameters, or a name"),
        ({"list": [{"name": 3}]}, "expected text"),
        ({"grid": {"lr": [1]}, "drop": {"lr1": " "}}, "expected a reason"),
    ],
)
def test_mistakes_are_named(cells: dict[str, Any], said: str) -> None:
    assert said in refusal(**cells)


def test_a05_duplicates_are_refused_with_both_sources() -> None:
    text = refusal(grid={"lr": [0.1], "seed": [0, 1]}, add=[{"lr": 5}, {"seed": 0, "lr": 0.1}])
    assert "cells.grid lr=0.1 seed=0 and cells.add[1] give the same name, 'lr0.1-seed0'" in text


def test_names_that_differ_by_case_alone_are_refused_with_both_sources() -> None:
    text = refusal(list=[{"name": "Base"}, {"name": "base"}])
    assert "cells.list[0] and cells.list[1]" in text
    assert "'Base' and 'base'" in text


@pytest.mark.parametrize(
    "name", ["a/b", "..", ".", ".hidden", "a b", "ü", "a\n", "-x", "x" * 129, "x.partial-1", "X.Superseded-2", "a\\b"]
)
def test_unsafe_names_are_refused_with_their_source(name: str) -> None:
    assert "cells.list[1]" in refusal(list=[{"lr": 1}, {"name": name}])


def test_an_empty_roster_is_refused() -> None:
    assert "An empty roster can't be verified" in refusal()
    assert "every cell is dropped" in refusal(grid={"lr": [1]}, drop={"lr1": "no"})


def test_a_dropped_cell_leaves_the_cells_and_stays_listed() -> None:
    made = roster(grid={"lr": [1, 2]}, drop={"lr2": "wrong augmentation"})
    assert made.names == ("lr1",)
    assert made.dropped == {"lr2": "wrong augmentation"}
    assert 'did you mean "lr2"?' in refusal(grid={"lr": [1, 2]}, drop={"lr22": "typo"})


def test_ten_thousand_cells_cost_no_more_than_their_digests() -> None:
    cells = CellsConfig(base={"epochs": 20}, grid={"lr": [n / 1000 for n in range(1, 101)], "seed": list(range(100))})
    made = expand(cells)
    assert made.digest.startswith("sha256:")
    assert len(made.cells) == 10_000

    def work() -> None:
        by_count(expand(cells).names, ["box-0", "box-1"])

    def floor() -> None:
        """Ten canonical digests a cell, which a second of a slow core pays for."""
        for cell in made.cells:
            for _ in range(10):
                digest_of({"name": cell.name, "params": cell.params})

    def seconds(of: Callable[[], None]) -> float:
        begin = time.process_time()
        of()
        return time.process_time() - begin

    assert min(seconds(work) for _ in range(3)) < 3 * min(seconds(floor) for _ in range(3))


params = st.dictionaries(
    st.sampled_from(["lr", "l", "r", "seed", "aug"]),
    st.one_of(
        st.integers(-20, 20),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.text(alphabet="aAlrs0.1-", max_size=4),
    ),
    max_size=3,
)


@given(st.lists(params, min_size=1, max_size=6), st.lists(params, max_size=3))
def test_names_are_injective_or_refused(listed: list[dict[str, Any]], added: list[dict[str, Any]]) -> None:
    """Whatever is written: no two cells share a folder on any file system, and every name is safe; or it is refused."""
    try:
        made = roster(list=listed, add=added)
    except ConfigError:
        return
    assert len({name.casefold() for name in made.names}) == len(listed) + len(added)
    assert all(SAFE_NAME.fullmatch(name) for name in made.names)
    for cell in made.cells:
        assert Cell.model_validate(cell.model_dump()) == cell


@given(
    st.dictionaries(st.sampled_from(["lr", "l", "r", "a"]), st.lists(st.integers(0, 12), min_size=1, max_size=3)),
)
def test_a_grid_gives_one_cell_a_combination_or_is_refused(grid: dict[str, list[int]]) -> None:
    expected = 1
    for values in grid.values():
        expected *= len(values)
    try:
        made = roster(grid=grid)
    except ConfigError:
        return
    assert len({tuple(sorted(cell.params.items())) for cell in made.cells}) == expected
    assert len(set(made.names)) == expected


def test_priority_names_cells_and_values_and_changes_no_cell() -> None:
    grid = {"lr": [0.1, 0.3], "seed": [0, 1]}
    plain, ordered = roster(grid=grid), roster(grid=grid, priority=[{"cell": "lr0.3-seed1"}, {"seed": "0", "lr": 0.1}])
    assert ordered.priority == ({"cell": "lr0.3-seed1"}, {"seed": 0, "lr": 0.1})
    assert (ordered.cells, ordered.digest, plain.priority) == (plain.cells, plain.digest, ())
    assert roster(grid=grid, drop={"lr0.3-seed1": "no"}, priority=[{"cell": "lr0.3-seed1"}]).priority


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"cell": "lr0.3-seed2"}, "cells.priority[0].cell: no such cell on the roster; did you mean"),
        ({"sead": 1}, "cells.priority[0].sead: no cell has such a parameter; did you mean"),
        ({"seed": 2}, "cells.priority[0]: matches no cell"),
        ({"seed": True}, "cells.priority[0]: matches no cell"),
        ({"seed": [1]}, "cells.priority[0].seed: expected text, a number or a boolean"),
        ({"cell": "lr0.3-seed1", "seed": 0}, "cells.priority[0]: matches no cell"),
        ({}, "cells.priority[0]: expected a cell, or values of parameters"),
    ],
)
def test_a_priority_that_means_no_cell_is_refused(line: Any, words: str) -> None:
    assert words in refusal(grid={"lr": [0.1, 0.3], "seed": [0, 1]}, priority=[line])


def test_a_cell_that_begins_from_another_one_is_another_cell_than_one_that_does_not() -> None:
    grid = {"lr": [0.1], "epochs": [20]}
    plain = roster(grid=grid, add=[{"lr": 0.1, "epochs": 40}])
    longer = roster(grid=grid, add=[{"lr": 0.1, "epochs": 40, "from": "lr0.1-epochs20"}])
    assert longer.names == plain.names == ("lr0.1-epochs20", "lr0.1-epochs40")
    assert [cell.source for cell in longer.cells] == ["", "lr0.1-epochs20"]
    assert longer.cells[0] == plain.cells[0]
    assert longer.cells[1].config_digest != plain.cells[1].config_digest
    chain = roster(list=[{"n": 1}, {"n": 2, "from": "n1"}, {"n": 3, "from": "n2"}], drop={"n1": "no"})
    assert [cell.source for cell in chain.cells] == ["n1", "n2"]


def test_a_long_chain_is_walked_once() -> None:
    """5,000 cells, the last one first: a walk from each to its end takes minutes."""
    chain = roster(list=[{"n": n, "from": f"n{n - 1}"} for n in range(5000, 1, -1)] + [{"n": 1}])
    assert chain.cells[0].source == "n4999"


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ([{"n": 1}, {"n": 2, "from": "n11"}], 'cells.list[1].from: no such cell on the roster; did you mean "n1"?'),
        ([{"n": 1, "from": "n1"}], "cells.list[0].from: a circle: n1 begins from n1"),
        ([{"n": 1, "from": "n2"}, {"n": 2, "from": "n1"}], "cells.list[1].from: a circle: n2 begins from n1 begins"),
        ([{"n": 1}, {"n": 2, "from": 1}], "cells.list[1].from: expected the name of the cell that it begins from"),
        ([{"n": 1}, {"n": 2, "from": ""}], "cells.list[1].from: expected the name of the cell that it begins from"),
    ],
)
def test_what_no_cell_can_begin_from_is_refused(listed: list[Any], words: str) -> None:
    assert words in refusal(list=listed)


def test_a_parameter_from_of_an_older_stack_stays_what_it_was() -> None:
    listed = [{"from": "en", "to": "de"}, {"from": "en", "to": "fr"}]
    asked, _ = examine(CellsConfig.model_validate({"list": listed}), ["from", "to"])
    assert asked is not None
    assert [(cell.name, cell.params, cell.source) for cell in asked.cells] == [
        ("fromen-tode", listed[0], ""),
        ("fromen-tofr", listed[1], ""),
    ]
    matrix = roster(grid={"from": ["en", "de"]}, add=[{"from": "fr"}])
    assert matrix.names == ("fromen", "fromde", "fromfr")
    assert not any(cell.source for cell in matrix.cells)
