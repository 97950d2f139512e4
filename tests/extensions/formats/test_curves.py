"""Curves of other tools: each command reads them as it reads JSON lines, and names what is damaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import sweepstack
from sweepstack.config.search import SearchConfig
from sweepstack.core import extras
from sweepstack.core.curve_files import kind_of, rows_of
from sweepstack.core.search_log import Step
from sweepstack.extensions.search.decisions import curve_of
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import No
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from tests.extensions.formats.curves import FILES, MADE, ROWS, table, tensorboard, trackio, trainer, wandb
from tests.unit.cli.support import STACK, Box, World, by_name

SEARCH = SearchConfig.model_validate(
    {"axes": {"lr": {"uniform": [0, 1]}}, "at_most": {"cells": 4}, "metric": "loss", "goal": "minimize"}
)
LOSS = [[row["step"], row["loss"]] for row in ROWS]


def lay(box: Box, cell: str, files: Mapping[str, bytes], attempt: int = 1) -> None:
    for path, data in files.items():
        file = box.root / box_layout.attempt_dir(cell, attempt) / "out" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def at_work(world: World, kind: str) -> Box:
    """A cell that is verified, and one that runs."""
    world.metrics_file, world.metrics_x = FILES[kind], "_step" if kind == "wandb" else "step"
    world.more_metrics = ("val/acc",)
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1", files=MADE[kind]())
    box.start("lr0.3")
    lay(box, "lr0.3", MADE[kind]())
    box.alive()
    assert world.run("pull", "--verify").code == 1, "one still runs"
    return box


def points(curve: Mapping[str, Any]) -> list[list[float]]:
    return [[x, y] for x, y in curve["points"]]


@pytest.mark.parametrize("kind", FILES)
def test_every_command_reads_it(world: World, kind: str) -> None:
    at_work(world, kind)
    for cell in ("lr0.1", "lr0.3"):
        [curve] = world.run("results", "--as", "plot", cell, "--json").json["curves"]
        assert points(curve) == LOSS, cell
    [curve] = world.run("results", "--as", "plot", "lr0.1", "--metric", "val/acc", "--json").json["curves"]
    assert (points(curve) if kind != "lines" else [[0, 0], [2, 0.2], [4, 0.4]]) == [[0, 0], [2, 0.2], [4, 0.4]]
    shown = by_name(world.run("status", "--json").json["cells"])["lr0.3"]
    assert (shown["step"], shown["loss"]) == ({"done": 4, "total": None}, 1 / 16)
    cells = by_name(
        world.run("results", "--all", "--metric", "max:loss", "--metric", "loss", "--metric", "val/acc", "--json").json[
            "cells"
        ]
    )
    for cell in ("lr0.1", "lr0.3"):
        assert {name: float(cells[cell]["values"][name]) for name in ("max:loss", "val/acc")} == {
            "max:loss": 1,
            "val/acc": 0.4,
        }
    assert "best" in world.run("results", "--best", "val/acc").out
    assert world.run("results", "--compare", "lr0.1", "lr0.3", "--json").json["curves"]
    world.run("results", "--as", "html")
    page = (world.root / f"report-{STACK}.html").read_text("utf-8")
    assert '"y":"val/acc"' in page.replace(": ", ":")
    found = {one.cell: [list(point) for point in one.points] for one in sweepstack.open(STACK).curves()}
    assert found == {"lr0.1": LOSS, "lr0.3": LOSS}
    sources = open_sources(Target.find_sweep(STACK))
    drawn = Step(kind="suggested", cell="lr0.3", number=0, params={"lr": 0.3})
    assert [list(one) for one in curve_of(sources, take_snapshot(sources, files=False), SEARCH, drawn)] == LOSS


# What is cut, damaged, or two files


CUT = ("tensorboard", "trainer", "wandb")


def of(kind: str, files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    return [dict(row) for row in rows_of(FILES[kind], list(files.items()))]


@pytest.mark.parametrize("kind", CUT)
def test_what_is_cut_gives_what_was_whole_and_what_is_flipped_is_named(kind: str) -> None:
    [(path, data)] = MADE[kind]().items()
    whole = of(kind, {path: data})
    for end in range(0, len(data), 3):
        for at, row in enumerate(of(kind, {path: data[:end]})):
            assert row.items() <= whole[at].items(), end
    named: list[str] = []
    for at in range(0, len(data), 5):
        flipped = bytearray(data)
        flipped[at] ^= 0x40
        try:
            found = of(kind, {path: bytes(flipped)})
        except No as error:
            named.append(str(error))
        else:  # of JSON, a letter or a digit of another value; of a log, the room behind its end
            assert kind == "trainer" or found == whole[: len(found)], at
    assert all(one.startswith(f"{path} is damaged: ") for one in named)
    assert len(named) > len(data) / (10 if kind != "trainer" else 40)


def test_a_state_that_is_being_written_leaves_the_one_before_it() -> None:
    [(path, data)] = trainer(step=4).items()
    assert of("trainer", {**trainer(ROWS[:3], step=2), path: data[: len(data) // 2]}) == of(
        "trainer", trainer(ROWS[:3], step=2)
    )
    assert of("trainer", {**trainer(ROWS[:3], step=9), **trainer(step=10)}) == of("trainer", trainer(step=10))
    with pytest.raises(No, match=r"checkpoint-4/trainer_state\.json is damaged: no global_step"):
        of("trainer", {path: b"{}"})


def test_event_files_of_several_folders_and_of_a_restart() -> None:
    two = {**tensorboard(folder="tb/train", at=100), **tensorboard([{"step": 0, "loss": 9.0}], "tb/eval", at=100)}
    rows = of("tensorboard", two)
    assert (rows[0]["train/loss"], rows[0]["eval/loss"]) == (1, 9)
    again = tensorboard([{"step": 3, "loss": 0.5}], at=200)
    assert [row.get("loss") for row in of("tensorboard", {**tensorboard(at=100), **again})] == [
        1,
        0.5,
        0.25,
        0.5,
        None,
    ]
    with pytest.raises(No, match=r"of the same time: metrics\.file has to mean one"):
        of("tensorboard", {**tensorboard(at=100), **tensorboard(at=101)})


def test_a_database_of_trackio() -> None:
    odd = [{"step": 1, "loss": "NaN", "image": {"_type": "trackio.image"}, "words": "x"}, {"step": 1, "acc": 0.5}]
    [row] = of("trackio", trackio(odd))
    assert row.pop("loss") != row.get("loss"), "NaN"
    assert row == {"step": 1, "acc": 0.5}
    [(path, data)] = trackio().items()
    for bad in (data[: len(data) // 2], data[:4096] + bytes(4096) + data[8192:], b"no database"):
        with pytest.raises(No, match=rf"^{path} is damaged: "):
            of("trackio", {path: bad})
    with pytest.raises(No, match=rf"^{path} has 2 runs: a cell's curve is one$"):
        of("trackio", trackio(runs=("r1", "r2")))


AGAIN = [{"step": step, "loss": 1 / 2**step, "val/acc": step / 10} for step in range(2, 12)]


VERSIONS: dict[str, Any] = {
    "logs/version_*/metrics.csv": table,
    "logs/version_*/events.out.tfevents.*": lambda rows, number: tensorboard(
        rows, f"logs/version_{number}", at=100.0 * (number + 1)
    ),
}


@pytest.mark.parametrize("file", VERSIONS)
def test_versions_of_one_run_are_one_curve(file: str, world: World) -> None:
    """Lightning's loggers begin a new folder where a run goes on. What stands in both counts once, as it was last."""
    world.metrics_file, world.more_metrics, made = file, ("val/acc",), VERSIONS[file]
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.start("lr0.1")
    box.fail("lr0.1", final=False)
    first = [*ROWS[:3], {"step": 3, "loss": 8.0}, {"step": 4, "loss": 9.0}]
    box.seal("lr0.1", attempt=2, files={**made(AGAIN[8:], 10), **made(AGAIN[:8], 2), **made(first, 0)})
    world.run("pull", "--verify")
    [curve] = world.run("results", "--as", "plot", "lr0.1", "--metric", "loss", "--json").json["curves"]
    assert points(curve) == [[step, 1 / 2**step] for step in range(12)]
    asked = ["--metric", "max:loss", "--metric", "val/acc", "--json"]
    [cell] = [one for one in world.run("results", *asked).json["cells"] if one["name"] == "lr0.1"]
    assert cell["values"] == {"max:loss": 1.0, "val/acc": 1.1}


@pytest.mark.parametrize("file", ["m-*.jsonl", "m-*.csv", "run-*/run-*.wandb"])
def test_of_files_that_are_one_curve_each_one_has_to_be_meant(file: str) -> None:
    names = [file.replace("*", number) for number in "12"]
    with pytest.raises(No, match=rf"^{names[0]}, {names[1]}: metrics\.file has to mean one of them$"):
        rows_of(file, [(name, b"") for name in names])


def test_a_file_that_is_damaged_is_named_wherever_its_numbers_are_missing(world: World) -> None:
    box = at_work(world, "wandb")
    [(path, data)] = wandb().items()
    bad = data[:900] + bytes([data[900] ^ 1]) + data[901:]
    box.seal("lr0.9", files={path: bad})
    world.run("pull", "--verify")
    why = f"{path} is damaged: a record at byte "
    assert f"metrics  lr0.9: {why}" in world.run("results").out
    [cell] = [one for one in world.run("results", "--json").json["cells"] if one["name"] == "lr0.9"]
    assert (cell["values"], cell["problem"][: len(why)]) == ({"loss": 0.25}, why), "of metrics.json alone"
    assert why in world.run("results", "--as", "plot", "lr0.9").out
    world.run("results", "--as", "html")
    assert f"lr0.9: {why}" in (world.root / f"report-{STACK}.html").read_text("utf-8")


def test_what_is_not_installed_is_named_with_its_extra(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work(world, "tensorboard")
    monkeypatch.setitem(extras.MODULES, "tensorboard", "no_such_module")
    out = world.run("results").out
    assert "pip install 'sweepstack[tensorboard]'" in out or "--extra tensorboard" in out


@pytest.mark.parametrize(
    ("file", "kind"),
    [("m.jsonl", "lines"), ("runs/*/events.out.tfevents.*", "tensorboard"), ("a/trainer_state.json", "trainer"),
     ("state.json", "lines"), ("logs/metrics.csv", "table"), ("wandb/*/run-*.wandb", "wandb"), ("t/*.db", "trackio")],
)  # fmt: skip
def test_a_name_tells_the_format(file: str, kind: str) -> None:
    assert kind_of(file) == kind
