"""Code with scripts that no box can run: refused before anything is made, and never in the way of what runs."""

from __future__ import annotations

from typing import Any

from sweepstack.core.resources import QueueInputs
from sweepstack.core.workdir import collect
from sweepstack.provider.resources.base import Failure
from tests.unit.provider.support import QUEUE, Sweep

SETUP = "sh prepare.sh"
SCRIPT = "set -e\r\npython train.py\r\n"


def write(sweep: Sweep) -> str:
    """Puts the script beside the job; the digest of what would ship now."""
    (sweep.project / "job" / "prepare.sh").write_bytes(SCRIPT.encode())
    return collect(sweep.project / "job").digest


def early(sweep: Sweep, **job: Any) -> list[Failure]:
    """What the preview says before there is a box."""
    known: QueueInputs = sweep.queue_inputs(sweep.box(), job={"setup": SETUP, **job})
    return QUEUE.check_early(sweep.op("Queue"), {}, known.model_dump(mode="json", exclude_none=True))


def test_u26_new_code_with_crlf_is_refused_in_the_preview(sweep: Sweep) -> None:
    (failure,) = early(sweep, code=write(sweep))
    assert failure.property == "job"
    assert "prepare.sh, line 1: ends with CRLF" in failure.reason
    assert "nothing was started" in failure.reason


def test_a_script_that_no_command_runs_is_told_and_refuses_nothing(sweep: Sweep) -> None:
    """Vendored code has scripts for its own developers."""
    assert early(sweep, code=write(sweep), setup=None) == []
    assert "prepare.sh, line 1: ends with CRLF" in sweep.said.warnings
    assert "no command of the job names it" in sweep.said.warnings


def test_code_that_was_shipped_before_goes_on(sweep: Sweep) -> None:
    """Other code would be mixed into the sweep, which is refused; the cells show whether its scripts run."""
    code = write(sweep)
    box = sweep.box()
    old = sweep.queue_inputs(box, job={"code": code})
    QUEUE.create(sweep.op("Queue"), old)
    assert code in sweep.store.codes()
    checked = QUEUE.check(sweep.op("Queue"), old, sweep.queue_inputs(box, job={"code": code}))
    assert checked.failures == []
    sweep.drained(box)


def test_an_update_with_new_code_is_refused_and_with_none_to_start_it_is_not(sweep: Sweep) -> None:
    box = sweep.box()
    old = sweep.queue_inputs(box)
    QUEUE.create(sweep.op("Queue"), old)
    sweep.drained(box)
    new = {"code": write(sweep), "mixing": "allow", "setup": SETUP}
    assert QUEUE.check(sweep.op("Queue"), old, sweep.queue_inputs(box, job=new)).failures == []
    sweep.roster = ("a", "b", "c")
    (failure,) = QUEUE.check(sweep.op("Queue"), old, sweep.queue_inputs(box, job=new)).failures
    assert "prepare.sh, line 1" in failure.reason


def test_n9_a_script_that_does_not_ship_is_refused_before_there_is_a_box(sweep: Sweep) -> None:
    (failure,) = early(sweep, run="python nosuch.py --word {word}", setup=None)
    assert failure.property == "job"
    assert "nosuch.py is not among the shipped files: git add it, or name it under job.include" in failure.reason
    assert "nothing was started" in failure.reason


def test_a_script_that_set_up_may_bring_is_told_and_not_refused(sweep: Sweep) -> None:
    assert early(sweep, run="python nosuch.py") == []
    assert "unless job.setup brings it there:\n  nosuch.py is not among" in sweep.said.warnings


def test_a_new_command_is_asked_about_and_one_that_is_up_is_not(sweep: Sweep) -> None:
    box = sweep.box()
    old = sweep.queue_inputs(box, job={"run": "python nosuch.py"})
    assert QUEUE.check(sweep.op("Queue"), old, sweep.queue_inputs(box, job={"run": "python nosuch.py"})).failures == []
    (failure,) = QUEUE.check(sweep.op("Queue"), old, sweep.queue_inputs(box, job={"run": "python no.py"})).failures
    assert "no.py is not among the shipped files" in failure.reason
