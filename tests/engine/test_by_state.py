"""Attempts to go round the gate by an edited state: rows 20–22 of ways-round-the-gate.md.

Also a state that claims a clearance. The engine can't ask about a box that its state has lost: then the data must be
safe all the same, `sweepctl status` must name the box from the records with exit code 1, and a documented command must
lead back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.commands import Result, assert_refused, ok
from tests.engine.conftest import Locked
from tests.engine.harness import Stack
from tests.engine.looking import Snapshot

NOTHING_WAIVED = "sha256:" + hashlib.sha256(b'{"abandon":[],"waive":[]}').hexdigest()


class Edited:
    """A sweep in the middle of its work, whose state is about to be edited."""

    def __init__(self, stack: Stack, before: Snapshot, running: tuple[str, ...]) -> None:
        self.stack, self.before, self.running = stack, before, running

    def safe(self, result: Result | None = None) -> None:
        """Boxes, tiers, runners and births are what they were, whatever the state says."""
        self.stack.assert_unchanged(self.before, result, state=False)

    def status_names(self, *boxes: str) -> None:
        """`sweepctl status` exits 1 and names each box that runs and that the state doesn't know."""
        for words in ((), ("--json",)):
            result = self.stack.sweepctl("status", *words)
            assert result.rc == 1, str(result)
            for box in boxes:
                assert box in result.text, f"{box} is not named\n{result}"
                assert self.stack.native_id(box) in result.text, f"its id is not named\n{result}"

    def delete_from_state(self, kind: str, box: str, *flags: str) -> None:
        """`pulumi state delete` of one of a box's resources."""
        urn = self.stack.urn(kind, box)
        self.stack.edit_in_state("delete", urn, *flags)

    def way_back(self) -> None:
        """`pulumi up` adopts: same ids, same runners, nothing rented, `status` content."""
        result = ok(self.stack.up())
        self.safe(result)
        ok(self.stack.sweepctl("status"))
        assert {r["id"] for r in self.stack.resources("Box")} == set(self.before.boxes)


@pytest.fixture
def edited(locked_once: Locked) -> Iterator[Edited]:
    """The sweep; afterwards its state is put back, and it must be what it was."""
    stack = locked_once.get()
    before = stack.snapshot()
    config = stack.config_file.read_text()
    stack.keep_state()
    try:
        yield Edited(stack, before, locked_once.running)
        stack.put_back_state()
        stack.config_file.write_text(config)
        stack.assert_unchanged(before, state=False)
    except BaseException:
        locked_once.spoil()
        raise


@pytest.mark.proof  # gate and queue: row 27 in test_by_program.py
def test_row_20_gate_deleted_from_the_state(edited: Edited) -> None:
    """`state delete` of the gates, then `destroy`: queue and box refuse by themselves."""
    for box in edited.stack.boxes:
        edited.delete_from_state("Gate", box)
    result = edited.stack.destroy()
    assert_refused(result)
    edited.safe(result)


@pytest.mark.proof  # the same two, and three commands: row 27 in test_by_program.py
def test_row_20_gate_and_queue_deleted_from_the_state(edited: Edited) -> None:
    """With the queues gone from the state too the boxes' own deletes are all there is, and hold."""
    for box in edited.stack.boxes:
        edited.delete_from_state("Gate", box)
        edited.delete_from_state("Queue", box)
    result = edited.stack.destroy()
    assert_refused(result)
    edited.safe(result)


@pytest.mark.proof  # the same way back: row 22; the same edit: the next test
def test_row_21_box_deleted_from_the_state(edited: Edited) -> None:
    """A box that was deleted from the state runs on: `status` names it, `up` finds it by its tag."""
    edited.delete_from_state("Box", "box-1", "--target-dependents")
    edited.safe()
    edited.status_names("box-1")
    edited.way_back()


def test_row_21_then_destroy(edited: Edited) -> None:
    """A destroy after that must not report that all is deleted while the box still runs."""
    edited.delete_from_state("Box", "box-0", "--target-dependents")
    edited.delete_from_state("Box", "box-1", "--target-dependents")
    result = edited.stack.destroy()
    assert result.rc != 0, str(result)
    for box in edited.stack.boxes:
        assert edited.stack.native_id(box) in result.text, str(result)
    edited.safe(result)


@pytest.mark.proof
def test_row_22_stack_removed_by_force(edited: Edited) -> None:
    """`stack rm --force` forgets both boxes: `status` names them, and a new stack of the same name adopts them."""
    stack = edited.stack
    ok(stack.run("pulumi", "stack", "rm", stack.name, "--force", "--yes", "--preserve-config"))
    assert set(stack.native_ids()) == set(edited.before.boxes)
    edited.status_names(*stack.boxes)
    stack.init()
    edited.way_back()


def claims(receipt: str) -> Callable[[list[dict[str, Any]]], None]:
    """An edit that makes every box, queue and gate say that it is cleared, with an approval for this receipt."""

    def edit(resources: list[dict[str, Any]]) -> None:
        boxes = [r for r in resources if r["type"] == "sweepstack:index:Box"]
        actions = [{"verb": "destroy", "box": box["inputs"]["name"], "native_id": box["id"]} for box in boxes]
        approval = {
            "receipt": receipt,
            "actions": actions,
            "waive": [],
            "abandon": [],
            "waivers_digest": NOTHING_WAIVED,
            "by": "me",
            "at": "2026-01-01T00:00:00Z",
            "expires": "2099-01-01T00:00:00Z",
        }
        for resource in resources:
            if resource["type"] in [f"sweepstack:index:{kind}" for kind in ("Box", "Queue", "Gate")]:
                for side in ("inputs", "outputs"):
                    resource.setdefault(side, {})["approval"] = approval
                    if not resource["type"].endswith(":Queue"):
                        resource[side]["clearance"] = f"cleared by receipt {receipt}, 4/4 verified"

    return edit


@pytest.mark.proof
def test_state_edited_to_cleared(edited: Edited) -> None:
    """A state that says `cleared` by a receipt that nobody has is not believed: the destroy is refused."""
    edited.stack.edit_state(claims("sha256:" + "a" * 64))
    result = edited.stack.destroy()
    assert_refused(result)
    edited.safe(result)
    result = edited.stack.destroy("--refresh=false", "--skip-preview")
    assert_refused(result)
    edited.safe(result)


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_cleared.py
def test_state_edited_to_cleared_by_a_receipt_of_unfinished_cells(edited: Edited) -> None:
    """Nor by a real receipt in which cells are not verified."""
    stack = edited.stack
    ok(stack.sweepctl("pull"))
    receipt = stack.verify()["receipt"]
    stack.edit_state(claims(receipt))
    result = stack.destroy("--refresh=false")
    assert_refused(result, edited.running[:0])
    edited.safe(result)


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_box_end.py
def test_state_edited_to_another_id(edited: Edited) -> None:
    """A state whose box has an id that does not exist may forget it, and never ends the real one; `status` names it."""
    stack = edited.stack

    def edit(resources: list[dict[str, Any]]) -> None:
        real = stack.native_id("box-1")
        for resource in resources:
            if real in str(resource):
                for key in ("inputs", "outputs"):
                    for name, value in resource.get(key, {}).items():
                        if value == real:
                            resource[key][name] = "local-aaaaaaaaaa"
                resource["id"] = resource.get("id", "").replace(real, "local-aaaaaaaaaa")

    stack.edit_state(edit)
    edited.status_names("box-1")
    result = stack.destroy()
    assert_refused(result)
    assert "(local-aaaaaaaaaa) is gone from local" in result.text, str(result)
    edited.safe(result)


@pytest.mark.proof  # tests/unit/teardown/test_other_ways.py, test_refusal.py
def test_state_edited_to_another_account(edited: Edited) -> None:
    """Destroying with another account's key is refused, naming both accounts."""
    stack = edited.stack

    def edit(resources: list[dict[str, Any]]) -> None:
        for resource in resources:
            for key in ("inputs", "outputs"):
                if "account" in resource.get(key, {}):
                    resource[key]["account"] = "elsewhere/aaaaaaaaaa"

    stack.edit_state(edit)
    result = stack.destroy()
    assert_refused(result)
    assert "elsewhere/aaaaaaaaaa" in result.text, str(result)
    edited.safe(result)
