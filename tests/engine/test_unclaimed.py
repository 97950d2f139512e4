"""Unclaimed files on a tier that ends with its box: shown first, and waived only by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine.commands import assert_refused, ok
from tests.engine.harness import Stack
from tests.engine.test_approvals import locked_again, still_refused

BIG = 110_000_000


def leave(stack: Stack, box: str, name: str, size: int) -> Path:
    """A job left a file outside of its cells. It has no blocks: the size is what counts."""
    path = stack.box_dir(box) / "data" / "notes" / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.truncate(path, size)
    return path


@pytest.mark.proof
def test_unclaimed_bytes_are_shown(verified: Stack) -> None:
    """What a job left outside of its cells would die unseen: the refusal and the approval say how much, and name it."""
    for box in verified.boxes:
        leave(verified, box, "optimizer.bin", 3 << 20)
    refused = verified.destroy()
    assert_refused(refused)
    approve = verified.sweepctl("approve", verified.verify()["receipt"])
    for result in (refused, approve):
        assert "unclaimed" in result.text, str(result)
        assert "optimizer.bin" in result.text, str(result)
    assert approve.rc == 0, "a little of it needs no approval of its own"
    preview = ok(verified.run("pulumi", "destroy", "--stack", verified.name, "--preview-only", "--diff"))
    assert "optimizer.bin" in preview.text, str(preview)
    gates = verified.sweepctl("status", "--json").json()["gates"]
    assert [gate["unclaimed"]["bytes"] >= 3 << 20 for gate in gates] == [True, True]


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_box_end.py; the command: tests/unit/cli/test_approve.py
def test_much_of_it_needs_a_word_by_name(verified: Stack) -> None:
    """More than 100 MB locks the box, through every command, until it is let go by name; then the loop goes through."""
    leave(verified, "box-0", "optimizer.bin", BIG)
    receipt = verified.verify()["receipt"]
    refused = verified.sweepctl("approve", receipt)
    assert refused.rc == 1, str(refused)
    assert "unclaimed/box-0" in refused.text, str(refused)
    other = verified.sweepctl("give-up", receipt, "unclaimed/box-1", "--reason", "a cache")
    assert other.rc == 1, f"an approval for one box counted for another\n{other}"
    ok(verified.sweepctl("give-up", receipt, "unclaimed/box-0", "--reason", "a cache"))
    (waiver,) = verified.config()["approval"]["unclaimed"]
    assert (waiver["box"], waiver["reason"], waiver["bytes"] >= BIG) == ("box-0", "a cache", True)
    assert "cleared by receipt" in ok(verified.up("--diff")).text
    ok(verified.destroy())
    assert verified.native_ids() == []


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_unclaimed.py
def test_it_grew_after_the_word(cleared: Stack) -> None:
    """What came after the approval was never shown to anybody."""
    leave(cleared, "box-0", "optimizer.bin", BIG)
    locked_again(cleared, "belong to no sealed cell", box="box-0")


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_unclaimed.py
def test_it_grew_beyond_what_was_let_go(verified: Stack) -> None:
    """The approval is for these very files: one that grew locks the box, and the reason says the difference."""
    leave(verified, "box-0", "optimizer.bin", BIG)
    verified.approve("unclaimed/box-0", "--reason", "a cache")
    ok(verified.up())
    leave(verified, "box-0", "optimizer.bin", BIG + 1)
    still_refused(verified, box="box-0", reason="the unclaimed files are not those that were let go")


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_unclaimed.py
@pytest.mark.parametrize("way", ["abandoned", "gone"])
def test_given_up_or_gone_needs_no_word(verified: Stack, way: str) -> None:
    """A box that is given up, or is not there any more, has nothing left to speak of."""
    for box in verified.boxes:
        leave(verified, box, "optimizer.bin", BIG)
    if way == "gone":
        for box in verified.boxes:
            verified.vanish(box)
    else:
        words = [f"data/{box}" for box in verified.boxes]
        ok(verified.sweepctl("give-up", *words, "--reason", "not worth it"))
        ok(verified.up())
    ok(verified.destroy())
    assert verified.native_ids() == []
