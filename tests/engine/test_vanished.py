"""A box vanishes: the next `up` rents its next generation, and verified cells stay verified."""

from __future__ import annotations

import shutil

import pytest

from tests.engine.commands import assert_failed, ok
from tests.engine.harness import Stack


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_sharing.py, test_box_end.py
def test_box_vanished_after_all_was_verified(verified: Stack) -> None:
    """`up` says rc 0 and rents no second generation: nothing is left to train there. Its record is closed."""
    verified.vanish("box-1")
    result = ok(verified.up())
    assert "box-1" not in {box["outputs"]["name"] for box in verified.resources("Box")}, str(result)
    assert verified.native_ids() == [verified.native_id("box-0")]
    ended = {birth["box"]: birth["ended_at"] is not None for birth in verified.births()}
    assert ended == {"box-0": False, "box-1": True}
    document = verified.sweepctl("status", "--json").json()
    assert {cell["state"] for cell in document["cells"]} == {"verified"}
    again = verified.verify()
    assert (again["verified"], again["total"]) == (4, 4), again
    verified.approve()
    ok(verified.up())
    ok(verified.destroy())
    assert verified.native_ids() == []


@pytest.mark.proof  # on a real box: tests/unit/launch/test_launch.py
def test_box_vanished_with_sealed_cells_that_nobody_pulled(finished: Stack) -> None:
    """Sealed copies on the durable tier serve the next generation: they are found, not trained again."""
    finished.vanish("box-0")
    ok(finished.up())
    finished.wait_idle()
    journal = finished.journal("box-0")
    assert not [e for e in journal if e["event"] == "cell-started"], journal
    finished.run_loop()
    ok(finished.destroy())


@pytest.mark.proof
def test_box_vanished_while_cleared(cleared: Stack) -> None:
    """What was cleared and vanished needs no new box to be destroyed."""
    births = len(cleared.births())
    cleared.vanish("box-0")
    ok(cleared.destroy())
    assert cleared.native_ids() == []
    assert len(cleared.births()) == births


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_box_end.py
def test_unreachable_is_not_gone(verified: Stack) -> None:
    """A platform that can't be asked is not a platform without boxes: nothing is rented, forgotten or written off."""
    root = verified.platform_root
    hidden = root.with_name("local-hidden")
    before = verified.snapshot()
    root.rename(hidden)
    try:
        for command, words in {
            verified.up: "so nothing is known of its boxes. Is XDG_DATA_HOME what it was when they were made?",
            verified.destroy: "once it answers; `sweepctl status` says why it does not",
        }.items():
            result = command()
            assert_failed(result, words)
            assert "LOST" not in result.text, str(result)
            for kind in ("Box", "Queue", "Gate"):
                assert len(verified.resources(kind)) == 2, f"the state forgot something\n{result}"
            assert not list((verified.evidence / "records").glob("losses/*")), str(result)
    finally:
        shutil.rmtree(root, ignore_errors=True)
        hidden.rename(root)
    ok(verified.up())
    verified.assert_unchanged(before)
