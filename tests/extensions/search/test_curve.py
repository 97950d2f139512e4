"""The curve that a search judges a cell by is the one that `results` shows."""

from __future__ import annotations

import json

from sweepstack.config.search import SearchConfig
from sweepstack.core.search_log import Step
from sweepstack.extensions.search.decisions import curve_of
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from tests.unit.cli.support import STACK, World

SEARCH = SearchConfig.model_validate(
    {"axes": {"lr": {"uniform": [0, 1]}}, "at_most": {"cells": 4}, "metric": "loss", "goal": "minimize"}
)


def test_a_cell_that_went_on_is_seen_from_its_first_try_on(world: World) -> None:
    """A rung that only the earlier try passed is judged by the row there, not by one far behind it."""
    box = world.add()
    box.launch("lr0.1")
    rows = [{"step": step, "loss": 1 / (step + 1)} for step in range(6)]
    box.start("lr0.1", metrics=rows[:4])
    box.log("runner-stopped", signal="SIGTERM")
    box.log("runner-started", pid=2)
    text = "".join(json.dumps(row) + "\n" for row in rows[3:]).encode()
    box.seal("lr0.1", attempt=2, files={"metrics.jsonl": text})
    world.run("pull")
    world.save()
    sources = open_sources(Target.find_sweep(STACK))
    drawn = Step(kind="suggested", cell="lr0.1", number=0, params={"lr": 0.1})
    assert curve_of(sources, take_snapshot(sources, files=False), SEARCH, drawn) == [
        (row["step"], row["loss"]) for row in rows
    ]
