"""A box that the stack file does not name any more, and that is locked: nothing is rented beside it."""

from __future__ import annotations

from typing import Any

import pytest

from sweepstack.core.resources import BoxInputs, BoxState
from sweepstack.onbox.common.errors import PlatformError, SweepstackError
from tests.unit.provider.support import BOX, Sweep, abandonment, approval_for


def renamed(sweep: Sweep, *named: str, **changes: Any) -> BoxInputs:
    """box-1 is asked for, by a stack file that names it and `named`."""
    return sweep.box_inputs("box-1", named=sorted(["box-1", *named]), **changes)


def refused(sweep: Sweep, inputs: BoxInputs) -> str:
    """What a preview says, and `up` too, where nothing is rented by it."""
    before = sweep.listed()
    checked = BOX.check(sweep.op(name="box-1"), None, inputs)
    if not checked.failures:
        return ""
    (failure,) = checked.failures
    with pytest.raises(SweepstackError) as caught:
        BOX.create(sweep.op(name="box-1"), inputs)
    assert str(caught.value) == failure.reason
    assert sweep.listed() == before, "it was rented"
    assert [birth.box for birth in sweep.store.births()] == ["box-0"]
    return failure.reason


def rented(sweep: Sweep, inputs: BoxInputs) -> bool:
    """Whether neither a preview nor `up` minds."""
    if BOX.check(sweep.op(name="box-1"), None, inputs).failures:
        return False
    identifier, _ = BOX.create(sweep.op(name="box-1"), inputs)
    return identifier in sweep.listed()


def test_a_renamed_box_is_not_rented_while_the_old_one_is_locked(sweep: Sweep) -> None:
    box = sweep.at_work()
    said = refused(sweep, renamed(sweep))
    for words in (
        "box box-1 is not rented: the stack file does not name every box that is there and locked",
        f"box-0: {box.native_id}, locked (",
        "$0.50/h",
        "put boxes.box-0 back; box-1 may come beside it",
        "sweepctl finish --stack sweep-t --box box-0",
        "sweepctl give-up --stack sweep-t data/box-0",
        "next      sweepctl status --stack sweep-t",
    ):
        assert words in said, said


def test_a_box_is_rented_beside_those_that_the_file_names(sweep: Sweep) -> None:
    """Also beside one that is wanted gone and locked: that was asked for in so many words."""
    sweep.at_work()
    assert rented(sweep, renamed(sweep, "box-0"))


def test_a_program_that_names_no_boxes_is_not_judged(sweep: Sweep) -> None:
    sweep.at_work()
    assert rented(sweep, sweep.box_inputs("box-1"))


@pytest.mark.parametrize("how", ["cleared", "abandoned"])
def test_an_end_that_is_approved_in_the_same_change_is_in_nobody_s_way(sweep: Sweep, how: str) -> None:
    box = sweep.trained()
    if how == "cleared":
        word = approval_for(box, receipt=sweep.verified(box))
    else:
        word = approval_for(box, abandon=(abandonment(box),))
    assert "locked" in refused(sweep, renamed(sweep))
    assert rented(sweep, renamed(sweep, leaving=word))


def test_a_box_that_is_gone_or_has_ended_is_in_nobody_s_way(sweep: Sweep) -> None:
    box = sweep.at_work()
    sweep.vanish(box)
    assert rented(sweep, renamed(sweep))


def test_a_box_that_nobody_can_see_is_locked(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep.at_work()

    def silent(*_: Any) -> None:
        raise PlatformError("no answer")

    monkeypatch.setattr("sweepstack.onbox.host.folder_platform.LocalPlatform.get", silent)
    (failure,) = BOX.check(sweep.op(name="box-1"), None, renamed(sweep)).failures
    assert "no answer" in failure.reason


def without_id(sweep: Sweep) -> BoxState:
    """A box whose record names no id: that of a create that was asked for, and refused, or whose answer was lost."""
    box = sweep.box()
    birth = sweep.store.births()[0]
    (path,) = (sweep.store.root / "records" / "births").glob("*.json")
    lost = {"native_id": None, "created_at": None, "asked_at": birth.begun_at}
    path.write_text(birth.model_copy(update=lost).model_dump_json())
    assert sweep.store.births()[0].native_id is None
    return box


def test_a_create_that_was_refused_leaves_nothing_in_the_way(sweep: Sweep) -> None:
    sweep.vanish(without_id(sweep))
    assert rented(sweep, renamed(sweep))


def test_a_create_whose_answer_was_lost_is_in_the_way(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = without_id(sweep)
    assert f"box-0: {box.native_id} was rented, and its answer lost" in refused(sweep, renamed(sweep))

    def silent(*_: Any) -> None:
        raise PlatformError("no answer")

    monkeypatch.setattr("sweepstack.onbox.host.folder_platform.LocalPlatform.find_by_tag", silent)
    (failure,) = BOX.check(sweep.op(name="box-1"), None, renamed(sweep)).failures
    assert f"whether {box.tag} was rented on local can't be told: no answer" in failure.reason
