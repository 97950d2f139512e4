"""A search on the real engine: `up`, rounds of `tend`, results, and the end of its box."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.config.searched import search_of
from sweepstack.extensions.search.space import first
from tests.engine.commands import COMMAND_SECONDS, ok
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


def cells(stack: Stack) -> list[dict[str, str]]:
    """What `status` says of each cell."""
    return list(stack.sweepctl("status", "--json").json()["cells"])


def drawn(stack: Stack) -> list[str]:
    """The cells that the log has drawn, in their order."""
    log = [json.loads(line) for line in (stack.evidence / "records" / "search.jsonl").read_text().splitlines()]
    return [line["cell"] for line in log if line["kind"] == "suggested"]


def told(stack: Stack, event: str) -> set[str]:
    """The cells of such entries in the box's journal: `status` is a process of Python, and one of the engine."""
    return {entry["cell"] for entry in stack.journal("box-0") if entry["event"] == event}


def stopped(stack: Stack) -> list[str]:
    """The cells that `status` calls pruned."""
    return [cell["name"] for cell in cells(stack) if cell["state"] == "pruned"]


def test_a_search_from_up_to_its_last_round(make_stack: Callable[..., Stack]) -> None:
    """The first `up` begins with `at_once` cells; `tend` draws the rest within `at_most`, and ends by itself; what was
    drawn is on record, and a round that could not bring it in loses nothing. The end of a search's box: the next test.
    """
    stack = make_stack("s", boxes=("box-0",))
    searching(stack, sampler="tpe")
    said = ok(stack.sweepctl("review"))
    print(said.out)
    assert "tpe draws 4 cells at most" in said.out
    ok(stack.up())
    stack.wait_for(lambda: told(stack, "cell-sealed") == {"s0", "s1"}, "the first two")
    before = stack.config_file.read_text()
    stack.edit_config(lambda sweep: sweep["job"]["env"].update(LATER="1"))  # what an `up` would also change
    halfway = stack.sweepctl("tend", "--once")
    assert halfway.rc == 1, halfway
    assert "2 new cells wait" in halfway.text
    assert drawn(stack) == ["s0", "s1", "s2", "s3"], "they are on record, and in no queue: as after a crash there"
    assert {cell["name"]: cell["state"] for cell in cells(stack)} == {"s0": "verified", "s1": "verified"}
    stack.config_file.write_text(before)
    done = ok(stack.sweepctl("tend", "--interval", "1s", "--timeout", "5m"))
    print(done.out, done.err)
    assert drawn(stack) == ["s0", "s1", "s2", "s3"]
    assert {cell["state"] for cell in cells(stack)} == {"verified"}
    print(ok(stack.sweepctl("results")).out)
    print(ok(stack.sweepctl("status")).out)


def test_what_a_rule_stops_is_on_record_and_settles_only_by_that(make_stack: Callable[..., Stack]) -> None:
    """Four cells come to a rung, and the rule lets one go on. The others are `pruned`: by the log and not by their
    box's word; what they wrote is copied before the box may end, and can be read after that; one comes back."""
    stack = make_stack("p", boxes=("box-0",))
    searching(stack, at_most={"cells": 4}, at_once=4, stop={"rule": "asha", "rungs": [1], "factor": 4, "least": 4})
    stack.edit_config(lambda sweep: sweep["job"].update(slots=4))
    stack.hold("s0", "s1", "s2", "s3")
    ok(stack.up())
    stack.wait_for(lambda: len(list((stack.box_dir("box-0")).rglob("metrics.jsonl"))) == 4, "all curves")
    round_ = ok(stack.sweepctl("tend", "--once", "--json")).json()
    print(round_)
    log = [json.loads(line) for line in (stack.evidence / "records" / "search.jsonl").read_text().splitlines()]
    pruned = [line for line in log if line["kind"] == "pruned"]
    assert len(pruned) == 3
    best = min(log, key=lambda line: line.get("value", 9) if line["kind"] == "reached" else 9)["cell"]
    assert best not in [line["cell"] for line in pruned]
    assert all(line["value"] > line["bound"] and line["among"] == 4 for line in pruned)
    first, again, third = (line["cell"] for line in pruned)
    # A stopped cell that ends by itself before the box reads the order is sealed, as any other: so the box is awaited.
    stack.wait_for(lambda: told(stack, "cell-dropped") == {first, again, third}, "the box to stop them")
    stack.release()
    stack.wait_for(lambda: told(stack, "cell-sealed") == {best}, "the rest")
    assert stopped(stack) == [first, again, third]
    assert stack.destroy().rc != 0
    ok(stack.sweepctl("retry", again, "--reason", "looked good to me"))
    ok(stack.up())
    ok(stack.sweepctl("tend", "--interval", "1s", "--timeout", "5m"))
    states = {cell["name"]: cell["state"] for cell in cells(stack)}
    assert states == {best: "verified", again: "verified", first: "pruned", third: "pruned"}
    receipt = stack.verify()
    assert (receipt["verified"], receipt["total"]) == (2, 2)
    approved = ok(stack.sweepctl("approve", receipt["receipt"]))
    print(approved.out)
    assert f"pruned    {first}: asha at 1" in approved.out
    ok(stack.up())
    record = stack.evidence / "records" / "search.jsonl"
    whole = record.read_bytes()
    record.unlink()
    refused = stack.destroy()
    assert refused.rc != 0
    assert "no such decision" in refused.text, refused.text
    record.write_bytes(whole)
    ok(stack.destroy())
    results = stack.sweepctl("results")
    assert f"pruned   {first}: pruned by asha" in results.text
    for all_sweeps in ((), ("--all",)):
        assert "2 cells that a rule stopped early" in ok(stack.sweepctl("ledger", *all_sweeps)).out
    left = list((stack.evidence / "unsealed").rglob("*metrics.jsonl"))
    assert {path.parts[-4] for path in left} >= {first, third}, left
    assert "step 1" in ok(stack.sweepctl("logs", first)).out, "its log, of a box that is gone"


@pytest.mark.proof  # what it sees, and does not: test_watch.py
def test_a_cell_of_this_machine_is_stopped_between_two_rounds(make_stack: Callable[..., Stack]) -> None:
    """Of a `tend` whose next round is an hour away."""
    stack = make_stack("w", boxes=("box-0",))
    rule = {"rule": "asha", "rungs": [1], "factor": 2, "least": 2}
    searching(stack, at_most={"cells": 2}, at_once=2, seed=1, stop=rule)
    stack.edit_config(lambda sweep: sweep["job"].update(slots=2))
    asked = search_of(stack.config())
    assert asked is not None
    drawn_lrs = {c: p["lr"] for c, p in zip(("s0", "s1"), first(asked), strict=True)}
    good, bad = sorted(drawn_lrs, key=lambda cell: abs(float(drawn_lrs[cell]) - 0.01))
    for cell in (good, bad):
        stack.tell("wait", cell)
        stack.hold(cell)
    ok(stack.up())
    log = stack.evidence / "records" / "search.jsonl"
    tend = stack.start("sweepctl", "tend", "--interval", "1h", "--stack", stack.name)
    assert tend.stdout is not None
    while "again in" not in (said := tend.stdout.readline()):
        assert said, "it ended by itself"
    for cell, line in ((good, '"kind":"reached"'), (bad, '"kind":"pruned"')):
        (stack.control / f"wait-{cell}").unlink()
        stack.wait_for(lambda line=line: line in log.read_text(), f"{line} of {cell}")  # type: ignore[misc]
    stack.wait_for(lambda: stopped(stack) == [bad], "the box to stop it")
    tend.send_signal(signal.SIGTERM)
    assert tend.wait(COMMAND_SECONDS) == 130
    stack.release()
    ok(stack.sweepctl("tend", "--interval", "1s", "--timeout", "5m"))
    assert {cell["name"]: cell["state"] for cell in cells(stack)} == {good: "verified", bad: "pruned"}
