"""Ending a box: what its delete refuses, does and writes down; and what the diff shows before."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweepstack.billing.ledger import spent
from sweepstack.core.box_end import TeardownFacts
from sweepstack.core.local_decisions import ENDED, decisions
from sweepstack.core.records import Approval, Waiver
from sweepstack.core.resources import BoxState
from sweepstack.core.verify_rules import artifacts_digest
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import NotYetGone, PlatformError, SweepstackError, TeardownRefused, Unreachable
from sweepstack.onbox.host import box_folders
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.provider.resources import teardown as ending
from sweepstack.provider.resources.base import Gone
from sweepstack.provider.session import Severity
from sweepstack.teardown import unclaimed
from sweepstack.teardown.revocation import write_revocation
from tests.unit.provider.support import (
    ARTIFACT,
    BOX,
    FACTS,
    GATE,
    IDENTITY,
    QUEUE,
    Sweep,
    abandonment,
    action,
    approval_for,
    approved,
    expired,
    picture,
)


def delete(sweep: Sweep, box: BoxState, *, timeout: float = 0) -> None:
    BOX.delete(sweep.op(name=box.name, timeout=timeout), box.native_id, box)


# Refused


def test_a_box_at_work_is_refused_and_nothing_of_it_is_touched(sweep: Sweep) -> None:
    box = sweep.at_work()
    before = picture(sweep.platform_root), sweep.workers(box)
    with pytest.raises(TeardownRefused) as refused:
        delete(sweep, box)
    assert (picture(sweep.platform_root), sweep.workers(box)) == before
    assert before[1]
    words = str(refused.value)
    assert words.startswith("REFUSED.\nNothing was deleted. Box box-0: 0 of 2 cells verified.")
    for part in ("not approved", "a  running", "b  running", box.native_id, "scratch, data", "$0.50/h, $12.00/day"):
        assert part in words, words
    assert "sweepctl wait --stack sweep-t done && sweepctl finish --stack sweep-t" in words
    assert sweep.store.teardown() is None
    assert sweep.born().ended_at is None


def edited(box: BoxState, approval: Approval, sweep: Sweep) -> dict[str, BoxState]:
    """States that look cleared."""
    now = datetime.now(UTC)
    return {
        "clearance edited in the state": box.model_copy(update={"clearance": f"cleared by receipt {approval.receipt}"}),
        "approval of another box": approved(box, approval.model_copy(update={"actions": (action(box, box="box-9"),)})),
        "approval of another id": approved(
            box, approval.model_copy(update={"actions": (action(box, native_id="local-abcdefghij"),)})
        ),
        "approval of another verb": approved(box, approval.model_copy(update={"actions": (action(box, verb="stop"),)})),
        "approval expired": approved(box, approval.model_copy(update={"expires": now})),
        "no receipt": approved(box, approval.model_copy(update={"receipt": None})),
        "abandonment written in": approved(box, approval.model_copy(update={"abandon": (abandonment(box),)})),
        "another roster": approved(box, approval).model_copy(update={"roster_digest": "sha256:" + "1" * 64}),
        "another generation": approved(box, approval).model_copy(update={"generation": 2}),
        "another evidence": approved(box, approval).model_copy(update={"evidence": box.evidence + "-old"}),
        "another account": approved(box, approval).model_copy(update={"account": "there/abcdefghij"}),
    }


def test_a_state_that_only_looks_cleared_is_refused(sweep: Sweep) -> None:
    box = sweep.cleared()
    assert box.approval is not None
    before = picture(sweep.platform_root)
    for name, state in edited(approved(box, None), box.approval, sweep).items():
        for look in (
            lambda state=state: delete(sweep, state),
            lambda state=state: GATE.delete(sweep.op("Gate"), "g", sweep.gate(state)),
        ):
            with pytest.raises(TeardownRefused, match="Nothing was deleted"):
                look()
            assert picture(sweep.platform_root) == before, name
    assert sweep.store.teardown() is None
    delete(sweep, box)


def test_what_is_hurt_after_the_clearance_is_refused(sweep: Sweep) -> None:
    """Same size, same time: Delete reads every file again."""
    box = sweep.cleared()
    copy = sweep.store.cell_dir("a") / "result.json"
    status = copy.stat()
    copy.write_bytes(copy.read_bytes().replace(b"a", b"e"))
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(TeardownRefused, match=r"a: result\.json changed after the receipt"):
        delete(sweep, box)
    assert sweep.listed() == [box.native_id]


def test_a_cell_that_joined_after_the_approval_is_refused(sweep: Sweep) -> None:
    """The queue took it, so it is on the launch record; the engine's state may know nothing of it yet."""
    box = sweep.cleared()
    state = approved(box, None)
    sweep.roster = ("a", "b", "c")
    sweep.hold("c")
    QUEUE.update(sweep.op("Queue"), "q", sweep.queue(state), sweep.queue_inputs(state))
    with pytest.raises(TeardownRefused):
        delete(sweep, box)
    assert sweep.alive(box)


# Done


def test_a_cleared_box_ends_and_what_survives_is_named(sweep: Sweep) -> None:
    box = sweep.anew().cleared()
    durable = picture(sweep.volume_root)
    counted = ending.judge_end(ending.context_of(box), box, box.approval, full=False).verdict.unclaimed
    assert (counted.files, counted.problem) == (0, ""), f"what a real runner leaves is known by name: {counted.words}"
    live = sweep.seen(box).inputs.live
    assert live is not None
    assert (live.state, live.verified) == ("cleared", "2 of 2 cells")
    assert "box box-0 CLEARED" in sweep.said.infos
    delete(sweep, box)
    assert sweep.listed() == []
    assert picture(sweep.volume_root) == durable
    assert any(path.endswith("a/result.json") for path in durable)
    birth = sweep.born()
    assert (birth.ended_how, birth.ended_at is not None) == ("cleared", True)
    assert sweep.store.teardown() is None
    assert sweep.store.losses() == []
    said = sweep.said.text(Severity.INFO)
    assert f"box box-0 is gone (cleared); $0.00 so far; survives: durable, evidence at {box.evidence}" in said
    delete(sweep, box)
    assert sweep.store.losses() == []


def test_the_order_of_a_destroy_gate_queue_box(sweep: Sweep) -> None:
    box = sweep.cleared()
    gate, queue = sweep.gate(box), sweep.queue(box)
    GATE.delete(sweep.op("Gate"), "g", gate)
    teardown = sweep.store.teardown()
    assert teardown is not None
    assert (teardown.native_ids, teardown.ended) == ((box.native_id,), ())
    QUEUE.delete(sweep.op("Queue"), "q", queue)
    delete(sweep, box)
    assert (sweep.listed(), sweep.store.teardown()) == ([], None)


def test_a_teardown_of_two_boxes_is_closed_by_the_second(sweep: Sweep) -> None:
    one, two = sweep.trained("box-0", "a"), sweep.trained("box-1", "b")
    approval = approval_for(one, two, receipt=sweep.verified(one, two))
    one, two = approved(one, approval), approved(two, approval)
    delete(sweep, one)
    teardown = sweep.store.teardown()
    assert teardown is not None
    assert teardown.native_ids == tuple(sorted([one.native_id, two.native_id]))
    assert teardown.ended == (one.native_id,)
    two = approved(two, expired(approval, at=teardown.begun_at))
    delete(sweep, two)
    assert (sweep.listed(), sweep.store.teardown()) == ([], None)


def test_two_boxes_that_end_at_once_close_their_teardown(sweep: Sweep) -> None:
    """The engine deletes in parallel."""
    boxes = [sweep.box(f"box-{number}") for number in range(4)]
    approval = approval_for(*boxes)
    with ThreadPoolExecutor(4) as pool:
        for ended in [pool.submit(delete, sweep, approved(box, approval)) for box in boxes]:
            ended.result()
    assert (sweep.listed(), sweep.store.teardown()) == ([], None)
    assert all(birth.ended_how == "nothing-launched" for birth in sweep.store.births())


@pytest.mark.parametrize("how", ["cleared", "nothing-launched"])
def test_a_destroy_that_was_killed_half_way_may_finish(sweep: Sweep, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """As kill -9 when most of the box is gone already: what is left must still show what the check asks for."""

    def destroy(self: LocalPlatform, native_id: str, account: str) -> None:
        root = sweep.platform_root / "boxes" / native_id
        box_folders.mark_ending(root, facts="box.json", ending="ending.json")
        box_folders.empty(root, keep=("box.json", "ending.json", "tag", box_layout.JOURNAL))
        raise KeyboardInterrupt

    box = sweep.cleared() if how == "cleared" else sweep.box()
    box = approved(box, box.approval or approval_for(box))
    with monkeypatch.context() as patch:
        patch.setattr(LocalPlatform, "destroy", destroy)
        with pytest.raises(KeyboardInterrupt):
            delete(sweep, box)
    assert sweep.listed() == [box.native_id]
    with pytest.raises(NotYetGone):
        sweep.box()
    teardown = sweep.store.teardown()
    assert teardown is not None
    delete(sweep, approved(box, expired(box.approval, at=teardown.begun_at)))
    assert sweep.born().ended_how == how
    assert (sweep.listed(), sweep.store.teardown()) == ([], None)


def test_an_expired_approval_finishes_nothing_that_it_did_not_begin(sweep: Sweep) -> None:
    one, two = sweep.trained("box-0", "a"), sweep.trained("box-1", "b")
    receipt = sweep.verified(one, two)
    one = approved(one, approval_for(one, receipt=receipt))
    delete(sweep, one)
    with pytest.raises(TeardownRefused, match="expired"):
        delete(sweep, approved(two, expired(approval_for(two, receipt=receipt))))
    assert sweep.listed() == [two.native_id]


def test_an_empty_box_ends_by_an_approval_without_a_receipt(sweep: Sweep) -> None:
    box = sweep.box()
    with pytest.raises(TeardownRefused, match="sweepctl approve --stack sweep-t --box box-0"):
        delete(sweep, box)
    delete(sweep, approved(box, approval_for(box)))
    assert sweep.listed() == []


def test_an_abandoned_box_ends_in_the_middle_of_its_work(sweep: Sweep) -> None:
    sweep.hold("a", "b")
    box = sweep.box()
    queue = sweep.queue(box)
    sweep.until_state(box, "running", "a", "b")
    approval = approval_for(box, abandon=(abandonment(box),))
    QUEUE.delete(sweep.op("Queue"), "q", queue.model_copy(update={"approval": approval}))
    delete(sweep, approved(box, approval))
    assert (sweep.listed(), sweep.alive(box)) == ([], set())
    (loss,) = sweep.store.losses()
    assert (loss.cells, loss.why) == (("a", "b"), "abandoned by a person")
    assert "2 cells LOST, abandoned by a person: a, b" in sweep.said.warnings


def test_a_waived_cell_needs_no_copy(sweep: Sweep) -> None:
    sweep.control.joinpath("fail-b").touch()
    sweep.hold("b")
    box = sweep.box()
    sweep.queue(box)
    sweep.release()
    sweep.drained(box)
    receipt = sweep.verified(box)
    with pytest.raises(TeardownRefused, match="b is failed in the receipt"):
        delete(sweep, approved(box, approval_for(box, receipt=receipt)))
    waive = (Waiver(cell="b", reason="it diverges"),)
    delete(sweep, approved(box, approval_for(box, receipt=receipt, waive=waive)))
    assert sweep.listed() == []


def test_a_clearance_on_record_serves_a_state_that_lost_its_approval(sweep: Sweep) -> None:
    """A box that left the program has no inputs any more; what `up` cleared it with is with the evidence."""
    box = sweep.cleared()
    bare = approved(box, None)
    with pytest.raises(TeardownRefused):
        delete(sweep, bare)
    sweep.store.write_clearance(box.native_id, expired(box.approval))
    with pytest.raises(TeardownRefused):
        delete(sweep, bare)
    sweep.store.write_clearance(box.native_id, approval_for(box, receipt="sha256:" + "3" * 64))
    with pytest.raises(TeardownRefused):
        delete(sweep, bare)
    with pytest.raises(TeardownRefused, match="the approval expired at"):  # what the state has is named, if none counts
        delete(sweep, approved(box, expired(box.approval)))
    sweep.store.write_clearance(box.native_id, box.approval)
    copy = sweep.store.cell_dir("b") / "result.json"
    status, data = copy.stat(), copy.read_bytes()
    copy.write_bytes(data.replace(b"b", b"e"))
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(TeardownRefused, match=r"b: result\.json changed after the receipt"):
        delete(sweep, bare)  # a look at size and time would let it go
    copy.write_bytes(data)
    delete(sweep, bare)
    assert sweep.listed() == []


# Gone already


def test_a_box_that_is_gone_needs_no_approval_and_its_losses_are_written_down(sweep: Sweep) -> None:
    sweep.hold("b")
    box = sweep.box()
    sweep.queue(box)
    sweep.until_state(box, "sealed", "a")
    sweep.vanish(box)
    assert isinstance(BOX.read(sweep.op(), box.native_id, box), Gone)
    assert "is gone from local; cells without a copy, which run again: b" in str(sweep.said.warnings)
    assert sweep.store.losses() == [], "a preview writes nothing"
    delete(sweep, box)
    (loss,) = sweep.store.losses()
    assert (loss.box, loss.native_id, loss.cells) == ("box-0", box.native_id, ("b",))
    assert "1 cells LOST, its box is gone from the platform: b" in sweep.said.warnings
    assert sweep.born().ended_how == "gone"


def test_a_provider_that_was_killed_before_its_record_leaves_no_bill(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The box had ended, its queue and gate had left the state, and its record stayed open: the bill went on for
    ever."""
    box = sweep.cleared()

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(ending, "record_end", killed)
        with pytest.raises(KeyboardInterrupt):
            delete(sweep, box)
    assert sweep.born().ended_at is None
    assert isinstance(BOX.read(sweep.op(), box.native_id, box), Gone)
    assert sweep.born().ended_how == "gone"
    assert spent(sweep.store, datetime.now(UTC)).bills[0].per_hour == 0.0
    assert (sweep.store.losses(), sweep.store.teardown()) == ([], None)


def test_a_state_with_another_id_closes_no_records(sweep: Sweep) -> None:
    """What the state names never was. The box of the records runs, and whoever ends the sweep is told so."""
    box = sweep.at_work()
    forged = box.model_copy(update={"native_id": "local-aaaaaaaaaa"})
    GATE.delete(sweep.op("Gate"), "g", sweep.gate(forged))
    delete(sweep, forged)
    assert f"by the records box box-0 is {box.native_id}" in sweep.said.warnings
    assert sweep.born().ended_at is None
    assert sweep.store.losses() == []
    with pytest.raises(TeardownRefused, match=box.native_id):
        IDENTITY.delete(sweep.op("Identity", "identity"), sweep.identity.identity, sweep.identity)
    assert sweep.workers(box)


def test_what_is_sealed_on_the_volume_is_not_lost(sweep: Sweep) -> None:
    box = sweep.trained()
    sweep.vanish(box)
    GATE.delete(sweep.op("Gate"), "g", sweep.gate(box))
    delete(sweep, box)
    assert sweep.store.losses() == []
    assert "LOST" not in sweep.said.warnings


def test_what_is_verified_is_not_lost_with_its_volume(sweep: Sweep) -> None:
    box = sweep.trained()
    sweep.verified(box)
    sweep.vanish(box)
    for cell in ("a", "b"):
        (sweep.volume_root / box_layout.sealed_dir(sweep.identity.identity, cell) / "manifest.json").unlink()
    delete(sweep, box)
    assert sweep.store.losses() == []


def test_a_volume_that_can_t_be_asked_makes_no_losses(sweep: Sweep) -> None:
    """Unknown is not lost, and not safe either: it is said."""
    box = sweep.trained()
    sweep.vanish(box)
    (sweep.platform_root / "volumes").rename(sweep.folder / "aside")
    delete(sweep, box)
    assert sweep.store.losses() == []
    assert "whether its volume holds sealed copies of 2 cells is not known" in sweep.said.warnings


def test_a_box_that_is_gone_leaves_the_state_even_without_evidence(sweep: Sweep) -> None:
    box = sweep.box()
    sweep.vanish(box)
    (sweep.store.root / "sweep.json").unlink()
    delete(sweep, box)
    assert "its record could not be closed" in sweep.said.warnings
    (noted,) = decisions(box.native_id)
    assert noted.what == ENDED


# Not proved


def test_an_outage_before_the_verb_and_a_verb_that_does_nothing_are_no_end(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = sweep.cleared()

    def get(*_: Any) -> BoxRecord:
        raise Unreachable("502 Bad Gateway")

    with monkeypatch.context() as patch:
        patch.setattr(LocalPlatform, "get", get)
        with pytest.raises(TeardownRefused, match="502 Bad Gateway"):
            delete(sweep, box)
    assert sweep.listed() == [box.native_id]
    with monkeypatch.context() as patch:
        patch.setattr(LocalPlatform, "destroy", lambda *_: None)
        with pytest.raises(NotYetGone) as waiting:
            delete(sweep, box, timeout=0.2)
    words = str(waiting.value)
    for part in (
        box.native_id,
        "is not proved: the platform still lists it",
        "May still bill $0.50/h",
        "pulumi destroy",
    ):
        assert part in words
    assert sweep.born().ended_at is None
    assert sweep.store.teardown() is not None
    with monkeypatch.context() as patch:
        patch.setattr(LocalPlatform, "destroy", lambda *_: None)
        sweep.cancelled.set()
        with pytest.raises(NotYetGone, match="the wait was cancelled"):
            delete(sweep, box)
    sweep.cancelled.clear()
    delete(sweep, box)
    assert sweep.listed() == []


def test_a_verb_that_fails_names_why_and_what_still_bills(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = sweep.cleared()
    for error in (NotYetGone("3 processes survive"), PlatformError("403 Forbidden")):

        def destroy(*_: Any, error: PlatformError = error) -> None:
            raise error

        monkeypatch.setattr(LocalPlatform, "destroy", destroy)
        with pytest.raises(NotYetGone) as waiting:
            delete(sweep, box, timeout=1.5)  # it is to be asked once, on a busy machine too
        assert str(error) in str(waiting.value)
        assert "May still bill $0.50/h" in str(waiting.value)


def test_an_outage_after_the_verb_names_what_may_still_bill(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb is out and nobody answers: that is the moment at which a person must know what to look for."""
    box = sweep.cleared()
    honest, asked = LocalPlatform.get, []

    def get(self: LocalPlatform, native_id: str, account: str) -> BoxRecord:
        asked.append(native_id)
        if len(asked) > 1:
            raise Unreachable("502 Bad Gateway")
        return honest(self, native_id, account)

    monkeypatch.setattr(LocalPlatform, "get", get)
    monkeypatch.setattr(LocalPlatform, "destroy", lambda *_: None)
    with pytest.raises(SweepstackError) as lost:
        delete(sweep, box, timeout=60)
    for part in (box.native_id, "502 Bad Gateway", "May still bill $0.50/h", "pulumi destroy --stack sweep-t"):
        assert part in str(lost.value), str(lost.value)
    assert sweep.born().ended_at is None


# What Read sees


def test_read_shows_what_would_die_and_never_asks_for_anything(sweep: Sweep) -> None:
    sweep.hold("b")
    box = sweep.box()
    sweep.queue(box)
    sweep.until_state(box, "sealed", "a")
    seen = sweep.seen(box)
    assert (seen.state, seen.unhealthy) == (box, ())
    assert seen.inputs.live is not None
    assert seen.inputs.live.not_safe == ("a: sealed", "b: running")
    assert (seen.inputs.live.state, seen.inputs.live.because) == ("locked", "not approved")
    assert "box box-0 LOCKED: 0 of 2 cells verified; $0.50/h" in sweep.said.infos
    assert BOX.changes(sweep.box_inputs(), seen.inputs) == {}


def outage(monkeypatch: pytest.MonkeyPatch, sweep: Sweep, tmp_path: Path) -> None:
    def get(*_: Any) -> BoxRecord:
        raise Unreachable("502 Bad Gateway")

    monkeypatch.setattr(LocalPlatform, "get", get)


def other_account(monkeypatch: pytest.MonkeyPatch, sweep: Sweep, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    sweep.platform.account()


def unclear(monkeypatch: pytest.MonkeyPatch, sweep: Sweep, tmp_path: Path) -> None:
    (box,) = sweep.listed()
    (sweep.platform_root / "boxes" / box / "box.json").write_text("?")


@pytest.mark.parametrize("trouble", [outage, other_account, unclear])
def test_read_takes_no_trouble_for_gone(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trouble: Any
) -> None:
    box = sweep.box()
    gate, queue = sweep.gate(box), sweep.queue_inputs(box)
    trouble(monkeypatch, sweep, tmp_path)
    seen = sweep.seen(box)
    assert seen.state == box
    (why,) = seen.unhealthy
    assert "UNKNOWN" in why
    assert box.native_id in why
    assert "it may bill $0.50/h" in why
    assert not isinstance(GATE.read(sweep.op("Gate"), "g", gate), Gone)
    state = {**queue.model_dump(), "launched_at": datetime.now(UTC)}
    found = QUEUE.read(sweep.op("Queue"), "q", QUEUE.state_type.model_validate(state))
    assert not isinstance(found, Gone)
    assert "unknown" in found.unhealthy[0]


def test_read_of_a_box_that_is_proved_gone(sweep: Sweep) -> None:
    box = sweep.box()
    gate = sweep.gate(box)
    sweep.vanish(box)
    assert isinstance(BOX.read(sweep.op(), box.native_id, box), Gone)
    assert f"box box-0 ({box.native_id}) is gone from local" in sweep.said.warnings
    assert not isinstance(GATE.read(sweep.op("Gate"), "g", gate), Gone)


def test_read_works_without_evidence(sweep: Sweep) -> None:
    box = sweep.box()
    (sweep.store.root / "sweep.json").unlink()
    seen = sweep.seen(box)
    assert seen.inputs.live is not None
    assert seen.inputs.live.state == "locked"
    assert "holds no sweep.json" in seen.inputs.live.because


def test_a_revocation_stops_a_teardown_that_is_under_way(sweep: Sweep) -> None:
    """The gate and the queue are gone already, and the state still holds the approval."""
    box = sweep.cleared()
    assert box.approval is not None
    gate = sweep.gate(box)
    GATE.delete(sweep.op("Gate"), "g", gate)
    write_revocation(sweep.store, [], at=datetime.now(UTC), by="grace")
    with pytest.raises(TeardownRefused, match=r"the approval was revoked at .* by grace"):
        delete(sweep, box)
    with pytest.raises(TeardownRefused, match="was revoked"):
        GATE.delete(sweep.op("Gate"), "g", gate)
    assert sweep.listed() == [box.native_id]


def test_read_of_a_box_that_is_ending(sweep: Sweep) -> None:
    box = sweep.box()
    (sweep.root(box) / "box.json").rename(sweep.root(box) / "ending.json")
    seen = sweep.seen(box)
    assert seen.unhealthy == ("box box-0 is ending, not ready",)
    assert seen.state.phase == Phase.ENDING


# What Check and Update make of inputs


def test_check_writes_the_clearance_and_nobody_else_does(sweep: Sweep) -> None:
    fresh = BOX.check(sweep.op(), None, sweep.box_inputs(clearance="cleared by receipt sha256:0"))
    assert (fresh.inputs.clearance, fresh.failures) == ("locked", [])
    box = sweep.trained()
    old = sweep.box_inputs()
    checked = BOX.check(sweep.op(), old, sweep.box_inputs(clearance="cleared by receipt sha256:0"))
    assert checked.inputs.clearance == "locked"
    approval = approval_for(box, receipt=sweep.verified(box))
    checked = BOX.check(sweep.op(), old, sweep.box_inputs(approval=approval))
    assert checked.inputs.clearance == f"cleared by receipt {approval.receipt}, 2/2 verified"
    checked = BOX.check(sweep.op(), old, sweep.box_inputs(approval=expired(approval)))
    assert checked.inputs.clearance.startswith("locked (the approval expired at")
    other = sweep.box_inputs(approval=approval, roster_digest="sha256:" + "1" * 64)
    assert BOX.check(sweep.op(), old, other).inputs.clearance == "locked (the roster changed after the receipt)"
    foreign = approval.model_copy(update={"actions": (action(box, box="box-7"),)})
    assert BOX.check(sweep.op(), old, sweep.box_inputs(approval=foreign)).inputs.clearance == "locked"


def test_evidence_that_lies_on_the_box_outlives_nothing(sweep: Sweep) -> None:
    """By a link to the box's own tier: every copy is there and whole, and would die with it."""
    box = sweep.cleared()
    whole, inside = sweep.store.root, sweep.root(box) / "data" / "kept"
    for folder in (whole / "cells", whole / "receipts", whole):
        folder.rename(inside)
        folder.symlink_to(inside)
        with pytest.raises(TeardownRefused, match=r"the evidence lies on this very box: .* is in its data, and would"):
            delete(sweep, box)
        checked = BOX.check(sweep.op(), sweep.box_inputs(), sweep.box_inputs(approval=box.approval)).inputs
        assert checked.clearance.startswith("locked (the evidence lies on this very box")
        folder.unlink()
        inside.rename(elsewhere := sweep.folder / f"elsewhere-{folder.name}")
        folder.symlink_to(elsewhere)
    delete(sweep, box)
    assert sweep.listed() == []


def test_artifacts_that_became_stricter_lock_again(sweep: Sweep) -> None:
    """The receipt was made with the rules of before: box, gate and queue all ask for those of now."""
    stricter = ARTIFACT.model_copy(update={"keys": ("word", "loss")})
    box = sweep.cleared()
    known = {"approval": box.approval, "artifacts_digest": artifacts_digest([ARTIFACT])}
    assert BOX.check(sweep.op(), sweep.box_inputs(), sweep.box_inputs(**known)).inputs.clearance.startswith("cleared")
    new = sweep.box_inputs(**known | {"artifacts_digest": artifacts_digest([stricter])})
    why = "locked (the artifacts of the stack file changed after the receipt"
    checked = BOX.check(sweep.op(), sweep.box_inputs(**known), new).inputs
    assert checked.clearance.startswith(why)
    changed = BOX.update(sweep.op(), box.native_id, box, checked)
    with pytest.raises(TeardownRefused, match="artifacts of the stack file changed after the receipt"):
        delete(sweep, changed)
    gate = sweep.gate_inputs(box, artifacts_digest=new.artifacts_digest)
    assert GATE.check(sweep.op("Gate"), gate, gate).inputs.clearance.startswith(why)
    queue = {**sweep.queue_inputs(box, artifacts=[stricter]).model_dump(), "launched_at": datetime.now(UTC)}
    with pytest.raises(TeardownRefused, match="artifacts of the stack file changed after the receipt"):
        QUEUE.delete(sweep.op("Queue"), "q", QUEUE.state_type.model_validate(queue))


@pytest.mark.parametrize("spared", [True, False])
def test_check_update_and_delete_judge_the_same_tiers(sweep: Sweep, spared: bool) -> None:
    """The profile says something else of a tier since: by that the box ends, and by that it is cleared."""
    box = sweep.anew().cleared()
    with (sweep.root(box) / "data" / "cache.bin").open("wb") as large:
        large.truncate(unclaimed.ABOVE + 1)
    ends = {True: {**FACTS, "kills": ("scratch",), "keeps": ("durable", "data")}, False: FACTS}
    state = box.model_copy(update={"teardown": TeardownFacts.model_validate(ends[not spared])})
    old = sweep.box_inputs(teardown=ends[not spared])
    new = BOX.check(sweep.op(), old, sweep.box_inputs(teardown=ends[spared], approval=box.approval)).inputs
    if spared:
        assert new.clearance.startswith("cleared")
        delete(sweep, BOX.update(sweep.op(), box.native_id, state, new))
        assert sweep.listed() == []
        return
    assert new.clearance.startswith("locked (1 file")
    with pytest.raises(SweepstackError, match="stays locked: 1 file"):
        BOX.update(sweep.op(), box.native_id, state, new.model_copy(update={"clearance": "cleared"}))
    with pytest.raises(TeardownRefused, match="belong to no sealed cell"):
        delete(sweep, BOX.update(sweep.op(), box.native_id, state, new))


REPLACING: dict[str, Any] = {
    "resources": {"gpu": {"name": "H100", "count": 8}},
    "mounts": {},
    "name": "box-1",
    "adapter": "elsewhere",
}


def test_a_replacing_change_and_no_other_is_refused_while_locked(sweep: Sweep) -> None:
    box = sweep.trained()
    old = sweep.box_inputs()
    for name, value in REPLACING.items():
        (failure,) = BOX.check(sweep.op(), old, sweep.box_inputs(**{name: value})).failures
        assert failure.property == name
        assert "would replace box box-0, which is a destroy" in failure.reason
        for part in ("a  sealed", "b  sealed", "$0.50/h", box.native_id, "next"):
            assert part in failure.reason, name
    failures = BOX.check(sweep.op(), old, sweep.box_inputs(resources={"cpu": 2}, mounts={})).failures
    assert {failure.property for failure in failures} == {"resources", "mounts"}
    assert sum("REFUSED" in failure.reason for failure in failures) == 1, "the long words once"
    assert BOX.check(sweep.op(), old, sweep.box_inputs(price_per_hour=0.75, max_price=1.0)).failures == []


def test_a_replacing_change_is_let_through_when_cleared(sweep: Sweep) -> None:
    box = sweep.cleared()
    changed = sweep.box_inputs(resources={"cpu": 2}, approval=box.approval)
    assert BOX.check(sweep.op(), sweep.box_inputs(), changed).failures == []
    assert BOX.check(
        sweep.op(), sweep.box_inputs(approval=box.approval), sweep.box_inputs(resources={"cpu": 2})
    ).failures


def test_a_price_above_the_ceiling_is_refused(sweep: Sweep) -> None:
    (failure,) = BOX.check(sweep.op(), None, sweep.box_inputs(max_price=0.4)).failures
    assert (failure.property, failure.reason) == ("max_price", "$0.5/h is above the ceiling of $0.4/h")


def test_clearing_reads_every_file_again(sweep: Sweep) -> None:
    """A preview compares size and time; what it found is proved before it is written down."""
    box = sweep.trained()
    approval = approval_for(box, receipt=sweep.verified(box))
    copy = sweep.store.cell_dir("b") / "result.json"
    status, data = copy.stat(), copy.read_bytes()
    copy.write_bytes(data.replace(b"b", b"e"))
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    checked = BOX.check(sweep.op(), sweep.box_inputs(), sweep.box_inputs(approval=approval)).inputs
    assert checked.clearance.startswith("cleared")
    with pytest.raises(SweepstackError, match=r"stays locked: b: result\.json changed after the receipt"):
        BOX.update(sweep.op(), box.native_id, box, checked)
    assert sweep.store.clearance(box.native_id) is None
    copy.write_bytes(data)
    cleared = BOX.update(sweep.op(), box.native_id, box, checked)
    assert cleared.approval == approval
    assert sweep.store.clearance(box.native_id) == approval
    locked = BOX.update(sweep.op(), box.native_id, cleared, sweep.box_inputs())
    assert (locked.approval, locked.clearance) == (None, "locked")
    assert sweep.store.clearance(box.native_id) is None


def test_an_update_keeps_what_the_box_is(sweep: Sweep) -> None:
    box = sweep.box()
    updated = BOX.update(sweep.op(), box.native_id, box, sweep.box_inputs(price_per_hour=0.75))
    assert updated == box.model_copy(update={"price_per_hour": 0.75})
