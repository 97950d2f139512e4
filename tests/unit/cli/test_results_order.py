"""`sweepctl results --sort`, `--best`, and values over a curve."""

from __future__ import annotations

import json
import math
import shutil
from typing import Any

import pytest

from sweepstack.cli.commands.results import _spreadsheet
from sweepstack.core.metrics import over_curve
from sweepstack.core.records import Cell
from sweepstack.core.results import CellResult, groups, lower_is_better, mean_rows, ordered
from tests.unit.cli.support import World


def curves(world: World) -> None:
    """Three cells: the last values rank them 0.3, 0.1, 0.9, the best of each curve 0.9, 0.3, 0.1."""
    box = world.add()
    for name, values in (("lr0.1", [0.9, 0.5]), ("lr0.3", [0.4, 0.3]), ("lr0.9", [0.1, math.nan, 7.0])):
        rows = "".join(json.dumps({"step": step, "loss": loss}) + "\n" for step, loss in enumerate(values))
        files = {"metrics.json": json.dumps({"loss": values[-1]}).encode(), "metrics.jsonl": rows.encode()}
        box.seal(name, files=files)
    assert world.run("pull", "--verify").code == 0


def first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.startswith("lr0")]


def test_rows_are_sorted_by_a_value_an_axis_or_the_best_of_a_curve(world: World) -> None:
    curves(world)
    for key, wanted in (
        ("loss", ["lr0.3", "lr0.1", "lr0.9"]),
        ("-loss", ["lr0.9", "lr0.1", "lr0.3"]),
        ("-lr", ["lr0.9", "lr0.3", "lr0.1"]),
        ("min:loss", ["lr0.9", "lr0.3", "lr0.1"]),
        ("-cell", ["lr0.9", "lr0.3", "lr0.1"]),
    ):
        shown = world.run("results", "--sort", key)
        assert first_words(shown.out) == wanted, key
        assert [cell["name"] for cell in world.run("results", "--sort", key, "--json").json["cells"]] == wanted
    wrong = world.run("results", "--sort", "lss")
    assert wrong.code == 1
    assert 'did you mean "loss"?' in wrong.err


def test_the_best_row_is_first_and_said_with_its_direction(world: World) -> None:
    curves(world)
    shown = world.run("results", "--best", "loss")
    assert first_words(shown.out)[0] == "lr0.3"
    assert "best     lr0.3: loss 0.3, the lowest of one cell" in shown.out
    other = world.run("results", "--best", "highest:loss", "--json").json["best"]
    assert (other["name"], other["by"], other["mean"], other["cells"]) == ("lr0.9", "highest", 7.0, ["lr0.9"])
    of_all = world.run("results", "--best", "min:loss", "--over", "lr", "--json").json["best"]
    assert (of_all["axes"], of_all["n"], of_all["of"]) == ({}, 3, 3)
    assert of_all["mean"] == pytest.approx((0.5 + 0.3 + 0.1) / 3)
    assert world.run("results", "--best", "accuracy").code == 1


def test_a_group_that_lacks_cells_is_said_to(world: World) -> None:
    curves(world)

    shutil.rmtree(world.evidence / "cells/lr0.1")
    assert "2 of its 3 cells have this value" in world.run("results", "--best", "loss", "--over", "lr").out


def test_no_row_with_a_finite_value_is_no_best(world: World) -> None:
    world.add().seal("lr0.1", files={"metrics.json": b'{"loss": NaN}'})
    shown = world.run("results", "--all", "--best", "loss")
    assert shown.code == 1
    assert "no row has a finite one" in shown.err


def test_values_over_a_curve_are_columns_of_their_own(world: World) -> None:
    curves(world)
    asked = ("--metric", "min:loss", "--metric", "max:loss", "--metric", "last:step")
    cells = world.run("results", *asked, "--json").json["cells"]
    assert [cell["values"] for cell in cells] == [
        {"min:loss": 0.5, "max:loss": 0.9, "last:step": 1},
        {"min:loss": 0.3, "max:loss": 0.4, "last:step": 1},
        {"min:loss": 0.1, "max:loss": 7.0, "last:step": 2},
    ], "what is not finite is passed over, but for the last"
    wrong = world.run("results", "--metric", "max:acc")
    assert wrong.code == 1
    assert "no cell here logged acc" in wrong.err
    assert over_curve([{"a": math.nan}], "min", "a") != over_curve([{"a": math.nan}], "min", "a"), "NaN where all are"
    assert over_curve([{"a": "x"}], "last", "a") is None


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("loss", True),
        ("val_loss", True),
        ("valLoss", True),
        ("test.error", True),
        ("max:loss", False),
        ("min:accuracy", True),
        ("accuracy", False),
        ("last:loss", True),
        ("glossary", False),
    ],
)
def test_which_way_is_better_by_the_name(name: str, lower: bool) -> None:
    assert lower_is_better(name) is lower


def test_what_is_missing_or_not_finite_comes_last_both_ways() -> None:
    rows: list[Any] = [None, 2, math.nan, "b", 1.5, True, math.inf]
    assert ordered(rows, lambda row: row, most_first=False)[:4] == [True, 1.5, 2, "b"]
    assert ordered(rows, lambda row: row, most_first=True)[:4] == ["b", 2, 1.5, True]


def test_a_settled_state_that_is_new_is_listed_by_its_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as `pruned`: it is no hole in the table, and no cell that is missing."""
    world.add().launch("lr0.1", "lr0.3", "lr0.9")
    monkeypatch.setattr("sweepstack.cli.commands.results.SETTLED", frozenset({"verified", "waived", "pending"}))
    shown = world.run("results")
    assert shown.code == 0
    assert "pending  lr0.1" in shown.out
    assert "missing" not in shown.out


def test_an_axis_that_is_called_as_a_column_keeps_its_own() -> None:
    """In a CSV, a Parquet file and a frame: `n` may be a number of layers."""
    cells = [Cell(name=f"n{n}", params={"n": n, "loss_mean": n}) for n in (1, 2)]
    found = [CellResult(cell.name, cell.params, "verified", {"loss": 0.5}) for cell in cells]
    rows = mean_rows(groups(cells, found, ["seed"]), ["loss"])
    assert [(row["param.n"], row["param.loss_mean"], row["n"], row["loss_mean"]) for row in rows] == [
        (1, 1, 1, 0.5),
        (2, 2, 1, 0.5),
    ]
    table = _spreadsheet(groups(cells, found, ["seed"]), ["loss"], {})
    assert table.headers[:3] == ("param.n", "param.loss_mean", "n")
    assert {len(row) for row in table.rows} == {len(table.headers)}
