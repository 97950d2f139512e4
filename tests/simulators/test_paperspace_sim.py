"""The simulated Paperspace: what the vendor documents, what its customers saw, what bills, and each fault."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.simulators.core import HOUR, MONTH, TRANSPORT, SimServer, VirtualClock, draw
from tests.simulators.paperspace import (
    AT_ONCE,
    CREATE,
    DELETE,
    GET,
    KEY,
    KINDS,
    LIST,
    MENU,
    OTHER_KEY,
    START,
    STOP,
    PaperspaceSim,
)

BEGIN = 1_790_000_000.0
USD, DISK = 0.76, 5.0 * HOUR / MONTH
BODY: dict[str, Any] = {
    "name": "sweep box 0", "machineType": "A4000", "templateId": "t0nspur5", "diskSize": 50, "region": "ny2",
    "publicIpType": "dynamic", "startOnCreate": True, "autoShutdownEnabled": False,
}  # fmt: skip
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Nothing here speaks TLS, and to load the CAs for each client costs more than a test."""


@pytest.fixture
def sim() -> Iterator[PaperspaceSim]:
    """Its clock stands still; machines take their time."""
    sim = PaperspaceSim(clock=VirtualClock(BEGIN))
    with SimServer(sim):
        yield sim
        sim.check()


@pytest.fixture
def ann(sim: PaperspaceSim) -> Iterator[httpx.Client]:
    with client(sim, KEY) as one:
        yield one


@pytest.fixture
def bob(sim: PaperspaceSim) -> Iterator[httpx.Client]:
    with client(sim, OTHER_KEY) as one:
        yield one


def client(sim: PaperspaceSim, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=f"{sim.url}/v1", headers=headers, timeout=60, verify=NO_TLS)


def create(ann: httpx.Client, **changes: Any) -> str:
    reply = ann.post("/machines", json={**BODY, **changes})
    assert reply.status_code == 200, reply.text
    assert reply.json()["event"]["name"] == "create"
    return str(reply.json()["data"]["id"])


def pass_time(sim: PaperspaceSim, *names: str) -> None:
    """So long as these things take."""
    for name in names:
        sim.clock.advance(getattr(sim.machines.times, name))
        sim.settle()


def ready(sim: PaperspaceSim, ann: httpx.Client, **changes: Any) -> str:
    """One that is ready since this moment."""
    made = create(ann, **changes)
    pass_time(sim, "provisioning", "starting", "service")
    assert get(ann, made)["state"] == "ready"
    return made


def off(sim: PaperspaceSim, ann: httpx.Client, **changes: Any) -> str:
    """One that never was on."""
    made = create(ann, startOnCreate=False, **changes)
    pass_time(sim, "provisioning")
    assert get(ann, made)["state"] == "off"
    return made


def get(ann: httpx.Client, id: str) -> dict[str, Any]:
    reply = ann.get(f"/machines/{id}")
    assert reply.status_code == 200, reply.text
    shown: dict[str, Any] = reply.json()
    return shown


def listed(ann: httpx.Client, **query: Any) -> list[str]:
    return [one["id"] for one in ann.get("/machines", params=query).json()["items"]]


def do(ann: httpx.Client, id: str, what: str) -> dict[str, Any]:
    """Start, stop, restart or delete, which must be taken. Returns its event."""
    reply = ann.delete(f"/machines/{id}") if what == "delete" else ann.patch(f"/machines/{id}/{what}")
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()["event"]
    return found


def event(ann: httpx.Client, id: str) -> dict[str, Any]:
    found: dict[str, Any] = ann.get(f"/machine-events/{id}").json()
    return found


def refused(reply: httpx.Response, status: int, code: str, *words: str) -> None:
    error = reply.json()
    assert (reply.status_code, error["code"]) == (status, code), reply.text
    assert set(error) <= {"code", "message", "details"}
    assert all(word in error["message"] for word in words), reply.text


# Who asks


def test_only_a_bearer_key_is_taken(sim: PaperspaceSim) -> None:
    for authorization in ("", KEY, f"Basic {KEY}", "Bearer wrong"):
        headers = {"Authorization": authorization} if authorization else {}
        refused(httpx.get(f"{sim.url}/v1/machines", headers=headers, verify=NO_TLS), 401, "UNAUTHORIZED")


def test_the_session_of_a_wrong_key_is_null_and_no_refusal(sim: PaperspaceSim, ann: httpx.Client) -> None:
    with client(sim, "wrong") as stranger:
        reply = stranger.get("/auth/session")
    assert (reply.status_code, reply.json()) == (200, None)
    assert ann.get("/auth/session").json()["user"]["email"] == "ann@example.com"


def test_one_account_does_not_see_the_other_s(sim: PaperspaceSim, ann: httpx.Client, bob: httpx.Client) -> None:
    hers = off(sim, ann, publicIpType="static")
    [ip] = ann.get("/public-ips").json()["items"]
    [told] = ann.get("/machine-events", params={"machineId": hers}).json()["items"]
    refused(bob.get(f"/machines/{hers}"), 404, "NOT_FOUND")
    refused(bob.delete(f"/machines/{hers}"), 404, "NOT_FOUND")
    refused(bob.get(f"/machine-events/{told['id']}"), 404, "NOT_FOUND")
    refused(bob.delete(f"/public-ips/{ip['ip']}"), 404, "NOT_FOUND")
    assert listed(bob) == bob.get("/public-ips").json()["items"] == bob.get("/machine-events").json()["items"] == []


def test_the_limit_of_requests_says_no_time(ann: httpx.Client, sim: PaperspaceSim) -> None:
    limited = PaperspaceSim(clock=VirtualClock(BEGIN), limits=True)
    with SimServer(limited), client(limited, KEY) as one:
        codes = [one.get("/machines").status_code for _ in range(121)]
        assert codes == [200] * 120 + [429]
        refused(one.get("/machines"), 429, "TOO_MANY_REQUESTS")
        assert "retry-after" not in one.get("/machines").headers
        limited.clock.advance(61)
        assert one.get("/machines").status_code == 200


# Life


def test_a_machine_comes_up_step_by_step(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = create(ann)
    assert get(ann, made)["state"] == "provisioning"
    assert get(ann, made)["publicIp"] is None
    pass_time(sim, "provisioning")
    assert get(ann, made)["state"] == "starting"
    pass_time(sim, "starting")
    assert get(ann, made)["state"] == "serviceready"
    pass_time(sim, "service")
    shown = get(ann, made)
    assert shown["state"] == "ready"
    assert shown["publicIp"].startswith("127.73.")
    assert shown["region"] == "East Coast (NY2)"
    assert (shown["ram"], shown["storageTotal"]) == (str(45 * 2**30), str(50 * 2**30))
    assert shown["accelerators"] == [{"name": "RTX A4000", "memory": str(16 * 2**30), "count": 1}]
    names = [(one["name"], one["state"]) for one in ann.get("/machine-events").json()["items"]]
    assert names == [("start", "done"), ("create", "done")]


def test_a_dynamic_address_is_another_after_each_start(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = ready(sim, ann)
    first = get(ann, made)["publicIp"]
    do(ann, made, "stop")
    pass_time(sim, "stopping")
    assert get(ann, made)["publicIp"] is None
    do(ann, made, "start")
    pass_time(sim, "starting", "service")
    assert get(ann, made)["publicIp"] not in (None, first)


def test_a_create_that_says_little_makes_a_machine_without_address_and_with_a_clock(
    sim: PaperspaceSim, ann: httpx.Client
) -> None:
    bare = {name: BODY[name] for name in ("name", "machineType", "templateId", "diskSize", "region")}
    made = ann.post("/machines", json=bare).json()["data"]["id"]
    pass_time(sim, "provisioning", "starting", "service")
    shown = get(ann, made)
    assert (shown["state"], shown["publicIp"], shown["autoShutdownTimeout"]) == ("ready", None, 24)
    sim.clock.advance(24 * HOUR)
    assert get(ann, made)["state"] == "stopping"


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"machineType": "A4001"}, 400, "BAD_REQUEST"),
        ({"diskSize": 51}, 400, "BAD_REQUEST"),
        ({"diskSize": "50"}, 400, "BAD_REQUEST"),
        ({"region": "East Coast (NY2)"}, 400, "BAD_REQUEST"),
        ({"templateId": "nothing"}, 404, "NOT_FOUND"),
        ({"machineType": "H100"}, 400, "BAD_REQUEST"),
        ({"networkId": "nothing"}, 404, "NOT_FOUND"),
        ({"startupScriptId": "nothing"}, 404, "NOT_FOUND"),
        ({"autoShutdownEnabled": True}, 400, "BAD_REQUEST"),
        ({"autoShutdownEnabled": True, "autoShutdownTimeout": 169}, 400, "BAD_REQUEST"),
        ({"autoShutdownTimeout": 3}, 400, "BAD_REQUEST"),
        ({"autoSnapshotEnabled": True}, 400, "BAD_REQUEST"),
        ({"name": ""}, 400, "BAD_REQUEST"),
        ({"accessorIds": ["ubob"]}, 404, "NOT_FOUND"),
    ],
)
def test_a_create_with_something_wrong_makes_nothing(
    sim: PaperspaceSim, ann: httpx.Client, changes: dict[str, Any], status: int, code: str
) -> None:
    refused(ann.post("/machines", json={**BODY, **changes}), status, code)
    assert listed(ann) == []
    assert sim.ledger.all() == []


def test_what_the_document_does_not_have_fails_the_test(sim: PaperspaceSim, ann: httpx.Client) -> None:
    refused(ann.post("/machines", json={**BODY, "billingType": "hourly"}), 400, "BAD_REQUEST", "billingType")
    ann.get("/machines", params={"page": 2})
    ann.post("/machines/x/stop")
    found = sim.pardon()
    assert len(found) == 3
    assert [word in text for word, text in zip(("billingType", "'page'", "unknown route"), found, strict=True)] == [
        True
    ] * 3


def test_a_patch_that_says_it_has_json_must_have_some(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = ready(sim, ann)
    path, json = f"/machines/{made}/stop", {"Content-Type": "application/json"}
    refused(ann.patch(path, headers=json), 400, "PARSE_ERROR")
    refused(ann.post("/machines", content=b"{}", headers={"Content-Type": "text/plain"}), 400, "BAD_REQUEST")
    assert ann.patch(path, json={}).status_code == 200


# What may be done when


def test_each_verb_has_its_states(sim: PaperspaceSim, ann: httpx.Client) -> None:
    """Nothing is taken while something is under way, and a machine ends only when it is off."""
    made = create(ann)

    def taken() -> set[str]:
        calls = {verb: ann.patch(f"/machines/{made}/{verb}") for verb in ("start", "stop", "restart")}
        calls["delete"] = ann.delete(f"/machines/{made}")
        for reply in calls.values():
            if reply.status_code != 200:
                refused(reply, 409, "CONFLICT", made)
        return {verb for verb, reply in calls.items() if reply.status_code == 200}

    assert taken() == set()  # provisioning
    pass_time(sim, "provisioning")
    assert taken() == set()  # starting
    pass_time(sim, "starting", "service")
    assert taken() == {"stop"}  # and then all others were refused: it is stopping
    assert taken() == set()
    pass_time(sim, "stopping")
    assert taken() == {"start"}
    pass_time(sim, "starting", "service")
    do(ann, made, "restart")
    assert taken() == set()
    pass_time(sim, "restarting")
    do(ann, made, "stop")
    pass_time(sim, "stopping")
    do(ann, made, "delete")
    assert taken() == set()


def test_a_deleted_machine_is_there_until_it_is_gone(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = off(sim, ann)
    told = do(ann, made, "delete")
    assert (told["name"], told["state"], told["dtFinished"]) == ("deactivate", "new", None)
    sim.clock.advance(1)
    assert get(ann, made)["state"] == "off"
    assert event(ann, told["id"])["state"] == "in progress"
    assert sim.ledger.get(made).ended is None
    pass_time(sim, "deactivating")
    refused(ann.get(f"/machines/{made}"), 404, "NOT_FOUND")
    refused(ann.delete(f"/machines/{made}"), 404, "NOT_FOUND")
    assert listed(ann) == []
    assert event(ann, told["id"])["state"] == "done"


def test_without_a_card_the_machine_is_made_and_stays_off(sim: PaperspaceSim, ann: httpx.Client) -> None:
    sim.act_empty("A4000", "ny2")
    where = {"machineType": "A4000", "region": "ny2"}
    assert ann.get("/machine-availability", params=where).json() == {"available": False}
    made = create(ann)
    pass_time(sim, "provisioning", "starting")
    assert get(ann, made)["state"] == "off"
    told = ann.get("/machine-events", params={"machineId": made, "limit": 1}).json()["items"][0]
    assert (told["name"], told["state"]) == ("start", "error")
    assert "capacity" in told["error"]
    assert sim.ledger.get(made).rate == pytest.approx(DISK)


def test_a_machine_that_is_off_holds_no_card(sim: PaperspaceSim, ann: httpx.Client) -> None:
    sim.stock.free["A4000", "ny2"] = 1
    made = ready(sim, ann)
    assert sim.stock.free["A4000", "ny2"] == 0
    do(ann, made, "stop")
    pass_time(sim, "stopping")
    assert sim.stock.free["A4000", "ny2"] == 1
    other = ready(sim, ann, name="faster")
    do(ann, made, "start")
    pass_time(sim, "starting")
    assert [get(ann, made)["state"], get(ann, other)["state"]] == ["off", "ready"]


def test_a_shutdown_clock_counts_from_each_start_and_does_not_change(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = ready(sim, ann, autoShutdownEnabled=True, autoShutdownTimeout=2)
    told = ann.put(f"/machines/{made}", json={"autoShutdownEnabled": True, "autoShutdownTimeout": 100})
    assert told.json()["data"]["autoShutdownTimeout"] == 2
    sim.clock.advance(1.9 * HOUR)
    do(ann, made, "stop")
    pass_time(sim, "stopping")
    do(ann, made, "start")
    pass_time(sim, "starting")
    sim.clock.advance(1.9 * HOUR)
    assert get(ann, made)["state"] == "ready"
    sim.clock.advance(0.2 * HOUR)
    assert get(ann, made)["state"] == "off"
    names = [one["name"] for one in ann.get("/machine-events", params={"machineId": made}).json()["items"]]
    assert names == ["stop", "start", "stop", "vm-upgrade", "start", "create"]


def test_a_shutdown_clock_can_be_ended_and_set_anew(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = ready(sim, ann, autoShutdownEnabled=True, autoShutdownTimeout=2)
    ended = ann.put(f"/machines/{made}", json={"autoShutdownEnabled": False}).json()["data"]
    assert (ended["autoShutdownEnabled"], ended["autoShutdownTimeout"]) == (False, None)
    anew = ann.put(f"/machines/{made}", json={"autoShutdownEnabled": True, "autoShutdownTimeout": 9}).json()["data"]
    assert anew["autoShutdownTimeout"] == 9
    sim.clock.advance(3 * HOUR)
    assert get(ann, made)["state"] == "ready"


def test_a_disk_grows_when_the_machine_is_off_and_never_shrinks(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = off(sim, ann)
    assert ann.put(f"/machines/{made}", json={"diskSize": 2000}).json()["data"]["storageTotal"] == str(2000 * 2**30)
    assert sim.ledger.get(made).rate == pytest.approx(120 * HOUR / MONTH)
    refused(ann.put(f"/machines/{made}", json={"diskSize": 1000}), 400, "BAD_REQUEST", "shrink")
    do(ann, made, "start")
    pass_time(sim, "starting", "service")
    refused(ann.put(f"/machines/{made}", json={"machineType": "A6000"}), 409, "CONFLICT")
    assert ann.put(f"/machines/{made}", json={"name": "other"}).json()["data"]["name"] == "other"
    assert sim.ledger.get(made).tag == "other"


# What bills


def test_compute_is_paid_by_the_begun_hour_and_the_disk_until_the_end(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = create(ann)
    pass_time(sim, "provisioning")
    assert sim.ledger.get(made).rate == pytest.approx(USD + DISK)  # it is starting
    pass_time(sim, "starting", "service")
    sim.clock.advance(1.5 * HOUR)
    do(ann, made, "stop")
    assert sim.ledger.get(made).rate == pytest.approx(USD + DISK)  # it is stopping
    pass_time(sim, "stopping")
    assert sim.ledger.get(made).usd == pytest.approx(2 * USD, abs=0.02)
    assert sim.ledger.get(made).rate == pytest.approx(DISK)
    sim.clock.advance(MONTH)
    before = sim.ledger.get(made).usd
    assert before == pytest.approx(2 * USD + 5.0, abs=0.05)
    do(ann, made, "delete")
    pass_time(sim, "deactivating")
    assert sim.ledger.live() == []
    assert sim.ledger.spent("ann") == pytest.approx(before, abs=0.01)


def test_a_short_session_costs_an_hour(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = ready(sim, ann)
    do(ann, made, "stop")
    pass_time(sim, "stopping")
    rental = sim.ledger.get(made)
    assert rental.usd == pytest.approx(USD, abs=0.02)
    assert rental.between(BEGIN, BEGIN + 2 * HOUR) == pytest.approx(rental.usd)


def test_a_static_ip_outlives_its_machine_and_bills(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = off(sim, ann, publicIpType="static")
    [ip] = ann.get("/public-ips").json()["items"]
    assert ip["assignedMachineId"] == made
    assert get(ann, made)["publicIp"] == ip["ip"]
    refused(ann.delete(f"/public-ips/{ip['ip']}"), 409, "CONFLICT", made)
    do(ann, made, "delete")
    pass_time(sim, "deactivating")
    [left] = ann.get("/public-ips").json()["items"]
    assert "assignedMachineId" not in left
    assert [one.kind for one in sim.ledger.live()] == ["public_ip"]
    sim.clock.advance(MONTH)
    assert sim.ledger.get(ip["ip"]).usd <= 3.01
    assert ann.delete(f"/public-ips/{ip['ip']}").json() == {"ip": ip["ip"]}
    assert sim.ledger.live() == []


def test_an_address_is_added_to_a_machine_and_taken_off(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = off(sim, ann, publicIpType="none")
    shown = ann.put(f"/machines/{made}", json={"publicIpType": "static"}).json()["data"]
    assert (shown["publicIpType"], shown["publicIp"][:7]) == ("static", "127.73.")
    refused(ann.put(f"/machines/{made}", json={"publicIpType": "dynamic"}), 400, "BAD_REQUEST", "dynamic")
    assert ann.put(f"/public-ips/{shown['publicIp']}", json={"machineId": None}).status_code == 200
    assert get(ann, made)["publicIp"] is None
    elsewhere = ann.post("/public-ips", json={"region": "ca1"}).json()["ip"]
    refused(ann.put(f"/public-ips/{elsewhere}", json={"machineId": made}), 400, "BAD_REQUEST", "region")


def test_snapshots_outlive_their_machine_bill_and_are_of_no_use(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = off(sim, ann, takeInitialSnapshot=True)
    ann.post("/snapshots", json={"machineId": made, "name": "by hand"})
    by_hand, initial = ann.get("/snapshots").json()["items"]
    assert [by_hand["name"], initial["name"]] == ["by hand", "initial"]
    assert ann.post(f"/snapshots/{initial['id']}/restore").json()["event"]["name"] == "snapshot-restore"
    do(ann, made, "delete")
    pass_time(sim, "deactivating")
    assert [one.kind for one in sim.ledger.live()] == ["snapshot", "snapshot"]
    refused(ann.post(f"/snapshots/{initial['id']}/restore"), 404, "NOT_FOUND")
    ann.delete(f"/snapshots/{initial['id']}")
    assert len(sim.ledger.live()) == 2
    pass_time(sim, "snapshot")
    assert [one.tag for one in sim.ledger.live()] == ["by hand"]


def test_automatic_snapshots_come_by_the_clock_and_the_oldest_goes(sim: PaperspaceSim, ann: httpx.Client) -> None:
    told = {"autoSnapshotEnabled": True, "autoSnapshotFrequency": "hourly", "autoSnapshotSaveCount": 2}
    made = off(sim, ann, **told)
    sim.clock.advance(5 * HOUR)
    found = ann.get("/snapshots", params={"machineId": made}).json()["items"]
    assert [one["isAutoSnapshot"] for one in found] == [True, True]
    assert len([one for one in sim.ledger.all() if one.kind == "snapshot"]) == 6


def test_a_shared_drive_bills_by_its_size_in_a_private_network(sim: PaperspaceSim, ann: httpx.Client) -> None:
    usual = get(ann, off(sim, ann))["networkId"]
    assert ann.get(f"/private-networks/{usual}").json() is None
    wanted = {"name": "runs", "region": "ny2", "size": 250}
    refused(ann.post("/shared-drives", json={**wanted, "networkId": usual}), 404, "NOT_FOUND")
    network = ann.post("/private-networks", json={"name": "mine", "region": "ny2"}).json()["id"]
    drive = ann.post("/shared-drives", json={**wanted, "networkId": network}).json()
    assert drive["mountPoint"].startswith("//10.")
    refused(ann.delete(f"/private-networks/{network}"), 409, "CONFLICT")
    assert sim.ledger.rate("ann", "shared_drive") == pytest.approx(250 * 0.29 * HOUR / MONTH)
    assert ann.delete(f"/shared-drives/{drive['id']}").json() == {"id": drive["id"]}
    assert ann.delete(f"/private-networks/{network}").status_code == 200
    assert sim.ledger.live("shared_drive") == []


def test_a_startup_script_is_given_and_its_text_is_not_shown(sim: PaperspaceSim, ann: httpx.Client) -> None:
    script = ann.post("/startup-scripts", json={"name": "keys", "script": "echo hello", "isRunOnce": True}).json()
    made = off(sim, ann, startupScriptId=script["id"])
    shown = ann.get(f"/startup-scripts/{script['id']}").json()
    assert (shown["assignedMachineIds"], shown["isRunOnce"], "script" in shown) == ([made], True, False)
    assert ann.delete(f"/startup-scripts/{script['id']}").json()["dtDeleted"] is not None
    refused(ann.get(f"/startup-scripts/{script['id']}"), 404, "NOT_FOUND")
    refused(ann.post("/machines", json={**BODY, "startupScriptId": script["id"]}), 404, "NOT_FOUND")
    assert ann.get("/startup-scripts").json()["items"] == []


# Lists


def test_a_list_comes_in_pages_newest_first(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = [create(ann, name=f"box {number}", startOnCreate=False) for number in range(5)]
    found, after, pages = [], None, 0
    while True:
        query = {"limit": 2} | ({"after": after} if after else {})
        body = ann.get("/machines", params=query).json()
        found += [one["id"] for one in body["items"]]
        pages += 1
        assert body["hasMore"] == (body["nextPage"] is not None)
        if not body["hasMore"]:
            break
        if pages == 1:
            sim.act_vanish(found[0])  # a cursor is no number of rows
        after = body["nextPage"]
    assert (found, pages) == (made[::-1], 3)
    names = ann.get("/machines", params={"orderBy": "name", "order": "asc"}).json()["items"]
    assert [one["name"] for one in names] == [f"box {number}" for number in range(4)]


def test_a_page_has_twenty_items_unless_it_is_asked_for_more(sim: PaperspaceSim, ann: httpx.Client) -> None:
    for number in range(21):
        create(ann, name=f"box {number}", startOnCreate=False)
    assert len(ann.get("/machines").json()["items"]) == 20
    assert len(ann.get("/machines", params={"limit": 120}).json()["items"]) == 21
    for limit in (0, 121, "all"):
        refused(ann.get("/machines", params={"limit": limit}), 400, "BAD_REQUEST", "limit")
    refused(ann.get("/machines", params={"after": "nothing"}), 400, "BAD_REQUEST", "after")
    refused(ann.get("/machines", params={"orderBy": "size"}), 400, "BAD_REQUEST", "orderBy")


def test_a_filter_matches_a_part_of_a_name(sim: PaperspaceSim, ann: httpx.Client) -> None:
    mine, other = create(ann, name="sweep-1"), create(ann, name="sweep-10", region="ca1")
    assert listed(ann, name="sweep-1") == [other, mine]
    assert listed(ann, region="ca1") == [other]


def test_templates_say_what_they_run_on(ann: httpx.Client) -> None:
    found = ann.get("/os-templates").json()["items"]
    on_h100 = {
        one["name"]
        for one in found
        for kind in one["availableMachineTypes"]
        if kind == {"machineTypeLabel": "H100", "isAvailable": True}
    }
    assert on_h100 == {"ML-in-a-Box Ubuntu 22.04"}
    assert ann.get("/custom-templates").json() == {"hasMore": False, "items": [], "nextPage": None}
    assert ann.get("/billing/account-standing").json()["isInGoodStanding"] is True
    assert ann.get("/health").json() == "HEALTHY"


# What goes wrong


def test_every_fault_of_its_own_is_played_here() -> None:
    text = Path(__file__).read_text()
    assert [kind for kind in KINDS if f'"{kind}"' not in text] == []


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("out_of_capacity", 400, "BAD_REQUEST"),
        ("quota", 403, "FORBIDDEN"),
        ("bad_standing", 403, "FORBIDDEN"),
        ("forbidden", 403, "FORBIDDEN"),
        ("auth", 401, "UNAUTHORIZED"),
        ("error_before", 500, "INTERNAL_SERVER_ERROR"),
    ],
)
def test_a_create_that_is_refused_makes_nothing(
    sim: PaperspaceSim, ann: httpx.Client, kind: str, status: int, code: str
) -> None:
    sim.faults.add(kind, CREATE)
    refused(ann.post("/machines", json=BODY), status, code)
    assert listed(ann) == []
    assert sim.ledger.all() == []


@pytest.mark.parametrize(
    ("kind", "state", "bills"),
    [
        ("stuck_provisioning", "provisioning", False),
        ("stuck_starting", "starting", True),
        ("stuck", "serviceready", True),
    ],
)
def test_a_machine_that_gets_stuck(sim: PaperspaceSim, ann: httpx.Client, kind: str, state: str, bills: bool) -> None:
    sim.faults.add(kind, CREATE)
    made = create(ann)
    pass_time(sim, "provisioning", "starting", "service")
    sim.clock.advance(HOUR)
    assert get(ann, made)["state"] == state
    assert (sim.ledger.get(made).rate > USD) is bills
    refused(ann.delete(f"/machines/{made}"), 409, "CONFLICT", state)
    taken = ann.patch(f"/machines/{made}/stop").status_code == 200
    assert taken is (kind == "stuck")


def test_a_start_that_fails_says_so_in_its_event_alone(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = off(sim, ann)
    sim.faults.add("start_fails", START)
    told = do(ann, made, "start")
    pass_time(sim, "starting")
    assert event(ann, told["id"])["state"] == "error"
    assert get(ann, made)["state"] == "off"
    do(ann, made, "start")
    pass_time(sim, "starting", "service")
    assert get(ann, made)["state"] == "ready"


def test_a_stop_that_never_ends_bills(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = ready(sim, ann)
    sim.faults.add("stop_stuck", STOP)
    do(ann, made, "stop")
    sim.clock.advance(HOUR)
    assert get(ann, made)["state"] == "stopping"
    assert sim.ledger.get(made).rate > USD
    refused(ann.delete(f"/machines/{made}"), 409, "CONFLICT")


@pytest.mark.parametrize(("reads", "looks", "state"), [(0, 1, "ready"), (1, 3, "ready"), (1, 2, "serviceready")])
def test_a_stop_that_never_ends_does_not_end_at_once(reads: int, looks: int, state: str) -> None:
    """Also where a stop takes no time: the step that ends it is due before anything else is looked at."""
    sim = PaperspaceSim(clock=VirtualClock(BEGIN), times=replace(AT_ONCE, reads=reads))
    with SimServer(sim), client(sim, KEY) as ann:
        made = create(ann)
        assert [get(ann, made)["state"] for _ in range(looks)][-1] == state
        sim.faults.add("stop_stuck", STOP)
        do(ann, made, "stop")
        assert [get(ann, made)["state"] for _ in range(3)] == ["stopping"] * 3
        sim.machines.all[made].stuck = ""
        sim.act("power_off", {"id": made})
        do(ann, made, "start")
        assert [get(ann, made)["state"] for _ in range(5)][-1] == "ready"
        do(ann, made, "restart")
        assert [get(ann, made)["state"] for _ in range(5)][-1] == "ready"
        do(ann, made, "stop")
        assert [get(ann, made)["state"] for _ in range(5)][-1] == "off"


def test_an_ignored_call_leaves_an_event_that_is_new(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = ready(sim, ann)
    sim.faults.add("ignored", STOP)
    told = do(ann, made, "stop")
    sim.clock.advance(HOUR)
    assert (get(ann, made)["state"], event(ann, told["id"])["state"]) == ("ready", "new")
    assert [(act.what, act.done) for act in sim.ledger.get(made).acts] == [("create", True), ("stop", False)]


def test_a_delete_that_fails_tells_no_reason_and_the_disk_bills(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = off(sim, ann)
    sim.faults.add("delete_fails", DELETE)
    told = do(ann, made, "delete")
    pass_time(sim, "deactivating")
    found = event(ann, told["id"])
    assert (found["state"], found["error"]) == ("error", None)
    assert found["dtFinished"] is not None
    assert sim.ledger.get(made).rate == pytest.approx(DISK)
    do(ann, made, "delete")
    pass_time(sim, "deactivating")
    assert sim.ledger.live() == []


@pytest.mark.parametrize(("seconds", "gone"), [(600.0, True), (None, False)])
def test_a_delete_that_lingers(sim: PaperspaceSim, ann: httpx.Client, seconds: float | None, gone: bool) -> None:
    made = off(sim, ann)
    sim.faults.add("delete_lingers", DELETE, seconds=seconds)
    do(ann, made, "delete")
    pass_time(sim, "deactivating")
    assert get(ann, made)["state"] == "off"
    refused(ann.patch(f"/machines/{made}/start"), 409, "CONFLICT", "being deleted")
    sim.clock.advance(HOUR)
    assert (listed(ann) == []) is gone


def test_what_befalls_machines_behind_their_owner_s_back(sim: PaperspaceSim, ann: httpx.Client) -> None:
    made = ready(sim, ann)
    sim.faults.add("odd_state", GET)
    assert get(ann, made)["state"] == "upgrading"
    assert get(ann, made)["state"] == "ready"
    sim.faults.add("shut_down", GET)
    assert get(ann, made)["state"] == "serviceready"
    assert sim.ledger.get(made).rate > USD
    do(ann, made, "stop")
    pass_time(sim, "stopping")
    do(ann, made, "start")
    pass_time(sim, "starting", "service")
    sim.faults.add("preempted", GET)
    assert get(ann, made)["state"] == "off"
    assert [(act.what, act.by) for act in sim.ledger.get(made).acts][-1] == ("stop", "platform")
    sim.faults.add("vanished", LIST)
    assert listed(ann) == []
    assert sim.ledger.live() == []


def test_lists_that_lie(sim: PaperspaceSim, ann: httpx.Client) -> None:
    first = off(sim, ann)
    second = create(ann, name="second")
    sim.faults.add("stale_list", LIST)
    assert listed(ann) == [first]
    sim.faults.add("empty_list", LIST)
    assert listed(ann) == []
    do(ann, first, "delete")
    pass_time(sim, "deactivating")
    assert listed(ann) == [second]
    sim.faults.add("list_deleted", LIST)
    shown = ann.get("/machines").json()["items"]
    assert [(one["id"], one["state"], one["dtDeleted"] is not None) for one in shown][1] == (first, "off", True)
    sim.faults.add("foreign_account", LIST)
    assert listed(ann) == []


def test_a_new_machine_that_is_not_seen_at_first(sim: PaperspaceSim, ann: httpx.Client) -> None:
    sim.faults.add("missing_at_first", CREATE, reads=1, in_list=True)
    sim.faults.add("late_address", CREATE, reads=2)
    made = create(ann)
    refused(ann.get(f"/machines/{made}"), 404, "NOT_FOUND")
    pass_time(sim, "provisioning", "starting", "service")
    assert [get(ann, made)["publicIp"] is None for _ in range(3)] == [True, True, False]
    assert [get(ann, made)["state"]] == ["ready"]


@pytest.mark.parametrize("kind", ["lost_answer", "error_after", "html_after"])
def test_a_create_whose_answer_is_lost_is_made(sim: PaperspaceSim, ann: httpx.Client, kind: str) -> None:
    sim.faults.add(kind, CREATE)
    try:
        assert ann.post("/machines", json=BODY).status_code >= 500
    except httpx.TransportError:
        assert kind == "lost_answer"
    assert len(listed(ann)) == 1
    assert sim.faults.unfired() == []


# Tests that do not wait, seeds, and the program


def test_with_a_clock_that_stands_still_machines_come_up_by_being_read() -> None:
    sim = PaperspaceSim(clock=VirtualClock(BEGIN), times=AT_ONCE)
    with SimServer(sim), client(sim, KEY) as ann:
        made = create(ann)
        assert [get(ann, made)["state"] for _ in range(3)] == ["starting", "serviceready", "ready"]
        told = do(ann, made, "stop")
        assert event(ann, told["id"])["state"] == "done"  # to look at its event is a look at it
        assert get(ann, made)["state"] == "off"
        do(ann, made, "delete")
        get(ann, made)
        assert listed(ann) == []
        sim.check()


def test_a_seed_draws_what_there_is() -> None:
    kinds = {rule.kind for seed in range(200) for rule in draw(seed, MENU)}
    assert kinds <= set(KINDS) | set(TRANSPORT)
    assert kinds == {choice.kind for choice in MENU}


def test_the_program_serves_until_it_is_ended() -> None:
    command = [sys.executable, "-m", "tests.simulators.paperspace", "--at-once"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            said = dict(program.stdout.readline().strip().split("=", 1) for _ in range(2))
            headers = {"Authorization": f"Bearer {said['PAPERSPACE_API_KEY']}"}
            reply = httpx.get(f"{said['PAPERSPACE_API_BASE_URL']}/machines", headers=headers, verify=NO_TLS)
            assert reply.json()["items"] == []
        finally:
            os.kill(program.pid, signal.SIGTERM)
        assert program.wait(60) == 0
