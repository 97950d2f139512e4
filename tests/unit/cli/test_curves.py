"""`sweepctl results --as plot`: points from wherever the file is, a chart on a terminal, a table elsewhere."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from sweepstack.cli.commands.results.plot import chart
from sweepstack.core.metrics import Series
from sweepstack.onbox.common import box_layout
from tests.unit.cli.support import Box, World, by_name

NAN = float("nan")


def rows(*losses: float) -> list[dict[str, Any]]:
    return [{"step": step, "loss": loss, "acc": 1 - loss} for step, loss in enumerate(losses, 1)]


@pytest.fixture
def box(world: World) -> Box:
    made = world.add()
    made.launch("lr0.1", "lr0.3", "lr0.9")
    made.start("lr0.1", metrics=rows(0.9, NAN, 0.5))
    made.start("lr0.3", metrics=rows(0.8, 0.4))
    made.alive()
    return made


def test_a_curve_that_is_named_by_its_cell(world: World) -> None:
    world.metrics_file = "{lr}-of-{cell}.jsonl"
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.start("lr0.1", metrics=rows(0.9, 0.5))
    box.alive()
    assert world.run("results", "--as", "plot", "--json").json["curves"][0]["points"] == [[1, 0.9], [2, 0.5]]
    assert by_name(world.run("status", "--json").json["cells"])["lr0.1"]["loss"] == 0.5


def test_points_of_what_runs(world: World, box: Box) -> None:
    result = world.run("results", "--as", "plot", "--json")
    assert result.code == 0
    first, second = result.json["curves"]
    assert (first["cell"], first["metric"], first["attempt"]) == ("lr0.1", "loss", 1)
    assert first["points"] == [[1, 0.9], [2, None], [3, 0.5]]
    assert first["not_finite"] == [2]
    assert second["points"] == [[1, 0.8], [2, 0.4]]
    json.loads(result.out, parse_constant=lambda name: pytest.fail(name))


def test_a_cell_that_went_on_begins_with_what_its_earlier_tries_wrote(world: World, box: Box) -> None:
    """Seen: killed at step 41 of 60, it showed steps 41 to 60 alone, and the least of these, without a note."""
    box.fail("lr0.1", final=False)
    box.start("lr0.1", attempt=2)  # killed before it wrote a row
    box.fail("lr0.1", attempt=2, final=False)
    box.start("lr0.1", attempt=3, metrics=[{"step": 3, "loss": 0.45}, {"step": 4, "loss": 0.6}])
    box.fail("lr0.3", final=False)
    box.start("lr0.3", attempt=2, metrics=[{"step": 9, "loss": 0.2}, {"step": 10, "loss": 0.1}])
    first, second = world.run("results", "--as", "plot", "--json").json["curves"]
    assert first["points"] == [[1, 0.9], [2, None], [3, 0.45], [4, 0.6]]
    assert (first["attempt"], [(one["attempt"], one["rows"]) for one in first["before"]]) == (3, [(1, 2)])
    assert (second["points"], second["before"]) == ([[9, 0.2], [10, 0.1]], []), "steps 3 to 8 are not known"
    assert "begins with 2 rows of attempt 1" in world.run("results", "--as", "plot").out


def test_a_cell_that_hangs_alone_does_not_hide_the_others(world: World, box: Box) -> None:
    """newcomer D: while one hung cell ran, the plot showed only that one."""
    box.seal("lr0.1")
    box.beat(running=[{"cell": "lr0.3", "attempt": 1, "verdict": "hung", "why": "no CPU"}])
    assert {curve["cell"] for curve in world.run("results", "--as", "plot", "--json").json["curves"]} == {
        "lr0.1",
        "lr0.3",
    }


def test_a_table_where_there_is_no_terminal(world: World, box: Box) -> None:
    out = world.run("results", "--as", "plot").out
    assert "⢕" not in out
    line = next(line for line in out.splitlines() if line.startswith("lr0.1 "))
    assert line.split()[:4] == ["lr0.1", "3", "3", "0.5"]
    assert "NaN: 1, the first at step 2" in line


def test_other_metrics_of_the_file_and_patterns(world: World, box: Box) -> None:
    found = world.run("results", "--as", "plot", "lr0.3", "--metric", "acc", "--metric", "loss", "--json").json[
        "curves"
    ]
    assert [(one["cell"], one["metric"]) for one in found] == [("lr0.3", "acc"), ("lr0.3", "loss")]
    assert len(world.run("results", "--as", "plot", "lr0.[13]", "--json").json["curves"]) == 2
    result = world.run("results", "--as", "plot", "lr0.1", "--metric", "los")
    assert (result.code, 'did you mean "loss"' in result.err) == (1, True)
    result = world.run("results", "--as", "plot", "lr0.2")
    assert (result.code, "there is no cell lr0.2" in result.err) == (1, True)


def test_a_named_cell_without_a_curve_is_no_yes(world: World, box: Box) -> None:
    result = world.run("results", "--as", "plot", "lr0.3", "lr0.9")
    assert result.code == 1
    assert "missing  lr0.9" in result.out
    assert world.run("results", "--as", "plot", "lr0.3").code == 0


def test_from_the_volume_when_the_box_is_gone(world: World, box: Box) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows(0.75))
    box.seal("lr0.1", files={"metrics.jsonl": lines.encode()})
    box.vanish()
    [curve] = world.run("results", "--as", "plot", "lr0.1", "--json").json["curves"]
    assert (curve["points"], curve["source"]) == ([[1, 0.75]], "volume store")


def test_csv(world: World, box: Box) -> None:
    world.save()
    export = json.loads((world.engine / "state.json").read_text())
    for resource in export["deployment"]["resources"]:
        if resource["type"].endswith(":Queue"):
            resource["outputs"]["metrics"] = {"file": "m.csv", "x": "step", "y": ["loss"]}
    world.save(export)
    path = box.root / box_layout.attempt_dir("lr0.1", 1) / "out/m.csv"
    path.write_text("step,loss\n1,0.5\n2,nan\n3,0.2")  # the last line is not whole yet
    result = world.run("results", "--as", "plot", "lr0.1", "--json", fresh=False)
    assert result.json["curves"][0]["points"] == [[1, 0.5], [2, None]]


def test_the_chart_marks_what_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    line = Series("lr1", "loss", ((1, 0.9), (2, 0.5), (3, NAN), (4, math.inf), (5, 0.4)))
    text = chart("loss", "step", [line, Series("lr2", "loss", ((1, 0.3), (5, 0.1)))])
    assert "lr1: NaN" in text
    assert "lr2" in text
    assert "x" in next(row for row in text.splitlines() if row.startswith("0.1"))
    assert "\x1b" not in text
    assert "all NaN" in chart("loss", "step", [Series("lr3", "loss", ((1, NAN),))])
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b" in chart("loss", "step", [line])
