"""Spot pods of the simulated RunPod: rented by a bid, given up to a higher one, resumed by a bid again."""

from __future__ import annotations

import shlex
import time
from typing import Any

import httpx
import pytest

from tests.simulators.core import HOUR, TRANSPORT, draw
from tests.simulators.rental import rental, whole_rentals
from tests.simulators.runpod import COMMUNITY, KINDS, SECURE, SPOT_CREATE, SPOT_MENU, SPOT_RESUME, RunPodSim
from tests.simulators.runpod.spot import NO_SPOT, NO_SPOT_NOW, WRONG
from tests.simulators.test_runpod_machines import MOUNT, client, key, sim, ssh
from tests.simulators.test_runpod_machines import ready as ready_machine
from tests.simulators.test_runpod_sim import A5000, act, create, get, listed, ready, refused, volume

__all__ = ["client", "key", "sim"]
WANTED: dict[str, Any] = {
    "name": "box",
    "imageName": "ubuntu:24.04",
    "gpuTypeId": A5000,
    "gpuCount": 2,
    "cloudType": SECURE,
    "containerDiskInGb": 20,
    "ports": "22/tcp",
    "env": [{"key": "PUBLIC_KEY", "value": "ssh-ed25519 AAAA ann"}],
    "bidPerGpu": 0.2,
}
RENT = """mutation Bid($input: PodRentInterruptableInput!) {
  podRentInterruptable(input: $input) { id desiredStatus costPerHr podType gpuCount }
}"""
RESUME = """mutation Again($input: PodBidResumeInput!) {
  podBidResume(input: $input) { id desiredStatus costPerHr }
}"""


def query(client: httpx.Client, text: str, **variables: Any) -> httpx.Response:
    return client.post("/graphql", json={"query": text, "variables": variables})


def rent(client: httpx.Client, **changes: Any) -> dict[str, Any]:
    told = query(client, RENT, input={**WANTED, **changes}).json()
    assert "errors" not in told, told
    made: dict[str, Any] = told["data"]["podRentInterruptable"]
    return made


def said(reply: httpx.Response) -> str:
    """The words of a refusal, after which the platform has carried out nothing."""
    assert reply.status_code == 200, reply.text
    assert not any((reply.json()["data"] or {}).values())
    message: str = reply.json()["errors"][0]["message"]
    return message


def resume(client: httpx.Client, pod: str, bid: float, gpus: int = 2) -> httpx.Response:
    return query(client, RESUME, input={"podId": pod, "bidPerGpu": bid, "gpuCount": gpus})


def rate(sim: RunPodSim, pod: str) -> float:
    return sim.ledger.get(pod).rate


def test_a_bid_rents_a_pod_that_costs_its_bid(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    made = rent(ann)
    assert (made["desiredStatus"], made["costPerHr"], made["podType"], made["gpuCount"]) == (
        "RUNNING", 0.4, "INTERRUPTABLE", 2,
    )  # fmt: skip
    assert ready(ann, made["id"])["cost"] == 0.4
    assert listed(ann) == [made["id"]]
    runpod_sim.clock.advance(HOUR)
    disk = 20 * 0.10 * HOUR / (730 * HOUR)
    assert runpod_sim.ledger.get(made["id"]).usd == pytest.approx(0.4 + disk)
    assert runpod_sim.stock.free[A5000, SECURE, str(get(ann, made["id"])["dataCenterId"])] == 398
    assert ann.delete(f"/v2/pods/{made['id']}").status_code == 204
    assert runpod_sim.ledger.live() == []


def test_a_bid_above_the_price_on_demand_is_billed_as_it_is(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    assert rate(runpod_sim, rent(ann, bidPerGpu=5.0)["id"]) > 10.0


def test_prices_say_the_least_bid(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    text = """query { gpuTypes(input: {id: "NVIDIA A40"}) { secureSpotPrice communitySpotPrice
      lowestPrice(input: {gpuCount: 2, secureCloud: true}) { minimumBidPrice uninterruptablePrice } } }"""
    (told,) = query(ann, text).json()["data"]["gpuTypes"]
    assert (told["secureSpotPrice"], told["communitySpotPrice"]) == (0.2, None)
    assert told["lowestPrice"] == {"minimumBidPrice": 0.4, "uninterruptablePrice": 0.8}
    runpod_sim.act("empty", {})
    assert query(ann, text).json()["data"]["gpuTypes"][0]["lowestPrice"]["minimumBidPrice"] is None


@pytest.mark.parametrize("changes", [{"bidPerGpu": 0.1}, {"dataCenterId": "nowhere"}, {"gpuCount": 9}])
def test_what_is_not_to_be_had_is_said_in_the_words_for_spot(ann: httpx.Client, changes: dict[str, Any]) -> None:
    assert said(query(ann, RENT, input={**WANTED, **changes})) == NO_SPOT
    assert listed(ann) == []


@pytest.mark.parametrize(
    "changes",
    [
        *({name: None} for name in ("name", "imageName", "gpuTypeId", "gpuCount", "containerDiskInGb", "bidPerGpu")),
        {"bidPerGpu": 0.0}, {"gpuTypeId": "NVIDIA B9000"}, {"ports": "22"}, {"templateId": "t"},
        {"networkVolumeId": "nope", "volumeMountPath": "/workspace"}, {"volumeInGb": 20},
    ],
)  # fmt: skip
def test_a_request_that_makes_no_pod_is_refused_without_a_reason(ann: httpx.Client, changes: dict[str, Any]) -> None:
    assert said(query(ann, RENT, input={**WANTED, **changes})) == WRONG


def test_a_field_that_the_schema_lacks_is_a_400_and_fails_the_test(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    assert query(ann, RENT, input={**WANTED, "interruptible": True}).status_code == 400
    assert resume(ann, "x", 0.2, gpus="two").status_code == 400  # type: ignore[arg-type]
    first, second = runpod_sim.pardon()
    assert "'PodRentInterruptableInput'" in first
    assert "Int cannot represent" in second


def test_all_clouds_is_the_cheaper_one_that_takes_the_bid(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    assert get(ann, rent(ann, cloudType="ALL")["id"])["cloud"] == COMMUNITY
    runpod_sim.act("floor", {"gpu": A5000, "cloud": COMMUNITY, "usd": 0.3})
    assert get(ann, rent(ann, cloudType="ALL")["id"])["cloud"] == SECURE


def test_a_network_volume_is_of_the_secure_cloud(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    kept = volume(ann)["id"]
    asked = {"networkVolumeId": kept, "volumeMountPath": "/workspace", "cloudType": COMMUNITY}
    assert said(query(ann, RENT, input={**WANTED, **asked})) == WRONG
    made = rent(ann, **{**asked, "cloudType": SECURE})["id"]
    assert get(ann, made)["mounts"] == {"network": [{"volumeId": kept, "path": "/workspace"}]}
    assert get(ann, made)["dataCenterId"] == "EU-RO-1"


def test_who_is_outbid_is_stopped_and_its_disk_bills_on(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    full = sum(runpod_sim.stock.free.values())
    low = rent(ann, volumeInGb=10, volumeMountPath="/workspace")["id"]
    high, firm = rent(ann, bidPerGpu=0.25)["id"], create(ann)["id"]
    for pod in (low, high, firm):
        ready(ann, pod)
    runpod_sim.act("outbid", {"id": low})
    assert [get(ann, pod)["status"] for pod in (low, high, firm)] == ["EXITED", "RUNNING", "RUNNING"]
    assert rate(runpod_sim, low) == pytest.approx(10 * 0.20 / 730)
    assert runpod_sim.ledger.get(low).acts[-1].by == "platform"
    assert sum(runpod_sim.stock.free.values()) == full - 3
    with pytest.raises(ValueError, match="no spot pod"):
        runpod_sim.act("outbid", {"id": firm})


def test_it_is_resumed_by_a_bid_that_holds_and_by_nothing_else(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = rent(ann)["id"]
    ready(ann, pod)
    assert said(resume(ann, pod, 0.2)) == WRONG  # it runs
    runpod_sim.act("outbid", {"id": pod})
    refused(act(ann, pod, "start"), 400, "Cannot resume a spot pod as an on demand pod.")
    told = query(ann, f'mutation {{ podResume(input: {{podId: "{pod}", gpuCount: 2}}) {{ id }} }}')
    assert said(told) == "Cannot resume a spot pod as an on demand pod."
    assert runpod_sim.pardon() == ["a write through GraphQL: podResume"]
    assert said(resume(ann, pod, 0.2)) == NO_SPOT
    assert said(resume(ann, pod, 0.3, gpus=4)) == WRONG
    assert get(ann, pod)["status"] == "EXITED"
    runpod_sim.act("empty", {})
    assert "not enough free GPUs" in said(resume(ann, pod, 0.3))
    assert runpod_sim.pods.all[pod].price == 0.4
    runpod_sim.stock.give(A5000, SECURE, get(ann, pod)["dataCenterId"], 2)
    told = resume(ann, pod, 0.3, gpus=0)
    assert told.json()["data"]["podBidResume"] == {"id": pod, "desiredStatus": "RUNNING", "costPerHr": 0.6}
    assert ready(ann, pod)["runtime"]["gpus"]
    assert rate(runpod_sim, pod) > 0.6


def test_a_pod_on_demand_is_not_resumed_by_a_bid(ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    act(ann, pod, "stop")
    assert said(resume(ann, pod, 1.0, gpus=1)) == WRONG


def test_pods_of_others_are_not_there(ann: httpx.Client, bob: httpx.Client) -> None:
    pod = rent(ann)["id"]
    act(ann, pod, "stop")
    assert said(resume(bob, pod, 1.0)) == "pod not found"


def test_a_pods_own_key_rents_nothing(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = rent(ann)["id"]
    own = {"Authorization": f"Bearer {runpod_sim.own_keys.of(pod)}"}
    for text, given in ((RENT, WANTED), (RESUME, {"podId": pod, "bidPerGpu": 0.3, "gpuCount": 2})):
        told = ann.post("/graphql", json={"query": text, "variables": {"input": given}}, headers=own)
        assert said(told) == "Unauthorized"


def test_an_account_without_spot(runpod_sim: RunPodSim, ann: httpx.Client, bob: httpx.Client) -> None:
    runpod_sim.act("spot", {"account": "user_ann", "on": False})
    assert said(query(ann, RENT, input=WANTED)) == NO_SPOT
    assert rent(bob)["id"]
    runpod_sim.act("spot", {"account": "user_ann", "on": True})
    assert rent(ann)["id"]


def test_money_counts_as_for_other_pods(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    runpod_sim.act("credit", {"account": "user_ann", "usd": 0.3})
    assert "balance is too low" in said(query(ann, RENT, input=WANTED))
    assert rent(ann, gpuCount=1)["id"]


# Faults: each is drawn by its call alone, though all of GraphQL is one address


def test_no_spot(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    runpod_sim.faults.add("no_spot", SPOT_CREATE, text=NO_SPOT_NOW)
    assert query(ann, "query { myself { id } }").json()["data"]
    assert said(query(ann, RENT, input=WANTED)) == NO_SPOT_NOW
    assert rent(ann)["id"]
    assert runpod_sim.count(SPOT_CREATE) == 2
    assert runpod_sim.count("POST /graphql") == 1


def test_outbid_at_once(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    runpod_sim.faults.add("outbid", SPOT_CREATE)
    made = rent(ann)
    assert made["desiredStatus"] == "RUNNING"
    assert get(ann, made["id"])["status"] == "EXITED"
    assert said(query(ann, RENT, input=WANTED)) == NO_SPOT
    runpod_sim.faults.add("outbid", SPOT_RESUME)
    assert resume(ann, made["id"], 0.3).json()["data"]["podBidResume"]["desiredStatus"] == "RUNNING"
    assert get(ann, made["id"])["status"] == "EXITED"


@pytest.mark.parametrize("status", [400, 200])
def test_the_mutation_is_removed(runpod_sim: RunPodSim, ann: httpx.Client, status: int) -> None:
    runpod_sim.faults.add("spot_removed", "POST /graphql/*", times=None, status=status)
    for told, name in ((query(ann, RENT, input=WANTED), "podRentInterruptable"), (resume(ann, "x", 1), "podBidResume")):
        assert (told.status_code, told.json()["data"]) == (status, None)
        assert told.json()["errors"][0]["message"] == f'Cannot query field "{name}" on type "Mutation".'
    assert query(ann, "query { myself { id } }").json()["data"]


def test_it_is_preempted_while_it_runs(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = rent(ann)["id"]
    ready(ann, pod)
    runpod_sim.faults.add("preempted", "GET /v2/pods/{id}")
    assert get(ann, pod)["status"] == "EXITED"
    told = query(ann, f'query {{ pod(input: {{podId: "{pod}"}}) {{ desiredStatus lastStatusChange podType }} }}')
    seen = told.json()["data"]["pod"]
    assert (seen["desiredStatus"], seen["podType"]) == ("EXITED", "INTERRUPTABLE")
    assert seen["lastStatusChange"].startswith("Exited by Runpod")


def test_a_lost_answer_leaves_a_pod(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    runpod_sim.faults.add("lost_answer", SPOT_CREATE)
    with pytest.raises(httpx.HTTPError):
        query(ann, RENT, input=WANTED)
    assert [get(ann, pod)["name"] for pod in listed(ann)] == ["box"]


def test_the_menus_draw_only_what_exists() -> None:
    for adapter in whole_rentals():
        its = rental(adapter)
        assert its.spot_menu
        assert its.spot_menu != its.menu
    assert {choice.kind for choice in SPOT_MENU} <= set(KINDS) | set(TRANSPORT)
    sim = RunPodSim()
    kinds = {sim.faults.append(rule).kind for seed in range(300) for rule in draw(seed, SPOT_MENU)}
    assert kinds == {choice.kind for choice in SPOT_MENU}


# Real machines

WORK = f"""
trap 'echo told >> {MOUNT}/work; sleep 1; echo sealed >> {MOUNT}/work; exit' TERM
echo works > {MOUNT}/work
while :; do sleep 0.1; done
"""
DEAF = f"trap '' TERM; echo works > {MOUNT}/deaf; while :; do sleep 0.1; done"


def test_what_runs_on_a_preempted_pod_gets_a_sigterm_and_seconds(
    sim: RunPodSim, client: httpx.Client, key: Any
) -> None:
    kept = volume(client)["id"]
    public = {"key": "PUBLIC_KEY", "value": key.with_suffix(".pub").read_text().strip()}
    pod = rent(client, env=[public], networkVolumeId=kept, volumeMountPath=MOUNT)["id"]
    seen = ready_machine(client, pod)
    for work in (WORK, DEAF):
        ssh(seen, key, f"setsid bash -c {shlex.quote(work)} </dev/null >/dev/null 2>&1 &")
    folder = sim.volumes.all[kept].folder
    assert folder is not None
    end = time.monotonic() + 120
    while not ((folder / "work").exists() and (folder / "deaf").exists()) and time.monotonic() < end:
        time.sleep(0.05)
    machine = sim.hosts.machine(pod)  # type: ignore[union-attr]
    sim.act("preempt", {"id": pod})
    assert get(client, pod)["status"] == "EXITED"
    assert sim.hosts.machine(pod) is machine  # type: ignore[union-attr]  # it waits for the end
    assert not machine.alive
    assert (folder / "work").read_text().split() == ["works", "told", "sealed"]
    assert not machine.disk.exists()
    assert resume(client, pod, 0.2).json()["data"]["podBidResume"]["desiredStatus"] == "RUNNING"
    assert ssh(ready_machine(client, pod), key, f"tail -n 1 {MOUNT}/work") == "sealed"


def test_a_pod_on_demand_that_is_stopped_by_the_platform_hears_nothing(
    sim: RunPodSim, client: httpx.Client, key: Any
) -> None:
    kept = volume(client)["id"]
    env = {"PUBLIC_KEY": key.with_suffix(".pub").read_text().strip()}
    pod = create(client, env=env, mounts={"network": [{"volumeId": kept, "path": MOUNT}]})["id"]
    ssh(ready_machine(client, pod), key, f"setsid bash -c {shlex.quote(WORK)} </dev/null >/dev/null 2>&1 &")
    folder = sim.volumes.all[kept].folder
    assert folder is not None
    end = time.monotonic() + 120
    while not (folder / "work").exists() and time.monotonic() < end:
        time.sleep(0.05)
    sim.act("preempt", {"id": pod})
    assert not sim.hosts.machine(pod).alive  # type: ignore[union-attr]
    assert (folder / "work").read_text().split() == ["works"]
