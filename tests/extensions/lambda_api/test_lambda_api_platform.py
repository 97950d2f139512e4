"""The adapter for Lambda's Cloud API by itself: its limits, its statuses, its keys, what it sends and how often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweepstack.extensions.lambda_api import api
from sweepstack.extensions.lambda_api.states import UNHEALTHY, record_of
from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    NotYetGone,
    OutcomeUnknown,
    RequestRefused,
    Unreachable,
    Unsupported,
    WrongAccount,
)
from sweepstack.onbox.host.offers import Bound, Constraints
from sweepstack.onbox.host.platform import BoxRequest, Phase, Platform, Wait
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.rate_limit import PACE_VARIABLE, QuotaUsedUp
from sweepstack.platforms.registry import load_platform
from tests.short_wait import out_of_time
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.lambda_api import AT_ONCE, KEY, LAUNCH, LIST, OTHER_KEY, TERMINATE, LambdaSim
from tests.unit.loopback import Server, reply
from tests.unit.platforms.api_world import answering, quick, sent, serving

TAG = "sweepstack-a1b2c3-box-0-g1"
OWN = "ssh-ed25519 AAAAC3Nza ann@home"
REQUEST = BoxRequest(tag=TAG, name="box-0", public_key=OWN)
ID = "0920582c7ff041399e34823a0be62549"


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Platform]:
    quick(monkeypatch, tmp_path, api.KEY_VARIABLE, KEY)
    yield load_platform("lambda_api")
    api.SESSIONS.forget()


@pytest.fixture
def sim(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Iterator[LambdaSim]:
    with serving(LambdaSim(clock=VirtualClock(scale=1.0), times=AT_ONCE), monkeypatch, api.BASE_VARIABLE) as sim:
        yield sim


@pytest.fixture
def server(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with answering(monkeypatch, api.BASE_VARIABLE, "/api/v1") as server:
        yield server


def row(**changes: Any) -> dict[str, Any]:
    """An `Instance` of the vendor's document."""
    return {
        "id": ID,
        "name": TAG,
        "status": "active",
        "ip": "198.51.100.2",
        "tags": [
            {"key": "sweepstack-tag", "value": TAG},
            {"key": "sweepstack-asked", "value": "2026-11-24T10:00:00+00:00"},
        ],
        "region": {"name": "us-west-1", "description": "California, USA"},
        "instance_type": {"name": "gpu_1x_a10", "price_cents_per_hour": 75, "specs": {"gpus": 1}},
        **changes,
    }


# What an instance says


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ({}, Phase.RUNNING),
        ({"status": "booting"}, Phase.CREATING),
        ({"ip": None}, Phase.CREATING),
        ({"status": "unhealthy"}, Phase.RUNNING),
        ({"status": "terminating"}, Phase.ENDING),
        ({"status": "terminated"}, Phase.GONE),
        ({"status": "preempted"}, Phase.UNKNOWN),
        ({"status": "rebuilding"}, Phase.UNKNOWN),
        ({"status": None}, Phase.UNKNOWN),
        ({"tags": None}, Phase.UNKNOWN),
        ({"tags": ["x"]}, Phase.UNKNOWN),
        ({"region": None, "instance_type": "x"}, Phase.RUNNING),
    ],
)
def test_a_status_is_a_phase_and_what_is_not_known_is_never_gone(changes: dict[str, Any], phase: Phase) -> None:
    seen = record_of(row(**changes), "key-1")
    assert (seen.phase, seen.tag) == (phase, TAG)
    assert (phase is Phase.UNKNOWN) <= bool(seen.note)


def test_an_accepted_terminate_that_is_not_shown_is_an_end_that_has_begun() -> None:
    assert record_of(row(), "key-1", ending=True).phase is Phase.ENDING
    assert record_of(row(status="rebuilding"), "key-1", ending=True).phase is Phase.UNKNOWN


def test_the_price_is_in_dollars_and_the_login_is_ubuntu() -> None:
    seen = record_of(row(), "key-1")
    assert (seen.price_per_hour, seen.gpu_count, seen.offer) == (0.75, 1, "gpu_1x_a10@us-west-1")
    assert seen.endpoint is not None
    assert (seen.endpoint.user, seen.endpoint.port) == ("ubuntu", 22)
    assert seen.created_at is not None
    assert seen.created_at.hour == 10


def test_one_that_was_shut_down_from_inside_bills_on_and_can_be_ended(sim: LambdaSim, platform: Platform) -> None:
    box = platform.create(REQUEST, wait=Wait(60))
    sim.act("shut_down", {"id": box.native_id})
    api.SESSIONS.forget()
    seen = platform.get(box.native_id, box.account)
    assert (seen.phase, seen.price_per_hour, seen.note) == (Phase.RUNNING, 0.75, UNHEALTHY)
    platform.destroy(box.native_id, box.account)
    assert sim.ledger.live("instance") == []


@pytest.mark.parametrize(
    "answer",
    [
        reply(404, {"error": {"code": "global/not-found", "message": "The requested resource was not found."}}),
        reply(404, b"<html>gone fishing</html>", kind="text/html"),
        reply(200, {"data": []}),
        reply(200, {"data": {"id": "another"}}),
        reply(200, {}),
    ],
)
def test_only_the_api_s_own_word_about_this_instance_proves_its_end(
    server: Server, platform: Platform, answer: Any
) -> None:
    server.routes["GET /api/v1/instances"] = [reply(200, {"data": []})]
    server.routes[f"GET /api/v1/instances/{ID}"] = [answer]
    account = platform.account()
    with pytest.raises(Unreachable):
        platform.get(ID, account)
    error = {"code": "global/object-does-not-exist", "message": "Specified instance does not exist."}
    server.routes[f"GET /api/v1/instances/{ID}"] = [reply(404, {"error": error})]
    assert platform.get(ID, account).phase is Phase.GONE


# Renting


@pytest.mark.parametrize("in_list", [True, False])
def test_one_that_lambda_does_not_show_at_first_is_waited_for_and_not_rented_again(
    sim: LambdaSim, platform: Platform, in_list: bool
) -> None:
    sim.faults.add("missing_at_first", LAUNCH, reads=4, in_list=in_list)
    box = platform.create(REQUEST, wait=Wait(60))
    assert box.phase is Phase.RUNNING
    assert sent(sim, LAUNCH) == 1


def test_one_without_an_address_is_not_ready(sim: LambdaSim, platform: Platform) -> None:
    sim.faults.add("late_address", LAUNCH, reads=None)
    error = out_of_time(lambda wait: platform.create(REQUEST, wait=wait))
    assert [error.identifier] == [one.id for one in sim.ledger.live("instance")]


def test_one_that_comes_up_unhealthy_is_not_ready_and_its_id_is_told(sim: LambdaSim, platform: Platform) -> None:
    sim.faults.add("boots_unhealthy", LAUNCH)
    error = out_of_time(lambda wait: platform.create(REQUEST, wait=wait), "health check")
    assert [error.identifier] == [one.id for one in sim.ledger.live("instance")]


def test_after_a_lost_answer_that_no_list_clears_up_nothing_is_rented(sim: LambdaSim, platform: Platform) -> None:
    sim.faults.add("missing_at_first", LAUNCH, reads=10**6, in_list=True)
    sim.faults.add("lost_answer", LAUNCH)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            platform.create(REQUEST, wait=Wait(60))
    assert sent(sim, LAUNCH) == 1


def test_where_one_region_is_full_the_next_offer_is_asked_for(sim: LambdaSim, platform: Platform) -> None:
    sim.faults.add("out_of_capacity", LAUNCH, times=2)
    box = platform.create(REQUEST, wait=Wait(60))
    assert sent(sim, LAUNCH) == 3
    assert [one.id for one in sim.ledger.live("instance")] == [box.native_id]


def test_the_offer_that_a_person_chose_is_asked_for_first(sim: LambdaSim, platform: Platform) -> None:
    chosen = "gpu_1x_h100_pcie@us-east-1"
    assert platform.create(replace(REQUEST, offer=chosen), wait=Wait(60)).offer == chosen


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("bad_address", InsufficientFunds, "billing address"),
        ("inactive", InsufficientFunds, "payment"),
        ("quota", RequestRefused, "quota"),
        ("auth", NotAuthorized, api.KEY_VARIABLE),
        ("forbidden", NotAuthorized, api.KEY_VARIABLE),
    ],
)
def test_a_refusal_that_no_other_offer_changes_ends_the_asking(
    sim: LambdaSim, platform: Platform, fault: str, error: type[Exception], words: str
) -> None:
    sim.faults.add(fault, LAUNCH, times=None)
    with pytest.raises(error, match=words):
        platform.create(REQUEST, wait=Wait(60))
    assert sent(sim, LAUNCH) == 1
    assert sim.ledger.live("instance") == []


def test_nothing_fits_where_nothing_is_free(sim: LambdaSim, platform: Platform) -> None:
    sim.stock.empty()
    with pytest.raises(NoCapacity):
        platform.create(REQUEST, wait=Wait(60))
    assert sent(sim, LAUNCH) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mounts": {"mnt/durable": "fs"}}, "file system"),
        ({"resources": {"gpu": {"cuda": "12.4+"}}}, "cuda"),
        ({"resources": {"spot": True}}, "spot"),
        ({"resources": {"reliability": 0.9}}, "reliability"),
    ],
)
def test_what_lambda_does_not_have_is_refused_before_anything_is_sent(
    sim: LambdaSim, platform: Platform, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises((RequestRefused, Unsupported), match=words):
        platform.create(replace(REQUEST, **changes), wait=Wait(60))
    assert not sim.calls


def test_a_second_launch_waits_for_its_turn_of_twelve_seconds(
    sim: LambdaSim, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.create(REQUEST, wait=Wait(60))
    monkeypatch.setenv(PACE_VARIABLE, "20")  # 240 s for a launch and 20 s for any request: no machine is slower
    with pytest.raises(QuotaUsedUp):
        api.session().launch({}, Deadline(60))
    monkeypatch.setenv(PACE_VARIABLE, "0.01")
    assert sent(sim, LAUNCH) == 1


def test_with_lambda_s_limits_on_three_boxes_are_rented_once_each(sim: LambdaSim, platform: Platform) -> None:
    limited = LambdaSim(clock=VirtualClock(scale=100.0), times=AT_ONCE, limits=True)
    with SimServer(limited) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv(api.BASE_VARIABLE, f"{server.url}/api/v1")
        tags = [f"{TAG}{number}" for number in range(3)]
        boxes = {platform.create(replace(REQUEST, tag=tag), wait=Wait(60)).native_id for tag in tags}
        assert {one.id for one in limited.ledger.live("instance")} == boxes
        assert len(boxes) == 3
    limited.check()


# The account's SSH keys


def test_the_public_key_is_added_to_the_account_once(sim: LambdaSim, platform: Platform) -> None:
    for number in range(2):
        platform.create(replace(REQUEST, tag=f"{TAG}{number}"), wait=Wait(60))
    keys = [one for one in sim.keys.values() if one.account == "user_ann"]
    assert sorted(one.name for one in keys)[0] == "ann-key"
    assert len(keys) == 2
    assert keys[1].public_key == "ssh-ed25519 AAAAC3Nza"
    assert keys[1].name.startswith("sweepstack-")


def test_a_key_that_the_account_has_under_another_name_is_used(sim: LambdaSim, platform: Platform) -> None:
    sim.add_key("user_ann", "laptop", "ssh-ed25519 AAAAC3Nza another comment")
    platform.create(REQUEST, wait=Wait(60))
    (box,) = sim.instances.all.values()
    assert box.wanted.ssh_key_names == ["laptop"]


def test_a_lost_answer_to_a_new_key_is_looked_up(sim: LambdaSim, platform: Platform) -> None:
    sim.faults.add("lost_answer", "POST /api/v1/ssh-keys")
    platform.create(REQUEST, wait=Wait(60))
    assert len([one for one in sim.keys.values() if one.account == "user_ann"]) == 2


# Ending


def test_a_terminate_whose_answers_are_lost_is_sent_twice_at_most(sim: LambdaSim, platform: Platform) -> None:
    box = platform.create(REQUEST, wait=Wait(60))
    sim.faults.add("lost_request", TERMINATE, times=None, reset=True)
    with pytest.raises(NotYetGone, match="Destroy it again"):
        platform.destroy(box.native_id, box.account)
    assert sent(sim, TERMINATE) == 2


def test_a_terminate_that_was_carried_out_is_not_sent_again(sim: LambdaSim, platform: Platform) -> None:
    box = platform.create(REQUEST, wait=Wait(60))
    sim.faults.add("lost_answer", TERMINATE, times=None)
    platform.destroy(box.native_id, box.account)
    assert sent(sim, TERMINATE) == 1
    assert sim.ledger.live("instance") == []


def test_one_that_has_not_launched_yet_is_not_said_to_be_ended(sim: LambdaSim, platform: Platform) -> None:
    sim.instances.times = replace(AT_ONCE, launching=1e6, active=1e6)
    error = out_of_time(lambda wait: platform.create(REQUEST, wait=wait))
    account = platform.account()
    with pytest.raises(NotYetGone, match="same command again"):
        platform.destroy(error.identifier, account)
    (one,) = sim.instances.all.values()
    one.launched = True
    platform.destroy(one.id, account)
    assert sim.ledger.live("instance") == []


# Keys


def test_without_a_key_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(api.KEY_VARIABLE, raising=False)
    with pytest.raises(NotAuthorized, match=api.KEY_VARIABLE):
        load_platform("lambda_api").account()


NEW_KEY = "secret_simulated_of_ann.0003"


@pytest.fixture
def exchange(sim: LambdaSim, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Ann withdraws her key, and has another one."""

    def act() -> None:
        sim.act("rekey", {"account": "user_ann", "key": NEW_KEY})
        monkeypatch.setenv(api.KEY_VARIABLE, NEW_KEY)

    return act


def forget_instance(sim: LambdaSim, native_id: str) -> None:
    """Lambda no longer shows an instance that has ended."""
    with sim.lock:
        sim.settle()
        sim.instances.all.pop(native_id)
    api.SESSIONS.forget()


def test_a_key_that_saw_the_box_of_a_withdrawn_one_proves_its_end(
    sim: LambdaSim, platform: Platform, exchange: Callable[[], None]
) -> None:
    box = platform.create(REQUEST, wait=Wait(60))
    exchange()
    assert platform.account() != box.account
    assert platform.get(box.native_id, box.account) == box
    assert platform.find_by_tag(TAG, box.account) == box
    platform.destroy(box.native_id, box.account)
    assert platform.get(box.native_id, box.account).phase is Phase.GONE
    forget_instance(sim, box.native_id)
    assert platform.get(box.native_id, box.account).phase is Phase.GONE
    assert platform.find_by_tag(TAG, box.account) is None


def test_a_key_that_saw_no_box_of_a_withdrawn_one_proves_nothing_until_it_sees_one(
    sim: LambdaSim, platform: Platform, exchange: Callable[[], None]
) -> None:
    ended, there = (platform.create(replace(REQUEST, tag=tag), wait=Wait(60)) for tag in (TAG, f"{TAG}2"))
    platform.destroy(ended.native_id, ended.account)
    forget_instance(sim, ended.native_id)
    exchange()
    with pytest.raises(WrongAccount, match=rf"{ended.account}(.|\n)*look at another box that it rented"):
        platform.get(ended.native_id, ended.account)
    with pytest.raises(WrongAccount):
        platform.find_by_tag(TAG, ended.account)
    assert platform.get(there.native_id, there.account) == there
    assert platform.get(ended.native_id, ended.account).phase is Phase.GONE
    assert platform.find_by_tag(TAG, ended.account) is None


def test_a_third_key_believes_the_second_one(
    sim: LambdaSim, platform: Platform, exchange: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = platform.create(REQUEST, wait=Wait(60))
    exchange()
    platform.get(first.native_id, first.account)
    second = platform.create(replace(REQUEST, tag=f"{TAG}2"), wait=Wait(60))
    platform.destroy(first.native_id, first.account)
    forget_instance(sim, first.native_id)
    sim.act("rekey", {"account": "user_ann", "key": f"{NEW_KEY}4"})
    monkeypatch.setenv(api.KEY_VARIABLE, f"{NEW_KEY}4")
    platform.get(second.native_id, second.account)
    assert platform.get(first.native_id, first.account).phase is Phase.GONE


@pytest.mark.parametrize("damage", ["", "{}", '{"same": 1}', '{"same": [["key-1"]]}', "[" * 100_000])
def test_another_account_s_key_proves_no_end_and_a_damaged_note_knows_nothing(
    sim: LambdaSim, platform: Platform, exchange: Callable[[], None], monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    box = platform.create(REQUEST, wait=Wait(60))
    monkeypatch.setenv(api.KEY_VARIABLE, OTHER_KEY)
    with pytest.raises(WrongAccount):
        platform.get(box.native_id, box.account)
    exchange()
    platform.get(box.native_id, box.account)
    note = api.same_account_note()
    assert note.stat().st_mode & 0o777 == 0o600
    assert not any(key in note.read_text() for key in (KEY, NEW_KEY))
    note.write_text(damage)
    platform.destroy(box.native_id, box.account)
    note.write_text(damage)
    forget_instance(sim, box.native_id)
    with pytest.raises(WrongAccount):
        platform.get(box.native_id, box.account)


# The market


@pytest.mark.parametrize(
    ("wanted", "types"),
    [
        (Constraints(gpu_count=1), ["gpu_1x_a10", "gpu_1x_a100_sxm4", "gpu_1x_gh200", "gpu_1x_h100_pcie"]),
        (Constraints(gpu_count=2), []),
        (Constraints(gpu_count=1, gpu_names=("A100",)), ["gpu_1x_a100_sxm4"]),
        (Constraints(gpu_count=1, gpu_names=("a100-40GB", "H100 PCIe")), ["gpu_1x_a100_sxm4", "gpu_1x_h100_pcie"]),
        (Constraints(gpu_count=1, gpu_names=("H200",)), []),
        (Constraints(gpu_count=1, gpu_memory_gb=Bound(80)), ["gpu_1x_gh200", "gpu_1x_h100_pcie"]),
        (Constraints(gpu_count=1, gpu_memory_gb=Bound(40, at_least=False)), ["gpu_1x_a100_sxm4"]),
        (Constraints(gpu_count=1, cpu=64), ["gpu_1x_gh200"]),
        (Constraints(gpu_count=1, memory_gb=400), ["gpu_1x_gh200"]),
        (Constraints(gpu_count=1, disk_gb=1200), ["gpu_1x_a10", "gpu_1x_gh200"]),
        (Constraints(gpu_count=1, max_price=1.29), ["gpu_1x_a10", "gpu_1x_a100_sxm4"]),
    ],
)
def test_the_types_that_fit_are_offered_cheapest_first(
    sim: LambdaSim, platform: Any, wanted: Constraints, types: list[str]
) -> None:
    found = platform.offers(replace(wanted, regions=("us-west",)))
    assert [offer.key for offer in found] == [f"{name}@us-west-1" for name in types]


def test_one_list_serves_many_reads(sim: LambdaSim, platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = [platform.create(replace(REQUEST, tag=f"{TAG}{number}"), wait=Wait(60)) for number in range(3)]
    monkeypatch.setattr("sweepstack.platforms.common.box_session.FRESH_SECONDS", 1e6)
    sim.calls.clear()
    for box in boxes:
        assert platform.get(box.native_id, box.account) == box
    assert sent(sim, LIST) == len(sim.calls) <= 1
