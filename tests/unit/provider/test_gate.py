"""Gate: shows, keeps the order, asks the same check; and is never gone by itself."""

from __future__ import annotations

import shutil

import pytest

from sweepstack.core.resources import BoxSeen
from sweepstack.onbox.common.errors import TeardownRefused
from sweepstack.provider.resources.base import Decision, Gone
from tests.unit.provider.support import BOX, GATE, Sweep, action, approval_for, approved, expired


def test_a_gate_is_named_after_its_box_and_says_nothing_by_itself(sweep: Sweep) -> None:
    box = sweep.box()
    identifier, state = GATE.create(sweep.op("Gate"), sweep.gate_inputs(box))
    assert identifier == f"{box.native_id}/gate"
    assert state.clearance == "locked"


def test_check_says_locked_or_cleared_and_why(sweep: Sweep) -> None:
    box = sweep.trained()
    approval = approval_for(box, receipt=sweep.verified(box))

    def clearance(**changes: object) -> str:
        inputs = sweep.gate_inputs(box, **{"clearance": "cleared by the program", **changes})
        checked = GATE.check(sweep.op("Gate"), None, inputs)
        assert checked.failures == []
        return checked.inputs.clearance

    assert clearance() == "locked"
    assert clearance(approval=approval) == f"cleared by receipt {approval.receipt}, 2/2 verified"
    assert clearance(approval=expired(approval)).startswith("locked (the approval expired at")
    stale = approval.model_copy(update={"actions": (action(box, native_id="local-abcdefghij"),)})
    assert (
        clearance(approval=stale) == f"locked (the approval is for local-abcdefghij, and this box is {box.native_id})"
    )
    foreign = approval.model_copy(update={"actions": (action(box, box="box-7"),)})
    assert clearance(approval=foreign) == "locked"
    shutil.rmtree(sweep.store.cell_dir("a"))
    assert clearance(approval=approval).startswith("locked (a: its pulled copy")


def test_a_gate_follows_its_box(sweep: Sweep) -> None:
    box = sweep.box()
    changed = sweep.gate_inputs(box).model_copy(update={"box": "local-abcdefghij", "generation": 2})
    assert GATE.changes(sweep.gate_inputs(box), changed) == {"box": Decision.REPLACE, "generation": Decision.REPLACE}
    cleared = sweep.gate_inputs(box).model_copy(
        update={"clearance": "cleared by receipt x", "live": BoxSeen(state="cleared")}
    )
    assert GATE.changes(sweep.gate_inputs(box), cleared) == {"clearance": Decision.UPDATE}


def test_read_never_says_gone(sweep: Sweep) -> None:
    """A gate that reports itself gone would take the box along in the same destroy."""
    box = sweep.trained()
    gate, evidence, aside = sweep.gate(box), sweep.store.root, sweep.folder / "aside"

    def is_there() -> None:
        seen = GATE.read(sweep.op("Gate"), "g", gate)
        assert not isinstance(seen, Gone)
        assert (seen.state, seen.unhealthy) == (gate, ())
        assert seen.inputs.live is not None
        assert seen.inputs.live.seen

    (sweep.root(box) / "data" / "sweep" / "journal.jsonl").write_bytes(b"{}\n")
    is_there()
    for place in (evidence, sweep.platform_root):
        place.rename(aside)
        is_there()
        shutil.rmtree(place, ignore_errors=True)  # a look may make the folder anew
        aside.rename(place)
    sweep.vanish(box)
    is_there()


def test_delete_asks_the_same_check_and_begins_the_teardown(sweep: Sweep) -> None:
    box = sweep.trained()
    receipt = sweep.verified(box)
    with pytest.raises(TeardownRefused, match="not approved"):
        GATE.delete(sweep.op("Gate"), "g", sweep.gate(box))
    assert sweep.store.teardown() is None
    cleared = approved(box, approval_for(box, receipt=receipt))
    GATE.delete(sweep.op("Gate"), "g", sweep.gate(cleared))
    teardown = sweep.store.teardown()
    assert teardown is not None
    assert (teardown.receipt, teardown.native_ids) == (receipt, (box.native_id,))
    assert sweep.listed() == [box.native_id]


def test_delete_of_a_gate_whose_box_is_gone_writes_down_what_was_lost(sweep: Sweep) -> None:
    box = sweep.at_work()
    gate = sweep.gate(box)
    sweep.vanish(box)
    GATE.delete(sweep.op("Gate"), "g", gate)
    (loss,) = sweep.store.losses()
    assert loss.cells == ("a", "b")
    assert sweep.store.teardown() is None


def test_a_gate_with_the_name_of_another_box_opens_neither(sweep: Sweep) -> None:
    one, two = sweep.trained("box-0", "a"), sweep.at_work("b", name="box-1")
    approval = approval_for(one, receipt=sweep.verified(one))
    mixed = sweep.gate(approved(two, approval)).model_copy(update={"box_name": "box-0"})
    with pytest.raises(TeardownRefused, match=f"the approval is for {one.native_id}"):
        GATE.delete(sweep.op("Gate"), "g", mixed)
    assert sweep.workers(two)


def test_a_vanished_box_that_leaves_the_program_gives_its_cells_free(sweep: Sweep) -> None:
    """The refresh takes the box out of the state, so its own delete is never called: the gate's closes the record. A
    queue that takes the cells over does it, too, but where no other box has them the record would stay open."""
    one, two = sweep.trained("box-0", "a"), sweep.at_work("b", name="box-1")
    gate = sweep.gate(two)
    sweep.vanish(two)
    sweep.release()
    GATE.delete(sweep.op("Gate"), "g", gate)
    birth = sweep.store.birth("box-1", 1)
    assert birth is not None
    assert birth.ended_how == "gone"
    sweep.queue(one, "a", "b")
    sweep.drained(one)
    assert sweep.states(one) == {"a": "sealed", "b": "sealed"}


def test_a_box_that_vanishes_in_an_open_teardown_closes_it(sweep: Sweep) -> None:
    one, two = sweep.trained("box-0", "a"), sweep.trained("box-1", "b")
    approval = approval_for(one, two, receipt=sweep.verified(one, two))
    BOX.delete(sweep.op(), one.native_id, approved(one, approval))
    assert sweep.store.teardown() is not None
    sweep.vanish(two)
    GATE.delete(sweep.op("Gate"), "g", sweep.gate(approved(two, approval)))
    assert sweep.store.teardown() is None
