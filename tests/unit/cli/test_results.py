"""`sweepctl results`: verified cells by default, the others listed, and three ways to write the table."""

from __future__ import annotations

import json
import shutil
import sys

import pytest
from rich.console import Console

from sweepstack.core import extensions
from tests.unit.cli.support import World, by_name


def seeds(world: World) -> None:
    """Three cells that are sealed, pulled and verified; `loss` is 0.25 in each."""
    world.verified()


def test_at_80_columns_no_value_is_cut_and_no_column_is_there_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: `0.0509….0019`, and train_loss beside loss, which was the same."""
    monkeypatch.setattr("sweepstack.cli.output.console", lambda: Console(file=sys.stdout, width=80))
    box = world.add()
    for number, name in enumerate(("lr0.1", "lr0.3", "lr0.9")):
        values = {f"metric_{index}": 0.12345 + index + number for index in range(9)}
        box.seal(
            name, files={"metrics.json": json.dumps({"loss": number / 3, "train_loss": number / 3, **values}).encode()}
        )
    assert world.run("pull", "--verify").code == 0
    out = world.run("results").out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert "train_loss is the same as loss in every row" in out
    assert out.count("metric_8") == 1
    assert [line.split()[:2] for line in out.splitlines()].count(["lr0.9", "0.9"]) == 2, (
        "a further table names its rows"
    )
    assert out.count("10.12") == 1


def test_only_what_is_verified_counts_and_the_rest_is_listed(world: World) -> None:
    seeds(world)
    world.boxes[0].seal("lr0.1", attempt=2, files={"metrics.json": b'{"loss": 9.5}'})  # newer than what was verified
    result = world.run("results")
    assert result.code == 1
    assert "9.5" not in result.out
    assert "earlier  lr0.1: sealed" in result.out
    shutil.rmtree(world.evidence / "cells/lr0.1")  # and now there is none of before
    result = world.run("results")
    assert "9.5" not in result.out
    assert "missing  lr0.1: sealed" in result.out
    assert [cell["name"] for cell in world.run("results", "--json").json["missing"]] == ["lr0.1"]
    every = world.run("results", "--all")
    assert every.code == 1  # it is in the table, and not verified
    assert "unsure   lr0.1: sealed, not verified" in every.out
    assert by_name(world.run("results", "--all", "--json").json["cells"])["lr0.1"]["state"] == "sealed"
    assert "(2 verified)" in world.run("results", "--all", "--over", "lr").out


def test_nan_is_null_in_json_and_named(world: World) -> None:
    box = world.add()
    box.seal("lr0.1", files={"metrics.json": b'{"loss": NaN}'})
    result = world.run("results", "--all", "--json")
    [cell] = result.json["cells"]
    assert (cell["values"]["loss"], cell["not_finite"]) == (None, ["loss"])
    json.loads(result.out, parse_constant=lambda name: (_ for _ in ()).throw(AssertionError(name)))


@pytest.mark.parametrize("more", [{}, {"note": "n" * 2000}], ids=["short rows", "rows longer than a look"])
def test_of_a_long_metrics_file_the_end_is_read(world: World, more: dict[str, str]) -> None:
    world.monkeypatch.setattr("sweepstack.operations.sweep.cell_results.END_BYTES", 1000)
    world.monkeypatch.setattr("sweepstack.operations.sweep.cell_results.MOST_BYTES", 8000)
    box = world.add()
    box.launch("lr0.1")
    box.start("lr0.1", metrics=[{"step": number, "loss": number, **more} for number in range(900)])
    (cell,) = world.run("results", "--all", "--json").json["cells"]
    assert cell["values"] == {"loss": 899}


def test_without_the_extension_a_page_names_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds(world)
    monkeypatch.delitem(extensions.ROOTS, "sweepstack.extensions")
    result = world.run("results", "--as", "html")
    assert result.code == 2
    assert "`sweepctl results --as html` belongs to the extension `pages`, which is not installed here" in result.err
    assert list(world.root.glob("*.html")) == []
    assert world.run("results").code == 0
