"""A box goes away behind everybody's back: the next `up` rents its next generation, verified cells stay verified."""

from __future__ import annotations

from tests.engine.commands import ok
from tests.engine.harness import Stack


def test_box_vanished_after_all_was_verified(verified: Stack) -> None:
    """`up` says rc 0, generation 2 takes over, and no verified cell runs again."""
    before = verified.native_id("box-1")
    verified.vanish("box-1")
    ok(verified.up())
    after = verified.native_id("box-1")
    assert after != before
    generations = sorted((birth["box"], birth["generation"]) for birth in verified.births())
    assert generations == [("box-0", 1), ("box-1", 1), ("box-1", 2)]
    verified.wait_idle()
    assert not [e for e in verified.journal("box-1") if e["event"] == "cell-started"]
    document = verified.sweepctl("status", "--json").json()
    assert {cell["state"] for cell in document["cells"]} == {"verified"}
    again = verified.verify()
    assert (again["verified"], again["total"]) == (4, 4), again
    verified.approve()
    ok(verified.up())
    ok(verified.destroy())
    assert verified.native_ids() == []


def test_box_vanished_with_sealed_cells_that_nobody_pulled(finished: Stack) -> None:
    """Sealed copies on the durable tier serve the next generation: they are found, not trained again."""
    finished.vanish("box-0")
    ok(finished.up())
    finished.wait_idle()
    journal = finished.journal("box-0")
    assert not [e for e in journal if e["event"] == "cell-started"], journal
    finished.run_loop()
    ok(finished.destroy())


def test_box_vanished_while_cleared(cleared: Stack) -> None:
    """What was cleared and vanished needs no new box to be destroyed."""
    births = len(cleared.births())
    cleared.vanish("box-0")
    ok(cleared.destroy())
    assert cleared.native_ids() == []
    assert len(cleared.births()) == births


def test_unreachable_is_not_gone(verified: Stack) -> None:
    """A platform that can't be asked is not a platform without boxes: nothing is rented, and nothing is written off."""
    root = verified.platform_root
    hidden = root.with_name("local-hidden")
    births = verified.births()
    root.rename(hidden)
    try:
        ups = verified.up()
        assert ups.rc != 0, str(ups)
        assert "LOST" not in ups.text, str(ups)
        destroy = verified.destroy()
        assert destroy.rc != 0, str(destroy)
    finally:
        if root.exists():
            import shutil

            shutil.rmtree(root)
        hidden.rename(root)
    assert verified.births() == births
    ok(verified.up())
    assert len(verified.native_ids()) == 2
