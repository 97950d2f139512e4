"""`sweepctl review` on the real engine: what it says of a destroy, and the destroy itself."""

from __future__ import annotations

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack
from tests.engine.test_preview import everything
from tests.screens import too_long


def test_the_reviewed_destroy_is_the_one_that_happens(cleared: Stack) -> None:
    """Locked: no, and nothing changes by asking. Approved and up: another change, since it ends them; that one is
    reviewed, and goes through. What an approval unlocks: tests/unit/review/test_golden.py."""
    stack = cleared
    stack.restore("verified")
    before = everything(stack)
    locked = stack.sweepctl("review", "--destroy", "--json")
    assert everything(stack) == before
    assert locked.rc == 1, str(locked)
    told = locked.json()
    assert (told["may_go_on"], told["destroys"], told["cells"]["verified"]) == ("no", 2, 4)
    assert sorted(one["native_id"] for one in told["endings"]) == stack.native_ids()
    assert told["money"]["saves"] == 2.5
    stack.restore("cleared")
    another = stack.sweepctl("review", "--destroy", "--expect", told["digest"], "--json")
    assert another.rc == 1, str(another)
    (why,) = another.json()["against"]
    assert "the change is another one now" in why
    reviewed = stack.sweepctl("review", "--destroy", "--expect", another.json()["digest"], "--as", "markdown")
    assert reviewed.rc == 0, str(reviewed)
    assert "DESTROYS 2 boxes" in reviewed.out
    ok(stack.destroy())
    assert stack.native_ids() == []


@pytest.mark.proof  # of the words of every kind of change: tests/unit/review/test_golden.py
def test_a_terminal_of_any_width_takes_it(verified: Stack) -> None:
    for columns in (80, 200):
        screen = verified.terminal("sweepctl", "review", "--destroy", "--stack", verified.name, columns=columns)
        assert screen.rc == 1, str(screen)
        assert not too_long(screen.out, columns), str(screen)
