"""The simulated vast.ai through the official SDK: every reply of its endpoints, states and bills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.simulators.vastai import VastSimulator
from tests.simulators.vastai_fixtures import KEY, START, offer_of, refused, rent, sdk, served, until

ROOT = Path(__file__).resolve().parents[2]
HOUR = 3600.0


@pytest.fixture
def sim() -> Iterator[VastSimulator]:
    with served() as sim:
        yield sim


@pytest.fixture
def ann(sim: VastSimulator) -> Any:
    return sdk(sim)


# Offers


def test_a_search_gives_prices_with_the_storage_that_was_asked_for(ann: Any) -> None:
    small, big = (offer_of(ann, 2, 4, storage=gb) for gb in (10.0, 730.0))
    assert small["dph_base"] == pytest.approx(4.80)
    assert small["dph_total"] == pytest.approx(4.80 + 10 * 0.15 / 730)
    assert big["dph_total"] == pytest.approx(4.80 + 0.15)
    assert big["min_bid"] == pytest.approx(2.40), "of the whole offer"
    assert (big["gpu_ram"], big["gpu_total_ram"], big["id"]) == (81920, 4 * 81920, big["ask_contract_id"])


def test_the_sdks_own_query_language_is_understood(ann: Any) -> None:
    found = ann.search_offers(query="num_gpus>=2 gpu_ram>=70 geolocation in [DE,SE]", order="dph_total-")
    assert [row["num_gpus"] for row in found] == [4, 2]
    assert all(row["datacenter"] is False for row in found)
    verified = ann.search_offers(query="gpu_name=RTX_4090 reliability>0.9", order="dph_total")
    assert [row["machine_id"] for row in verified] == [1], "verified by the SDK's own default"
    both = ann.search_offers(query="gpu_name=RTX_4090 verified=any", order="dph_total")
    assert [row["machine_id"] for row in both] == [3, 1]


@pytest.mark.parametrize(
    ("condition", "machines"),
    [
        ({"neq": "RTX 4090"}, {2}),
        ({"in": ["RTX 4090", "H100"]}, {1, 3}),
        ({"notin": ["RTX 4090"]}, {2}),
        ({"eq": "rtx 4090"}, set()),
    ],
)
def test_operators(ann: Any, condition: dict[str, Any], machines: set[int]) -> None:
    found = ann.search_offers(query={"gpu_name": condition}, no_default=True)
    assert {row["machine_id"] for row in found} == machines


def test_never_more_than_64_offers(sim: VastSimulator, ann: Any) -> None:
    for number in range(100, 180):
        sim.act("machine", {"id": number})
    assert len(ann.search_offers(query={}, no_default=True, limit=1000)) == 64
    assert len(ann.search_offers(query={}, no_default=True, limit=7)) == 7


def test_an_offer_is_filtered_by_ask_contract_id_and_never_by_id(ann: Any) -> None:
    offer = offer_of(ann, 1)
    assert ann.search_offers(query={"id": {"eq": offer["id"]}}, no_default=True) == []
    found = ann.search_offers(query={"ask_contract_id": {"eq": offer["id"]}}, no_default=True)
    assert [row["id"] for row in found] == [offer["id"]]


def test_what_is_rented_is_no_longer_offered_and_the_rest_of_the_machine_is(ann: Any) -> None:
    before = offer_of(ann, 2, 2)["id"]
    rent(ann, 2, 2)
    found = ann.search_offers(query={"machine_id": {"eq": 2}}, no_default=True, order="num_gpus")
    assert [row["num_gpus"] for row in found] == [1, 2], "4 no longer fit"
    assert before not in [row["id"] for row in found]
    rent(ann, 2, 2)
    assert ann.search_offers(query={"machine_id": {"eq": 2}}, no_default=True) == []


# Creating and looking


def test_an_instance_comes_up_and_says_where_it_is(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann, env={"A": "1", "-p 8000:8000": "1"}, onstart_cmd="echo hello")
    seen = [ann.show_instance(number) for _ in range(4)]
    assert [row["actual_status"] for row in seen] == [None, "created", "loading", "running"]
    assert all("ports" not in row for row in seen[:3]), "ports only when it runs"
    row = seen[-1]
    assert row["ports"]["22/tcp"] == [{"HostIp": "0.0.0.0", "HostPort": str(sim.world.boxes.closed_port)}]
    assert row["public_ipaddr"] == "127.0.0.1\n"
    assert (row["cur_state"], row["next_state"], row["intended_status"]) == ("running",) * 3
    assert row["extra_env"] == {"A": "1", "-p 8000:8000": "1"}, "the SDK's form: pairs on the wire"
    assert row["image_runtype"] == "ssh ssh_direc ssh_proxy"
    assert (row["label"], row["disk_space"], row["is_bid"], row["num_gpus"]) == ("box-0", 20.0, False, 1)
    assert row["start_date"] == START
    assert row["dph_total"] == pytest.approx(0.40 + 20 * 0.15 / 730)


def test_the_list_has_the_same_and_more(ann: Any) -> None:
    number = rent(ann, label="one")
    (row,) = ann.show_instances()
    assert (row["id"], row["label"], row["volume_info"]) == (number, "one", [])
    assert "volume_info" not in ann.show_instance(number), "seen live: only the list has it"


def test_a_missing_instance_is_null_and_another_accounts_is_as_missing(sim: VastSimulator, ann: Any) -> None:
    assert ann.show_instance(4711) is None
    other = sdk(sim, sim.add_account("bob").key)
    number = rent(ann)
    assert other.show_instance(number) is None
    assert other.show_instances() == []
    with refused(404, "not_found"):
        other.destroy_instance(number)
    with refused(404, "no_such_instance", "not found"):
        other.stop_instance(number)
    assert sim.ledger.live()[0].id == str(number)


def test_a_list_of_sixty_comes_in_three_pages_with_its_labels_counted(sim: VastSimulator, ann: Any) -> None:
    for number in range(100, 160):
        (offer,) = sim.act("machine", {"id": number, "volume_space": 0.0})
        sim.act("rent", {"account": "5000", "offer": offer, "label": f"box-{number % 2}" if number < 150 else None})
    assert len({row["id"] for row in ann.show_instances()}) == 60
    assert sim.count("GET /api/v1/instances/") == 3
    page = ann.show_instances_v1({"limit": 25})
    assert (page["instances_found"], page["total_instances"]) == (25, 60)
    assert page["label_counts"] == {"box-0": 25, "box-1": 25, "": 10}
    assert len(ann.show_instances_v1({"limit": 0})["instances"]) == 5
    assert len(ann.show_instances_v1({"limit": 100})["instances"]) == 25
    named = ann.show_instances_v1({"select_filters": {"label": {"eq": "box-1"}}})
    assert (named["total_instances"], named["label_counts"], named["next_token"]) == (25, {"box-1": 25}, None)
    downwards = ann.show_instances_v1({"order_by": [{"col": "id", "dir": "desc"}], "limit": 10})
    ids = [row["id"] for row in downwards["instances"]]
    more = ann.show_instances_v1(
        {"order_by": [{"col": "id", "dir": "desc"}], "limit": 10, "after_token": downwards["next_token"]}
    )
    assert ids == sorted(ids, reverse=True)
    assert max(row["id"] for row in more["instances"]) < min(ids)
    assert ann.show_instances_v1({"select_cols": ["id", "nope"], "limit": 1})["instances"] == [
        {"id": min(row["id"] for row in ann.show_instances()), "nope": None}
    ]


def test_a_list_refuses_a_bad_token_and_a_filter_on_a_computed_column(ann: Any) -> None:
    with refused(400, "invalid_token", "Invalid pagination token"):
        ann.show_instances_v1({"after_token": "nonsense"})
    with refused(400, "invalid_args", "computed"):
        ann.show_instances_v1({"select_filters": {"dph_total": {"gt": 1}}})


def test_env_as_a_string_of_flags_is_not_applied(sim: VastSimulator, ann: Any) -> None:
    body = {"image": "x", "env": "-e A=1", "disk": 10, "runtype": "ssh"}
    reply = httpx.put(
        f"{sim.url}/api/v0/asks/{offer_of(ann, 1)['id']}/",
        json=body,
        headers={"Authorization": f"Bearer {sim.customers['5000'].key}"},
    )
    assert ann.show_instance(reply.json()["new_contract"])["extra_env"] == {}


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"disk": 4}, "invalid_args"),
        ({"disk": 9999}, "invalid_args"),
        ({"label": "x" * 257}, "label_too_long"),
        ({"onstart_cmd": "x" * 4097}, "invalid_args"),
        ({"image": "x" * 1025}, "invalid_args"),
        ({"price": 500.0}, "invalid_price"),
        ({"price": 0.0001}, "invalid_price"),
        ({"runtype": "telnet", "ssh": False, "direct": False}, "invalid_args"),
        ({"env": {f"-p {n}:{n}": "1" for n in range(65)}}, "invalid_args"),
        ({"env": {"A": "x" * 40000}}, "invalid_args"),
        ({"link_volume": 99, "mount_path": "/data"}, None),
    ],
)
def test_a_create_that_the_platform_refuses_rents_nothing(
    sim: VastSimulator, ann: Any, asked: dict[str, Any], error: str | None
) -> None:
    with refused(404 if error is None else 400, error):
        rent(ann, **asked)
    assert sim.ledger.all() == []


def test_offers_that_never_were_and_offers_that_are_gone(ann: Any) -> None:
    gone = offer_of(ann, 1)["id"]
    rent(ann)
    with refused(410, "no_such_ask", f"error 410/3907: no_such_ask Instance type {gone} is no longer available."):
        ann.create_instance(gone, image="x")
    with refused(404, "invalid_args", "error 404/3603: no_such_ask Instance type by id 12 is not available."):
        ann.create_instance(12, image="x")


def test_a_host_may_not_rent_another_hosts_machine(sim: VastSimulator) -> None:
    host = sdk(sim, sim.add_account("hal", host=True).key)
    with refused(403, "invalid_args", "is not your own"):
        rent(host)


def test_who_has_no_credit_rents_nothing(sim: VastSimulator, ann: Any) -> None:
    sim.act("credit", {"account": "5000", "usd": -100})
    with refused(400, None, "Your account lacks credit"):
        rent(ann)
    assert sim.ledger.all() == []


# Stopping, starting, ending


def test_stop_and_start(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    until(ann, number, "running")
    assert ann.stop_instance(number)["success"] is True
    assert ann.show_instance(number)["actual_status"] == "running", "not at once"
    row = ann.show_instance(number)
    assert row["actual_status"] == "exited"
    assert (row["cur_state"], row["next_state"], row["intended_status"]) == ("stopped",) * 3
    assert "ports" not in row
    assert ann.start_instance(number)["success"] is True
    seen = [ann.show_instance(number)["actual_status"] for _ in range(3)]
    assert seen == ["exited", "loading", "running"], "exited is still shown at first"


def test_a_start_whose_gpu_is_taken_is_queued_and_a_stop_takes_it_back(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    until(ann, number, "running")
    ann.stop_instance(number)
    until(ann, number, "exited")
    sim.act("take", {"machine": 1, "gpus": 1})
    reply = ann.start_instance(number)
    assert reply == {
        "success": False,
        "msg": "Required resources are currently unavailable, state change queued.",
    }
    assert ann.show_instance(number)["next_state"] == "running"
    ann.stop_instance(number)
    sim.act("free", {"machine": 1})
    assert [ann.show_instance(number)["actual_status"] for _ in range(3)] == ["exited"] * 3
    assert sim.ledger.get(str(number)).state == "exited"


def test_a_queued_start_begins_by_itself_and_bills(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    until(ann, number, "running")
    ann.stop_instance(number)
    until(ann, number, "exited")
    sim.faults.add("start_queued", "PUT /api/v0/instances/{id}/", seconds=300)
    assert ann.start_instance(number)["success"] is False
    assert ann.show_instance(number)["actual_status"] == "exited"
    sim.clock.advance(301)
    until(ann, number, "running")
    assert sim.ledger.get(str(number)).rate > 0.40
    assert sim.faults.unfired() == []


def test_reboot_keeps_and_recycle_renews(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    until(ann, number, "running")
    assert ann.reboot_instance(number) == {"success": True}
    assert [ann.show_instance(number)["actual_status"] for _ in range(2)] == ["rebooting", "running"]
    assert sim.world.instances[number].generation == 0
    ann.recycle_instance(number)
    seen = [ann.show_instance(number)["actual_status"] for _ in range(4)]
    assert seen == ["recycling", "created", "loading", "running"]
    assert sim.world.instances[number].generation == 1


def test_update_template_changes_in_place_in_a_new_container(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann, onstart_cmd="echo old", env={"A": "1"})
    until(ann, number, "running")
    ann.update_instance(number, image="other:1", env={"B": "2"})
    row = until(ann, number, "running")
    assert (row["image_uuid"], row["extra_env"], row["onstart"]) == ("other:1", {"B": "2"}, "echo old")
    assert sim.world.instances[number].generation == 1


def test_a_label_is_changed_in_place(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    ann.label_instance(number, "other")
    assert ann.show_instance(number)["label"] == "other"
    assert sim.ledger.get(str(number)).tag == "other"
    with refused(400, "label_too_long", "Please limit label length to 1024 characters"):
        ann.label_instance(number, "x" * 1025)


@pytest.mark.parametrize("verb", ["start_instance", "stop_instance", "reboot_instance", "recycle_instance"])
def test_verbs_on_what_is_missing(ann: Any, verb: str) -> None:
    with refused(404, "no_such_instance"):
        getattr(ann, verb)(4711)


def test_a_destroy_is_seen_late_and_then_never_again(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    sim.act("set", {"destroy_reads": 3})
    assert ann.destroy_instance(number)["success"] is True
    assert sim.ledger.live() == [], "the bill ends at once"
    assert ann.show_instance(number)["actual_status"] == "exited"
    assert [row["id"] for row in ann.show_instances()] == [number]
    assert ann.destroy_instance(number)["success"] is True, "again, while it is still shown"
    assert ann.show_instance(number) is not None
    assert ann.show_instance(number) is None
    assert ann.show_instances() == []
    with refused(404, "not_found", "Instance not found"):
        ann.destroy_instance(number)
    sim.act("set", {"delete_missing": "no_such_instance"})
    with refused(404, "no_such_instance"):
        ann.destroy_instance(number)
    offer_of(ann, 1)


def test_get_may_say_null_while_the_list_still_shows_it(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    sim.act("set", {"destroy_reads": 2, "get_forgets_first": True})
    ann.destroy_instance(number)
    assert ann.show_instance(number) is None
    assert [row["id"] for row in ann.show_instances()] == [number]


# Bids


def test_a_bid_below_the_floor_is_refused_and_yet_a_contract_is_made(sim: VastSimulator, ann: Any) -> None:
    for status in (400, 200):
        sim.act("set", {"bid_refused_status": status})
        if status == 400:
            with refused(400) as told:
                rent(ann, 2, 1, price=0.30)
            assert told == {}
            number = sim.world.own(sim.customers["5000"])[-1].id
        else:
            reply = ann.create_instance(offer_of(ann, 2, 1)["id"], image="x", price=0.30)
            assert reply["success"] is False
            number = reply["new_contract"]
        row = ann.show_instance(number)
        assert (row["cur_state"], row["next_state"], row["intended_status"]) == ("stopped",) * 3
        assert row["is_bid"] is True
        assert sim.ledger.get(str(number)).rate == pytest.approx(row["disk_space"] * 0.15 / 730), "its disk bills"


def test_the_error_of_a_low_bid_carries_the_contract(sim: VastSimulator, ann: Any) -> None:
    body = {"image": "x", "disk": 10, "price": 0.3, "runtype": "ssh_direct"}
    reply = httpx.put(
        f"{sim.url}/api/v0/asks/{offer_of(ann, 2, 1)['id']}/",
        json=body,
        headers={"Authorization": f"Bearer {sim.customers['5000'].key}"},
    )
    assert (reply.status_code, reply.json()["success"]) == (400, False)
    assert str(reply.json()["new_contract"]) in [rental.id for rental in sim.ledger.live()]


def test_outbid_without_notice_and_back_by_a_higher_bid(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann, 2, 2, price=1.30)
    row = until(ann, number, "running")
    assert row["dph_base"] == pytest.approx(1.30), "of the whole machine"
    sim.act("outbid", {"id": number})
    row = ann.show_instance(number)
    assert (row["actual_status"], row["cur_state"], row["intended_status"]) == ("exited", "stopped", "stopped")
    assert ann.change_bid(number, 2.0) == {"success": True}
    assert until(ann, number, "running")["dph_base"] == pytest.approx(2.0)
    with refused(400, "invalid_args", "Please set a bid price >= 0.001."):
        ann.change_bid(number, 0.0)
    with refused(400, "invalid_args"):
        ann.change_bid(number, 2 * 32.0 + 1)
    with refused(404, "no_such_instance", "Instance with that ID does not exist."):
        ann.change_bid(4711, 1.0)


def test_on_demand_beats_every_bid(sim: VastSimulator, ann: Any) -> None:
    low, high = rent(ann, 2, 2, price=1.30), rent(ann, 2, 2, price=1.50)
    until(ann, low, "running")
    until(ann, high, "running")
    assert ann.search_offers(query={"machine_id": {"eq": 2}}, no_default=True, type="on-demand")
    rent(ann, 2, 2)
    assert ann.show_instance(low)["actual_status"] == "exited"
    assert ann.show_instance(high)["actual_status"] == "running"


def test_a_fixed_price_is_no_bid(ann: Any) -> None:
    number = rent(ann)
    with refused(400, "invalid_args"):
        ann.change_bid(number, 1.0)


# Money


def test_the_meter_runs_on_gpus_while_running_and_on_disk_until_destroyed(sim: VastSimulator, ann: Any) -> None:
    disk = 20 * 0.15 / 730
    number = rent(ann)
    sim.clock.advance(HOUR)
    sim.act("set", {"by_itself": 10 * HOUR})
    assert sim.ledger.get(str(number)).usd == pytest.approx(disk), "before it runs: its disk"
    until(ann, number, "running")
    sim.clock.advance(HOUR)
    assert sim.ledger.get(str(number)).usd == pytest.approx(2 * disk + 0.40)
    ann.stop_instance(number)
    until(ann, number, "exited")
    sim.clock.advance(HOUR)
    assert sim.ledger.get(str(number)).usd == pytest.approx(3 * disk + 0.40)
    sim.act("offline", {"machine": 1})
    assert ann.show_instance(number)["actual_status"] == "offline"
    sim.clock.advance(HOUR)
    assert sim.ledger.get(str(number)).usd == pytest.approx(3 * disk + 0.40), "offline: nothing"
    sim.act("online", {"machine": 1})
    ann.destroy_instance(number)
    sim.clock.advance(HOUR)
    assert sim.ledger.get(str(number)).usd == pytest.approx(3 * disk + 0.40)
    user = ann.show_user()
    assert user["credit"] == pytest.approx(100 - 3 * disk - 0.40)
    assert (user["id"], user["email"]) == (5000, "ann@example.com")


def test_frozen_bills_its_gpus(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    until(ann, number, "running")
    sim.act("die", {"id": number, "word": "frozen"})
    assert sim.ledger.get(str(number)).rate > 0.40
    sim.act("die", {"id": number, "word": "exited"})
    assert 0 < sim.ledger.get(str(number)).rate < 0.01


def test_charges_add_up_to_what_was_spent(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    until(ann, number, "running")
    volume = ann.create_volume(ann.search_volumes()[0]["id"], size=100)["volume_name"]
    sim.clock.advance(2 * HOUR)
    asked = {"charges": True, "start_date": int(START), "end_date": int(START + 10 * HOUR)}
    told = ann.show_invoices_v1(**asked)
    assert (told["count"], told["total"], told["next_token"]) == (2, 2, None)
    sources = {row["source"]: row for row in told["results"]}
    assert set(sources) == {f"instance-{number}", volume.replace("V.", "volume-")}
    assert sum(row["amount"] for row in told["results"]) == pytest.approx(sim.ledger.spent("5000"))
    assert {item["type"] for item in sources[f"instance-{number}"]["items"]} == {"gpu", "disk"}
    half = ann.show_invoices_v1(**{**asked, "end_date": int(START + HOUR)})
    assert sum(row["amount"] for row in half["results"]) == pytest.approx(sim.ledger.spent("5000") / 2)
    only = ann.show_invoices_v1(**asked, charge_type=["volume"])
    assert [row["type"] for row in only["results"]] == ["volume"]
    with refused(400, None, "Must provide both 'day' gte and lte filters"):
        reply = ann.client.get("/charges/", query_args={"select_filters": {}})
        reply.raise_for_status()


def test_without_credit_all_stops_and_is_destroyed_after_a_grace(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    ann.create_volume(ann.search_volumes()[0]["id"], size=100, name="store")
    until(ann, number, "running")
    sim.clock.advance(400 * HOUR)
    assert ann.show_instance(number)["actual_status"] == "exited"
    with refused(400, None, "lacks credit"):
        ann.start_instance(number)
    sim.clock.advance(25 * HOUR)
    assert ann.show_instance(number) is None
    assert ann.show_volumes() == []
    assert sim.ledger.live() == []


# Keys and volumes


def test_keys_of_the_account_go_into_new_instances(sim: VastSimulator, ann: Any) -> None:
    with refused(404):
        ann.show_ssh_keys()
    made = ann.create_ssh_key(KEY)["key"]
    assert (made["public_key"], made["user_id"]) == (KEY, 5000)
    (listed,) = ann.show_ssh_keys()
    assert listed["key"] == KEY
    assert sim.world.instances[rent(ann)].keys == [KEY]
    ann.update_ssh_key(made["id"], KEY + "2")
    ann.delete_ssh_key(made["id"])
    for again in (lambda: ann.delete_ssh_key(made["id"]), lambda: ann.create_ssh_key("")):
        with refused(400, "no_ssh_key", "No ssh key provided"):
            again()


def test_a_key_is_attached_to_one_instance(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    assert sim.world.instances[number].keys == []
    for _ in range(2):
        assert ann.attach_ssh(number, KEY)["success"] is True
    assert sim.world.instances[number].keys == [KEY]
    with refused(404, "no_such_instance"):
        ann.attach_ssh(4711, KEY)
    ann.detach_ssh(number, "1")
    assert sim.world.instances[number].keys == []


def test_a_volume_belongs_to_a_machine_and_outlives_instances(sim: VastSimulator, ann: Any) -> None:
    offer = offer_of(ann, 1)
    assert offer["avail_vol_ask_id"] == next(o["id"] for o in ann.search_volumes() if o["machine_id"] == 1)
    reply = ann.create_volume(offer["avail_vol_ask_id"], size=50, name="sweep_store")
    assert set(reply) == {"success", "volume_name"}
    volume = int(reply["volume_name"].removeprefix("V."))
    (row,) = ann.show_volumes()
    assert (row["id"], row["label"], row["machine_id"], row["disk_space"]) == (volume, "sweep_store", 1, 50.0)
    assert (row["status"], row["instances"]) == ("created", [])
    with refused(400, "invalid_args", "is on machine 1"):
        rent(ann, 2, 1, link_volume=volume, mount_path="/data")
    number = rent(ann, 1, link_volume=volume, mount_path="/sweepstack/mnt/durable")
    (row,) = ann.show_volumes()
    assert (row["status"], row["instances"]) == ("in-use", [{"id": number}])
    (listed,) = ann.show_instances()
    assert listed["volume_info"][0]["mount_path"] == "/sweepstack/mnt/durable"
    with refused(400, "invalid_args", "in use"):
        ann.delete_volume(volume)
    ann.destroy_instance(number)
    with refused(400, "invalid_args", "in use"):
        ann.delete_volume(volume)
    assert sim.ledger.live("volume")[0].id == str(volume)
    sim.clock.advance(31)
    ann.delete_volume(volume)
    with refused(404, "no_such_volume", "Volume with that ID does not exist."):
        ann.delete_volume(volume)
    assert ann.show_volumes() == []
    assert sim.ledger.live() == []


def test_a_volume_made_together_with_its_instance(sim: VastSimulator, ann: Any) -> None:
    offer = offer_of(ann, 1)
    rent(ann, 1, create_volume=offer["avail_vol_ask_id"], volume_size=30, mount_path="/data", volume_label="v_1")
    (row,) = ann.show_volumes()
    assert (row["label"], row["disk_space"], row["status"]) == ("v_1", 30.0, "in-use")


@pytest.mark.parametrize("name", ["sweep-store", "x" * 65, "a b"])
def test_names_of_volumes(ann: Any, name: str) -> None:
    with refused(422):
        ann.create_volume(ann.search_volumes()[0]["id"], name=name)
    assert ann.show_volumes() == []


# Price increases


def test_a_price_increase_is_announced_and_answered_once(sim: VastSimulator, ann: Any) -> None:
    number = rent(ann)
    sim.act("increase", {"id": number, "factor": 2})
    (row,) = ann.show_pending_price_increases()["pending_price_increases"]
    assert row["contract_id"] == number
    assert row["new_gpu_costpersec"] == pytest.approx(2 * row["old_gpu_costpersec"])
    assert ann.accept_price_increase(number)["contract_id"] == number
    with refused(404, "no_pending_price_increase"):
        reply = ann.client.put(
            "/instances/reject-price-increase/",
            json_data={"pending_price_increase_id": row["pending_price_increase_id"]},
        )
        reply.raise_for_status()


def test_contracts_are_found_by_label(ann: Any) -> None:
    number = rent(ann, label="one")
    assert [row["id"] for row in ann.fetch_contracts(label="one")] == [number]
    assert ann.fetch_contracts(label="two") == []


# As a program


def test_it_runs_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.simulators.vastai", "--port", "0", "--state", str(tmp_path), "--no-limits"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, env=dict(os.environ))
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        script = (
            "from vastai import VastAI\n"
            "me = VastAI(retry=1)\n"
            "offer = me.search_offers(query='num_gpus=8')[0]\n"
            "print(me.create_instance(offer['id'], image='x', disk=10)['success'], me.show_user()['id'])\n"
        )
        environment = {**os.environ, "VAST_URL": said["url"], "VAST_API_KEY": said["key"]}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, timeout=60)
        assert done.stdout.decode().split() == ["True", said["account"]], done.stderr
        state = httpx.get(f"{said['url']}/__sim__/state").json()
        assert state["violations"] == []
        assert [rental["kind"] for rental in state["rentals"]] == ["instance"]
        assert said["key"] not in json.dumps(state)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
