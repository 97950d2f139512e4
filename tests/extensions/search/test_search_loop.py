"""A search on the real engine: `up`, rounds of `tend`, results, and the end of its box."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.commands import ok
from tests.engine.conftest import make_stack
from tests.engine.harness import Stack

__all__ = ["make_stack"]
TRAIN = Path(__file__).with_name("train.py")

pytestmark = pytest.mark.engine


def searching(stack: Stack, **search: object) -> None:
    """The stack file with a search over `lr` in place of its grid."""

    def change(sweep: dict[str, object]) -> None:
        sweep["job"]["run"] = "python train.py --lr {lr} --out {out}"  # type: ignore[index]
        sweep["cells"] = {"base": {}}
        sweep["search"] = {
            "axes": {"lr": {"log_uniform": [0.0001, 0.1]}},
            "at_most": {"cells": 4},
            "at_once": 2,
            "metric": "loss",
            **search,
        }
        sweep["metrics"] = {"file": "metrics.jsonl", "x": "step", "y": ["loss"]}
        sweep["artifacts"] = {"model.json": {"load": "json", "keys": ["lr"]}}

    (stack.job / "train.py").write_bytes(TRAIN.read_bytes())
    stack.edit_config(change)


def test_a_search_from_up_to_destroy(make_stack: Callable[..., Stack]) -> None:
    """The first `up` begins with `at_once` cells; `tend` draws the rest within `at_most`, and ends by itself; what was
    drawn is on record; the box ends when all of it is verified and approved."""
    stack = make_stack("s", boxes=("box-0",))
    searching(stack, sampler="tpe")
    said = ok(stack.sweepctl("review"))
    print(said.out)
    assert "tpe draws 4 cells at most" in said.out
    ok(stack.up())
    done = ok(stack.sweepctl("tend", "--interval", "1s", "--timeout", "5m"))
    print(done.out, done.err)
    log = [json.loads(line) for line in (stack.evidence / "search.jsonl").read_text().splitlines()]
    assert [line["cell"] for line in log if line["kind"] == "suggested"] == ["s0", "s1", "s2", "s3"]
    print(ok(stack.sweepctl("results")).out)
    print(ok(stack.sweepctl("status")).out)
    ok(stack.sweepctl("approve", stack.verify()["receipt"]))
    ok(stack.up())
    ok(stack.destroy())
    print(ok(stack.sweepctl("results")).out)
