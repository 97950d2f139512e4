"""A verified cell is run again, by one person or two: no earlier receipt or approval ends its box."""

from __future__ import annotations

import shutil

import pytest

from tests.engine.commands import assert_refused, ok
from tests.engine.harness import Stack
from tests.engine.test_two_people import both


@pytest.mark.proof  # what ran again locks its box: test_approvals.py, tests/unit/teardown/test_cleared.py
def test_retry_of_a_verified_cell_after_the_clearance(small_finished: Stack) -> None:
    """Refused while the box is cleared. Revoked and run again: the approval of before, put back, clears nothing."""
    stack = small_finished
    stack.run_loop()
    approved = stack.config_file.read_text()
    refused = stack.sweepctl("retry", "seed0", "--reason", "a doubt")
    assert refused.rc == 1, str(refused)
    assert "revoke --stack t" in refused.text, str(refused)
    ok(stack.sweepctl("revoke"))
    ok(stack.up())
    stack.hold("seed0")
    ok(stack.sweepctl("retry", "seed0", "--reason", "a doubt"))
    ok(stack.up())
    stack.wait_for(lambda: stack.started().count("seed0") == 2, "seed0 to start again")
    assert stack.started().count("seed1") == 1
    stack.config_file.write_text(approved)
    locked(stack, "seed0")
    stack.release()
    stack.wait_for(lambda: seals(stack).count("seed0") == 2, "a new seal")
    stack.wait_idle()
    locked(stack, "seed0")  # sealed anew, and the receipt is of the copy before
    ok(stack.sweepctl("pull"))
    locked(stack)
    stack.approve()
    ok(stack.up())
    ok(stack.destroy())
    assert stack.native_ids() == []
    assert len(stack.births()) == 1


@pytest.mark.proof  # of an older receipt: tests/unit/cli/test_approve.py, unit/teardown/test_cleared.py
def test_retry_between_approval_and_up(small_finished: Stack) -> None:
    """Approved, then asked for again, and both come with one `up`: the cell is never ended in its second run."""
    stack = small_finished
    ok(stack.sweepctl("pull"))
    stack.approve()
    stack.hold("seed0")
    retry = stack.sweepctl("retry", "seed0", "--reason", "a doubt")
    up = stack.up("--diff")
    if stack.started().count("seed0") == 2 or (retry.rc == 0 and "cleared" not in up.text):
        locked(stack)
        return
    assert retry.rc != 0 or "seed0" in up.text, f"the wish to run it again was dropped without a word\n{retry}\n{up}"


def locked(stack: Stack, *cells: str) -> None:
    """`up` clears nothing, and a destroy is refused."""
    stack.up()
    before = stack.snapshot(state=False)
    result = stack.destroy()
    assert_refused(result, cells)
    stack.assert_unchanged(before, result, state=False)


def seals(stack: Stack) -> list[str]:
    """Every seal that the journals tell of."""
    return [e["cell"] for box in stack.boxes for e in stack.journal(box) if e["event"] == "cell-sealed"]


@pytest.mark.proof  # counted once, and run once: tests/unit/cli/test_retry_drop.py, tests/unit/launch/test_versions.py
@pytest.mark.parametrize(
    "second", [pytest.param("seed1", id="another cell"), pytest.param("seed0", id="the same cell")]
)
def test_two_people_retry_at_once(small_finished: Stack, second: str) -> None:
    """Both words count, once: each cell named runs exactly once more, the others do not."""
    stack = small_finished
    other = stack.base / f"second-of-{second}"
    shutil.copytree(stack.checkout, other, symlinks=True)
    words = ("sweepctl", "retry", "--stack", stack.name, "--reason", "a doubt")
    for end in both(stack, *words, "seed0", second=(*words, second), clone=other):
        if end.rc:
            ok(stack.run(*end.argv))  # told that somebody else wrote: typed again
    ok(stack.up())
    named = {"seed0", second}
    stack.wait_for(lambda: len(stack.started()) >= len(stack.cells) + len(named), "the retries to start")
    stack.wait_idle()
    starts = stack.started()
    assert {cell: starts.count(cell) for cell in stack.cells} == {
        cell: 2 if cell in named else 1 for cell in stack.cells
    }
