"""Rules of the handlers that need no box: stops, rests, a sweep that goes on, what was not rented."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.billing.ledger import record_phase
from sweepstack.core.records import Birth
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import Takeover, take_over
from sweepstack.onbox.common.errors import (
    EvidenceMissing,
    NoCapacity,
    PlatformError,
    RequestRefused,
    StillCreating,
    SweepstackError,
)
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.operations import drift
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.tag_lock import Unanswered
from sweepstack.provider.resources import founding, identity, run_or_stop
from sweepstack.provider.resources.before_renting import _running
from sweepstack.provider.resources.create import Asking, _born, _link, places_of, seen_of
from sweepstack.provider.resources.teardown import context_of
from sweepstack.status.engine.state import StackState
from tests.unit.entries import identity_entry
from tests.unit.provider.plain_box import SEEN, state_of
from tests.unit.provider.support import BOX, IDENTITY, STACK, Sweep
from tests.unit.teardown.support import NOW


def test_a_stop_of_what_is_not_there_or_can_t_be_stopped_is_refused_in_the_preview(sweep: Sweep) -> None:
    new, state = sweep.box_inputs(want="stopped"), state_of(sweep)
    (absent,) = run_or_stop.check(sweep.op(), None, None, None, new)
    assert "does not exist, and a stop rents nothing" in absent.reason
    (unable,) = run_or_stop.check(sweep.op(), context_of(state), state, None, new)
    assert "local can't stop a box" in unable.reason
    assert run_or_stop.check(sweep.op(), None, None, None, sweep.box_inputs()) == []
    with pytest.raises(SweepstackError, match="can't stop a box"):
        run_or_stop.converge(sweep.op(), context_of(state), state.model_copy(update={"want": "stopped"}))


@pytest.mark.parametrize(
    ("when_done", "lease", "as_wanted"),
    [("stop", None, True), ("keep", "3h", True), ("keep", "none", False), ("keep", None, False)],
)
def test_a_stopped_box_rests_as_wanted_only_where_it_was_to_stop_and_is_drained(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, when_done: str, lease: str | None, as_wanted: bool
) -> None:
    state = state_of(sweep, when_done=when_done, lease=lease)
    record = BoxRecord("local-a", "t", "here/1", Phase.STOPPED, 0.5, NOW, location="here")
    asked = "box box-0 is stopped and wanted running; `pulumi up` starts it"
    assert drift.unwanted(context_of(state), state, record, SEEN) == asked, "its queue is not known to be drained"
    with monkeypatch.context() as patch:
        patch.setattr(drift, "drained", lambda *_: True)
        assert drift.unwanted(context_of(state), state, record, SEEN) == ("" if as_wanted else asked)
    shutil.rmtree(sweep.store.root)
    assert drift.unwanted(context_of(state), state, record, SEEN) == asked, "nor without evidence"


def test_only_another_entry_of_this_sweep_that_stays_lets_an_identity_go_unchecked(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = identity_entry(identity="ours")
    replaced, other = ours.model_copy(update={"to_delete": True}), identity_entry(identity="other")
    for entries, goes_on in (
        ((ours,), False),
        ((replaced, ours), True),
        ((replaced, replaced), False),
        ((ours, other), False),
        ((other, other), False),
    ):
        monkeypatch.setattr(identity, "read_state", lambda *_, known=entries: StackState("s", identities=known))
        assert identity.goes_on(sweep.op(), "ours") is goes_on, entries

    def fail(*_: Any) -> None:
        raise SweepstackError("no answer")

    monkeypatch.setattr(identity, "read_state", fail)
    assert not identity.goes_on(sweep.op(), "ours")


def test_evidence_moves_to_object_storage_alone_and_to_where_it_was_brought(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, op = sweep.identity_inputs(), sweep.op()
    for same in (old, sweep.identity_inputs(pull_to="./results")):
        assert founding.move_problem(op, old, same) == ""
    words = founding.move_problem(op, old, sweep.identity_inputs(pull_to="elsewhere"))
    assert words.startswith("may not change from results to another folder")
    for problem in ("it is empty", ""):
        monkeypatch.setattr(founding, "arrival_problem", lambda *_, said=problem: said)
        words = founding.move_problem(op, old, sweep.identity_inputs(pull_to="s3://lab/sweep"))
        assert words.endswith(problem)
        assert bool(words) is bool(problem)


def test_a_sweep_that_another_backend_took_over_is_not_updated_here(sweep: Sweep) -> None:
    IDENTITY.update(sweep.op("Identity"), "id", sweep.identity, sweep.identity_inputs())
    take_over(sweep.store, Takeover(held_by="here", taken_to="s3://team-state", by="ann", at=NOW, reason="moved"))
    with pytest.raises(SweepstackError, match="s3://team-state") as refused:
        IDENTITY.update(sweep.op("Identity"), "id", sweep.identity, sweep.identity_inputs())
    assert STACK in str(refused.value)


# Renting that makes nothing


def answered(sweep: Sweep, monkeypatch: pytest.MonkeyPatch, error: PlatformError, *, asked: bool) -> PlatformError:
    """What a create raises whose platform raises this, before or after a request went out."""

    def create(self: LocalPlatform, request: BoxRequest, wait: Wait) -> BoxRecord:
        if asked:
            request.asked(True)
        raise error

    monkeypatch.setattr(LocalPlatform, "create", create)
    with pytest.raises(PlatformError) as raised:
        sweep.box()
    return raised.value


@pytest.mark.parametrize("asked", [False, True])
def test_a_refused_request_is_forgotten_only_where_none_went_out(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    answered(sweep, monkeypatch, RequestRefused("no such region"), asked=asked)
    assert [birth.asked_at is not None for birth in sweep.store.births()] == ([True] if asked else [])


def test_what_is_not_to_be_had_says_that_nothing_was_rented(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    said = answered(sweep, monkeypatch, NoCapacity("none is left"), asked=False)
    assert str(said).startswith("box box-0 was not rented: none is left\n  next ")


def test_a_request_that_this_machine_remembers_is_on_record_and_not_sent_again(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = answered(sweep, monkeypatch, Unanswered("no answer yet", sent=NOW), asked=False)
    (birth,) = sweep.store.births()
    assert birth.asked_at == NOW
    assert f"what was asked for at {NOW:%Y-%m-%d %H:%M} UTC may be there, and bill" in str(said)


def test_what_the_pods_are_like_goes_to_the_adapter_and_replaces_no_box(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what the storage is stands among the box's own resources."""
    seen: list[BoxRequest] = []

    def create(self: LocalPlatform, request: BoxRequest, wait: Wait) -> BoxRecord:
        seen.append(request)
        raise RequestRefused("no")

    monkeypatch.setattr(LocalPlatform, "create", create)
    inputs = sweep.box_inputs(resources={"disk": "20GB"}, pods={"image": "me/train:1", "tolerations": [{"key": "a"}]})
    with pytest.raises(RequestRefused):
        BOX.create(sweep.op("Box"), inputs)
    assert seen[0].resources == {"disk": "20GB"}
    assert seen[0].pods == {"image": "me/train:1", "tolerations": [{"key": "a"}]}
    assert inputs.resources == {"disk": "20GB"}


def test_what_can_t_be_put_on_record_is_not_asked_for(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise EvidenceMissing("no space left")

    birth = Birth(
        box="box-0",
        generation=1,
        tag="t",
        platform="local",
        account="a",
        native_id=None,
        price_per_hour=0.5,
        begun_at=NOW,
        created_at=None,
    )
    asking = Asking(sweep.store, birth, 60.0)
    asking(True)
    known = asking.birth
    assert known.asked_at is not None
    assert known.shown_by == known.asked_at + timedelta(seconds=paced(60.0))
    asking(False)
    assert (asking.birth.asked_at, asking.birth.shown_by) == (None, None)
    monkeypatch.setattr(EvidenceStore, "write_birth", full)
    with pytest.raises(
        PlatformError, match="nothing was rented: that it was asked for can't be put on record: no space"
    ):
        asking(True)
    asking(False)  # the next `up` is only more careful


@pytest.mark.parametrize("locked", [True, False])
def test_a_place_that_is_bound_to_a_region_is_the_one_that_this_box_had_last(sweep: Sweep, locked: bool) -> None:
    for box, generation, place in (("box-0", 2, "second"), ("box-0", 1, "first"), ("box-1", 3, "another's")):
        known = {"box": box, "generation": generation, "tag": "t", "platform": "local", "account": "a"}
        mounts = {"durable": place, "mnt/durable": "volume-a"}
        known |= {"native_id": place, "price_per_hour": 0.5, "begun_at": NOW, "created_at": NOW, "mounts": mounts}
        sweep.store.write_birth(Birth.model_validate(known))
    claim = {"tier": "durable", "region_locked": locked}
    (found,) = places_of(
        sweep.box_inputs(places={"durable": "/mnt/d"}, claims={"durable": claim}), sweep.store
    ).values()
    assert (found["path"], found.get("expect")) == ("/mnt/d", "second" if locked else None)


@pytest.mark.parametrize(
    ("phase", "code", "stderr", "said"),
    [
        (Phase.RUNNING, 0, b"", ""),
        (Phase.RUNNING, 1, b"read-only\n", "its volume can't be shown at /root/data: read-only"),
        (Phase.RUNNING, 1, b"", "ln ended with 1"),
        (Phase.STOPPED, 1, b"", ""),
    ],
)
def test_a_volume_that_can_t_be_shown_where_the_job_expects_it_leaves_a_box_that_bills(
    sweep: Sweep, phase: Phase, code: int, stderr: bytes, said: str
) -> None:
    ran = SimpleNamespace(returncode=code, stderr=stderr)
    channel = SimpleNamespace(run=lambda *_, timeout: ran, absolute=lambda path: f"/box/{path}")
    platform: Any = SimpleNamespace(over_ssh=True, channel=lambda *_: channel)
    record = BoxRecord("local-a", "t", "here/1", phase, 0.5, NOW, location="here")
    with pytest.raises(StillCreating) if said else nullcontext() as raised:
        _link(sweep.op(), platform, sweep.box_inputs(links={"/root/data": "mnt/durable"}), record)
    if raised is not None:
        assert raised.value.identifier == "local-a"
        assert said in raised.value.reasons[0]


def test_what_a_platform_does_not_say_of_a_new_box_is_taken_from_what_was_shown(sweep: Sweep) -> None:
    known = {"box": "box-0", "generation": 1, "tag": "t", "platform": "local", "account": "a", "native_id": None}
    known |= {"price_per_hour": 0.5, "begun_at": NOW, "created_at": None, "egress_per_gb": 0.1}
    birth = Birth.model_validate(known)
    silent = BoxRecord("local-a", "t", "a", Phase.RUNNING, None, None, location="here")
    assert seen_of(silent) == {}
    for record, per_hour, egress in (
        (silent, 0.5, 0.1),
        (replace(silent, price_per_hour=0.7, created_at=NOW, egress_per_gb=0.2, region="EU-1"), 0.7, 0.2),
    ):
        _born(sweep.store, birth, record)
        (born,) = sweep.store.births()
        assert (born.native_id, born.egress_per_gb) == ("local-a", egress)
        assert _running("local", Evidence(sweep.identity.evidence)) == (per_hour, 1)
    assert seen_of(record) == {"region": "EU-1"}


def test_what_runs_at_an_account_is_this_sweep_s_by_its_ledger(sweep: Sweep) -> None:
    evidence = Evidence(sweep.identity.evidence)
    nowhere = Evidence(evidence.uri + "-nowhere")
    assert _running("local", None) == _running("local", nowhere) == _running("local", evidence) == (0.0, 0)
    for box, platform, end in (("box-0", "local", False), ("box-1", "local", True), ("box-2", "other", False)):
        for phase, price in [("running", 0.5), *([("ended", 0.0)] if end else [])]:
            record_phase(
                sweep.store,
                box=box,
                native_id=f"{platform}-{box}",
                platform=platform,
                account="a",
                phase=phase,  # type: ignore[arg-type]
                price_per_hour=price,
                at=NOW + timedelta(hours=price == 0.0),
            )
    assert _running("local", Evidence(evidence.uri)) == (0.5, 1)
    (sweep.store.root / "sweep.json").write_bytes(b"{")
    assert _running("local", Evidence(evidence.uri)) == (0.0, 0)
