"""Two checkouts of one sweep: one approves, the other destroys, with the shared state alone."""

from __future__ import annotations

import shutil
import socket
from typing import Any

import pytest

from tests.engine.commands import assert_refused, ok
from tests.engine.harness import Stack, copy_checkout


def clone(stack: Stack, name: str = "clone-b") -> Any:
    """A second checkout with the stack config as it was committed, before any approval."""
    folder = stack.base / name
    shutil.rmtree(folder, ignore_errors=True)
    copy_checkout(folder)
    lines = stack.config_file.read_text().split("      approval:")[0].split("    approval:")[0]
    (folder / "stacks" / stack.config_file.name).write_text(lines)
    return folder


def test_destroy_from_another_clone(cleared: Stack) -> None:
    """Approved and cleared in clone A, destroyed from clone B, which has not even the stack config."""
    other = clone(cleared)
    (other / "stacks" / cleared.config_file.name).unlink()
    result = ok(cleared.destroy(cwd=other))
    assert cleared.native_ids() == []
    assert str(cleared.evidence) in result.text, f"it does not say what survived and where\n{result}"


@pytest.mark.proof  # no approval in the state: test_by_command.py
def test_destroy_from_another_clone_before_the_clearance(verified: Stack) -> None:
    """An approval that was written in clone A and never brought up is not known in clone B: refused."""
    verified.approve()
    other = clone(verified)
    before = verified.snapshot()
    result = verified.destroy(cwd=other)
    assert_refused(result)
    verified.assert_unchanged(before, result)


@pytest.mark.proof
def test_up_from_another_clone_without_the_approval(cleared: Stack) -> None:
    """An `up` from a clone that lacks the approval takes it out of the state: locked again, visibly, and refused."""
    other = clone(cleared)
    up = ok(cleared.up("--diff", cwd=other))
    assert "locked" in up.text, str(up)
    before = cleared.snapshot()
    result = cleared.destroy(cwd=other)
    assert_refused(result)
    cleared.assert_unchanged(before, result)


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_given_up.py; words: unit/teardown/test_refusal.py
def test_evidence_on_another_host(cleared: Stack) -> None:
    """Evidence in a folder on another host can't be read here: refused, naming that host and what to type there."""
    here = f"file://{socket.gethostname()}/"

    def move(resources: list[dict[str, Any]]) -> None:
        for resource in resources:
            for side in ("inputs", "outputs"):
                for key, value in resource.get(side, {}).items():
                    if isinstance(value, str) and value.startswith(here):
                        resource[side][key] = value.replace(here, "file://lab-workstation-7/")

    cleared.edit_state(move)
    before = cleared.snapshot()
    result = cleared.destroy()
    assert_refused(result)
    assert "lab-workstation-7" in result.text, str(result)
    assert "sweepctl pull --to" in result.text, str(result)
    cleared.assert_unchanged(before, result)


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_identity.py
def test_another_backend_may_not_rent(verified: Stack) -> None:
    """A second state for the same evidence would rent everything twice: refused, naming the backend that holds it."""
    other = verified.base / "backend-b"
    other.mkdir(exist_ok=True)
    env = {"PULUMI_BACKEND_URL": f"file://{other}"}
    ok(verified.run("pulumi", "stack", "init", verified.name, "--non-interactive", env=env))
    births = verified.births()
    result = verified.run("pulumi", "up", "--stack", verified.name, "--yes", "--non-interactive", env=env)
    assert result.rc != 0, str(result)
    assert str(verified.base / "backend") in result.text, str(result)
    assert verified.births() == births
    assert len(verified.native_ids()) == 2
