"""What is drawn: within its ranges, by file and history alone, and by what Optuna has learned."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.config.search import SearchConfig
from sweepstack.core.search_log import SearchLog, Step, parse_search_log
from sweepstack.extensions.search.decisions import beginning
from sweepstack.extensions.search.space import first, suggest

AXES: dict[str, Any] = {
    "lr": {"log_uniform": [0.0001, 0.1]},
    "drop": {"uniform": [0, 0.5], "step": 0.1},
    "noise": {"uniform": [-1, 1]},
    "width": {"int": [64, 500], "step": 64},
    "batch": {"log_int": [1, 1000]},
    "opt": {"choice": ["sgd", "adam", True]},
    "momentum": {"uniform": [0.8, 0.99], "when": {"opt": ["sgd"]}},
}


def search(sampler: str, cells: int = 40, **more: Any) -> SearchConfig:
    keys = {"axes": AXES, "at_most": {"cells": cells}, "sampler": sampler, "metric": "loss", **more}
    return SearchConfig.model_validate(keys)


def played(asked: SearchConfig, rounds: int, score: Any = lambda params: params["lr"]) -> SearchLog:
    """A history in which the oldest open cell ends each time before the next is drawn."""
    log = SearchLog().with_steps(beginning(asked))
    for _ in range(rounds):
        cell = log.open[0]
        value = score(log.suggested[cell].params)
        log = log.with_steps([Step(kind="scored", cell=cell, state="ended", value=value)])
        log = log.with_steps([suggest(asked, log)])
    return log


@pytest.mark.parametrize("sampler", ["random", "sobol", "tpe", "nsgaii"])
def test_every_value_is_one_that_its_axis_has(sampler: str) -> None:
    drawn = [step.params for step in played(search(sampler), 20).suggested.values()]
    for params in drawn:
        assert 0.0001 <= params["lr"] <= 0.1
        assert params["drop"] in (0, 0.1, 0.2, 0.3, 0.4, 0.5)
        assert -1 <= params["noise"] <= 1
        assert params["width"] in (64, 128, 192, 256, 320, 384, 448)
        assert 1 <= params["batch"] <= 1000
        assert all(type(params[name]) is int for name in ("width", "batch"))
        assert params["opt"] in ("sgd", "adam", True)
        assert ("momentum" in params) == (params["opt"] == "sgd")
    if sampler in ("random", "sobol"):
        below = sum(params["lr"] < math.sqrt(0.0001 * 0.1) for params in drawn)
        assert 6 <= below <= len(drawn) - 6, "not by logarithms"


def test_what_is_drawn_by_number_stays_what_it_is() -> None:
    """The first cells of a sweep that is up have no log yet: another version of this code has to draw the same."""
    one, two = first(search("random", at_once=2, seed=7))
    assert one == {"lr": 0.000492794, "drop": 0.4, "noise": 0.606582, "width": 256, "batch": 83, "opt": True}
    assert two != one


# In make proof: it draws by number alone, tpe by number and log.
@pytest.mark.parametrize("sampler", [pytest.param("sobol", marks=pytest.mark.proof), "tpe"])
def test_another_process_draws_the_same_from_the_same_log(sampler: str) -> None:
    asked = search(sampler)
    log = played(asked, 12)
    code = (
        "import sys; from sweepstack.config.search import SearchConfig; from sweepstack.core.search_log import *; "
        "from sweepstack.extensions.search.space import suggest; "
        "print(suggest(SearchConfig.model_validate_json(sys.argv[1]), parse_search_log(sys.argv[2].encode()))"
        ".model_dump_json())"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, asked.text, log.data.decode()], capture_output=True, text=True, check=True
    )
    assert Step.model_validate_json(said.stdout.splitlines()[-1]) == suggest(asked, log)


def test_tpe_goes_where_the_metric_is_better_and_random_does_not() -> None:
    def off(params: dict[str, Any]) -> float:
        return abs(math.log10(params["lr"]) + 2) + (0 if params["opt"] == "adam" else 1)

    late = {}
    for sampler in ("random", "tpe"):
        asked = search(sampler, cells=70, axes={name: AXES[name] for name in ("lr", "opt")})
        drawn = [step.params for step in played(asked, 45, off).suggested.values()][-20:]
        late[sampler] = sum(map(off, drawn)) / len(drawn)
    assert late["tpe"] < 0.6 * late["random"], late


def test_a_cell_is_not_drawn_twice_while_there_is_another_one() -> None:
    asked = search("random", axes={"opt": {"choice": list(range(12))}}, at_most={"cells": 10}, at_once=10)
    assert len({params["opt"] for params in first(asked)}) >= 9


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**40), data=st.data())
def test_a_log_is_read_as_it_was_written_and_a_changed_byte_is_seen(seed: int, data: st.DataObject) -> None:
    log = played(search("random", seed=seed), 3)
    assert parse_search_log(log.data).steps == log.steps
    at = data.draw(st.integers(0, log.data.rindex(b"\n", 0, -1)))  # the last line has no line after it that tells
    hurt = bytearray(log.data)
    hurt[at] ^= 1
    with pytest.raises(Exception, match="damaged"):
        parse_search_log(bytes(hurt))
