"""Renting: once and never twice, whatever is lost on the way; and in no state in which nothing may be rented."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.records import Lease, Receipt, ReceiptBox, Teardown
from sweepstack.core.resources import BoxState
from sweepstack.evidence.sweep_holder import Takeover, backend_name, take_over
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import canonical_json
from sweepstack.onbox.common.errors import (
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    SweepstackError,
    TeardownRefused,
    Unreachable,
    WrongAccount,
)
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRequest, Phase, Wait
from sweepstack.teardown.ownership import HELD, Owner, read_owner, sign, who
from tests.unit.provider.support import BOX, STACK, Sweep, approval_for, approved, still_creating
from tests.unit.provider.test_box_ledger import STOPPABLE

LOSE, FAIL, BOOT = "lose-answer", "fail-after-create", "SWEEPSTACK_DRILL_BOOT_SECONDS"
DRILL = "SWEEPSTACK_DRILL_CREATE"


def test_a_box_is_on_record_from_its_birth(sweep: Sweep) -> None:
    box = sweep.box()
    birth = sweep.born()
    assert (birth.native_id, birth.account, birth.tag) == (box.native_id, box.account, box.tag)
    assert (birth.price_per_hour, birth.mounts) == (0.5, {box_layout.DURABLE: sweep.volume.native_id})
    assert birth.created_at == box.created_at
    assert sweep.store.lease() is not None
    assert (box.generation, box.phase) == (1, "running")
    assert sweep.listed() == [box.native_id]


def test_a_box_says_whose_it_is_from_its_birth(sweep: Sweep) -> None:
    """For a colleague with the same account, and for a state that is lost."""
    box = sweep.box()
    owner = read_owner(sweep.platform.channel(box.native_id, box.account))
    assert owner is not None
    assert (owner.person, owner.native_id, owner.box, owner.generation) == (who(), box.native_id, "box-0", 1)
    assert (owner.identity, owner.evidence) == (box.identity, box.evidence)
    assert (owner.project, owner.stack) == (sweep.store.marker.project, sweep.store.marker.stack)
    assert owner.backend.endswith("/state")
    assert timedelta(hours=23) < owner.held_until - datetime.now(UTC) <= HELD


def test_the_birth_is_on_record_before_anything_is_asked_for(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(*_: Any, **__: Any) -> None:
        birth = sweep.born()
        assert birth.native_id is None
        assert birth.account == sweep.platform.account()
        raise PlatformError("out of stock")

    monkeypatch.setattr(LocalPlatform, "create", create)
    with pytest.raises(PlatformError, match="out of stock"):
        sweep.box()


# Answers that are lost


def test_a_lost_answer_is_found_by_its_tag(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DRILL, LOSE)
    box = sweep.box()
    assert sweep.listed() == [box.native_id]
    assert f"the answer was lost; found {box.native_id} by its tag" in sweep.said.text()
    assert [birth.native_id for birth in sweep.store.births()] == [box.native_id]


def test_a_lost_answer_and_then_an_outage(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known: an error. The record remembers, and the next create adopts instead of renting again."""
    honest = LocalPlatform.find_by_tag

    def find_by_tag(self: LocalPlatform, *arguments: Any) -> Any:
        if sweep.listed():
            raise Unreachable("no answer")
        return honest(self, *arguments)

    monkeypatch.setenv(DRILL, LOSE)
    with monkeypatch.context() as patch:
        patch.setattr(LocalPlatform, "find_by_tag", find_by_tag)
        with pytest.raises(SweepstackError) as lost:
            sweep.box()
    assert box_layout.box_tag(sweep.identity.identity, "box-0", 1) in str(lost.value)
    assert "may bill" in str(lost.value)
    (native_id,) = sweep.listed()
    assert sweep.born().native_id is None
    monkeypatch.delenv(DRILL)
    assert sweep.box().native_id == native_id
    assert sweep.listed() == [native_id]
    assert f"{native_id} carries this box's tag: adopted, nothing new is rented" in sweep.said.text()


def test_a_lost_answer_and_a_box_that_is_not_ready_leave_a_whole_state(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the engine keeps of a failed create is all that a later delete has: no field of a state may be missing."""
    monkeypatch.setenv(DRILL, LOSE)
    monkeypatch.setenv(BOOT, "60")
    late = still_creating(lambda: sweep.box(timeout=0.3))
    state = BoxState.model_validate(late.outputs)
    assert (state.native_id, state.generation, state.name) == (late.identifier, 1, "box-0")
    ends = f'to end it: sweepctl give-up --stack {STACK} data/box-0 --reason "…", then pulumi up and'
    assert ends in " ".join(late.reasons)  # it named only what adopts it
    assert [birth.native_id for birth in sweep.store.births()] == [late.identifier]


def test_a_stopped_box_that_is_adopted_and_does_not_come_up_leaves_a_whole_state(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = sweep.box(teardown=STOPPABLE)
    stopped = sweep.box_inputs(teardown=STOPPABLE).model_copy(update={"want": "stopped"})
    assert BOX.update(sweep.op(), box.native_id, box, stopped).phase == "stopped"
    monkeypatch.setenv(BOOT, "60")
    late = still_creating(lambda: sweep.box(teardown=STOPPABLE, timeout=0.3))  # its state is lost
    state = BoxState.model_validate(late.outputs)
    assert (state.native_id, state.generation, state.tag) == (box.native_id, 1, box.tag)


def test_a_box_of_which_nobody_knows_keeps_its_place_and_the_next_command_is_said(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = sweep.box()
    honest = LocalPlatform.get
    odd = {"phase": Phase.UNKNOWN, "note": "it says MIGRATING"}
    monkeypatch.setattr(LocalPlatform, "get", lambda *arguments: replace(honest(*arguments), **odd))
    with pytest.raises(SweepstackError, match=r"MIGRATING.*Next: pulumi up --stack sweep-t") as told:
        sweep.box()
    assert f"{box.native_id} may still run and bill; nothing new is rented" in str(told.value)
    assert sweep.listed() == [box.native_id]


def test_a_lost_answer_that_shows_nowhere_is_not_said_to_be_nothing(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One list proves nothing: it may be from before the request. The next create looks again."""

    def create(*_: Any, **__: Any) -> None:
        raise OutcomeUnknown("the connection was reset")

    with monkeypatch.context() as patch:
        patch.setattr(LocalPlatform, "create", create)
        with pytest.raises(OutcomeUnknown, match=r"lists nothing under .* so far: .* bills\. Next: pulumi up") as told:
            sweep.box()
    assert "nothing bills" not in str(told.value)
    assert sweep.listed() == []
    assert sweep.box().generation == 1
    assert len(sweep.listed()) == 1


def test_a_list_from_before_a_killed_create_rents_nothing_twice(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """The platform's list lags behind: twice it shows nothing of what the killed create has rented."""
    honest, listed, looks = LocalPlatform.create, LocalPlatform.find_by_tag, []

    def killed(self: LocalPlatform, *arguments: Any, **options: Any) -> None:
        honest(self, *arguments, **options)
        raise KeyboardInterrupt

    def lagging(self: LocalPlatform, *arguments: Any) -> Any:
        looks.append(arguments)
        return None if len(looks) < 3 else listed(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(LocalPlatform, "create", killed)
        with pytest.raises(KeyboardInterrupt):
            sweep.box()
    monkeypatch.setenv("SWEEPSTACK_API_PACE", "0.05")
    monkeypatch.setattr("sweepstack.provider.resources.create.LAG_SECONDS", 3600.0)
    monkeypatch.setattr(LocalPlatform, "find_by_tag", lagging)
    monkeypatch.setattr(LocalPlatform, "sees_all", False)
    sweep.box()
    assert len(looks) > 2
    assert "adopted, nothing new is rented" in sweep.said.text()
    assert len(sweep.listed()) == 1


@pytest.mark.parametrize("killed", [KeyboardInterrupt, SystemExit])
def test_a_create_that_was_killed_is_adopted(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, killed: type[BaseException]
) -> None:
    """As kill -9 between the rental and its answer: the engine remembers nothing at all."""
    honest = LocalPlatform.create

    def create(self: LocalPlatform, *arguments: Any, **options: Any) -> None:
        honest(self, *arguments, **options)
        raise killed

    with monkeypatch.context() as patch:
        patch.setattr(LocalPlatform, "create", create)
        with pytest.raises(killed):
            sweep.box()
    (native_id,) = sweep.listed()
    assert sweep.box().native_id == native_id
    assert sweep.listed() == [native_id]


def test_a_box_that_the_state_forgot_is_adopted_with_what_it_runs(sweep: Sweep) -> None:
    box = sweep.at_work()
    pids = sweep.workers(box)
    again = sweep.box()
    assert again == box
    assert sweep.workers(box) == pids
    assert sweep.listed() == [box.native_id]


def test_an_adopted_box_keeps_no_clearance_of_the_state_that_lost_it(sweep: Sweep) -> None:
    """Else a box that nothing approves any more could end by a record of before."""
    box = sweep.cleared()
    sweep.store.write_clearance(box.native_id, box.approval)
    again = sweep.box()
    assert again.native_id == box.native_id
    assert sweep.store.clearance(box.native_id) is None
    with pytest.raises(TeardownRefused):
        BOX.delete(sweep.op(), again.native_id, approved(again, None))
    assert sweep.listed() == [box.native_id]


def test_a_lost_answer_in_another_account_is_not_looked_for_in_this_one(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The account at hand lists nothing under the tag, and that proves nothing about the account that was asked."""
    birth = sweep.box()
    lost = {"native_id": None, "created_at": None, "asked_at": datetime.now(UTC)}
    sweep.store.write_birth(sweep.store.births()[0].model_copy(update=lost))
    first = sweep.listed()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    volume = sweep.made_volume()
    with pytest.raises(WrongAccount, match=birth.account):
        sweep.box(mounts={box_layout.DURABLE: volume.native_id})
    assert sweep.listed() == []
    monkeypatch.setenv("XDG_DATA_HOME", str(sweep.folder / "data"))
    assert [sweep.box().native_id] == first


def test_of_many_creates_at_once_one_rents(sweep: Sweep) -> None:
    """Two `up`s, from two clones of one backend: one of them adopts."""
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(sweep.box) for _ in range(4)]
        assert len({box.result().native_id for box in made}) == 1
    assert len(sweep.listed()) == 1
    assert len(sweep.store.births()) == 1


# Made, and not ready


def complete(outputs: dict[str, Any], sweep: Sweep) -> BoxState:
    """The outputs as the engine keeps them: plain JSON, and enough to end the box weeks later."""
    canonical_json(outputs)
    state = BoxState.model_validate(outputs)
    assert [state.native_id] == sweep.listed()
    assert (state.generation, state.price_per_hour, state.evidence) == (1, 0.5, sweep.identity.evidence)
    assert state.account == sweep.platform.account()
    assert state.tag == box_layout.box_tag(sweep.identity.identity, "box-0", 1)
    assert state.mounts == {box_layout.DURABLE: sweep.volume.native_id}
    assert state.created_at is not None
    return state


def test_made_and_then_failed_hands_over_all_that_is_known(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DRILL, FAIL)
    error = still_creating(sweep.box)
    state = complete(error.outputs, sweep)
    assert error.identifier == state.native_id
    assert "It bills $0.50/h" in str(error)
    assert "Next: pulumi up --stack sweep-t (adopts it)" in str(error)
    born = sweep.born()
    assert (born.native_id, born.created_at) == (state.native_id, state.created_at), "the bill counts from then on"
    assert state.created_at is not None
    monkeypatch.delenv(DRILL)
    ready = BOX.update(sweep.op(), state.native_id, state, sweep.box_inputs())
    assert ready.phase == "running"
    assert sweep.box().native_id == state.native_id
    assert len(sweep.store.births()) == 1


def test_not_ready_in_time(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOOT, "600")
    error = still_creating(lambda: sweep.box(timeout=0.1))
    state = complete(error.outputs, sweep)
    assert state.phase == "creating"
    again = still_creating(lambda: BOX.update(sweep.op(timeout=0.1), state.native_id, state, sweep.box_inputs()))
    assert (again.identifier, "not ready yet" in str(again)) == (state.native_id, True)
    BoxState.model_validate(again.outputs)
    seen = BOX.read(sweep.op(), state.native_id, state)
    assert "is creating, not ready" in seen.unhealthy[0]  # type: ignore[union-attr]
    assert still_creating(lambda: sweep.box(timeout=0.1)).identifier == state.native_id
    assert sweep.listed() == [state.native_id]


def test_an_interrupt_while_it_gets_ready_hands_over_too(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOOT, "600")
    made = LocalPlatform._build

    def build(self: LocalPlatform, *arguments: Any) -> Any:
        record = made(self, *arguments)
        sweep.cancelled.set()
        return record

    monkeypatch.setattr(LocalPlatform, "_build", build)
    complete(still_creating(sweep.box).outputs, sweep)


def test_an_interrupt_before_it_is_made_rents_nothing(sweep: Sweep) -> None:
    sweep.cancelled.set()
    with pytest.raises(PlatformError, match="nothing bills"):
        sweep.box()
    assert sweep.listed() == []


# Generations


def test_a_box_that_vanished_is_followed_by_the_next_generation(sweep: Sweep) -> None:
    first = sweep.trained()
    sweep.vanish(first)
    second = sweep.box()
    assert (second.generation, second.native_id != first.native_id) == (2, True)
    assert second.tag == box_layout.box_tag(sweep.identity.identity, "box-0", 2)
    closed = sweep.born()
    assert closed.ended_at is not None
    assert closed.ended_how == "vanished"
    assert f"{first.native_id} is gone from local; generation 2 takes over" in sweep.said.warnings
    assert sweep.box() == second
    sweep.queue(second)
    sweep.drained(second)
    assert sweep.states(second) == {"a": "sealed", "b": "sealed"}
    assert len((sweep.control / "started").read_text().splitlines()) == 2


def test_a_box_that_ended_is_followed_by_the_next_generation(sweep: Sweep) -> None:
    box = sweep.cleared()
    BOX.delete(sweep.op(), box.native_id, box)
    assert sweep.box().generation == 2


def test_a_box_that_may_still_run_has_no_successor(sweep: Sweep) -> None:
    box = sweep.box()
    (sweep.root(box) / "box.json").write_text("{}")
    with pytest.raises(SweepstackError, match=f"{box.native_id} may still run and bill; nothing new is rented"):
        sweep.box()
    assert sweep.listed() == [box.native_id]


def test_a_box_of_another_account_has_no_successor_here(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    box = sweep.box()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    sweep.platform.account()
    with pytest.raises(WrongAccount, match=box.account):
        sweep.box()
    assert sweep.listed() == []


def test_a_box_that_can_t_be_asked_after_has_no_successor(sweep: Sweep) -> None:
    sweep.box()
    shutil.move(sweep.platform_root / "boxes", sweep.folder / "aside")
    with pytest.raises(Unreachable):
        sweep.box()
    assert len(sweep.store.births()) == 1


def test_a_box_that_is_being_destroyed_is_not_adopted(sweep: Sweep) -> None:
    box = sweep.box()
    (sweep.root(box) / "box.json").rename(sweep.root(box) / "ending.json")
    with pytest.raises(NotYetGone):
        sweep.box()
    assert sweep.listed() == [box.native_id]


def test_a_box_that_lives_on_another_platform_is_not_rented_here(sweep: Sweep) -> None:
    box = sweep.box()
    sweep.store.write_birth(sweep.store.births()[0].model_copy(update={"platform": "elsewhere"}))
    with pytest.raises(SweepstackError, match=f"was rented on elsewhere .{box.native_id}.*end it there"):
        sweep.box()


# When nothing may be rented


def _without_records(sweep: Sweep) -> BoxState:
    """A box that has ended, and of which a receipt alone still tells."""
    box = sweep.box()
    ran = ReceiptBox(box="box-0", native_id=box.native_id, generation=1, journal_head="0" * 64, cells=())
    sweep.store.write_receipt(
        Receipt(
            identity=box.identity,
            stack=STACK,
            roster_digest=sweep.roster_digest,
            artifacts_digest=sweep.roster_digest,
            boxes=(ran,),
            cells=(),
            verified=0,
            total=0,
        )
    )
    shutil.rmtree(sweep.store.root / "records")
    return box


def test_nothing_is_rented_for_a_finished_sweep_whose_records_are_lost(sweep: Sweep) -> None:
    box = _without_records(sweep)
    assert sweep.box().native_id == box.native_id  # it is there: found by its tag
    shutil.rmtree(sweep.root(box))
    shutil.rmtree(sweep.store.root / "records")
    with pytest.raises(SweepstackError, match=r"its records are lost from .*every cell is verified by the receipt"):
        sweep.box()
    assert sweep.listed() == []
    assert sweep.store.births() == []
    sweep.roster = ("a", "b", "c")
    assert sweep.box().generation == 2  # a cell came since


def test_nothing_is_rented_that_an_approval_was_to_end_and_whose_records_are_lost(sweep: Sweep) -> None:
    box = _without_records(sweep)
    shutil.rmtree(sweep.root(box))
    sweep.roster = ("a", "b", "c")
    with pytest.raises(SweepstackError, match=r"an approval in the stack file is to end it.*sweepctl revoke "):
        sweep.box(approval=approval_for(box))
    assert sweep.listed() == []


def test_nothing_is_rented_while_a_teardown_is_open(sweep: Sweep) -> None:
    first = sweep.box()
    birth = sweep.store.births()[0]
    sweep.store.write_teardown(
        Teardown(native_ids=(first.native_id, "local-gone"), ended=("local-gone",), begun_at=birth.begun_at)
    )
    with pytest.raises(SweepstackError) as refused:
        sweep.box("box-1")
    words = str(refused.value)
    assert "a teardown has begun (1 of 2 boxes ended" in words
    assert f"still there: {first.native_id}" in words
    assert "pulumi destroy --stack sweep-t" in words
    assert "sweepctl revoke --stack sweep-t" in words
    assert sweep.listed() == [first.native_id]
    assert len(sweep.store.births()) == 1
    sweep.store.write_teardown(None)
    assert sweep.box("box-1").generation == 1


def test_a_box_that_the_state_has_lost_comes_back_to_be_ended_while_a_teardown_is_open(sweep: Sweep) -> None:
    """Else `destroy` asks for an `up` that adopts it, and `up` refuses it for the teardown: it would bill for ever."""
    lost = sweep.box()
    begun_at = sweep.store.births()[0].begun_at
    sweep.store.write_teardown(Teardown(native_ids=(lost.native_id, "local-gone"), ended=(), begun_at=begun_at))
    assert sweep.box().native_id == lost.native_id
    assert sweep.listed() == [lost.native_id]
    shutil.rmtree(sweep.root(lost))
    with pytest.raises(SweepstackError, match="a teardown has begun"):
        sweep.box()  # and what is gone has no successor meanwhile
    assert sweep.listed() == []


@pytest.mark.parametrize("known", ["not on record", "on record"])
def test_a_box_that_another_backend_holds_is_not_adopted(sweep: Sweep, known: str) -> None:
    """Evidence of a finished sweep was copied, and the colleague's box carries the next tag."""
    first = sweep.box()
    birth = sweep.born()
    if known == "not on record":
        ended = {"ended_at": datetime.now(UTC), "ended_how": "cleared"}
        sweep.platform.destroy(first.native_id, first.account)
        sweep.store.write_birth(birth.model_copy(update=ended))
        request = BoxRequest(tag=box_layout.box_tag(first.identity, "box-0", 2), name="box-0", mounts=first.mounts)
        made = sweep.platform.create(request, wait=Wait(10))
        channel = sweep.platform.channel(made.native_id, made.account)
    else:
        made = sweep.platform.find_by_tag(first.tag)
        channel = sweep.platform.channel(first.native_id, first.account)
    assert made is not None
    until = datetime.now(UTC) + HELD
    owner = Owner(
        person="ann@lab",
        identity=first.identity,
        native_id=made.native_id,
        box="box-0",
        project="sweepstack",
        stack="t",
        backend="s3://team-state",
        held_until=until,
    )
    sign(channel, owner)
    with pytest.raises(SweepstackError) as refused:
        sweep.box()
    words = str(refused.value)
    assert (
        f"ann@lab holds it for sweepstack/t until {until:%Y-%m-%d %H:%M} UTC, by the state in s3://team-state" in words
    )
    assert "PULUMI_BACKEND_URL=s3://team-state sweepctl status --stack t" in words
    assert f'sweepctl adopt --stack {STACK} --from s3://team-state --reason "…" && pulumi up --stack {STACK}' in words
    assert sweep.listed() == [made.native_id]
    assert read_owner(channel) == owner
    if known == "not on record":
        assert [one.native_id for one in sweep.store.births()] == [first.native_id], "nothing of it is on record"
    # A person takes over by name what that backend held.
    taken = Takeover(
        held_by="s3://team-state", taken_to=backend_name(), by="me", at=datetime.now(UTC), reason="it is lost"
    )
    take_over(sweep.store, taken)
    assert sweep.box().native_id == made.native_id
    after = read_owner(channel)
    assert after is not None
    assert after.person == who()


def test_a_box_that_another_backend_holds_no_more_is_adopted(sweep: Sweep) -> None:
    box = sweep.box()
    channel = sweep.platform.channel(box.native_id, box.account)
    owner = read_owner(channel)
    assert owner is not None
    over = {"backend": "s3://team-state", "held_until": datetime.now(UTC) - timedelta(minutes=1)}
    sign(channel, owner.model_copy(update=over))
    assert sweep.box().native_id == box.native_id


SAYS_NOTHING = r"it does not say whose it is\. Nothing was adopted .* sweepctl audit"
NO_ANSWER = r"whose it is can't be read .* sweepctl audit names what ends it"


@pytest.mark.parametrize(
    ("box", "generation", "why"),
    [("box-0", 2, SAYS_NOTHING), ("box-1", 1, SAYS_NOTHING), ("box-0", 2, NO_ANSWER)],
    ids=["the next of a box", "the first of a box", "it can't be asked"],
)
def test_a_box_that_no_record_knows_and_that_does_not_say_whose_it_is_is_not_adopted(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, box: str, generation: int, why: str
) -> None:
    """Of a rental platform it says so from its first cells on. Until then one that a colleague's `up` has made, with a
    copy of this evidence, was adopted, and could be ended: nothing was launched on it."""
    first = sweep.box()
    birth = sweep.born()
    sweep.platform.destroy(first.native_id, first.account)
    sweep.store.write_birth(birth.model_copy(update={"ended_at": datetime.now(UTC), "ended_how": "cleared"}))
    tag = box_layout.box_tag(first.identity, box, generation)
    made = sweep.platform.create(BoxRequest(tag=tag, name=box, mounts=first.mounts), wait=Wait(10))

    def silent(*_: Any) -> None:
        raise Unreachable("no answer")

    with monkeypatch.context() as patch:
        if why == NO_ANSWER:
            patch.setattr("sweepstack.provider.resources.held_by_another.read_owner", silent)
        with pytest.raises(SweepstackError, match=why):
            sweep.box(box)
    assert [one.native_id for one in sweep.store.births()] == [first.native_id]
    assert sweep.listed() == [made.native_id]
    sweep.platform.destroy(made.native_id, made.account)
    assert sweep.box(box).native_id != made.native_id


def test_the_first_boxes_of_a_sweep_cost_no_look_more(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name was drawn by this very command: nobody has a copy."""
    looks = []
    monkeypatch.setattr(LocalPlatform, "find_by_tag", lambda *_: looks.append("") or None)
    inputs, op = sweep.box_inputs(), sweep.op()
    began = sweep.store.marker.created_at.timestamp()
    for before, expected in ((1.0, 1), (-1.0, 2)):
        looks.clear()
        command = replace(op, session=replace(op.session, began=began - before))
        _, state = BOX.create(command, inputs)
        assert len(looks) == expected, "the platform's own look before it makes one, and ours"
        sweep.platform.destroy(state.native_id, state.account)
        record = sweep.store.birth("box-0", state.generation)
        assert record is not None
        sweep.store.write_birth(record.model_copy(update={"ended_at": datetime.now(UTC), "ended_how": "cleared"}))


def test_nothing_is_rented_for_a_sweep_that_another_backend_holds(sweep: Sweep) -> None:
    lease = sweep.store.lease()
    assert lease is not None
    sweep.store.write_lease(Lease(backend="s3://team-state", host="there", taken_at=lease.taken_at))
    with pytest.raises(SweepstackError, match=r"held by the state in s3://team-state .*PULUMI_BACKEND_URL"):
        sweep.box()
    assert sweep.listed() == []
    assert sweep.store.births() == []


@pytest.mark.parametrize("hurt", ["marker", "births", "lease"])
def test_nothing_is_rented_without_records(sweep: Sweep, hurt: str) -> None:
    """A rental that nothing remembers is what bills for days."""
    sweep.box()
    root = sweep.store.root
    path = {"marker": root / "sweep.json", "lease": root / "records" / "lease.json"}.get(
        hurt, root / "records" / "births" / "box-0-g1.json"
    )
    path.write_bytes(b"{")
    before = sweep.listed()
    with pytest.raises(SweepstackError, match="is damaged"):
        sweep.box("box-1")
    assert sweep.listed() == before


def test_an_approved_box_is_not_rented_again_by_its_approval(sweep: Sweep) -> None:
    """An approval names a native id; the next generation has another."""
    box = sweep.box()
    approval = approval_for(box, abandon=())
    sweep.vanish(box)
    second = approved(sweep.box(), approval)
    with pytest.raises(SweepstackError, match=f"the approval is for {box.native_id}"):
        BOX.delete(sweep.op(), second.native_id, second)
