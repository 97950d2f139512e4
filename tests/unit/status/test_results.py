"""The results table: axes, means over seeds, what is missing, and code that is mixed."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest

from sweepstack.core.records import Cell
from sweepstack.core.results import CellResult, Scalar, axes_of, combine, groups, scalars, short_codes

CELLS = [
    Cell(name=f"lr{lr}-seed{seed}", params={"epochs": 20, "lr": lr, "seed": seed})
    for lr in (0.1, 0.3)
    for seed in range(3)
]


def result(cell: Cell, code: str = "sha256:a1", **values: Scalar) -> CellResult:
    return CellResult(cell.name, cell.params, "verified", values, code)


def test_axes_are_what_differs() -> None:
    assert axes_of(CELLS) == ["lr", "seed"]
    assert axes_of([*CELLS, Cell(name="x", params={"lr": 0.1, "seed": 0, "warm": True})]) == [
        "epochs",
        "lr",
        "seed",
        "warm",
    ]
    assert axes_of(CELLS[:1]) == []


def test_mean_and_std_over_seeds() -> None:
    made = groups(CELLS, [result(cell, acc=0.1 * index) for index, cell in enumerate(CELLS)], ["seed"])
    assert [group.axes for group in made] == [{"lr": 0.1}, {"lr": 0.3}]
    mean = made[1].values["acc"]
    values = [0.1 * index for index in (3, 4, 5)]
    assert (mean.mean, mean.n) == (pytest.approx(statistics.fmean(values)), 3)
    assert mean.std == pytest.approx(statistics.stdev(values))  # n - 1
    assert made[0].wanted == tuple(cell.name for cell in CELLS[:3])


def test_a_missing_cell_is_counted() -> None:
    [first, second] = groups(CELLS, [result(CELLS[0], acc=1.0)], ["seed"])
    assert (len(first.cells), len(first.wanted), first.values["acc"].n, first.values["acc"].std) == (1, 3, 1, None)
    assert (second.cells, second.values) == ((), {})


def test_one_nan_is_no_mean() -> None:
    found = [result(cell, loss=math.nan if index == 1 else 0.5) for index, cell in enumerate(CELLS[:3])]
    mean = groups(CELLS[:3], found, ["seed"])[0].values["loss"]
    assert (mean.mean, mean.std, mean.n, mean.not_finite) == (None, None, 3, 1)


def test_mixed_code_is_said() -> None:
    found = [result(cell, f"sha256:{'a1' if index else 'b2'}", acc=1.0) for index, cell in enumerate(CELLS[:3])]
    [group] = groups(CELLS[:3], found, ["seed"])
    assert group.mixed
    assert group.codes == ("sha256:b2", "sha256:a1")
    assert not groups(CELLS[:3], found[1:], ["seed"])[0].mixed


def test_scalars_by_dotted_key() -> None:
    document = {"acc": 1, "note": "x", "by": {"class": {"a": 0.5}}, "list": [1, 2], "none": None, "ok": True}
    assert scalars(document) == {"acc": 1, "note": "x", "by.class.a": 0.5, "ok": True}
    assert scalars([1]) == {}


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({"loss": 0.5}, {"loss": 0.5}),
        ({"loss": "0.5"}, {"loss": 0.5}),
        ({"loss": 0.7}, {"loss": 0.5, "b:loss": 0.7}),
        ({"lr": 0.1}, {"loss": 0.5}),
    ],
)
def test_files_that_share_a_name(second: dict[str, Any], expected: dict[str, Any]) -> None:
    assert combine([("a", {"loss": 0.5}), ("b", second)], ["lr"]) == expected


def test_nan_in_both_files_is_one_value() -> None:
    assert list(combine([("a", {"loss": math.nan}), ("b", {"loss": math.nan})], [])) == ["loss"]


def test_codes_are_as_short_as_they_may_be() -> None:
    assert short_codes(["sha256:abcdef", "sha256:abcd99"]) == {"sha256:abcdef": "abcde", "sha256:abcd99": "abcd9"}
