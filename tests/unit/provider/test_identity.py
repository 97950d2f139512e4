"""Identity and Volume: made once, found again, and not let go while something may bill."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sweepstack.billing.ledger import spent
from sweepstack.core.records import Approval, Lease, Teardown
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError, TeardownRefused, Unreachable
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord
from sweepstack.platforms.common import s3_client
from sweepstack.provider.resources.base import Gone
from tests.unit.provider.support import (
    BOX,
    GATE,
    IDENTITY,
    VOLUME,
    Sweep,
    abandonment,
    action,
    approval_for,
    approved,
    expired,
)


def delete(sweep: Sweep) -> None:
    IDENTITY.delete(sweep.op("Identity", "identity"), sweep.identity.identity, sweep.identity)


# The name


def test_a_sweep_comes_back_to_its_own_name(sweep: Sweep) -> None:
    again = sweep.found()
    assert (again.identity, again.evidence) == (sweep.identity.identity, sweep.identity.evidence)
    assert "holds this sweep's earlier evidence" in sweep.said.text()
    assert len(sweep.identity.identity) == 10


def test_another_sweep_does_not_take_it_over(sweep: Sweep) -> None:
    said = []
    for other in ({"stack": "sweep-u"}, {"project": "elsewhere"}):
        with pytest.raises(SweepstackError, match="holds the evidence of project/sweep-t") as refused:
            sweep.found(**other)
        said.append(str(refused.value))
    assert ["name: project again in Pulumi.yaml" in words for words in said] == [False, True], (
        "that project was renamed"
    )


def test_two_ups_that_name_a_sweep_at_once_get_one_name(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both looked, and found nothing; the slower one takes the name that the faster one wrote."""
    honest, looks = EvidenceStore.read_marker, []

    def before_the_other_wrote(uri: str) -> Any:
        looks.append(uri)
        return None if len(looks) == 1 else honest(uri)

    with monkeypatch.context() as patch:
        patch.setattr(EvidenceStore, "read_marker", staticmethod(before_the_other_wrote))
        assert sweep.found().identity == sweep.identity.identity
    looks.clear()
    monkeypatch.setattr(EvidenceStore, "read_marker", staticmethod(before_the_other_wrote))
    with pytest.raises(SweepstackError, match="holds the evidence of project/sweep-t"):
        sweep.found(stack="sweep-u")


def test_evidence_without_its_marker_is_not_claimed_anew(sweep: Sweep) -> None:
    sweep.box()
    (sweep.store.root / "sweep.json").unlink()
    with pytest.raises(EvidenceError, match=r"holds records and no sweep\.json"):
        sweep.found()


def test_a_name_is_held_by_one_backend(sweep: Sweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/other-state")
    with pytest.raises(SweepstackError, match=r"held by the state in file://.*/state .*PULUMI_BACKEND_URL"):
        sweep.found()


@pytest.mark.parametrize(
    ("pull_to", "words"),
    [
        ("s3://bucket", "names no folder in the bucket"),
        ("gs://bucket/x", "gs://bucket/x is neither a folder nor s3://bucket/prefix"),
        ("s3://bucket/x", "127.0.0.1:9 does not answer"),
    ],
)
def test_a_place_that_can_not_be_used_is_refused_before_anything_is_made(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, pull_to: str, words: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    s3_client.forget()
    (failure,) = IDENTITY.check(sweep.op("Identity"), None, sweep.identity_inputs(pull_to=pull_to)).failures
    s3_client.forget()
    assert failure.property == "pull_to"
    assert words in failure.reason


def test_read_without_evidence_says_so_and_goes_on(sweep: Sweep) -> None:
    shutil.rmtree(sweep.store.root)
    seen = IDENTITY.read(sweep.op("Identity"), "i", sweep.identity)
    assert not isinstance(seen, Gone)
    assert "is not there" in sweep.said.warnings


# Its end


def test_a_sweep_without_boxes_ends_and_its_evidence_stays(sweep: Sweep) -> None:
    sweep.store.write_teardown(Teardown(native_ids=("local-gone",), begun_at=datetime.now(UTC)))
    delete(sweep)
    assert (sweep.store.teardown(), sweep.store.lease()) == (None, None)
    assert "evidence stays at" in sweep.said.text()
    delete(sweep)


def test_a_box_that_the_state_forgot_holds_it(sweep: Sweep) -> None:
    """The engine's memory is not what counts: the records are."""
    box = sweep.box()
    with pytest.raises(TeardownRefused) as refused:
        delete(sweep)
    assert f"box box-0: {box.native_id} on local still exists, $0.50/h" in str(refused.value)
    assert "pulumi up --stack sweep-t" in str(refused.value)
    assert sweep.store.lease() is not None


def test_what_the_state_forgot_and_is_proved_gone_is_closed(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No entry of the state is left that would do it, and its bill went on. In another account nothing is known."""
    sweep.vanish(sweep.box())
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
        sweep.platform.account()
        with pytest.raises(TeardownRefused, match="may still bill: this belongs to"):
            delete(sweep)
    assert sweep.store.births()[0].ended_at is None
    delete(sweep)
    assert sweep.store.births()[0].ended_how == "gone"
    assert spent(sweep.store, datetime.now(UTC)).bills[0].per_hour == 0.0


def test_every_box_that_may_bill_is_named(sweep: Sweep) -> None:
    ended = sweep.cleared("box-0", "a")
    BOX.delete(sweep.op(), ended.native_id, ended)
    one, two = sweep.box("box-1", price_per_hour=None), sweep.box("box-2")
    sweep.vanish(two)
    three = sweep.box("box-3")
    with pytest.raises(TeardownRefused) as refused:
        delete(sweep)
    words = str(refused.value)
    assert one.native_id in words
    assert three.native_id in words
    assert ended.native_id not in words
    assert two.native_id not in words
    assert f"box box-1: {one.native_id} on local still exists\n" in words


def test_a_lost_answer_holds_it(sweep: Sweep) -> None:
    box = sweep.box()
    birth = sweep.store.births()[0]
    sweep.store.write_birth(birth.model_copy(update={"native_id": None}))
    with pytest.raises(TeardownRefused, match=f"box box-0: {box.native_id} was rented and its answer lost"):
        delete(sweep)
    sweep.vanish(box)
    delete(sweep)


def test_a_lost_answer_of_which_no_list_shows_a_box_holds_it_until_a_person_has_looked(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists lag: a destroy that believed one would leave what shows up later without a state, and billing."""
    monkeypatch.setattr(LocalPlatform, "sees_all", False)
    sweep.vanish(sweep.box())
    now = datetime.now(UTC)
    asked = {"native_id": None, "asked_at": now, "shown_by": now + timedelta(minutes=15)}
    sweep.store.write_birth(sweep.store.births()[0].model_copy(update=asked))
    with pytest.raises(TeardownRefused, match="was asked for on local, and its answer lost: it may bill") as refused:
        delete(sweep)
    assert "next  sweepctl confirm never-rented --stack sweep-t box-0" in str(refused.value)
    assert "UTC or later)" in str(refused.value)
    assert sweep.store.lease() is not None
    sweep.store.write_birth(sweep.store.births()[0].model_copy(update={"ended_at": now, "ended_how": "never rented"}))
    delete(sweep)


def test_a_lost_answer_in_another_account_holds_it(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A record by which nothing was asked for is no box, whatever the platform says."""
    box = sweep.box()
    asked = sweep.store.births()[0].model_copy(update={"native_id": None, "asked_at": datetime.now(UTC)})
    sweep.store.write_birth(asked)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    sweep.platform.account()
    with pytest.raises(TeardownRefused, match=f"may still bill: this belongs to {box.account}"):
        delete(sweep)
    silent = asked.model_copy(update={"asked_at": None, "price_per_hour": 0.5})
    sweep.store.write_birth(silent.model_copy(update={"notes_requests": False}))  # as 6f8d950f wrote it on every host
    with pytest.raises(TeardownRefused, match=f"may still bill: this belongs to {box.account}"):
        delete(sweep)
    sweep.store.write_birth(silent)
    delete(sweep)


def test_an_outage_holds_it(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(*_: Any) -> BoxRecord:
        raise Unreachable("502 Bad Gateway")

    box = sweep.box()
    monkeypatch.setattr(LocalPlatform, "get", get)
    with pytest.raises(TeardownRefused, match=f"{box.native_id} on local may still bill: 502 Bad Gateway"):
        delete(sweep)


def test_a_damaged_birth_record_holds_it_until_its_box_is_proved_gone(sweep: Sweep) -> None:
    box = sweep.box()
    (sweep.store.root / "records" / "births" / "box-0-g1.json").write_bytes(b"\0" * 60)
    with pytest.raises(TeardownRefused, match=r"box-0-g1\.json is damaged(?s:.*)still exists(?s:.*)sweepctl audit"):
        delete(sweep)
    assert sweep.store.lease() is not None
    sweep.vanish(box)
    delete(sweep)
    assert "is proved gone" in sweep.said.warnings
    assert sweep.store.lease() is None


def test_a_damaged_birth_record_of_what_the_ledger_does_not_know_holds_it(sweep: Sweep) -> None:
    sweep.vanish(sweep.box())
    (sweep.store.root / "records" / "births" / "box-9-g1.json").write_bytes(b"{}")
    with pytest.raises(TeardownRefused, match="the ledger names nothing that was rented for it"):
        delete(sweep)


def test_evidence_that_is_out_of_reach_is_said(sweep: Sweep) -> None:
    (sweep.store.root / "sweep.json").unlink()
    delete(sweep)
    assert "the records could not be closed" in sweep.said.warnings


# Boxes that leave the program in the same change


def leave(sweep: Sweep, approval: Any) -> None:
    inputs = sweep.identity_inputs(leaving=approval, roster_digest=sweep.roster_digest)
    old = IDENTITY.inputs_type.model_validate(sweep.identity.model_dump(include=set(IDENTITY.inputs_type.model_fields)))
    checked = IDENTITY.check(sweep.op("Identity"), old, inputs)
    assert checked.failures == []
    sweep.identity = IDENTITY.update(sweep.op("Identity"), "i", sweep.identity, checked.inputs)


def test_an_approval_and_the_box_s_leave_in_one_change(sweep: Sweep) -> None:
    box = sweep.cleared()
    bare = approved(box, None)
    leave(sweep, box.approval)
    assert sweep.identity.clearances == {
        "box-0": f"cleared by receipt {box.approval.receipt}, 2/2 verified"  # type: ignore[union-attr]
    }
    cleared = sweep.store.clearance(box.native_id)
    assert cleared is not None
    assert cleared.actions == box.approval.actions  # type: ignore[union-attr]
    assert cleared.expires < datetime.now(UTC) + timedelta(hours=2), "it is for this change, not for days"
    GATE.delete(sweep.op("Gate"), "g", sweep.gate(bare))
    BOX.delete(sweep.op(), box.native_id, bare)
    assert sweep.listed() == []


def test_an_approval_that_does_not_hold_stops_the_change_before_any_delete(sweep: Sweep) -> None:
    """The preview shows it. An approval of a stop is none for a box that leaves: nothing is cleared."""
    box = sweep.cleared()
    given = box.approval
    assert given is not None

    def nothing_is_cleared() -> None:
        assert sweep.store.clearance(box.native_id) is None
        with pytest.raises(TeardownRefused):
            BOX.delete(sweep.op(), box.native_id, approved(box, None))

    def refused(word: Approval, why: str) -> None:
        new = sweep.identity_inputs(leaving=word, roster_digest=sweep.roster_digest)
        shown = IDENTITY.check(sweep.op("Identity"), sweep.identity_inputs(), new).inputs.clearances["box-0"]
        assert shown.startswith(f"locked ({why}"), shown
        with pytest.raises(SweepstackError, match="box box-0 stays locked"):
            leave(sweep, word)
        nothing_is_cleared()

    refused(expired(given), "the approval expired at")
    refused(given.model_copy(update={"receipt": None}), "")
    refused(given.model_copy(update={"abandon": (abandonment(box),)}), "the waivers of the approval were edited")
    sweep.roster = ("a", "b", "c")
    refused(given, "the roster changed after the receipt")
    sweep.roster = ("a", "b")
    copy = sweep.store.cell_dir("a") / "result.json"
    whole = copy.read_bytes()
    copy.write_bytes(b"{}")
    refused(given, "a: result.json has 2 bytes")
    copy.write_bytes(whole)
    leave(sweep, given.model_copy(update={"actions": (action(box, verb="stop"),)}))
    nothing_is_cleared()


def test_one_of_two_that_may_not_leave_keeps_both(sweep: Sweep) -> None:
    one, two = sweep.trained("box-0", "a"), sweep.trained("box-1", "b")
    approval = approval_for(one, two, receipt=sweep.verified(one, two))
    channel = sweep.channel(two)
    channel.write("data/sweep/journal.jsonl", b"")
    with pytest.raises(SweepstackError, match="box box-1 stays locked"):
        leave(sweep, approval)
    assert sweep.store.clearance(one.native_id) is None
    assert sweep.store.clearance(two.native_id) is None


def test_boxes_that_have_ended_are_not_asked_for_again(sweep: Sweep) -> None:
    """The approval stays in the config after the box is gone; the next `up` must not stumble over it."""
    box = sweep.cleared()
    BOX.delete(sweep.op(), box.native_id, box)
    leave(sweep, expired(box.approval))
    assert sweep.identity.clearances == {}


def test_an_approval_that_is_taken_back_takes_its_clearance_along(sweep: Sweep) -> None:
    """The box came back into the program, or its delete failed; the person took the word back and ran `up`."""
    box = sweep.cleared()
    leave(sweep, box.approval)
    leave(sweep, None)
    assert sweep.store.clearance(box.native_id) is None
    with pytest.raises(TeardownRefused):
        BOX.delete(sweep.op(), box.native_id, approved(box, None))


# The volume


def test_a_volume_is_found_again_and_never_removed(sweep: Sweep) -> None:
    (sweep.volume_root / "kept").write_text("x")
    assert sweep.made_volume().native_id == sweep.volume.native_id
    assert "was there already" in sweep.said.text()
    VOLUME.delete(sweep.op("Volume", "store"), sweep.volume.native_id, sweep.volume)
    assert (sweep.volume_root / "kept").read_text() == "x"
    assert f"survives with all that is on it (costs nothing): {sweep.volume.location}" in sweep.said.text()
    assert f"To end it: sweepctl audit --end local:{sweep.volume.native_id}" in sweep.said.text()
    assert "survives" not in sweep.said.warnings, "it is meant to, and costs nothing"
    paid = sweep.volume.model_copy(update={"price_per_month": 7.0})
    VOLUME.delete(sweep.op("Volume", "store"), sweep.volume.native_id, paid)
    assert "survives with all that is on it (costs $7.00/month" in sweep.said.warnings


def test_a_volume_that_can_t_be_asked_is_not_gone(sweep: Sweep) -> None:
    folder = sweep.platform_root / "volumes"
    folder.rename(sweep.folder / "aside")
    seen = VOLUME.read(sweep.op("Volume", "store"), "v", sweep.volume)
    assert not isinstance(seen, Gone)
    assert "unknown" in seen.unhealthy[0]
    folder.mkdir()  # as the mount point of a disk is while that is not there
    assert not isinstance(VOLUME.read(sweep.op("Volume", "store"), "v", sweep.volume), Gone)
    folder.rmdir()
    (sweep.folder / "aside").rename(folder)
    shutil.rmtree(folder / sweep.volume.native_id)
    assert isinstance(VOLUME.read(sweep.op("Volume", "store"), "v", sweep.volume), Gone)
    assert "is gone, with all that was on it" in sweep.said.warnings


def test_a_lease_is_renewed_by_its_holder(sweep: Sweep) -> None:
    lease = sweep.store.lease()
    assert lease is not None
    old = Lease(backend=lease.backend, host="elsewhere", taken_at=lease.taken_at - timedelta(days=1))
    sweep.store.write_lease(old)
    sweep.box()
    assert sweep.store.lease() != old
