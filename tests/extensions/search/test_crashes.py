"""Crashes at any step, two `tend`s, cells that are lost: no suggestion is lost, none is there twice."""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.config.search import SearchConfig
from sweepstack.core import search_log
from sweepstack.core.search_log import SearchLog, parse_search_log
from sweepstack.evidence.object_store import FolderStore, ObjectStore
from sweepstack.evidence.search_log import KEY, append, read_search_log
from sweepstack.extensions.search import decisions, rules, space
from sweepstack.extensions.search.decisions import Ended, Found, beginning, decided
from sweepstack.extensions.search.rules import judged
from sweepstack.extensions.search.space import suggest
from sweepstack.onbox.common.errors import EvidenceChanged

ASKED = SearchConfig.model_validate(
    {
        "axes": {"lr": {"log_uniform": [0.0001, 0.1]}, "n": {"int": [1, 9]}},
        "at_most": {"cells": 14, "dollars": 9},
        "at_once": 3,
        "sampler": "sobol",
        "metric": "loss",
        "seed": 5,
        "stop": {"rule": "asha", "rungs": [1, 2], "factor": 2, "least": 2},
    }
)
DO = st.sampled_from(
    [
        "round",
        "round",
        "step",
        "step",
        "step",
        "end",
        "end",
        "crash before",
        "crash after",
        "stale",
        "lost",
        "dear",
        "cheap",
    ]
)


class Tend:
    """One `tend`: what it has read, and when it decides by it."""

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects
        self.log = read_search_log(objects)

    def look(self) -> None:
        self.log = read_search_log(self.objects)

    def write(self, found: Found, *, crash: bool = False) -> None:
        log = self.log
        begun = beginning(ASKED) if not log.suggested else []
        steps = [*begun, *decided(ASKED, log.with_steps(begun), found)]
        if crash:
            return
        self.log = append(self.objects, log, steps)


Plan = list[tuple[str, int, int]]
PLAN: st.SearchStrategy[Plan] = st.lists(st.tuples(DO, st.integers(0, 1), st.integers(0, 5)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(PLAN)
def test_the_log_only_grows_and_each_line_follows_from_those_before(plan: Plan) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        play(FolderStore("file://x", Path(folder)), plan)


def play(objects: ObjectStore, plan: Plan) -> None:
    """Two `tend`s on one log; asserts that it only grows, and that each of its lines follows from those before."""
    tends = [Tend(objects), Tend(objects)]
    ended: dict[str, Ended] = {}
    steps: dict[str, int] = {}
    usd, before = 0.0, b""
    for what, who, which in plan:
        tend = tends[who]
        if what == "end" and tend.log.open:
            cell = tend.log.open[which % len(tend.log.open)]
            ended[cell] = Ended("ended" if which else "failed", which / 7 if which else None)
        elif what == "step" and tend.log.open:
            cell = tend.log.open[which % len(tend.log.open)]
            steps[cell] = steps.get(cell, 0) + 1
        elif what == "lost" and ended:  # its box is gone before its end was read: it runs again
            lost = sorted(ended)[which % len(ended)]
            ended.pop(lost)
            steps.pop(lost, None)
        elif what in ("dear", "cheap"):  # also what a clock that jumps makes of the cost
            usd = 100.0 if what == "dear" else 0.0
        else:
            if what != "stale":
                tend.look()
            curves = {one: [(x + 1.0, _value(one, x)) for x in range(count)] for one, count in steps.items()}
            running = [one for one in steps if one not in ended]
            try:
                tend.write(
                    Found(dict(ended), curves, running, usd=usd, usd_of_a_cell=0.1), crash=what == "crash before"
                )
            except EvidenceChanged:
                assert what == "stale"
            if what == "crash after":
                tends[who] = Tend(objects)
        held = objects.read(KEY)
        now = held.data if held is not None else b""
        assert now.startswith(before), "a line was lost, or changed"
        before = now
    _each_line_follows(parse_search_log(before))


def _value(cell: str, x: int) -> float:
    return float((int(cell[1:]) * 7 + x * 3) % 11)


def _each_line_follows(log: SearchLog) -> None:
    """Each draw is what the lines before it make of the file."""
    begun = beginning(ASKED)
    assert list(log.steps[: len(begun)]) == begun[: len(log.steps)]
    known = SearchLog()
    for number, step in enumerate(log.steps):
        if step.kind == "suggested" and number >= len(begun):
            assert step == suggest(ASKED, known)
        if step.kind == "pruned":
            assert step.rung is not None
            assert step == judged(ASKED, known, step.cell, step.rung), "stopped, and the rule does not name it"
        known = known.with_steps([step])
    assert len(log.suggested) <= ASKED.at_most.cells
    assert len(log.open) <= ASKED.at_once


def test_no_cell_is_drawn_beyond_what_was_reviewed() -> None:
    """All open cells end in each round: 14 are drawn, and no more; where the cost is above the bound, or not known,
    none is."""
    log = SearchLog().with_steps(beginning(ASKED))
    for usd in (None, 8.9):
        ended = {cell: Ended("ended", 1.0) for cell in log.open}
        assert not [s for s in decided(ASKED, log, Found(ended, usd=usd, usd_of_a_cell=0.2)) if s.kind == "suggested"]
    for _ in range(12):
        ended = {cell: Ended("ended", 1.0) for cell in log.open}
        log = log.with_steps(decided(ASKED, log, Found(ended, usd=8.0, usd_of_a_cell=0.1)))
    assert list(log.suggested) == [f"s{number}" for number in range(14)]


@pytest.mark.parametrize("module", [decisions, rules, space, search_log])
def test_no_decision_and_no_line_can_see_a_clock(module: ModuleType) -> None:
    """So one that jumps changes none of them; which `tend` may write when it jumps is the log's to say, above."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not {"time", "datetime"} & {name.partition(".")[0] for name in names}
    assert not [name for name in search_log.Step.model_fields if name in ("at", "time")]
