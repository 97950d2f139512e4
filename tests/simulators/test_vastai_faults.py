"""The faults of the simulated vast.ai, its errors, its rate limits and its strictness, through the SDK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

from tests.simulators.vastai import VastSimulator
from tests.simulators.vastai.gate import FAULTS
from tests.simulators.vastai.market import Machine
from tests.simulators.vastai_fixtures import offer_of, refused, rent, sdk, served, until

INCREASE = "/api/v0/instances/accept-price-increase/"
CREATE = "PUT /api/v0/asks/{id}/"
SHOW = "GET /api/v0/instances/{id}/"
LIST = "GET /api/v1/instances/"
DELETE = "DELETE /api/v0/instances/{id}/"


@pytest.fixture
def sim() -> Iterator[VastSimulator]:
    with served() as sim:
        yield sim
        assert sim.faults.unfired() == []


@pytest.fixture
def ann(sim: VastSimulator) -> Any:
    return sdk(sim)


def living(sim: VastSimulator) -> list[str]:
    return [rental.id for rental in sim.ledger.live("instance")]


# A create whose answer is lost


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("lost_answer", {}),
        ("lost_answer", {"reset": True}),
        ("error_after", {"status": 502}),
        ("html_after", {"status": 503}),
    ],
)
def test_a_create_without_retry_is_sent_once_and_has_rented(
    sim: VastSimulator, ann: Any, kind: str, params: dict[str, Any]
) -> None:
    sim.faults.add(kind, CREATE, **params)
    with pytest.raises(requests.RequestException):
        rent(ann)
    assert sim.count(CREATE) == 1
    assert len(living(sim)) == 1


@pytest.mark.parametrize("kind", ["lost_answer", "error_after"])
def test_the_sdks_default_sends_a_create_three_times(sim: VastSimulator, kind: str) -> None:
    """And where a machine's offers are cut anew under the same id, it rents three times."""
    sim.world.market.add(Machine(9, 9, gpus=8, keeps_ids=True))
    params = {"status": 502} if kind == "error_after" else {}
    sim.faults.add(kind, CREATE, times=None, **params)
    careless = sdk(sim, retry=3)
    with pytest.raises(requests.RequestException):
        rent(careless, 9, 1)
    assert sim.count(CREATE) == 3
    assert len(living(sim)) == 3
    assert sim.ledger.doubled("instance") == {"box-0": sorted(living(sim))}


def test_the_second_try_of_a_create_says_gone_although_the_first_has_rented(sim: VastSimulator) -> None:
    sim.faults.add("lost_answer", CREATE)
    with refused(410, "no_such_ask"):
        rent(sdk(sim, retry=3))
    assert sim.count(CREATE) == 2
    assert len(living(sim)) == 1


def test_a_create_that_never_arrived_has_rented_nothing(sim: VastSimulator, ann: Any) -> None:
    for kind in ("lost_request", "error_before", "html_before"):
        sim.faults.add(kind, CREATE)
        with pytest.raises(requests.RequestException):
            rent(ann)
    assert living(sim) == []


# Offers and starts


def test_an_offer_is_snatched_between_search_and_create(sim: VastSimulator, ann: Any) -> None:
    sim.faults.add("snatched", CREATE, nth=2)
    rent(ann, 1)
    with refused(410, "no_such_ask"):
        rent(ann, 3)
    assert len(living(sim)) == 1
    assert ann.search_offers(query={"machine_id": {"eq": 3}}, no_default=True) == []


@pytest.mark.parametrize("cancel", [True, False])
def test_what_cannot_start_is_cancelled_or_left_waiting(sim: VastSimulator, ann: Any, cancel: bool) -> None:
    """Only the GPUs are gone: cancel_unavail decides, and the SDK's own default is to wait and bill later."""
    sim.faults.add("snatched", CREATE, gpus=True)
    if cancel:
        with refused(410, "no_such_ask"):
            rent(ann, cancel_unavail=True)
        assert living(sim) == []
        return
    number = rent(ann, cancel_unavail=False)
    row = ann.show_instance(number)
    assert (row["actual_status"], row["cur_state"], row["next_state"]) == (None, "stopped", "running")
    sim.act("free", {"machine": 1})
    until(ann, number, "running")


def test_the_floor_rises_just_before_a_bid(sim: VastSimulator, ann: Any) -> None:
    sim.faults.add("bid_refused", CREATE)
    with refused(400, None, "new_contract"):
        rent(ann, 2, 1, price=0.70)
    (number,) = living(sim)
    assert ann.show_instance(int(number))["cur_state"] == "stopped"


def test_limits_of_new_accounts(sim: VastSimulator, ann: Any) -> None:
    sim.faults.add("spend_limit", CREATE)
    with refused(400, "spend_rate_limit"):
        rent(ann)
    assert living(sim) == []


def test_a_200_that_says_no(sim: VastSimulator, ann: Any) -> None:
    sim.faults.add("success_false", CREATE, msg="no")
    assert ann.create_instance(offer_of(ann, 1)["id"], image="x") == {"success": False, "msg": "no"}
    assert living(sim) == []


def test_instances_that_never_run(sim: VastSimulator, ann: Any) -> None:
    for kind in ("stuck", "oci", "dies"):
        sim.faults.add(kind, CREATE, nth=1)
    sim.clock.advance(1)
    stuck = rent(ann)
    assert [ann.show_instance(stuck)["actual_status"] for _ in range(6)][-2:] == ["loading", "loading"]
    sim.clock.advance(10_000)
    assert ann.show_instance(stuck)["actual_status"] == "loading"
    sim.faults.clear()
    sim.faults.add("oci", CREATE)
    broken = rent(ann, 2, 1)
    row = [ann.show_instance(broken) for _ in range(5)][-1]
    assert row["actual_status"] == "created"
    assert ": OCI runtime create failed:" in row["status_msg"]
    sim.faults.add("dies", CREATE)
    dead = rent(ann, 2, 1)
    row = until(ann, dead, "exited")
    assert (row["intended_status"], row["cur_state"]) == ("running", "running")
    assert 0 < sim.ledger.get(str(dead)).rate < 0.01, "its GPU does not bill"


# Reads that lie


def test_a_list_that_is_empty_or_late_and_a_null_that_is_none(sim: VastSimulator, ann: Any) -> None:
    old = rent(ann)
    sim.clock.advance(100)
    new = rent(ann, 2, 1)
    sim.faults.add("null_read", SHOW)
    assert ann.show_instance(old) is None
    assert ann.show_instance(old)["id"] == old
    sim.faults.add("empty_list", LIST)
    told = ann.show_instances_v1({})
    assert (told["instances"], told["total_instances"], told["label_counts"]) == ([], 0, {})
    sim.faults.add("stale_list", LIST, seconds=50)
    assert [row["id"] for row in ann.show_instances()] == [old]
    ann.destroy_instance(old)
    sim.act("set", {"destroy_reads": 0})
    sim.faults.add("stale_list", LIST, seconds=50)
    assert [row["id"] for row in ann.show_instances()] == [old]
    assert [row["id"] for row in ann.show_instances()] == [new]


@pytest.mark.parametrize("kind", ["truncated", "not_json", "html_ok"])
def test_bodies_that_are_none(sim: VastSimulator, ann: Any, kind: str) -> None:
    number = rent(ann)
    sim.faults.add(kind, SHOW)
    with pytest.raises((requests.RequestException, ValueError)):
        ann.show_instance(number)
    assert ann.show_instance(number)["id"] == number


# Ends


def test_a_delete_that_is_accepted_and_does_nothing(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    sim.faults.add("destroy_ignored", DELETE)
    assert ann.destroy_instance(number)["success"] is True
    assert living(sim) == [str(number)]
    until(ann, number, "running")
    ann.destroy_instance(number)
    assert living(sim) == []


def test_a_delete_that_is_seen_for_long(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    sim.faults.add("destroy_slow", DELETE, reads=4)
    ann.destroy_instance(number)
    assert [ann.show_instance(number) is None for _ in range(6)] == [False] * 4 + [True] * 2


def test_by_the_clock_a_destroyed_instance_is_forgotten_without_looks(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    sim.faults.add("destroy_slow", DELETE, reads=99)
    ann.destroy_instance(number)
    sim.clock.advance(91)
    assert ann.show_instance(number) is None


# Hosts


def test_a_host_that_goes_and_comes_back(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    until(ann, number, "running")
    sim.act("offline", {"machine": 1})
    row = ann.show_instance(number)
    assert (row["actual_status"], row["intended_status"]) == ("offline", "running")
    assert sim.ledger.get(str(number)).rate == 0
    assert ann.search_offers(query={"machine_id": {"eq": 1}}, no_default=True) == []
    sim.act("online", {"machine": 1})
    until(ann, number, "running")


def test_a_contract_that_ends(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    until(ann, number, "running")
    sim.act("expire", {"id": number})
    assert ann.show_instance(number)["actual_status"] == "exited"
    with refused(400, "invalid_args", "expired"):
        ann.start_instance(number)


def test_an_instance_that_vanishes(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    sim.act("vanish", {"id": number})
    assert ann.show_instance(number) is None
    assert ann.show_instances() == []
    assert living(sim) == []


def test_what_happens_at_the_very_moment_of_a_look(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    until(ann, number, "running")
    sim.faults.add("odd_status", SHOW, word="migrating")
    assert ann.show_instance(number)["actual_status"] == "migrating"
    assert ann.show_instance(number)["actual_status"] == "running"
    sim.faults.add("preempted", LIST)
    (row,) = ann.show_instances()
    assert (row["actual_status"], row["cur_state"], row["next_state"]) == ("exited", "stopped", "stopped")
    assert ann.show_instance(number)["actual_status"] == "exited", "no bid: it does not come back by itself"
    sim.faults.add("vanished", DELETE)
    with refused(404, "not_found"):
        ann.destroy_instance(number)
    assert living(sim) == []
    sim.faults.add("vanished", SHOW)
    assert ann.show_instance(rent(ann)) is None


def test_a_create_without_the_money(sim: VastSimulator, ann: Any) -> None:
    sim.faults.add("lacks_credit", CREATE)
    with refused(400, None, "lacks credit"):
        rent(ann)
    assert living(sim) == []


def test_a_key_that_is_another_accounts_all_of_a_sudden(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    other = sim.add_account("bob").id
    sim.faults.add("foreign_account", "*", times=2)
    assert ann.show_user()["id"] == int(other)
    assert ann.show_instance(number) is None
    assert ann.show_instance(number)["id"] == number


# Too many requests


def test_calls_that_come_too_fast_get_every_wording_of_429(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    sim.act("set", {"limits": True})
    bodies = set()
    ann.show_instance(number)
    for _ in range(3):
        with pytest.raises(requests.HTTPError) as caught:
            ann.show_instance(number)
        reply = caught.value.response
        assert (reply.status_code, reply.headers.get("Retry-After")) == (429, None)
        bodies.add((reply.headers["Content-Type"].partition(";")[0], reply.text))
    assert bodies == {
        ("text/plain", "API requests too frequent"),
        ("text/plain", "API requests too frequent: endpoint threshold=2.0"),
        ("application/json", '{"detail": "API requests too frequent endpoint threshold=2.0"}'),
    }
    sim.clock.advance(2.0)
    ann.show_instance(number)
    ann.show_instances()
    sim.clock.advance(4.5)
    sim.act("set", {"retry_after": True})
    ann.destroy_instance(number)
    wordings = set()
    for _ in range(2):
        with pytest.raises(requests.HTTPError) as caught:
            ann.destroy_instance(number)
        assert float(caught.value.response.headers["Retry-After"]) == pytest.approx(3.0)
        wordings.add("rate_limit_exceeded" in caught.value.response.text)
    assert wordings == {True, False}


def test_ten_searches_a_minute(sim: VastSimulator, ann: Any) -> None:
    sim.act("set", {"limits": True})
    for _ in range(10):
        offer_of(ann, 1)
    with refused(429):
        offer_of(ann, 1)
    sim.clock.advance(60)
    offer_of(ann, 1)


def test_a_429_of_the_plan_is_waited_out_by_the_sdk_and_the_daily_quota_is_not(sim: VastSimulator) -> None:
    patient = sdk(sim, retry=3)
    sim.faults.add("too_many", "POST /api/v0/bundles/", retry_after=0.01)
    offer_of(patient, 1)
    assert sim.count("POST /api/v0/bundles/") == 2
    sim.faults.add("search_quota", "POST /api/v0/bundles/")
    with refused(429, "search_quota_exceeded"):
        offer_of(patient, 1)
    assert sim.count("POST /api/v0/bundles/") == 3


# Who asks


def test_a_bad_key_is_401_or_as_seen_live_404(sim: VastSimulator, ann: Any) -> None:
    bad = sdk(sim, "nobody")
    with refused(401, "auth_error", "Invalid user key"):
        bad.show_instances()
    sim.act("set", {"bad_key_status": 404})
    with refused(404, "auth_error", "Invalid user key"):
        bad.show_instance(1)
    with refused(404, None, "Invalid user key"):
        bad.search_offers(query={}, no_default=True)
    sim.faults.add("auth", SHOW, status=404)
    with refused(404, "auth_error"):
        ann.show_instance(1)
    assert ann.show_instance(1) is None


def test_no_key_at_all(sim: VastSimulator) -> None:
    for path, status in (("/api/v0/users/current", 401), ("/api/v0/charges/", 403)):
        reply = httpx.get(sim.url + path)
        assert (reply.status_code, reply.json()["error"]) == (status, "auth_error")


def test_a_key_does_what_its_scopes_allow(sim: VastSimulator, ann: Any) -> None:
    sim.act("key", {"account": "5000", "key": "reader", "scopes": ["instance_read", "misc"]})
    reader = sdk(sim, "reader")
    number = rent(ann)
    assert reader.show_instance(number)["id"] == number
    for ask in (lambda: rent(reader, 2), lambda: reader.destroy_instance(number), reader.show_user):
        with refused(403):
            ask()
    sim.faults.add("forbidden", "GET /api/v1/invoices/")
    with refused(403):
        ann.show_invoices_v1(start_date=1, end_date=2)
    assert len(living(sim)) == 1


# Strictness


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("GET", "/api/v0/instances/", None, "unknown route"),
        ("GET", "/api/v0/instances/1/?api_key=secret", None, "a key in a URL"),
        ("GET", "/api/v1/instances/?page=2", None, "unknown query parameters: page"),
        ("PUT", "/api/v0/instances/{id}/", {"status": "stopped"}, "'status' not allowed"),
        ("PUT", "/api/v0/instances/{id}/", {}, "neither state nor label"),
        ("PUT", "/api/v0/asks/{ask}/", {"image": "x", "disk": "20"}, "$.disk"),
        ("PUT", "/api/v0/asks/{ask}/", {"image": "x", "gpus": 1}, "'gpus' not allowed"),
        ("POST", "/api/v0/bundles/", {"gpus": {"eq": 1}}, "unknown gpus"),
        ("POST", "/api/v0/bundles/", {"num_gpus": {"is": 1}}, "operator 'is'"),
        ("POST", "/api/v0/bundles/", {"num_gpus": 1}, "num_gpus"),
        (
            "PUT",
            "/api/v0/instances/accept-price-increase/",
            {"pending_price_increase_id": 1, "x": 1},
            "'x' not allowed",
        ),
    ],
)
def test_what_no_client_sends_is_a_violation(
    sim: VastSimulator, ann: Any, method: str, path: str, body: Any, said: str
) -> None:
    number, ask = rent(ann), offer_of(ann, 2)["id"]
    headers = {"Authorization": f"Bearer {sim.customers['5000'].key}"}
    reply = httpx.request(method, sim.url + path.format(id=number, ask=ask), json=body, headers=headers)
    (violation,) = sim.pardon()
    assert said in violation
    assert "secret" not in violation
    assert reply.status_code in (200, 400, 404)


def test_headers_that_do_not_belong_there(sim: VastSimulator) -> None:
    key = sim.customers["5000"].key
    httpx.get(f"{sim.url}/api/v0/users/current", headers={"Authorization": f"Bearer {key}", "X-Api-Key": "k"})
    httpx.get(f"{sim.url}/api/v0/users/current", headers={"Authorization": key})
    httpx.get(f"{sim.url}/api/v0/users/current", headers={"Authorization": f"Bearer {key}", "User-Agent": ""})
    said = " | ".join(sim.pardon())
    assert "unknown header 'x-api-key'" in said
    assert "Authorization without Bearer" in said
    assert "no User-Agent" in said
    assert key not in said


def test_every_fault_has_a_test() -> None:
    here = Path(__file__)
    names = ("test_vastai_sim.py", "test_own_keys.py", "test_own_keys_inside.py")
    source = here.read_text() + "".join(here.with_name(name).read_text() for name in names)
    assert [kind for kind in FAULTS if f'"{kind}"' not in source and f" {kind}=" not in source] == []
