"""What ends a try before it ends by itself: `job.timeout`, `job.on_hang`, `job.retries`, a person."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.onbox.runner.main import limit_attempt
from tests.onbox.harness import QUICK, Box, alive, wait_for

FAST = {"patrol_seconds": 0.2, "grace_seconds": 0.5}
HANGS = 'echo begun; test "$SWEEPSTACK_ATTEMPT" -gt 1 || sleep 600; '
"""Its first try hangs."""


def hangs(box: Box, name: str = "a", **more: Any) -> None:
    box.add(name, HANGS + QUICK, **more)


def test_a_try_that_takes_too_long_is_ended_and_counts(box: Box) -> None:
    box.set(timeout_seconds=5, **FAST)  # a busy machine takes seconds for a quick cell
    hangs(box)
    box.add("b")
    runner = box.start()
    wait_for(lambda: len(box.events("cell-failed", "a")) == 1, box.log)
    first = box.pid("a", 1)
    assert runner.ended() == 0
    (failed,) = box.events("cell-failed", "a")
    assert (failed["class"], failed["final"]) == ("timeout", False)
    assert "longer than job.timeout (5 s)" in failed["reason"]
    assert not alive(first)
    assert (box.state("a"), box.state("b")) == ("sealed", "sealed")


def test_a_job_that_leaves_well_after_its_time_has_no_result(box: Box) -> None:
    """A job that saves on SIGTERM and exits 0 did not finish: its next try goes on."""
    box.set(timeout_seconds=0.5, retries=0, **FAST)
    box.add(
        "a", "trap 'echo {{}} > {out}/result.json; exit 0' TERM; echo begun; sleep 600 & wait".replace("{{}}", "{ }")
    )
    box.run(code=1)
    assert box.journal().cells["a"].failure_class == "timeout"


@pytest.mark.parametrize(("policy", "tries", "code", "state"), [("retry", 2, 0, "sealed"), ("drop", 1, 1, "failed")])
def test_a_hung_cell_holds_its_slot_no_longer(box: Box, policy: str, tries: int, code: int, state: str) -> None:
    box.set(on_hang=policy, stall_seconds=3, **FAST)
    hangs(box)
    box.add("b")
    runner = box.start()
    wait_for(lambda: bool(box.events("cell-failed", "a")), box.log)
    assert runner.ended() == code
    failed = box.events("cell-failed", "a")[0]
    assert (failed["class"], failed["final"]) == ("hung", policy == "drop")
    assert "hung, and was ended: no output, no CPU, no GPU" in failed["reason"]
    assert (box.state("a"), box.journal().cells["a"].attempts, box.state("b")) == (state, tries, "sealed")


def test_without_the_keys_a_hung_cell_is_told_and_touched_by_nothing(box: Box) -> None:
    box.set(stall_seconds=0.3, **FAST)
    hangs(box)
    runner = box.start()
    wait_for(lambda: bool(box.patrol()) and any("a hung" in alarm for alarm in box.patrol()[-1]["alarms"]), box.log)
    wait_for(lambda: len(box.patrol()) > 5, box.log)
    assert box.state("a") == "running"
    runner.process.terminate()
    runner.ended()


def test_a_hung_cell_that_others_wait_for_gives_its_slot_up(box: Box) -> None:
    """Without the keys, too: after three stall intervals it is tried again, behind those that wait."""
    box.set(stall_seconds=1, **FAST)
    hangs(box)
    box.add("b")
    runner = box.start()
    wait_for(lambda: bool(box.events("cell-failed", "a")), box.log)
    assert runner.ended() == 0
    (failed,) = box.events("cell-failed", "a")
    assert (failed["class"], failed["final"]) == ("hung", False)
    assert "other cells wait for its slot: no output, no CPU, no GPU for " in failed["reason"]
    assert (box.state("a"), box.journal().cells["a"].attempts, box.state("b")) == ("sealed", 2, "sealed")
    started = [(event["cell"], event["attempt"]) for event in box.events("cell-started")]
    assert started == [("a", 1), ("b", 1), ("a", 2)]


def test_a_hung_cell_that_others_wait_for_has_three_stall_intervals() -> None:
    attempt: Any = SimpleNamespace(seconds=lambda: 100.0)
    for still, waits, ended in ((29.9, True, False), (30.0, True, True), (900.0, False, False)):
        found = limit_attempt(attempt, {"stall_seconds": 10}, "no output", False, still, waits)
        assert (found is not None) is ended, still


def test_a_person_can_have_a_hung_cell_run_again(box: Box) -> None:
    box.set(stall_seconds=0.3, **FAST)
    hangs(box)
    runner = box.start()
    wait_for(lambda: bool(box.patrol()) and any("a hung" in alarm for alarm in box.patrol()[-1]["alarms"]), box.log)
    pid = box.pid("a", 1)
    hangs(box, more={"retry": 1})
    assert runner.ended() == 0
    assert not alive(pid)
    (failed,) = box.events("cell-failed", "a")
    assert failed["class"] == "hung"
    assert "ended to run again (sweepctl retry)" in failed["reason"]
    assert (box.state("a"), box.journal().cells["a"].attempts, box.journal().cells["a"].retry) == ("sealed", 2, 1)


@pytest.mark.parametrize("retries", [0, 2])
def test_how_often_a_failed_cell_is_tried_again(box: Box, retries: int) -> None:
    box.set(retries=retries)
    box.add("a", "exit 3")
    box.run(code=1)
    assert box.journal().cells["a"].attempts == retries + 1


def test_ranks_that_a_launcher_put_into_sessions_of_their_own_end_with_their_cell(box: Box) -> None:
    """As torchrun does: a try that is killed leaves them behind, outside of its process group."""
    box.set(timeout_seconds=3, retries=0, **FAST)
    box.add("a", "true torchrun; setsid sleep 600 & echo $! > {out}/rank; trap '' TERM; sleep 600 & wait; wait")
    box.run(code=1)
    assert box.journal().cells["a"].failure_class == "timeout"
    assert list(box.processes(cells=True)) == []
