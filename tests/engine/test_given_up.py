"""Boxes that are given up where no program runs, or the evidence is out of reach: two commands, on the real engine."""

from __future__ import annotations

from tests.engine.commands import Result, assert_refused, ok
from tests.engine.harness import Stack


def without_a_program(stack: Stack) -> None:
    stack.config_file.unlink()
    (stack.checkout / "profiles" / "local.md").unlink()


def in_zeros(stack: Stack) -> None:
    """A power cut."""
    (stack.evidence / "sweep.json").write_bytes(b"\0" * 80)


def given_up(stack: Stack) -> Result:
    """What the refusal says, typed."""
    refused = stack.destroy()
    assert_refused(refused)
    line = f'sweepctl approve --stack {stack.name} --abandon box-0 --reason "…" && pulumi destroy --stack {stack.name}'
    assert line in refused.text, str(refused)
    approved = ok(stack.sweepctl("approve", "--abandon", "box-0", "--reason", "a drill"))
    assert f"pulumi destroy --stack {stack.name}" in approved.text
    ended = ok(stack.destroy())
    assert stack.native_ids() == []
    assert not stack.state().get("resources")
    return ended


def test_without_stack_file_and_profile(small_finished: Stack) -> None:
    without_a_program(small_finished)
    given_up(small_finished)
    assert all(birth["ended_how"] == "abandoned" for birth in small_finished.births())


def test_without_evidence_that_reads(small_finished: Stack) -> None:
    in_zeros(small_finished)
    given_up(small_finished)
