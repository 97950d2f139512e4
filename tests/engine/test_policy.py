"""A policy on the real engine: it binds a sweep, and goes on to bind it when its file is deleted."""

from __future__ import annotations

from tests.engine.commands import assert_refused, ok
from tests.engine.harness import Stack

POLICY = "waivers: refused\nmax_expiry: 1h\n"


def test_a_deleted_policy_still_binds_up_and_destroy(small_finished: Stack) -> None:
    """Each rule, and each copy alone: tests/unit/provider/test_policy.py, tests/unit/teardown/test_policy.py."""
    stack, file = small_finished, small_finished.checkout / "policy.yaml"
    ok(stack.sweepctl("approve", "--abandon", "box-0", "--reason", "a drill", "--expires", "2h"))
    file.write_text(POLICY)
    locked = ok(stack.up())
    assert "may hold for 1h at most (policy.yaml line 2)" in locked.text, str(locked)
    file.unlink()
    again = ok(stack.up())
    assert "policy.yaml is missing, and that was not approved" in again.text, str(again)
    refused = stack.destroy()
    assert_refused(refused)
    assert "may hold for 1h at most" in refused.text, str(refused)
    assert len(stack.native_ids()) == 1
    shown = stack.sweepctl("policy")
    assert (shown.rc, "missing, and not approved" in shown.text) == (1, True), str(shown)
    ok(stack.sweepctl("approve", "--abandon", "box-0", "--reason", "a drill", "--expires", "1h"))
    ok(stack.destroy())
    assert stack.native_ids() == []
