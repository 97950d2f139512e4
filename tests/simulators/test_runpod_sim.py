"""The simulated RunPod's REST API: what the vendor documents, refusal by refusal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.simulators.clock import rfc3339
from tests.simulators.conftest import START
from tests.simulators.core import HOUR
from tests.simulators.runpod import Boot, RunPodSim

A5000 = "NVIDIA RTX A5000"
BODY: dict[str, Any] = {
    "name": "box",
    "image": "ubuntu:24.04",
    "gpu": {"id": A5000, "count": 1},
    "disk": 20,
    "ports": ["22/tcp", "8888/http"],
    "env": {"PUBLIC_KEY": "ssh-ed25519 AAAA ann"},
}


def create(client: httpx.Client, **changes: Any) -> dict[str, Any]:
    reply = client.post("/v2/pods", json={**BODY, **changes})
    assert reply.status_code == 201, reply.text
    shown: dict[str, Any] = reply.json()
    return shown


def get(client: httpx.Client, pod: str) -> dict[str, Any]:
    reply = client.get(f"/v2/pods/{pod}")
    assert reply.status_code == 200, reply.text
    shown: dict[str, Any] = reply.json()
    return shown


def ready(client: httpx.Client, pod: str) -> dict[str, Any]:
    for _ in range(10):
        if (seen := get(client, pod))["runtime"]:
            return seen
    raise AssertionError("never ready")


def act(client: httpx.Client, pod: str, verb: str) -> httpx.Response:
    return client.post(f"/v2/pods/{pod}/action", json={"action": verb})


def listed(client: httpx.Client) -> list[str]:
    return [pod["id"] for pod in client.get("/v2/pods").json()["pods"]]


def refused(reply: httpx.Response, status: int, *words: str) -> dict[str, Any]:
    body: dict[str, Any] = reply.json()
    assert (reply.status_code, body["status"]) == (status, status), reply.text
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert body["title"]
    assert all(word in reply.text for word in words), reply.text
    return body


# Life


def test_a_pod_says_running_before_it_is_ready(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    made = create(ann)
    assert (made["status"], made["runtime"], made["ssh"]["direct"]) == ("RUNNING", None, None)
    seen = ready(ann, made["id"])
    assert seen["ssh"]["direct"]["username"] == "root"
    assert seen["ssh"]["proxy"]["host"] == "ssh.runpod.io"
    assert [p["private"] for p in seen["runtime"]["ports"]] == [22, 8888]
    assert len(seen["runtime"]["gpus"]) == 1
    assert seen["actions"] == ["stop", "restart", "terminate"]
    assert (seen["cost"], seen["createdAt"]) == (0.27, "2026-09-21T14:13:20.000Z")
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", seen["ssh"]["direct"]["port"])) != 0


def test_a_pod_walks_through_its_states(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    runpod_sim.pods.boot = Boot(at_once=False, reads=4)
    pod = create(ann)["id"]
    walk = [get(ann, pod)["status"] for _ in range(6)]
    assert walk == ["PROVISIONING", "PROVISIONING", "STARTING", "STARTING", "RUNNING", "RUNNING"]


def test_a_pod_can_take_time_to_boot(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    runpod_sim.pods.boot = Boot(reads=0, seconds=60)
    pod = create(ann)["id"]
    assert all(get(ann, pod)["runtime"] is None for _ in range(5))
    runpod_sim.clock.advance(60)
    assert get(ann, pod)["runtime"]


@pytest.mark.parametrize("keeps", [True, False])
def test_a_stopped_pod_may_show_its_last_start_and_shows_the_next(
    runpod_sim: RunPodSim, ann: httpx.Client, keeps: bool
) -> None:
    runpod_sim.pods.keeps_start = keeps
    pod = create(ann)["id"]
    first = get(ann, pod)["startedAt"]
    act(ann, pod, "stop")
    assert get(ann, pod)["startedAt"] == (first if keeps else None)
    runpod_sim.clock.advance(60)
    act(ann, pod, "start")
    assert get(ann, pod)["startedAt"] > first


def test_stop_and_start_draw_another_port(ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    before = ready(ann, pod)["ssh"]["direct"]["port"]
    assert act(ann, pod, "stop").json()["status"] == "EXITED"
    stopped = get(ann, pod)
    assert (stopped["runtime"], stopped["ssh"]["direct"], stopped["cost"]) == (None, None, 0.0)
    assert act(ann, pod, "start").status_code == 200
    assert ready(ann, pod)["ssh"]["direct"]["port"] != before


@pytest.mark.parametrize(
    ("verbs", "refuses"),
    [([], ["start"]), (["stop"], ["stop", "restart"]), (["stop", "start"], ["start"])],
)
def test_what_a_status_does_not_allow_is_a_conflict(ann: httpx.Client, verbs: list[str], refuses: list[str]) -> None:
    pod = create(ann)["id"]
    for verb in verbs:
        assert act(ann, pod, verb).status_code == 200
    for verb in refuses:
        refused(act(ann, pod, verb), 409)


def test_a_pod_that_is_still_being_made_cannot_be_restarted(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    runpod_sim.pods.boot = Boot(at_once=False, reads=50)
    pod = create(ann)["id"]
    refused(act(ann, pod, "restart"), 409)
    assert act(ann, pod, "stop").status_code == 200


@pytest.mark.parametrize("how", ["delete", "terminate"])
def test_an_end_is_an_end(runpod_sim: RunPodSim, ann: httpx.Client, how: str) -> None:
    pod = create(ann)["id"]
    reply = ann.delete(f"/v2/pods/{pod}") if how == "delete" else act(ann, pod, "terminate")
    assert (reply.status_code, reply.content) == (204, b"")
    refused(ann.get(f"/v2/pods/{pod}"), 404)
    refused(ann.delete(f"/v2/pods/{pod}"), 404)
    assert listed(ann) == []
    assert runpod_sim.ledger.live() == []


def test_a_locked_pod_does_not_stop(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    ready(ann, pod)
    assert ann.patch(f"/v2/pods/{pod}", json={"locked": True}).json()["locked"] is True
    for verb in ("stop", "restart"):
        refused(act(ann, pod, verb), 409, "locked")


def test_a_member_of_a_cluster_is_left_alone(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    runpod_sim.act("set", {"id": pod, "cluster": True})
    refused(ann.delete(f"/v2/pods/{pod}"), 409)
    refused(act(ann, pod, "stop"), 409)
    refused(ann.patch(f"/v2/pods/{pod}", json={"name": "x"}), 409)
    assert listed(ann) == []
    assert [p["id"] for p in ann.get("/v2/pods", params={"includeClusterPods": "true"}).json()["pods"]] == [pod]


# Create


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"name": ""}, 422, ["$.name"]),
        ({"name": "x" * 192}, 422, ["$.name"]),
        ({"image": None}, 422, ["image"]),
        ({"templateId": "t1"}, 404, ["template"]),
        ({"cpu": {"id": "cpu3c", "vcpuCount": 2}}, 400, ["exactly one"]),
        ({"gpu": None}, 400, ["exactly one"]),
        ({"gpu": {"id": A5000}}, 400, ["no longer any instances"]),
        ({"gpu": {"id": A5000, "count": 0}}, 422, ["$.gpu.count"]),
        ({"gpu": {"id": A5000, "count": 9}}, 400, ["no longer any instances"]),
        ({"gpu": {"id": "NVIDIA B9000", "count": 1}}, 400, ["B9000"]),
        ({"gpu": {"id": "NVIDIA A40", "count": 1}, "cloud": "COMMUNITY"}, 400, ["no longer any instances"]),
        ({"gpu": {"id": A5000, "count": 1, "allowedCudaVersions": ["12.8"], "minCudaVersion": "12.4"}}, 400, ["CudaV"]),
        ({"gpu": {"id": A5000, "count": 1, "minCudaVersion": "13.0"}}, 400, ["no longer any instances"]),
        ({"gpu": {"id": A5000, "count": 1, "allowedCudaVersions": ["11.8"]}}, 400, ["no longer any instances"]),
        ({"cloud": "ALL"}, 422, ["$.cloud"]),
        ({"dataCenterIds": ["XX-1"]}, 400, ["no longer any instances"]),
        ({"disk": None}, 400, ["template id or pod configuration"]),
        ({"disk": "20"}, 422, ["$.disk"]),
        ({"ports": ["22"]}, 422, ["$.ports"]),
        ({"env": {"A": 1}}, 422, ["$.env.A"]),
        ({"registry": "reg9"}, 400, ["registry"]),
        ({"mounts": {"network": []}}, 400, ["network"]),
        ({"mounts": {"network": [{"volumeId": "nv9", "path": "/v"}]}}, 400, ["volume not found"]),
        ({"mounts": {"network": [{"volumeId": "nv9"}]}}, 422, ["path"]),
        ({"mounts": {"network": [{"volumeId": "a", "path": "/v"}, {"volumeId": "b", "path": "/w"}]}}, 422, ["network"]),
        ({"mounts": {"persistent": {"size": 9, "path": "/w"}}}, 422, ["size"]),
        (
            {"mounts": {"persistent": {"size": 10, "path": "/w"}, "network": [{"volumeId": "n", "path": "/v"}]}},
            400,
            ["exclusive"],
        ),
        (
            {"gpu": None, "cpu": {"id": "cpu3c", "vcpuCount": 2}, "mounts": {"persistent": {"size": 10, "path": "/w"}}},
            400,
            ["persistent"],
        ),
    ],
)
def test_a_create_is_refused(
    runpod_sim: RunPodSim, ann: httpx.Client, changes: dict[str, Any], status: int, words: list[str]
) -> None:
    body = {name: value for name, value in {**BODY, **changes}.items() if value is not None}
    refused(ann.post("/v2/pods", json=body), status, *words)
    assert runpod_sim.ledger.all() == []
    assert runpod_sim.stock.free[A5000, "SECURE", "US-TX-3"] == 400


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpuCount": 1}, "$: additional properties 'gpuCount' not allowed"),
        ({"interruptible": True}, "'interruptible' not allowed"),
        ({"tags": []}, "'tags' not allowed"),
        ({"gpu": {"id": A5000, "count": 1, "price": 1}}, "$.gpu: additional properties 'price' not allowed"),
    ],
)
def test_an_unknown_field_is_refused_and_fails_the_test(
    runpod_sim: RunPodSim, ann: httpx.Client, changes: dict[str, Any], said: str
) -> None:
    body = refused(ann.post("/v2/pods", json={**BODY, **changes}), 422)
    assert body["detail"] == "Request validation failed."
    assert said in body["errors"][0]
    assert said in runpod_sim.pardon()[0]
    assert runpod_sim.ledger.all() == []


def test_names_are_not_unique_and_lists_are_newest_first(ann: httpx.Client, bob: httpx.Client) -> None:
    first, second = create(ann)["id"], create(ann)["id"]
    assert first != second
    assert listed(ann) == [second, first]
    assert listed(bob) == []


def test_another_accounts_pod_is_not_there(runpod_sim: RunPodSim, ann: httpx.Client, bob: httpx.Client) -> None:
    pod = create(ann)["id"]
    for reply in (
        bob.get(f"/v2/pods/{pod}"),
        bob.delete(f"/v2/pods/{pod}"),
        act(bob, pod, "stop"),
        bob.patch(f"/v2/pods/{pod}", json={"name": "mine"}),
    ):
        refused(reply, 404)
    assert get(ann, pod)["name"] == "box"


def test_stock_runs_out_and_comes_back(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    runpod_sim.act("empty", {})
    runpod_sim.stock.free[A5000, "SECURE", "EU-RO-1"] = 1
    pod = create(ann)
    assert pod["dataCenterId"] == "EU-RO-1"
    refused(ann.post("/v2/pods", json=BODY), 400, "no longer any instances")
    ann.delete(f"/v2/pods/{pod['id']}")
    assert create(ann)["dataCenterId"] == "EU-RO-1"


def test_a_stopped_pod_may_find_its_host_full(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann, dataCenterIds=["EU-SE-1"])["id"]
    act(ann, pod, "stop")
    runpod_sim.act("empty", {"where": "EU-SE-1"})
    refused(act(ann, pod, "start"), 400, "not enough free GPUs")
    assert get(ann, pod)["status"] == "EXITED"


def test_cpu_pods(ann: httpx.Client) -> None:
    body = {name: value for name, value in BODY.items() if name != "gpu"}
    made = ann.post("/v2/pods", json={**body, "cpu": {"id": "cpu3c", "vcpuCount": 4}}).json()
    assert (made["cpu"]["vcpuCount"], made["cost"], "gpu" in made) == (4, 0.12, False)


def test_account_keys_reach_a_pod_that_brings_none(ann: httpx.Client) -> None:
    assert ann.put("/v2/account/ssh-keys", json={"keys": ["ssh-ed25519 BBBB ann"]}).status_code == 200
    assert ann.get("/v2/account/ssh-keys").json() == {"keys": ["ssh-ed25519 BBBB ann"]}
    assert create(ann, startSsh=True)["env"]["PUBLIC_KEY"] == "ssh-ed25519 AAAA ann"
    assert create(ann, startSsh=True, env={})["env"]["PUBLIC_KEY"] == "ssh-ed25519 BBBB ann"
    assert create(ann, env={})["env"] == {}
    refused(ann.put("/v2/account/ssh-keys", json={"keys": ["hello"]}), 422)


# Money


def test_what_a_pod_costs_in_each_state(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann, mounts={"persistent": {"size": 100, "path": "/workspace"}})["id"]
    ready(ann, pod)
    runpod_sim.clock.advance(10 * HOUR)
    running = 0.27 + (20 * 0.10 + 100 * 0.10) / 730
    assert runpod_sim.ledger.spent("user_ann") == pytest.approx(10 * running)
    act(ann, pod, "stop")
    runpod_sim.clock.advance(730 * HOUR)
    assert runpod_sim.ledger.spent("user_ann") == pytest.approx(10 * running + 100 * 0.20)
    ann.delete(f"/v2/pods/{pod}")
    runpod_sim.clock.advance(730 * HOUR)
    assert runpod_sim.ledger.spent("user_ann") == pytest.approx(10 * running + 20)
    left = ann.get("/v2/billing/balance").json()
    assert left == {"balanceAmount": pytest.approx(1000 - 10 * running - 20), "billingMode": "PREPAID"}


def test_a_poor_account_rents_and_starts_nothing(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    act(ann, pod, "stop")
    runpod_sim.act("credit", {"account": "user_ann", "usd": 0.2})
    refused(ann.post("/v2/pods", json=BODY), 402)
    refused(act(ann, pod, "start"), 402)
    runpod_sim.billing_mode = "POSTPAID"
    create(ann)


def test_the_spend_limit_counts_what_runs(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    runpod_sim.spend_limit = 0.5
    create(ann)
    refused(ann.post("/v2/pods", json=BODY), 402, "limit")
    assert ann.get("/v2/account/limits").json()["spendRate"]["limit"] == 0.5


def test_billing_by_bucket(runpod_sim: RunPodSim, ann: httpx.Client, bob: httpx.Client) -> None:
    pod = create(ann)["id"]
    create(bob)
    runpod_sim.clock.advance(3 * HOUR)
    ann.delete(f"/v2/pods/{pod}")
    told = ann.get("/v2/billing/pods", params={"bucketSize": "hour", "lastN": "10"}).json()
    assert sum(r["totalAmount"] for r in told["records"]) == pytest.approx(runpod_sim.ledger.spent("user_ann"))
    assert sum(r["gpuAmount"] for r in told["records"]) == pytest.approx(3 * 0.27)
    assert {r["podId"] for r in told["records"]} == {pod}
    assert len(told["records"]) == 4, "three hours, begun in the middle of one"
    assert told["metadata"]["uniquePodCount"] == 1
    assert ann.get("/v2/billing/pods", params={"podId": "other"}).json()["records"] == []
    refused(ann.get("/v2/billing/pods", params={"bucketSize": "minute"}), 400)


def test_charges_are_posted_at_intervals_and_stay_when_the_pod_has_ended(
    runpod_sim: RunPodSim, ann: httpx.Client
) -> None:
    runpod_sim.bill_every = 300.0
    pod = create(ann)["id"]

    def charged() -> float:
        told = ann.get("/v2/billing/pods", params={"bucketSize": "hour", "lastN": "3", "podId": pod}).json()
        return float(sum(record["totalAmount"] for record in told["records"]))

    assert charged() == 0
    runpod_sim.clock.advance(450)
    first = charged()
    assert 0 < first < runpod_sim.ledger.spent("user_ann")
    ann.delete(f"/v2/pods/{pod}")
    runpod_sim.clock.advance(300)
    last = charged()
    runpod_sim.clock.advance(HOUR)
    assert charged() == last == pytest.approx(runpod_sim.ledger.spent("user_ann"))
    query = ann.get("/v2/billing/pods", params={"bucketSize": "hour", "lastN": "1"}).json()["metadata"]["query"]
    assert query["endTime"] > rfc3339(runpod_sim.clock.now())


def test_an_account_names_itself(ann: httpx.Client, bob: httpx.Client) -> None:
    assert ann.get("/v2/account").json() == {"id": "user_ann", "email": "ann@example.com"}
    assert bob.get("/v2/account").json()["id"] == "user_bob"


# Network volumes


def volume(client: httpx.Client, **changes: Any) -> dict[str, Any]:
    reply = client.post("/v2/network-volumes", json={"name": "v", "size": 50, "dataCenter": "EU-RO-1", **changes})
    assert reply.status_code == 201, reply.text
    shown: dict[str, Any] = reply.json()
    return shown


def test_a_volume_lives_bills_grows_and_ends(runpod_sim: RunPodSim, ann: httpx.Client, bob: httpx.Client) -> None:
    made = volume(ann)
    assert made == {"id": made["id"], "name": "v", "size": 50, "dataCenter": "EU-RO-1", "type": "STANDARD"}
    path = f"/v2/network-volumes/{made['id']}"
    assert ann.get("/v2/network-volumes").json() == {"networkVolumes": [made]}
    assert bob.get("/v2/network-volumes").json() == {"networkVolumes": []}
    refused(bob.get(path), 404)
    refused(bob.delete(path), 404)
    runpod_sim.clock.advance(730 * HOUR)
    assert runpod_sim.ledger.spent("user_ann") == pytest.approx(50 * 0.07)
    assert ann.patch(path, json={"size": 60, "name": "w"}).json()["size"] == 60
    refused(ann.patch(path, json={"size": 50}), 400)
    refused(ann.patch(path, json={}), 400)
    assert ann.delete(path).status_code == 204
    refused(ann.get(path), 404)
    refused(ann.delete(path), 404)
    assert runpod_sim.ledger.live() == []


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"size": 9}, 422),
        ({"size": 4097}, 422),
        ({"name": ""}, 422),
        ({"dataCenter": "EU-SE-1"}, 400),
        ({"dataCenter": "eu-ro-1"}, 400),
        ({"type": "HIGH_PERFORMANCE"}, 400),
        ({"type": "FAST"}, 422),
    ],
)
def test_a_volume_is_refused(runpod_sim: RunPodSim, ann: httpx.Client, changes: dict[str, Any], status: int) -> None:
    body = {"name": "v", "size": 50, "dataCenter": "EU-RO-1", **changes}
    refused(ann.post("/v2/network-volumes", json=body), status)
    assert runpod_sim.ledger.all() == []


def test_a_volume_pins_its_pod_to_its_data_center(ann: httpx.Client) -> None:
    mounts = {"network": [{"volumeId": volume(ann)["id"], "path": "/sweepstack/mnt/durable"}]}
    pod = create(ann, mounts=mounts)
    assert (pod["dataCenterId"], pod["mounts"]) == ("EU-RO-1", mounts)
    assert create(ann, mounts=mounts, dataCenterIds=["US-TX-3", "EU-RO-1"])["dataCenterId"] == "EU-RO-1"
    refused(ann.post("/v2/pods", json={**BODY, "mounts": mounts, "dataCenterIds": ["US-TX-3"]}), 400, "instances")
    refused(ann.post("/v2/pods", json={**BODY, "mounts": mounts, "cloud": "COMMUNITY"}), 400)


def test_deleting_a_volume_in_use_is_not_stopped_by_the_platform(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    made = volume(ann)["id"]
    create(ann, mounts={"network": [{"volumeId": made, "path": "/v"}]})
    assert ann.delete(f"/v2/network-volumes/{made}").status_code == 204
    assert "was deleted while pods have it" in runpod_sim.pardon()[0]
    runpod_sim.refuse_attached = True
    made = volume(ann)["id"]
    create(ann, mounts={"network": [{"volumeId": made, "path": "/v"}]})
    refused(ann.delete(f"/v2/network-volumes/{made}"), 400)


# Edits


def test_an_edit_of_a_running_pod_makes_its_container_anew(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    port = ready(ann, pod)["ssh"]["direct"]["port"]
    assert ann.patch(f"/v2/pods/{pod}", json={"name": "renamed"}).json()["name"] == "renamed"
    assert get(ann, pod)["ssh"]["direct"]["port"] == port
    assert runpod_sim.ledger.get(pod).tag == "renamed"
    edited = ann.patch(f"/v2/pods/{pod}", json={"env": {"A": "1"}, "disk": 40}).json()
    assert (edited["env"], edited["disk"], edited["runtime"]) == ({"A": "1"}, 40, None)
    assert ready(ann, pod)["ssh"]["direct"]["port"] != port


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"mounts": {"network": []}}, 400),
        ({"mounts": {"network": [{"volumeId": "x", "path": "/v"}]}}, 400),
        ({"mounts": {"persistent": {"size": 10}}}, 400),
        ({"registry": "reg9"}, 400),
        ({"templateId": "t"}, 404),
        ({"name": ""}, 422),
        ({"disk": 0}, 422),
    ],
)
def test_an_edit_is_refused(ann: httpx.Client, change: dict[str, Any], status: int) -> None:
    pod = create(ann, mounts={"persistent": {"size": 20, "path": "/w"}})["id"]
    refused(ann.patch(f"/v2/pods/{pod}", json=change), status)
    assert ann.patch(f"/v2/pods/{pod}", json={"mounts": {"persistent": {"size": 30}}}).status_code == 200


def test_the_gpu_of_a_pod_cannot_be_edited(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    refused(ann.patch(f"/v2/pods/{pod}", json={"gpu": {"id": A5000, "count": 2}}), 422)
    assert "'gpu' not allowed" in runpod_sim.pardon()[0]


# Catalogue, registries, tags


def test_the_catalogue(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    plain = {gpu["id"]: gpu for gpu in ann.get("/v2/catalog/gpus").json()["gpus"]}
    assert plain[A5000]["price"] == {"secure": 0.27, "community": 0.16}
    assert "availability" not in plain[A5000]
    runpod_sim.act("empty", {"gpu": "NVIDIA A40"})
    runpod_sim.stock.free["NVIDIA A40", "SECURE", "US-KS-2"] = 8
    ask = {"include": "AVAILABILITY", "product": "POD", "count": "4"}
    seen = {gpu["id"]: gpu for gpu in ann.get("/v2/catalog/gpus", params=ask).json()["gpus"]}
    assert (seen["NVIDIA A40"]["availability"], seen[A5000]["availability"]) == ("LOW", "HIGH")
    assert [place["id"] for place in seen["NVIDIA A40"]["dataCenters"]] == ["US-KS-2"]
    none = ann.get("/v2/catalog/gpus/NVIDIA A40", params={**ask, "cloud": "COMMUNITY"}).json()
    assert (none["availability"], "dataCenters" in none) == ("NONE", False)
    refused(ann.get("/v2/catalog/gpus/nope"), 404)


@pytest.mark.parametrize(
    "ask",
    [
        {"include": "AVAILABILITY"},
        {"product": "POD"},
        {"count": "2"},
        {"include": "PRICE", "product": "POD"},
        {"include": "AVAILABILITY", "product": "BOX"},
    ],
)
def test_the_catalogue_wants_include_and_product_together(ann: httpx.Client, ask: dict[str, str]) -> None:
    refused(ann.get("/v2/catalog/gpus", params=ask), 400)


def test_data_centers(ann: httpx.Client) -> None:
    found = {center["id"]: center for center in ann.get("/v2/catalog/datacenters").json()["dataCenters"]}
    assert (found["EU-SE-1"]["networkVolumeTypes"], found["EU-RO-1"]["networkVolumeTypes"]) == ([], ["STANDARD"])
    some = ann.get("/v2/catalog/datacenters", params={"regions": "EUROPE", "include": "GPU_AVAILABILITY"}).json()
    assert [center["id"] for center in some["dataCenters"]] == ["EU-RO-1", "EU-SE-1"]
    assert some["dataCenters"][0]["gpuAvailability"][0] == {"id": A5000, "name": "RTX A5000", "availability": "HIGH"}
    refused(ann.get("/v2/catalog/datacenters/eu-ro-1"), 404)


def test_registries_and_tags(ann: httpx.Client, bob: httpx.Client) -> None:
    made = ann.post("/v2/registries", json={"name": "hub", "username": "u", "password": "secret"}).json()
    assert "secret" not in ann.get("/v2/registries").text
    pod = create(ann, registry=made["id"])["id"]
    refused(ann.delete(f"/v2/registries/{made['id']}"), 400, "in use")
    refused(bob.get(f"/v2/registries/{made['id']}"), 404)
    tag = ann.post("/v2/tags", json={"key": "sweep", "value": "a1b2c3"}).json()
    assert ann.put(f"/v2/tags/{tag['id']}/POD/{pod}").status_code == 204
    assert ann.get("/v2/tags").json()["tags"][0]["resources"] == [{"resourceType": "POD", "resourceId": pod}]
    refused(ann.post("/v2/tags", json={"key": "runpod:x"}), 422)
    refused(ann.put(f"/v2/tags/{tag['id']}/POD/nope"), 404)


# Admission


def test_keys(runpod_sim: RunPodSim) -> None:
    agent = {"User-Agent": "x"}
    refused(httpx.get(f"{runpod_sim.url}/v2/pods", headers=agent), 401, "missing bearer token")
    refused(httpx.get(f"{runpod_sim.url}/v2/pods", headers={**agent, "Authorization": "Bearer nope"}), 401)


def test_an_unknown_agent_meets_the_proxy(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    reply = ann.get("/v2/pods", headers={"User-Agent": "Python-urllib/3.11"})
    assert (reply.status_code, reply.headers["Content-Type"][:9]) == (403, "text/html")
    assert "User-Agent" in runpod_sim.pardon()[0]


def test_v1_is_gone(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    for path in ("/v1", "/v1/pods", "/v1/pods/x/stop"):
        refused(ann.post(path), 410)
    assert len(runpod_sim.pardon()) == 3


def test_what_the_platform_would_ignore_fails_the_test(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    assert ann.get("/v2/pods", params={"name": "box"}).status_code == 200
    assert "unknown query parameter 'name'" in runpod_sim.pardon()[0]
    ann.get("/v2/pods", headers={"X-Team-Id": "t"})
    assert "unknown header 'x-team-id'" in runpod_sim.pardon()[0]
    ann.post("/v2/pods", content=b"{", headers={"Content-Type": "application/json"})
    assert "no JSON" in runpod_sim.pardon()[0]


def test_a_body_that_is_too_large(ann: httpx.Client) -> None:
    refused(ann.post("/v2/pods", json={**BODY, "args": "x" * 102_400}), 413)


def test_the_quota_is_told_and_kept(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    from tests.simulators.core import WindowQuota

    runpod_sim.quota = WindowQuota(3)
    for left in (2, 1, 0):
        reply = ann.get("/v2/pods")
        assert reply.headers["RateLimit"].startswith(f'"minute";r={left};')
        assert reply.headers["RateLimit-Policy"].startswith('"minute";q=3;w=60')
    runpod_sim.clock.advance(20)
    late = ann.get("/v2/pods")
    refused(late, 429, "minute window")
    assert late.headers["Retry-After"] == "40"
    runpod_sim.clock.advance(40)
    assert ann.get("/v2/pods").status_code == 200


def test_pages(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    ids = [create(ann)["id"] for _ in range(5)][::-1]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        told = ann.get("/v2/pods", params={"limit": "2", **cursor}).json()
        seen += [pod["id"] for pod in told["pods"]]
        if not told["pagination"]["hasNextPage"]:
            break
        cursor = {"cursor": told["pagination"]["nextCursor"]}
    assert seen == ids
    refused(ann.get("/v2/pods", params={"cursor": "zzz"}), 422)
    runpod_sim.paging = False
    assert set(ann.get("/v2/pods").json()) == {"pods"}


def test_it_runs_alone_and_is_steered_over_http(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.simulators.runpod", "--port", "0", "--state", str(tmp_path), "--scale", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert process.stdout
        told = dict(process.stdout.readline().strip().split("=", 1) for _ in range(2))
        headers = {"Authorization": f"Bearer {told['RUNPOD_API_KEY']}", "User-Agent": "tests"}
        with httpx.Client(base_url=told["RUNPOD_API_BASE_URL"], headers=headers) as client:
            pod = create(client)["id"]
            client.post("/__sim__/act", json={"act": "preempt", "id": pod})
            assert get(client, pod)["status"] == "EXITED"
            state = client.get("/__sim__/state").json()
            assert (state["pods"][pod]["status"], state["violations"]) == ("EXITED", [])
            kept = volume(client)["id"]
            assert (tmp_path / "volumes" / kept).is_dir()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


def test_the_clock_of_these_tests_stands_still(runpod_sim: RunPodSim) -> None:
    assert runpod_sim.clock.now() == START
