"""Which approvals are shown for the end of a box, and what is said of each."""

from __future__ import annotations

from sweepstack.core.signature import SweepName
from sweepstack.teardown.who_signed import SignedBy, signature_states, signed
from tests.unit.evidence.world import IDENTITY
from tests.unit.teardown.support import NOW, action, approval

SWEEP = SweepName(project="", stack="", identity=IDENTITY)
UNTIL = "2026-11-25 08:00 UTC"


def test_each_approval_of_the_box_is_shown_once_with_what_the_reasons_do_not_say() -> None:
    ours, other = approval(None), approval(None, actions=(action("box-1", "local-box-11"),))
    asked = [("the state", ours, ("ana", "ben")), ("the stack file", ours, ()), ("a file", other, ()), ("no", None, ())]
    found = signature_states(asked, "local-box-01", SWEEP, (), now=NOW)
    assert [one.where for one in found] == ["the state"]
    assert signed(found, ["it needs ana"]) == [f"by no one so far; until {UNTIL} (in the state); ben"]
    assert signed(signature_states([("a file", ours, ())], "local-box-01", SWEEP, (), now=NOW), []) == []


def test_a_signature_that_does_not_count_says_why() -> None:
    assert SignedBy("ana", "", listed=False, problem="it is of another sweep").words == (
        "ana (does not count: it is of another sweep)"
    )
    assert SignedBy("ana", "SHA256:Ab", listed=True).words == "ana (SHA256:Ab)"
