"""Boxes are given up when no program runs or the evidence can't be reached: two commands."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.engine.commands import Result, assert_refused, ok
from tests.engine.harness import Stack


@contextmanager
def without_a_program(stack: Stack) -> Iterator[None]:
    """No stack file, and no profile: for as long as this lasts."""
    stack.config_file.unlink()
    profile = stack.checkout / "profiles" / "local.md"
    text = profile.read_text()
    profile.unlink()
    try:
        yield
    finally:
        profile.write_text(text)


def in_zeros(stack: Stack) -> None:
    """A power cut."""
    (stack.evidence / "sweep.json").write_bytes(b"\0" * 80)


def given_up(stack: Stack) -> Result:
    """What the refusal says, typed."""
    refused = stack.destroy()
    assert_refused(refused)
    line = f'sweepctl give-up --stack {stack.name} data/box-0 --reason "…" && pulumi destroy --stack {stack.name}'
    assert line in refused.text, str(refused)
    approved = ok(stack.sweepctl("give-up", "data/box-0", "--reason", "a drill"))
    assert f"pulumi destroy --stack {stack.name}" in approved.text
    ended = ok(stack.destroy())
    assert stack.native_ids() == []
    assert not stack.state().get("resources")
    return ended


def test_without_stack_file_and_profile(small_finished: Stack) -> None:
    with without_a_program(small_finished):
        given_up(small_finished)
    assert all(birth["ended_how"] == "abandoned" for birth in small_finished.births())


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_given_up.py
def test_without_evidence_that_reads(small_finished: Stack) -> None:
    in_zeros(small_finished)
    given_up(small_finished)


@pytest.mark.proof  # on the handlers: tests/states/test_handlers.py; the command: tests/unit/cli/test_adopt.py
def test_after_the_computer_was_renamed(small_finished: Stack) -> None:
    """One command says so; then everything goes on as before: no evidence is lost over a name."""
    stack = small_finished

    def renamed(*words: str) -> Result:
        return stack.run("unshare", "-u", "sh", "-c", 'hostname renamed-laptop; exec "$@"', "x", *words)

    engine = ("--stack", stack.name, "--yes", "--non-interactive", "--skip-preview")
    refused = renamed("pulumi", "destroy", *engine)
    assert_refused(refused)
    line = f"sweepctl adopt --renamed-from {socket.gethostname()}"
    assert line in refused.text, str(refused)
    ok(renamed(*line.split()))
    ok(renamed("sweepctl", "pull", "--stack", stack.name))
    receipt = ok(renamed("sweepctl", "verify", "--json", "--stack", stack.name)).json()["receipt"]
    ok(renamed("sweepctl", "finish", receipt, "--stack", stack.name))
    assert stack.native_ids() == []


@pytest.mark.proof  # another backend: test_two_clones.py; the command: tests/unit/cli/test_adopt.py
def test_after_the_backend_was_lost(small_finished: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a new one nothing says that all is deleted while a box bills; a person takes the sweep over, and ends it."""
    stack = small_finished
    shutil.rmtree(stack.env["PULUMI_BACKEND_URL"].removeprefix("file://"))
    other = stack.base / "backend-b"
    other.mkdir()
    monkeypatch.setitem(stack.env, "PULUMI_BACKEND_URL", f"file://{other}")
    (native_id,) = stack.native_ids()
    stack.init()
    adopt = f"sweepctl adopt --stack {stack.name} --reason"
    for refused in (stack.up(), stack.destroy()):
        assert refused.rc != 0, str(refused)
        assert adopt in refused.text, str(refused)
        assert "Traceback" not in refused.text, str(refused)
    assert f"{native_id} on local still exists" in stack.destroy().text
    assert adopt in stack.sweepctl("status").text
    answers = [("Type the stack's name to go on", f"{stack.name}\r")]
    ok(stack.terminal("sweepctl", "adopt", "--stack", stack.name, "--reason", "a drill", answers=answers))
    ok(stack.up())
    assert (stack.native_ids(), len(stack.births())) == ([native_id], 1)
    ok(stack.sweepctl("pull"))
    ok(stack.sweepctl("finish", str(stack.verify()["receipt"])))
    assert stack.native_ids() == []
