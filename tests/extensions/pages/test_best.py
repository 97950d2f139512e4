"""The best of a page by the rule of `results --best`, and its cells as lines over their axes; without a browser."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from sweepstack.cli.commands.results.order import Wanted
from sweepstack.core.metrics import run_once
from sweepstack.core.records import Cell
from sweepstack.core.results import CellResult, groups
from sweepstack.core.search_log import SearchLog, Step
from sweepstack.evidence.search_log import append
from sweepstack.extensions.pages import sweep_page
from sweepstack.extensions.pages.curves import spread
from sweepstack.extensions.pages.parallel import BEST_LINES, MOST_AXES, MOST_LINES, NONE, parallel
from sweepstack.extensions.pages.plots import Parallel
from sweepstack.extensions.pages.sweep_page import best_of, bounded
from sweepstack.report.blocks import Table, Text
from tests.extensions.pages.test_plots import numbers
from tests.extensions.pages.test_results_page import page, plots
from tests.unit.cli.support import World


def sealed(world: World, values: dict[str, str]) -> World:
    """Cells with these values of their metric, verified."""
    box = world.add("box-0")
    world.up_roster = world.file_roster()
    by_name = {cell.name: cell for cell in world.up_roster.cells}
    world.cell = by_name.__getitem__  # type: ignore[method-assign]
    box.launch(*by_name)
    for name, value in values.items():
        row = f'{{"step": 0, "loss": {value}}}\n'.encode()
        box.seal(name, files={"metrics.jsonl": row, "metrics.json": f'{{"loss": {value}}}'.encode()})
    assert world.run("pull").code == 0
    world.run("verify")
    return world


def test_the_best_is_that_of_results_and_stands_out(world: World) -> None:
    sealed(world, {"lr0.1": "0.5", "lr0.3": "0.25", "lr0.9": "0.75"})
    text = page(world)
    best = world.run("results", "--best", "loss", "--json").json["best"]
    marked = re.findall(r'<tr class="marked"><th scope="row">(.*?)</th>', text)
    assert marked == best["cells"] == ["lr0.3"]
    assert re.findall(r'<th scope="row">([^<]*)</th>.*<td[^>]*>best</td></tr>', text) == marked
    assert "Best by loss: lr0.3: loss 0.25, the lowest of one cell." in text
    drawn = plots(text)["parallel"]
    assert (drawn["names"], [drawn["words"][kind] for kind in drawn["kinds"]]) == (
        ["lr0.1", "lr0.3", "lr0.9"],
        ["verified", "best", "verified"],
    )
    assert [axis[0] for axis in drawn["axes"]] == ["lr", "loss"]


@pytest.mark.parametrize(
    ("wanted", "values", "marked"),
    [
        (Wanted("acc", lowest=False), [0.1, 0.9, 0.9], ["b", "c"]),
        (Wanted("acc", lowest=True), [0.1, 0.9, math.nan], ["a"]),
        (Wanted("acc", lowest=False), [math.nan, math.inf, math.nan], []),
        (Wanted("other", lowest=False), [1, 2, 3], []),
        (None, [1, 2, 3], []),
    ],
)
def test_as_good_is_marked_too_and_what_is_not_finite_never(
    wanted: Wanted | None, values: list[float], marked: list[str]
) -> None:
    lines = [CellResult(name, {}, "verified", {"acc": value}) for name, value in zip("abc", values, strict=True)]
    rows, (said,) = best_of(lines, wanted)
    assert [lines[number].name for number in sorted(rows)] == marked
    assert isinstance(said, Text)
    assert said.text.startswith("Best by acc: " if marked else "No row is marked as the best: ")


def test_the_best_mean_has_the_word_in_its_row() -> None:
    roster = [Cell(name=f"{lr}-{seed}", params={"lr": lr, "seed": seed}) for lr in (1, 2, 3) for seed in (0, 1)]
    found = [CellResult(one.name, one.params, "verified", {"acc": one.params["lr"] % 3}) for one in roster]
    table = sweep_page._means(groups(roster, found, ["seed"]), ["acc"], {}, Wanted("acc", lowest=False))[0]
    assert isinstance(table, Table)
    assert [row[-1] for row in table.rows] == ["", "best", ""]
    assert table.marked == {1}


def test_where_all_are_as_good_only_some_are_marked_and_the_number_is_said() -> None:
    lines = [CellResult(str(number), {}, "verified", {"acc": 1.0}) for number in range(1000)]
    rows, (said,) = best_of(lines, Wanted("acc", lowest=False))
    assert sorted(rows) == list(range(sweep_page.MOST_MARKED))
    assert isinstance(said, Text)
    assert "999 other rows as good" in said.text


def test_pruned_cells_are_drawn_by_what_they_had_and_are_no_result(world: World) -> None:
    """By the log of the search: a cell that a person brought back is not pruned."""
    drawn = [Step(kind="suggested", cell=f"s{at}", number=at, params={"lr": 0.2 + at}) for at in range(2)]
    stops = [
        Step(kind="pruned", cell=f"s{at}", rule="asha", rung=1.0, x=1.0, value=0.7, metric="loss", bound=0.4, among=3)
        for at in range(2)
    ]
    kept = Step(kind="kept", cell="s1", by="ann@desk", reason="looks good")
    append(world.store.objects, SearchLog(), [*drawn, *stops, kept])
    sealed(world, {"lr0.1": "0.5", "lr0.3": "0.25"})
    text = page(world)
    found = plots(text)["parallel"]
    assert dict(zip(found["names"], found["kinds"], strict=True)) == {"lr0.1": 0, "lr0.3": 2, "s0": 1}
    assert found["axes"][-1][2][found["names"].index("s0")] == "0.7"
    assert "1 cell pruned: dashed" in text
    assert 'scope="row">s0<' not in text, "it is no verified cell"


def test_ten_thousand_cells_are_cut_and_the_page_says_what_is_left_out() -> None:
    cells = [Cell(name=f"c{at}", params={f"p{axis}": at * axis for axis in range(1, 13)}) for at in range(10_000)]
    found = [CellResult(one.name, one.params, "verified", {"loss": 1 - at / 1e4}) for at, one in enumerate(cells)]
    wanted = Wanted("loss", lowest=True)
    plot, *said = parallel(cells, found, (), wanted, ["c9999"])
    assert isinstance(plot, Parallel)
    assert len(plot.names) == MOST_LINES
    assert set(plot.names) >= {f"c{9999 - at}" for at in range(BEST_LINES)}
    assert len([name for name in plot.names if int(name[1:]) < 5000]) > 500, "not the best alone"
    assert len(plot.axes) == MOST_AXES + 1
    words = " ".join(one.text for one in said if isinstance(one, Text))
    assert "Of 10000 cells 2000 are drawn: the 500 best by loss" in words
    assert "too many axes: p11, p12" in words
    rows = [(one.name, str(at)) for at, one in enumerate(cells)]
    keys = {1: [str(at) for at in range(len(rows))]}
    table, note = bounded(Table("t", ("cell", "n"), rows, keys=keys, marked=frozenset({9999})), "results --as csv")
    assert isinstance(table, Table)
    assert isinstance(note, Text)
    assert len(table.rows) == sweep_page.MOST_ROWS
    (at,) = table.marked
    assert (table.rows[at], table.keys[1][at]) == (("c9999", "9999"), "9999")
    assert "5000 of 10000 rows are left out: `sweepctl results --as csv` has all" in note.text


def test_of_many_names_those_that_come_first_and_some_from_all_over() -> None:
    names = [str(number) for number in range(10_000)]
    kept = spread(names, ["77", "9998", "no such"], 100)
    assert len(kept) == 100
    assert {"77", "9998"} <= kept <= set(names)
    assert max(map(int, kept - {"9998"})) > 9800
    assert spread(names[:100], ["99"], 100) == set(names[:100])
    assert len(spread(names, names, 100)) == 100


def test_an_axis_of_texts_of_decades_and_of_what_is_not_there() -> None:
    params: list[dict[str, Any]] = [{"lr": 1e-4, "opt": "sgd"}, {"lr": 1e-2, "opt": "adam"}, {"lr": 1.0}]
    cells = [Cell(name=f"c{at}", params=one) for at, one in enumerate(params)]
    found = [CellResult(one.name, one.params, "verified", {"loss": at / 2}) for at, one in enumerate(cells)]
    plot = parallel(cells, found, (), None, ())[0]
    assert isinstance(plot, Parallel)
    lr, opt, loss = plot.axes
    assert (lr.name, [round(one, 6) for one in lr.heights]) == ("lr (log)", [0.0, 0.5, 1.0])
    assert (opt.heights, opt.texts) == ([1.0, 0.0, NONE], ["sgd", "adam", ""])
    assert opt.ticks == [(NONE, "(none)"), (0.0, "adam"), (1.0, "sgd")]
    assert (loss.pick, list(loss.heights)) == (True, [0.0, 0.5, 1.0])


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ([0, 1, 2], [0, 1, 2]),
        ([0, 1, 1, 2], [0, 1, 2, 3]),  # two rows of one step: both are its own
        ([0, 1, 2, 3, 2, 3, 4], [0, 1, 4, 5, 6]),
        ([0, 1, 2, 0, 1], [3, 4]),
        ([0, 5, 6, 3, 4, 2, 3], [0, 5, 6]),
        ([0, None, 2, 1, None], [0, 1, 3, 4]),
        ([], []),
    ],
)
def test_of_steps_that_ran_twice_the_later_rows_count(steps: list[int | None], kept: list[int]) -> None:
    rows = [{"number": at} | ({} if step is None else {"step": step}) for at, step in enumerate(steps)]
    assert [row["number"] for row in run_once(rows, "step")] == kept


def test_the_curve_of_a_resumed_cell_has_each_step_once(world: World) -> None:
    """Its later try wrote on in a file that came with the checkpoint, and went back two steps."""
    box = world.add("box-0")
    box.launch("lr0.1")
    before = [{"step": step, "loss": 9.0} for step in range(4)]
    after = [{"step": step, "loss": 1.0} for step in range(2, 6)]
    box.start("lr0.1", metrics=before)
    box.log("runner-stopped", signal="SIGTERM")
    box.log("runner-started", pid=2)
    text = "".join(json.dumps(row) + "\n" for row in [*before, *after]).encode()
    box.seal("lr0.1", attempt=2, files={"metrics.jsonl": text})
    assert world.run("pull").code == 0
    world.run("verify")
    (curve,) = plots(page(world))["loss"]["curves"]
    assert numbers(curve[2]) == [9.0, 9.0, 1.0, 1.0, 1.0, 1.0]
