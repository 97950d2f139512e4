"""A cluster that is rented: whatever is cancelled there, it bills until a person has ended it and said so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.commands import assert_failed, assert_refused, ok
from tests.rented.slurm_stack import SlurmStack
from tests.rented.world import PACE

STEP = "sweepctl confirm gone --stack t box-0 --saw"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[SlurmStack]:
    made = SlurmStack(tmp_path / "s", cells=("seed0", "seed1"), nodes=1)
    made.env["SWEEPSTACK_API_PACE"] = PACE
    try:
        made.write_config()
        made.edit_config(
            lambda sweep: sweep.update(
                budget={"usd": 50},
                when_done="keep",
                lease="none",
                overrides={"slurm": {"price_per_hour": 24, "purge_days": 30}},
            )
        )
        made.init()
        yield made
    finally:
        made.end()


@pytest.mark.proof  # prices: extensions/slurm/test_clusters.py; an end: unit/provider; the loop: test_cluster.py
def test_only_a_person_ends_the_bill(stack: SlurmStack) -> None:
    """A stop leaves the whole bill running, with the purge counted down; a destroy is refused before the check, ends
    the jobs after it, and then waits for the person's word, which counts only while the login node is silent."""
    stack.hold("seed1")
    ok(stack.up(timeout=300))
    (box,) = stack.boxes_there()
    assert_refused(stack.destroy(timeout=180), ["seed1"])
    assert ok(stack.sweepctl("status", "--json")).json()["bills"] == "yes"

    stack.edit_config(lambda sweep: sweep["boxes"]["box-0"].update(want="stopped"))
    stopped = ok(stack.up(timeout=300))
    assert stack.cluster.ask("squeue", "--noheader", f"--name={box}") == "", str(stopped)
    status = stack.sweepctl("status")
    assert "bills on ($24.00/h): the whole cluster, until a person ends it" in status.text, str(status)
    assert "files on scratch that were not used for long in 29 d" in status.text, str(status)
    assert stack.sweepctl("status", "--json").json()["bills"] == "yes"

    stack.release()
    stack.edit_config(lambda sweep: sweep["boxes"]["box-0"].update(want="running"))
    ok(stack.up(timeout=300))
    ok(stack.sweepctl("wait", "done", timeout=300))
    yes = [("Type yes to go on", "yes\n")]
    ended = stack.terminal("sweepctl", "finish", "--stack", stack.name, answers=yes)
    assert ended.rc != 0, str(ended)
    assert STEP in " ".join(ended.text.split()), str(ended)
    assert stack.boxes_there() == [], "something of ours is left on the cluster"
    assert len(stack.resources("Box")) == 1, "what bills was forgotten"
    assert stack.sweepctl("status", "--json").json()["bills"] == "yes"

    word = ("confirm", "gone", "box-0", "--saw", "the list of clusters is empty")
    assert_failed(stack.sweepctl(*word), "box box-0 still answers at", "Nothing was written")
    assert_failed(stack.destroy(), STEP)
    stack.cluster.login.stop()
    assert_failed(stack.destroy(), STEP)  # silence without the person's word is no end
    ok(stack.sweepctl(*word))
    ok(stack.destroy())
    assert not stack.state().get("resources")
    ok(stack.run("sweepctl", "audit"))
