"""The official SDK against the simulated RunPod: what it sends is understood, what it gets it can read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests

from tests.simulators.runpod import KEY, RunPodSim

A5000 = "NVIDIA RTX A5000"
BODY = {
    "name": "box",
    "image": "ubuntu:24.04",
    "gpu": {"id": A5000, "count": 1},
    "disk": 20,
    "ports": ["22/tcp"],
    "env": {"PUBLIC_KEY": "ssh-ed25519 AAAA ann"},
}


def create(client: httpx.Client) -> str:
    return str(client.post("/v2/pods", json=BODY).json()["id"])


def ready(client: httpx.Client, pod: str) -> Any:
    return [client.get(f"/v2/pods/{pod}").json() for _ in range(3)][-1]


@pytest.fixture(scope="module")
def whole() -> Iterator[Any]:
    """`runpod`, the whole of it, also where an adapter took what it needs of it before."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.partition(".")[0] == "runpod"]:
            patch.delitem(sys.modules, name)
        import runpod

        yield runpod
        for name in [name for name in sys.modules if name.partition(".")[0] == "runpod"]:
            del sys.modules[name]


@pytest.fixture
def sdk(whole: Any, runpod_sim: RunPodSim, monkeypatch: pytest.MonkeyPatch) -> Any:
    """It, pointed at the simulator."""
    monkeypatch.setenv("RUNPOD_API_BASE_URL", runpod_sim.url)
    monkeypatch.setattr(whole, "api_key", KEY)
    return whole


def test_the_account(sdk: Any, ann: httpx.Client) -> None:
    made = ann.post("/v2/network-volumes", json={"name": "v", "size": 50, "dataCenter": "EU-RO-1"}).json()
    user = sdk.get_user()
    assert (user["id"], user["pubKey"]) == ("user_ann", None)
    assert user["networkVolumes"] == [{"id": made["id"], "name": "v", "size": 50, "dataCenterId": "EU-RO-1"}]


def test_pods(sdk: Any, ann: httpx.Client, bob: httpx.Client) -> None:
    assert sdk.get_pods() == []
    assert sdk.get_pod("nope") is None
    pod = create(ann)
    theirs = create(bob)
    assert sdk.get_pod(theirs) is None
    assert [one["id"] for one in sdk.get_pods()] == [pod]
    assert sdk.get_pod(pod)["runtime"] is None
    ready(ann, pod)
    seen = sdk.get_pod(pod)
    assert (seen["name"], seen["desiredStatus"], seen["costPerHr"], seen["gpuCount"]) == ("box", "RUNNING", 0.27, 1)
    assert seen["env"] == ["PUBLIC_KEY=ssh-ed25519 AAAA ann"]
    assert seen["lastStatusChange"].startswith("Rented by User")
    (ssh,) = [port for port in seen["runtime"]["ports"] if port["privatePort"] == 22]
    assert (ssh["isIpPublic"], ssh["publicPort"]) == (True, ready(ann, pod)["ssh"]["direct"]["port"])


def test_gpus(sdk: Any) -> None:
    assert {"id": A5000, "displayName": "RTX A5000", "memoryInGb": 24} in sdk.get_gpus()
    found = sdk.get_gpu(A5000, 2)
    assert (found["securePrice"], found["lowestPrice"]["uninterruptablePrice"]) == (0.27, 0.54)
    with pytest.raises(ValueError, match="No GPU found"):
        sdk.get_gpu("NVIDIA B9000")


def test_errors_are_those_that_the_sdk_knows(sdk: Any, runpod_sim: RunPodSim, monkeypatch: pytest.MonkeyPatch) -> None:
    from runpod.error import AuthenticationError, QueryError

    runpod_sim.faults.add("graphql_error", message="Something went wrong")
    with pytest.raises(QueryError, match="Something went wrong"):
        sdk.get_user()
    for kind, params in (("error_before", {"status": 502}), ("retired", {}), ("too_many", {})):
        runpod_sim.faults.add(kind, **params)
        with pytest.raises(KeyError):
            sdk.get_user()
    runpod_sim.faults.add("html_before")
    with pytest.raises(requests.JSONDecodeError):
        sdk.get_user()
    monkeypatch.setattr(sdk, "api_key", "wrong")
    with pytest.raises(AuthenticationError):
        sdk.get_user()


def query(client: httpx.Client, text: str) -> httpx.Response:
    return client.post("/graphql", json={"query": text})


def test_balance_and_identity(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    create(ann)
    told = query(ann, "query { myself { id email clientBalance currentSpendPerHr spendLimit underBalance } }").json()
    assert told["data"]["myself"]["email"] == "ann@example.com"
    assert told["data"]["myself"]["clientBalance"] == pytest.approx(1000)
    assert told["data"]["myself"]["currentSpendPerHr"] == pytest.approx(runpod_sim.ledger.rate("user_ann"))


@pytest.mark.parametrize("text", ["query { myself { id", "query { myself { idd } }", "query { pods { id } }", "hello"])
def test_what_is_no_query_is_a_400_and_fails_the_test(runpod_sim: RunPodSim, ann: httpx.Client, text: str) -> None:
    reply = query(ann, text)
    assert (reply.status_code, bool(reply.json()["errors"])) == (400, True)
    assert runpod_sim.pardon()


def test_a_key_in_a_url_fails_the_test(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    ann.post(f"/graphql?api_key={KEY}", json={"query": "query { myself { id } }"})
    (said,) = runpod_sim.pardon()
    assert "a key in a URL" in said
    assert KEY not in said
