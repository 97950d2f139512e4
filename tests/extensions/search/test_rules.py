"""The rules that stop cells early, by numbers that stand in the log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.config.search import SearchConfig
from sweepstack.core.search_log import SearchLog, Step
from sweepstack.extensions.search.decisions import Ended, Found, beginning, decided
from sweepstack.extensions.search.rules import judged, reached
from sweepstack.onbox.common.errors import EvidenceDamaged


def search(rule: str, goal: str = "minimize", cells: int = 8, **more: Any) -> SearchConfig:
    keys = {
        "axes": {"lr": {"uniform": [0, 1]}},
        "at_most": {"cells": cells},
        "at_once": cells,
        "metric": "loss",
        "goal": goal,
        "stop": {"rule": rule, "rungs": [1, 3, 9], **more},
    }
    return SearchConfig.model_validate(keys)


def there(asked: SearchConfig, values: list[float], rung: float = 1) -> SearchLog:
    """Cell n has `values[n]` at a rung."""
    log = SearchLog().with_steps(beginning(asked))
    return log.with_steps([s for n, value in enumerate(values) for s in reached(asked, log, f"s{n}", [(rung, value)])])


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize(
    ("rule", "values", "stopped"),
    [
        ({"rule": "asha"}, [1, 2, 3, 4, 5, 6], [2, 3, 4, 5]),
        ({"rule": "asha"}, [1, 2], []),
        ({"rule": "asha"}, [1, 1, 1, 1], []),
        ({"rule": "asha", "factor": 2}, [4, 3, 2, 1], [0, 1]),
        ({"rule": "asha", "factor": 4, "least": 2}, [1, 2, 3], []),
        ({"rule": "median"}, [1, 2, 3, 4, 5], [3, 4]),
        ({"rule": "median", "least": 6}, [1, 2, 3, 4, 5], []),
    ],
)
def test_who_is_stopped_at_a_rung(goal: str, rule: dict[str, Any], values: list[float], stopped: list[int]) -> None:
    asked = search(goal=goal, **rule)
    sign = 1 if goal == "minimize" else -1
    log = there(asked, [sign * value for value in values])
    found = [n for n in range(len(values)) if judged(asked, log, f"s{n}", 1) is not None]
    assert found == stopped
    for number in found:
        step = judged(asked, log, f"s{number}", 1)
        assert step is not None
        assert step.value == sign * values[number]
        assert step.bound is not None
        assert sign * step.value > sign * step.bound
        assert step.among == len(values)


@pytest.mark.parametrize(
    ("curve", "stopped_at"),
    [([3, 2, 1], None), ([1, 2, 3], 9), ([1, 2, 0.5], None), ([1, 1, 1], None), ([1, 2], None)],
)
def test_patience_goes_by_the_cell_s_own_best(curve: list[float], stopped_at: float | None) -> None:
    asked = search("patience")
    log = SearchLog().with_steps(beginning(asked))
    log = log.with_steps(reached(asked, log, "s0", list(zip([1, 3, 9], curve, strict=False))))
    assert [rung for rung in (1, 3, 9) if judged(asked, log, "s0", rung)] == ([stopped_at] if stopped_at else [])


def test_what_counts_at_a_rung_is_the_first_row_at_or_behind_it() -> None:
    asked = search("asha")
    log = SearchLog().with_steps(beginning(asked))
    steps = reached(asked, log, "s0", [(0.5, 9), (2, 8), (4, 7), (5, 1)])
    assert [(step.rung, step.x, step.value) for step in steps] == [(1, 2, 8), (3, 4, 7)]
    assert not reached(asked, log.with_steps(steps), "s0", [(0.5, 9), (2, 5), (4, 5)]), "a rung was rewritten"


def test_without_a_rule_nothing_is_stopped_and_no_rung_is_written() -> None:
    asked = search("asha").model_copy(update={"stop": None})
    log = SearchLog().with_steps(beginning(asked))
    found = Found(curves={cell: [(1, 1), (9, 9)] for cell in log.open}, running=tuple(log.open))
    assert decided(asked, log, found) == []


def test_a_cell_that_does_not_run_or_was_brought_back_is_not_stopped() -> None:
    asked = search("asha", cells=4, factor=4)
    log = SearchLog().with_steps(beginning(asked))
    curves = {f"s{n}": [(1.0, float(n))] for n in range(4)}
    ended = decided(asked, log, Found(ended={"s3": Ended("ended", 3)}, curves=curves, running=("s0", "s1")))
    assert [step.cell for step in ended if step.kind == "pruned"] == ["s1"], "s2 has no runner, and s3 had ended"
    log = log.with_steps(ended).with_steps([Step(kind="kept", cell="s1", by="ann")])
    assert [s.kind for s in decided(asked, log, Found(curves={"s1": [(1, 1), (3, 9)]}, running=("s1",)))] == ["reached"]
    assert judged(asked, log, "s1", 1) is None
    with pytest.raises(EvidenceDamaged, match="a person took back"):
        log.with_steps([step for step in ended if step.kind == "pruned"])


def test_one_that_had_sealed_before_it_was_stopped_counts_again() -> None:
    asked = search("asha", cells=4, factor=4)
    log = SearchLog().with_steps(beginning(asked))
    curves = {f"s{n}": [(1.0, float(n))] for n in range(4)}
    log = log.with_steps(decided(asked, log, Found(curves=curves, running=("s0", "s1", "s2", "s3"))))
    assert set(log.pruned) == {"s1", "s2", "s3"}
    again = decided(asked, log, Found(sealed=("s2",), ended={"s2": Ended("ended", 0.1)}))
    assert [(step.kind, step.cell) for step in again] == [("kept", "s2"), ("scored", "s2")]


CURVES = st.lists(st.floats(-5, 5, allow_nan=False), min_size=1, max_size=10)
ROUND = st.lists(
    st.tuples(st.integers(0, 7), st.sampled_from(["step", "step", "end", "lost", "keep", "away", "down"])), max_size=8
)


@settings(max_examples=60, deadline=None)
@given(
    rule=st.sampled_from(["asha", "median", "patience"]),
    goal=st.sampled_from(["minimize", "maximize"]),
    curves=st.lists(CURVES, min_size=8, max_size=8),
    rounds=st.lists(ROUND, max_size=12),
)
def test_no_cell_is_stopped_that_the_rule_does_not_name(
    rule: str, goal: str, curves: list[list[float]], rounds: list[list[tuple[int, str]]]
) -> None:
    """Whatever cells do between two looks: each line that stops one follows from the file and the lines before it."""
    asked = search(rule, goal, patience=1)
    log, at = SearchLog().with_steps(beginning(asked)), [0] * 8
    ended, away, down = set[int](), set[int](), set[int]()
    for one in rounds:
        for number, what in one:
            if what == "step":
                at[number] = min(at[number] + 1, len(curves[number]))
            elif what == "end":
                ended.add(number)
            elif what == "lost":  # its box is gone: it runs again from the start, and its file with it
                at[number] = 0
            elif what == "away":
                away ^= {number}
            elif what == "down":  # its curve is there, it has not ended, and no runner is alive that could stop it
                down ^= {number}
            elif f"s{number}" in log.pruned:
                log = log.with_steps([Step(kind="kept", cell=f"s{number}", by="ann")])
        seen = {f"s{n}": [(float(x + 1), curves[n][x]) for x in range(at[n])] for n in range(8) if n not in away}
        running = tuple(cell for cell in seen if int(cell[1:]) not in ended | down)
        found = Found({f"s{n}": Ended("ended", 0.0) for n in ended - away}, seen, running)
        steps = decided(asked, log, found)
        assert decided(asked, log, found) == steps, "the same history decides twice differently"
        for step in steps:
            if step.kind == "pruned":
                assert step.rung is not None
                assert judged(asked, log, step.cell, step.rung) == step
                assert step.cell in running
                assert step.cell not in log.kept
            log = log.with_steps([step])
    assert not set(log.pruned) & set(log.scored)
