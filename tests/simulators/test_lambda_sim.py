"""The simulated Lambda Cloud: what the vendor documents, what customers saw, what bills, and each fault."""

from __future__ import annotations

import base64
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.simulators.core import HOUR, MONTH, TRANSPORT, SimServer, VirtualClock, draw
from tests.simulators.lambda_api import (
    AT_ONCE,
    GET,
    KEY,
    KINDS,
    LAUNCH,
    LIST,
    MENU,
    OTHER_KEY,
    TERMINATE,
    LambdaSim,
)

START = 1_790_000_000.0
A10, RATE = "gpu_1x_a10", 0.75
BODY: dict[str, Any] = {"region_name": "us-east-1", "instance_type_name": A10, "ssh_key_names": ["ann-key"]}
ANY = "*"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Nothing here speaks TLS, and to load the CAs for each client costs more than a test."""


@pytest.fixture
def sim() -> Iterator[LambdaSim]:
    """Its clock stands still; instances take the vendor's time."""
    sim = LambdaSim(clock=VirtualClock(START))
    with SimServer(sim):
        yield sim
        sim.check()


@pytest.fixture
def ann(sim: LambdaSim) -> Iterator[httpx.Client]:
    with client(sim, f"Bearer {KEY}") as one:
        yield one


def client(sim: LambdaSim, authorization: str) -> httpx.Client:
    return httpx.Client(
        base_url=f"{sim.url}/api/v1", headers={"Authorization": authorization}, timeout=60, verify=NO_TLS
    )


def launch(ann: httpx.Client, **changes: Any) -> str:
    reply = ann.post("/instance-operations/launch", json={**BODY, **changes})
    assert reply.status_code == 200, reply.text
    [made] = reply.json()["data"]["instance_ids"]
    return str(made)


def running(sim: LambdaSim, ann: httpx.Client, **changes: Any) -> str:
    """One that has been active since this moment."""
    made = launch(ann, **changes)
    sim.clock.advance(sim.instances.times.active)
    assert get(ann, made)["status"] == "active"
    return made


def get(ann: httpx.Client, id: str) -> dict[str, Any]:
    reply = ann.get(f"/instances/{id}")
    assert reply.status_code == 200, reply.text
    shown: dict[str, Any] = reply.json()["data"]
    return shown


def listed(ann: httpx.Client) -> list[str]:
    return [one["id"] for one in ann.get("/instances").json()["data"]]


def terminate(ann: httpx.Client, *ids: str) -> httpx.Response:
    return ann.post("/instance-operations/terminate", json={"instance_ids": list(ids)})


def file_system(ann: httpx.Client, name: str = "runs", region: str = "us-east-1") -> str:
    reply = ann.post("/filesystems", json={"name": name, "region": region})
    assert reply.status_code == 200, reply.text
    return str(reply.json()["data"]["id"])


def refused(reply: httpx.Response, status: int, code: str, *words: str) -> None:
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, code), reply.text
    assert set(error) <= {"code", "message", "suggestion"}
    assert all(word in error["message"] for word in words), reply.text


# Who asks


@pytest.mark.parametrize(
    "authorization",
    [f"Bearer {KEY}", "Basic " + base64.b64encode(f"{KEY}:".encode()).decode(), f"Basic {KEY}"],
    ids=["bearer", "basic", "basic as it is"],
)
def test_a_key_is_taken_in_three_forms(sim: LambdaSim, authorization: str) -> None:
    sim.faults.add("empty_list", LIST, account="user_bob")
    with client(sim, authorization) as ann:
        launch(ann)
        assert len(listed(ann)) == 1
    assert {call.account for call in sim.calls} == {"user_ann"}


@pytest.mark.parametrize(
    "authorization",
    ["", KEY, "Bearer nothing", "Basic " + base64.b64encode(f"{KEY}:password".encode()).decode()],
)
def test_another_key_is_refused(sim: LambdaSim, authorization: str) -> None:
    with client(sim, authorization) as other:
        refused(other.get("/instances"), 401, "global/invalid-api-key")


def test_a_fault_of_one_account_finds_it_by_its_basic_key(sim: LambdaSim, ann: httpx.Client) -> None:
    sim.faults.add("inactive", ANY, account="user_bob")
    assert ann.get("/instances").status_code == 200
    with client(sim, "Basic " + base64.b64encode(f"{OTHER_KEY}:".encode()).decode()) as bob:
        refused(bob.get("/instances"), 403, "global/account-inactive")


def test_an_account_sees_its_own_only(sim: LambdaSim, ann: httpx.Client) -> None:
    made, kept = launch(ann), file_system(ann)
    sim.clock.advance(10)
    with client(sim, f"Bearer {OTHER_KEY}") as bob:
        assert bob.get("/instances").json() == bob.get("/file-systems").json() == {"data": []}
        refused(bob.get(f"/instances/{made}"), 404, "global/object-does-not-exist")
        refused(terminate(bob, made), 404, "global/object-does-not-exist")
        refused(bob.delete(f"/filesystems/{kept}"), 404, "global/object-does-not-exist")
    assert listed(ann) == [made]


# Life


def test_an_instance_has_its_address_long_before_it_is_active(sim: LambdaSim, ann: httpx.Client) -> None:
    made = launch(ann, name="box", tags=[{"key": "owner", "value": "ann"}])
    seen = get(ann, made)
    assert (seen["status"], seen["name"], seen["tags"]) == ("booting", "box", [{"key": "owner", "value": "ann"}])
    assert not {"ip", "hostname", "jupyter_url", "file_system_mounts"} & set(seen)
    sim.clock.advance(71)
    assert (get(ann, made)["status"], "ip" in get(ann, made)) == ("booting", True)
    sim.clock.advance(172)
    assert get(ann, made)["status"] == "booting"
    sim.clock.advance(1)
    seen = get(ann, made)
    assert (seen["status"], seen["region"]["name"]) == ("active", "us-east-1")
    assert seen["instance_type"]["price_cents_per_hour"] == 75
    assert seen["ip"].startswith("127.72.")
    assert get(ann, running(sim, ann))["ip"] != seen["ip"]


def test_it_bills_from_active_until_terminated_by_whole_minutes(sim: LambdaSim, ann: httpx.Client) -> None:
    made = running(sim, ann)
    assert sim.ledger.get(made).usd == 0
    sim.clock.advance(1000)
    assert terminate(ann, made).json()["data"]["terminated_instances"][0]["status"] == "terminating"
    assert get(ann, made)["actions"]["terminate"]["reason_code"] == "vm-is-terminating"
    assert sim.ledger.rate("user_ann") == RATE
    sim.clock.advance(100_000)  # nothing looks meanwhile: it ended after 60 s all the same
    rental = sim.ledger.get(made)
    assert rental.ended == START + 244 + 1000 + 60
    assert rental.usd == pytest.approx(18 * RATE / 60)
    assert rental.between(START, START + 200_000) == pytest.approx(rental.usd)
    assert [act.what for act in rental.acts] == ["create", "terminate"]


def test_a_minute_that_is_full_is_not_paid_twice(sim: LambdaSim, ann: httpx.Client) -> None:
    made = running(sim, ann)
    sim.clock.advance(60)
    terminate(ann, made)
    sim.clock.advance(60)
    assert sim.ledger.get(made).usd == pytest.approx(2 * RATE / 60)


def test_what_never_was_active_costs_nothing(sim: LambdaSim, ann: httpx.Client) -> None:
    made = launch(ann)
    sim.clock.advance(200)
    terminate(ann, made)
    sim.clock.advance(60)
    assert (sim.ledger.get(made).usd, sim.ledger.live()) == (0, [])


def test_one_that_is_terminated_vanishes_from_the_list_and_then_altogether(sim: LambdaSim, ann: httpx.Client) -> None:
    made = running(sim, ann)
    terminate(ann, made)
    assert listed(ann) == [made]
    sim.clock.advance(60)
    assert (listed(ann), get(ann, made)["status"]) == ([], "terminated")
    refused(terminate(ann, made), 404, "global/object-does-not-exist")
    sim.clock.advance(600)
    refused(ann.get(f"/instances/{made}"), 404, "global/object-does-not-exist", "does not exist")


def test_a_terminate_is_refused_at_first_and_answered_again_while_it_lasts(sim: LambdaSim, ann: httpx.Client) -> None:
    made = launch(ann)
    assert get(ann, made)["actions"]["terminate"] == {
        "available": False,
        "reason_code": "vm-has-not-launched",
        "reason_description": "Blocked: vm-has-not-launched.",
    }
    refused(terminate(ann, made), 400, "global/invalid-parameters")
    sim.clock.advance(5)
    assert get(ann, made)["actions"]["terminate"] == {"available": True}
    assert [terminate(ann, made).status_code for _ in range(2)] == [200, 200]
    sim.clock.advance(60)
    assert listed(ann) == []


def test_terminate_ends_all_or_none(sim: LambdaSim, ann: httpx.Client) -> None:
    made = [running(sim, ann), running(sim, ann)]
    refused(terminate(ann, *made, "0" * 32), 404, "global/object-does-not-exist")
    refused(terminate(ann), 400, "global/invalid-parameters")
    assert {get(ann, one)["status"] for one in made} == {"active"}
    assert len(terminate(ann, *made).json()["data"]["terminated_instances"]) == 2


def test_a_restart_bills_and_shows_active(sim: LambdaSim, ann: httpx.Client) -> None:
    def restart(*ids: str) -> httpx.Response:
        return ann.post("/instance-operations/restart", json={"instance_ids": list(ids)})

    refused(restart(launch(ann)), 409, "global/conflict")
    made = running(sim, ann)
    before = get(ann, made)["ip"]
    [seen] = restart(made).json()["data"]["restarted_instances"]
    assert (seen["status"], seen["actions"]["restart"]["reason_code"]) == ("active", "vm-action-in-progress")
    refused(restart(made), 409, "global/conflict")
    sim.clock.advance(120)
    seen = get(ann, made)
    assert (seen["ip"], seen["actions"]["restart"]) == (before, {"available": True})
    assert sim.ledger.get(made).usd == pytest.approx(120 * RATE / HOUR)


@pytest.mark.parametrize(("act", "status"), [("shut_down", "unhealthy"), ("preempt", "preempted")])
def test_what_was_shut_down_or_taken_back_bills_until_it_is_terminated(
    sim: LambdaSim, ann: httpx.Client, act: str, status: str
) -> None:
    made = running(sim, ann)
    sim.act(act, {"id": made})
    sim.clock.advance(HOUR)
    assert (get(ann, made)["status"], listed(ann)) == (status, [made])
    assert sim.ledger.get(made).usd == pytest.approx(RATE)
    assert terminate(ann, made).status_code == 200
    sim.clock.advance(60)
    assert sim.ledger.live() == []
    sim.act(act, {"id": made})
    assert get(ann, made)["status"] == "terminated"


def test_an_instance_gets_another_name(sim: LambdaSim, ann: httpx.Client) -> None:
    made = launch(ann, name="box")
    assert ann.post(f"/instances/{made}", json={"name": "other"}).json()["data"]["name"] == "other"
    assert sim.ledger.get(made).tag == "other"
    refused(ann.post(f"/instances/{made}", json={"name": "x" * 65}), 400, "global/invalid-parameters")


def test_with_a_clock_that_stands_still_an_instance_is_ready_at_its_second_read() -> None:
    with SimServer(sim := LambdaSim(clock=VirtualClock(START), times=AT_ONCE)), client(sim, f"Bearer {KEY}") as ann:
        made = launch(ann)
        seen = [get(ann, made) for _ in range(2)]
        assert [(one["status"], "ip" in one) for one in seen] == [("booting", True), ("active", True)]
        terminate(ann, made)
        assert listed(ann) == []
        assert sim.ledger.live() == []


# Launch


@pytest.mark.parametrize(
    "changes",
    [
        {"ssh_key_names": []},
        {"ssh_key_names": ["ann-key", "ann-key"]},
        {"name": "x" * 65},
        {"hostname": "No_Host"},
        {"tags": [{"key": "Upper", "value": "x"}]},
        {"tags": [{"key": "ok", "value": "x" * 129}]},
        {"user_data": "x" * 1_000_001},
        {"file_system_mounts": [{"mount_point": "/mnt/x", "file_system_id": "0" * 32}]},
        {"image": {}},
        {"quantity": 0},
        {"region_name": None},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_launch_out_of_bounds_is_refused(sim: LambdaSim, ann: httpx.Client, changes: dict[str, Any]) -> None:
    reply = ann.post("/instance-operations/launch", json={**BODY, **changes})
    refused(reply, 400, "global/invalid-parameters")
    assert sim.ledger.all() == []


@pytest.mark.parametrize("name", ["region_name", "instance_type_name", "ssh_key_names"])
def test_a_launch_has_three_required_fields(sim: LambdaSim, ann: httpx.Client, name: str) -> None:
    told = {key: value for key, value in BODY.items() if key != name}
    refused(ann.post("/instance-operations/launch", json=told), 400, "global/invalid-parameters", name)


@pytest.mark.parametrize("told", [{"spot": True}, {"image": {"id": "x", "family": "y"}}])
def test_a_field_that_does_not_exist_fails_the_test(sim: LambdaSim, ann: httpx.Client, told: dict[str, Any]) -> None:
    refused(ann.post("/instance-operations/launch", json={**BODY, **told}), 400, "global/invalid-parameters")
    assert any("not allowed" in one for one in sim.pardon())


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"ssh_key_names": ["bob-key"]}, "bob-key"),
        ({"instance_type_name": "gpu_1x_none"}, "gpu_1x_none"),
        ({"region_name": "mars-1"}, "mars-1"),
        ({"image": {"family": "none"}}, "Image"),
        ({"firewall_rulesets": [{"id": "0" * 32}]}, "ruleset"),
        ({"file_system_names": ["none"]}, "none"),
        ({"file_system_mounts": [{"mount_point": "/data/x", "file_system_id": "0" * 32}]}, "Filesystem"),
    ],
    ids=["key", "type", "region", "image", "ruleset", "file system", "mount"],
)
def test_what_a_launch_names_is_looked_for_before_capacity(
    sim: LambdaSim, ann: httpx.Client, changes: dict[str, Any], word: str
) -> None:
    sim.act("empty", {})
    reply = ann.post("/instance-operations/launch", json={**BODY, **changes})
    refused(reply, 404, "global/object-does-not-exist", word)


def test_every_field_of_a_launch_is_taken(sim: LambdaSim, ann: httpx.Client) -> None:
    kept = file_system(ann)
    rule = {"protocol": "tcp", "port_range": [22, 22], "source_network": "0.0.0.0/0", "description": "ssh"}
    told = {"name": "open", "region": "us-east-1", "rules": [rule]}
    wall = ann.post("/firewall-rulesets", json=told).json()["data"]
    image = next(one for one in ann.get("/images").json()["data"] if one["region"]["name"] == "us-east-1")
    made = launch(
        ann,
        name="all",
        hostname="node-1",
        file_system_names=["runs"],
        file_system_mounts=[{"mount_point": "/data/runs", "file_system_id": kept}],
        image={"id": image["id"]},
        user_data="#cloud-config\n",
        firewall_rulesets=[{"id": wall["id"]}],
        quantity=1,
    )
    sim.clock.advance(244)
    seen = get(ann, made)
    assert seen["file_system_names"] == ["runs"]
    assert seen["file_system_mounts"] == [{"mount_point": "/data/runs", "file_system_id": kept}]
    assert (seen["hostname"], seen["firewall_rulesets"]) == ("node-1", [{"id": wall["id"]}])
    assert "user_data" not in seen
    assert ann.get(f"/firewall-rulesets/{wall['id']}").json()["data"]["instance_ids"] == [made]
    refused(ann.delete(f"/firewall-rulesets/{wall['id']}"), 400, "firewall-rulesets/firewall-ruleset-in-use")


def test_quantity_launches_so_many_and_all_of_them_bill(sim: LambdaSim, ann: httpx.Client) -> None:
    reply = ann.post("/instance-operations/launch", json={**BODY, "quantity": 3, "name": "box"})
    assert len(set(reply.json()["data"]["instance_ids"])) == 3
    sim.clock.advance(244)
    assert sim.ledger.rate("user_ann") == pytest.approx(3 * RATE)
    assert len(sim.ledger.doubled("instance")["box"]) == 3


def test_capacity_is_listed_by_region_and_taken_and_given_back(sim: LambdaSim, ann: httpx.Client) -> None:
    def regions(name: str) -> list[str]:
        found = ann.get("/instance-types").json()["data"][name]
        assert found["instance_type"]["name"] == name
        return [place["name"] for place in found["regions_with_capacity_available"]]

    assert regions("gpu_8x_h100_sxm5") == []
    sim.act("empty", {"name": A10})
    sim.stock.free[A10, "us-east-1"] = 1
    assert regions(A10) == ["us-east-1"]
    made = running(sim, ann)
    assert regions(A10) == []
    reply = ann.post("/instance-operations/launch", json=BODY)
    refused(reply, 400, "instance-operations/launch/insufficient-capacity")
    terminate(ann, made)
    sim.clock.advance(60)
    assert regions(A10) == ["us-east-1"]


def test_a_quota_of_instances(sim: LambdaSim, ann: httpx.Client) -> None:
    sim.most_instances = 1
    launch(ann)
    refused(ann.post("/instance-operations/launch", json=BODY), 400, "global/quota-exceeded")


# What outlives instances


def test_a_file_system_is_kept_from_deletion_as_long_as_an_instance_has_it(sim: LambdaSim, ann: httpx.Client) -> None:
    kept = file_system(ann)
    made = running(sim, ann, file_system_names=["runs"])
    assert get(ann, made)["file_system_mounts"] == [{"mount_point": "/lambda/nfs/runs", "file_system_id": kept}]
    [seen] = ann.get("/file-systems").json()["data"]
    assert (seen["is_in_use"], seen["mount_point"], seen["region"]["name"]) == (True, "/lambda/nfs/runs", "us-east-1")
    refused(ann.delete(f"/filesystems/{kept}"), 400, "filesystems/filesystem-in-use")
    terminate(ann, made)
    refused(ann.delete(f"/filesystems/{kept}"), 400, "filesystems/filesystem-in-use")  # "terminating" counts
    sim.clock.advance(60)
    assert ann.delete(f"/filesystems/{kept}").json() == {"data": {"deleted_ids": [kept]}}
    assert ann.get("/file-systems").json() == {"data": []}
    refused(ann.delete(f"/filesystems/{kept}"), 404, "global/object-does-not-exist")


def test_a_file_system_bills_what_it_holds_until_it_is_deleted_by_whole_hours(
    sim: LambdaSim, ann: httpx.Client
) -> None:
    kept = file_system(ann)
    sim.act("fill", {"id": kept, "gib": 100})
    sim.clock.advance(MONTH)
    assert sim.ledger.get(kept).usd == pytest.approx(20.0)
    sim.clock.advance(60)
    ann.delete(f"/filesystems/{kept}")
    assert sim.ledger.get(kept).usd == pytest.approx(20.0 + 20.0 / 730)
    assert sim.ledger.live() == []


@pytest.mark.parametrize("says", [False, True])
def test_a_file_system_of_another_region_is_refused(sim: LambdaSim, ann: httpx.Client, says: bool) -> None:
    sim.says_wrong_region = says
    wrong = "instance-operations/launch/file-system-in-wrong-region"
    there = file_system(ann, region="us-west-1")
    reply = ann.post("/instance-operations/launch", json={**BODY, "file_system_names": ["runs"]})
    refused(reply, *((400, wrong) if says else (404, "global/object-does-not-exist")))
    mount = {"mount_point": "/data/x", "file_system_id": there}
    refused(ann.post("/instance-operations/launch", json={**BODY, "file_system_mounts": [mount]}), 400, wrong)
    assert listed(ann) == []


def test_at_most_one_file_system(sim: LambdaSim, ann: httpx.Client) -> None:
    file_system(ann), file_system(ann, "more")
    reply = ann.post("/instance-operations/launch", json={**BODY, "file_system_names": ["runs", "more"]})
    refused(reply, 400, "global/invalid-parameters", "one file system")


def test_file_systems_are_bounded_and_made_at_another_address(sim: LambdaSim, ann: httpx.Client) -> None:
    sim.most_file_systems = 1
    refused(ann.post("/filesystems", json={"name": "1st", "region": "us-east-1"}), 400, "global/invalid-parameters")
    refused(ann.post("/filesystems", json={"name": "runs", "region": "mars"}), 400, "global/invalid-parameters")
    file_system(ann)
    refused(ann.post("/filesystems", json={"name": "runs", "region": "us-east-1"}), 400, "global/duplicate")
    refused(ann.post("/filesystems", json={"name": "more", "region": "us-east-1"}), 400, "global/quota-exceeded")
    assert ann.post("/file-systems", json={"name": "more", "region": "us-east-1"}).status_code == 405
    assert sim.pardon()


def test_ssh_keys(sim: LambdaSim, ann: httpx.Client) -> None:
    [own] = ann.get("/ssh-keys").json()["data"]
    assert own["name"] == "ann-key"
    added = ann.post("/ssh-keys", json={"name": "more", "public_key": "ssh-ed25519 AAAA more"}).json()["data"]
    assert "private_key" not in added
    assert "PRIVATE KEY" in ann.post("/ssh-keys", json={"name": "made"}).json()["data"]["private_key"]
    refused(ann.post("/ssh-keys", json={"name": "more"}), 400, "global/invalid-parameters", "more")
    refused(ann.post("/ssh-keys", json={"name": "no", "public_key": "nothing"}), 400, "global/invalid-parameters")
    launch(ann, ssh_key_names=["more"])
    refused(ann.delete(f"/ssh-keys/{added['id']}"), 400, "global/invalid-parameters", "in use")
    assert ann.delete(f"/ssh-keys/{own['id']}").json() == {"data": {}}
    refused(ann.delete(f"/ssh-keys/{own['id']}"), 404, "global/not-found")


def test_firewall_rulesets(sim: LambdaSim, ann: httpx.Client) -> None:
    rule = {"protocol": "icmp", "source_network": "0.0.0.0/0", "description": "ping"}
    told = {"name": "ping", "region": "us-south-1", "rules": [rule]}
    refused(ann.post("/firewall-rulesets", json=told), 400, "global/invalid-parameters", "us-south-1")
    told["region"] = "us-east-1"
    refused(
        ann.post("/firewall-rulesets", json={**told, "rules": [{**rule, "port_range": [1, 2]}]}),
        400,
        "global/invalid-parameters",
    )
    made = ann.post("/firewall-rulesets", json=told).json()["data"]
    assert [one["rules"] for one in ann.get("/firewall-rulesets").json()["data"]] == [[rule]]
    assert ann.delete(f"/firewall-rulesets/{made['id']}").json() == {"data": {}}
    refused(ann.get(f"/firewall-rulesets/{made['id']}"), 404, "global/object-does-not-exist")


@pytest.mark.parametrize("call", ["GET /nothing", "POST /instance-operations/stop", "GET /instances?page=2"])
def test_what_the_api_does_not_have_fails_the_test(sim: LambdaSim, ann: httpx.Client, call: str) -> None:
    method, path = call.split(" ")
    assert ann.request(method, path).status_code in (200, 404)
    assert len(sim.pardon()) == 1


# Limits


def test_one_request_a_second_and_one_launch_in_twelve() -> None:
    with (
        SimServer(sim := LambdaSim(clock=VirtualClock(START), limits=True)),
        client(sim, f"Bearer {KEY}") as ann,
        client(sim, f"Bearer {OTHER_KEY}") as bob,
    ):

        def asked(told: httpx.Client = ann) -> int:
            return told.get("/instances").status_code

        assert (asked(), asked(bob)) == (200, 200)
        reply = ann.get("/instances")
        assert (reply.status_code, reply.text) == (429, "error code: 1015")
        assert "Retry-After" not in reply.headers
        sim.clock.advance(1)
        launch(ann)
        sim.clock.advance(11)
        assert ann.post("/instance-operations/launch", json=BODY).status_code == 429
        sim.clock.advance(1)
        assert ann.post("/instance-operations/launch", json=BODY).status_code == 200
        sim.clock.advance(1)
        assert len(listed(ann)) == 2


# Faults

REFUSALS = {
    "out_of_capacity": (LAUNCH, 400, "instance-operations/launch/insufficient-capacity"),
    "quota": (LAUNCH, 400, "global/quota-exceeded"),
    "bad_address": (LAUNCH, 403, "global/invalid-address"),
    "inactive": (ANY, 403, "global/account-inactive"),
    "forbidden": (ANY, 403, "global/forbidden"),
    "auth": (ANY, 401, "global/invalid-api-key"),
    "provider_down": (ANY, 503, "provider/internal-unavailable"),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_makes_nothing(sim: LambdaSim, ann: httpx.Client, kind: str) -> None:
    match, status, code = REFUSALS[kind]
    sim.faults.add(kind, match)
    refused(ann.post("/instance-operations/launch", json=BODY), status, code)
    assert (sim.ledger.all(), sim.faults.unfired()) == ([], [])
    launch(ann)


@pytest.mark.parametrize("kind", ["error_after", "lost_answer", "html_after", "truncated", "not_json"])
def test_a_launch_without_an_answer_exists_and_bills(sim: LambdaSim, ann: httpx.Client, kind: str) -> None:
    sim.faults.add(kind, LAUNCH)
    try:
        reply = ann.post("/instance-operations/launch", json={**BODY, "name": "box"})
        assert kind == "not_json" or reply.status_code >= 500
    except httpx.TransportError:
        assert kind in ("lost_answer", "truncated")
    assert [one["name"] for one in ann.get("/instances").json()["data"]] == ["box"]
    sim.clock.advance(244)
    assert sim.ledger.rate("user_ann") == RATE


@pytest.mark.parametrize("kind", ["error_before", "lost_request", "html_before", "too_many"])
def test_a_launch_that_was_not_carried_out(sim: LambdaSim, ann: httpx.Client, kind: str) -> None:
    sim.faults.add(kind, LAUNCH)
    try:
        reply = ann.post("/instance-operations/launch", json=BODY)
        assert reply.status_code in (429, 500, 502)
        if kind == "error_before":
            refused(reply, 500, "global/internal-error")
    except httpx.TransportError:
        assert kind == "lost_request"
    assert listed(ann) == []


def test_one_that_boots_for_ever_costs_nothing_and_one_that_is_unhealthy_does(
    sim: LambdaSim, ann: httpx.Client
) -> None:
    sim.faults.add("boots_stuck", LAUNCH)
    sim.faults.add("boots_unhealthy", LAUNCH, nth=2)
    stuck, ill = launch(ann), launch(ann)
    sim.clock.advance(244 + HOUR)
    assert [get(ann, one)["status"] for one in (stuck, ill)] == ["booting", "unhealthy"]
    assert [sim.ledger.get(one).usd for one in (stuck, ill)] == [0, pytest.approx(RATE)]


def test_an_address_can_be_late(sim: LambdaSim, ann: httpx.Client) -> None:
    sim.faults.add("late_address", LAUNCH, reads=2)
    sim.faults.add("late_address", LAUNCH, nth=2, reads=None)
    late, never = launch(ann), launch(ann)
    sim.clock.advance(244)
    assert ["ip" in get(ann, late) for _ in range(3)] == [False, False, True]
    assert not any("ip" in get(ann, never) for _ in range(4))


@pytest.mark.parametrize("in_list", [False, True])
def test_one_that_was_launched_can_be_missing_at_first(sim: LambdaSim, ann: httpx.Client, in_list: bool) -> None:
    sim.faults.add("missing_at_first", LAUNCH, reads=1, in_list=in_list)
    made = launch(ann)
    assert listed(ann) == ([] if in_list else [made])
    assert ann.get(f"/instances/{made}").status_code == (200 if in_list else 404)
    assert get(ann, made)["id"] == made


def test_a_terminate_can_last_or_do_nothing(sim: LambdaSim, ann: httpx.Client) -> None:
    first, second, third = (running(sim, ann) for _ in range(3))
    sim.faults.add("terminate_lingers", TERMINATE)
    sim.faults.add("terminate_lingers", TERMINATE, nth=2, seconds=None)
    sim.faults.add("terminate_ignored", TERMINATE, nth=3)
    assert [terminate(ann, one).status_code for one in (first, second, third)] == [200] * 3
    sim.clock.advance(659)
    assert [get(ann, one)["status"] for one in (first, second, third)] == ["terminating", "terminating", "active"]
    sim.clock.advance(1)
    assert listed(ann) == [second, third]
    sim.clock.advance(HOUR)
    assert sim.ledger.rate("user_ann") == pytest.approx(2 * RATE)
    assert [(act.what, act.done) for act in sim.ledger.get(third).acts] == [("create", True), ("terminate", False)]


def test_lists_that_lie(sim: LambdaSim, ann: httpx.Client) -> None:
    first = running(sim, ann)
    terminate(ann, first)
    sim.clock.advance(60)
    second = launch(ann)
    for kind in ("stale_list", "empty_list", "list_terminated"):
        sim.faults.add(kind, LIST)
    sim.faults.rules[1].nth, sim.faults.rules[2].nth = 2, 3
    assert [listed(ann) for _ in range(4)] == [[], [], [second, first], [second]]


@pytest.mark.parametrize(
    ("kind", "status"),
    [("odd_status", "migrating"), ("preempted", "preempted"), ("alert", "unhealthy"), ("vanished", "terminated")],
)
def test_what_befalls_an_instance_just_before_it_is_read(
    sim: LambdaSim, ann: httpx.Client, kind: str, status: str
) -> None:
    made = running(sim, ann)
    sim.faults.add(kind, GET)
    assert get(ann, made)["status"] == status
    assert get(ann, made)["status"] == ("active" if kind == "odd_status" else status)


def test_a_key_can_become_that_of_another_account(sim: LambdaSim, ann: httpx.Client) -> None:
    launch(ann)
    sim.faults.add("foreign_account", LIST)
    assert (listed(ann), len(listed(ann))) == ([], 1)
    sim.act("rekey", {"account": "user_ann", "key": "another"})
    refused(ann.get("/instances"), 401, "global/invalid-api-key")


def test_what_happens_behind_the_owners_back(sim: LambdaSim, ann: httpx.Client) -> None:
    made = running(sim, ann, name="box")
    twin = sim.act("duplicate", {"id": made})
    assert listed(ann) == [made, twin]
    assert sim.ledger.doubled("instance") == {"box": sorted([made, twin])}
    sim.act("vanish", {"id": made})
    sim.act("set", {"id": twin, "name": "other"})
    assert [one["name"] for one in ann.get("/instances").json()["data"]] == ["other"]
    with pytest.raises(KeyError):
        sim.act("set", {"id": twin, "colour": "red"})
    state = httpx.get(f"{sim.url}/__sim__/state").json()
    assert state["instances"][made]["history"] == ["launched", "active", "terminated"]
    assert KEY not in str(state)


def test_every_kind_of_fault_is_tested_here_and_a_seed_draws_only_what_exists() -> None:
    text = Path(__file__).read_text()
    assert [kind for kind in KINDS if f'"{kind}"' not in text] == []
    assert {choice.kind for choice in MENU} <= set(KINDS) | set(TRANSPORT)
    sim = LambdaSim(clock=VirtualClock(START))
    for seed in range(50):
        for rule in draw(seed, MENU):
            sim.faults.append(rule)


def test_it_is_served_by_itself() -> None:
    command = [sys.executable, "-m", "tests.simulators.lambda_api", "--at-once", "--seed", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        told = dict(served.stdout.readline().strip().split("=", 1) for _ in range(2))
        assert told["LAMBDA_API_KEY"] == KEY
        assert told["LAMBDA_API_BASE_URL"].endswith("/api/v1")
        url = told["LAMBDA_API_BASE_URL"].removesuffix("/api/v1")
        assert httpx.get(f"{url}/__sim__/state").json()["simulator"] == "lambda_api"
        os.kill(served.pid, signal.SIGTERM)
        assert served.wait(60) == 0
