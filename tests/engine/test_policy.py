"""A policy on the real engine: it binds a sweep, and goes on to bind it when its file is deleted."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from sweepstack.core.bucket_address import evidence_uri
from sweepstack.core.records import Approval
from sweepstack.evidence.store import EvidenceStore
from tests.engine.commands import assert_refused, ok
from tests.engine.harness import Stack

POLICY = "waivers: refused\nmax_expiry: 1h\n"


def _too_long(given: Approval | None) -> Approval:
    assert given is not None
    return given.model_copy(update={"expires": given.at + timedelta(hours=2)})


@pytest.mark.proof  # tests/unit/provider/test_policy.py, tests/unit/cli/test_policy.py
def test_a_deleted_policy_still_binds_up_and_destroy(small_finished: Stack) -> None:
    """Each rule, and each copy alone: tests/unit/provider/test_policy.py, tests/unit/teardown/test_policy.py."""
    stack, file = small_finished, small_finished.checkout / "policy.yaml"
    ok(stack.sweepctl("give-up", "data/box-0", "--reason", "a drill", "--expires", "2h"))
    file.write_text(POLICY)
    locked = ok(stack.up())
    assert "may hold for 1h at most (policy.yaml line 2)" in locked.text, str(locked)
    file.unlink()
    again = ok(stack.up())
    assert "policy.yaml is missing, and that was not approved" in again.text, str(again)
    evil = f"{POLICY}approvers: [evil@x]\n"  # who writes the evidence, or a job on its box, binds nothing
    link = {"policy": {"text": evil, "signers": "evil@x ssh-ed25519 AAAA"}, "approval": None}
    for place in (
        stack.evidence / "records" / "policy" / "in-force.json",
        stack.box_dir("box-0") / "data/sweep/policy.json",
    ):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps({"chains": [{"links": [link]}]}))
    refused = stack.destroy()
    assert_refused(refused)
    assert "may hold for 1h at most" in refused.text, str(refused)
    assert len(stack.native_ids()) == 1
    shown = stack.sweepctl("policy")
    assert (shown.rc, "missing, and not approved" in shown.text) == (1, True), str(shown)
    ok(stack.sweepctl("give-up", "data/box-0", "--reason", "a drill", "--expires", "1h"))
    ok(stack.destroy())
    assert stack.native_ids() == []


@pytest.mark.proof  # the same on handlers: tests/unit/provider/test_policy.py
def test_an_edited_export_another_state_and_one_target_loosen_nothing(small_finished: Stack) -> None:
    stack, file = small_finished, small_finished.checkout / "policy.yaml"
    file.write_text(POLICY)
    ok(stack.up())
    file.unlink()

    def without(kinds: tuple[str, ...]) -> None:
        def edit(resources: list[dict[str, Any]]) -> None:
            for one in resources:
                if one["type"].rpartition(":")[2] in kinds:
                    for part in ("inputs", "outputs"):
                        one.get(part, {}).pop("policy", None)

        stack.edit_state(edit)

    ok(stack.sweepctl("give-up", "data/box-0", "--reason", "a drill", "--expires", "1h"))
    without(("Box", "Gate", "Queue"))
    given_up = stack.sweepctl("give-up", "data/box-0", "--reason", "a drill", "--expires", "2h")
    assert given_up.rc == 1, str(given_up)
    assert "may hold for 1h at most" in given_up.text, "the identity has the text"
    store = EvidenceStore.open(evidence_uri(stack.checkout, str(stack.evidence)) or "")
    (birth,) = store.births()
    store.write_clearance(birth.native_id or "", _too_long(store.clearance(birth.native_id or "")))
    store.write_birth(birth.model_copy(update={"policy": ""}))
    assert_refused(alone := stack.destroy())
    assert "may hold for 1h at most" in alone.text, "the identity alone has it"
    store.write_birth(birth)
    without(("Identity",))
    refused = stack.destroy()
    assert_refused(refused)
    ok(stack.pulumi("stack", "rm", "--force", "--yes", "--preserve-config"))
    stack.init()
    lost = stack.up()
    assert lost.rc != 0, str(lost)
    assert "no text of it is here" in lost.text, str(lost)
    file.write_text(POLICY)
    ok(stack.up())
    ok(stack.sweepctl("give-up", "data/box-0", "--reason", "a drill", "--expires", "1h"))
    ok(stack.destroy())
    assert stack.native_ids() == []
