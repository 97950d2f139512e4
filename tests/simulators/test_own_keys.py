"""The key that a platform puts into a box: what it opens, what it does not, what goes wrong with it, and who hears."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.simulators.ledger import Act
from tests.simulators.own_keys import OWN, OWNER
from tests.simulators.runpod import KEY, RunPodSim
from tests.simulators.test_runpod_sim import BODY, act, create, ready, refused
from tests.simulators.vastai import VastSimulator
from tests.simulators.vastai_fixtures import refused as vast_refused
from tests.simulators.vastai_fixtures import rent, sdk, served, until

ACTION, MANAGE = "POST /v2/pods/{id}/action", "PUT /api/v0/instances/{id}/"
STOP = "mutation Stop($id: String!) { podStop(input: {podId: $id}) { id desiredStatus } }"
TERMINATE = "mutation End($id: String!) { podTerminate(input: {podId: $id}) }"


def did(sim: Any, box: str) -> list[tuple[str, str, bool]]:
    acts: list[Act] = sim.ledger.get(box).acts
    return [(one.what, one.by, one.done) for one in acts]


# RunPod


@pytest.fixture
def pod(runpod_sim: RunPodSim, ann: httpx.Client) -> str:
    id: str = create(ann)["id"]
    ready(ann, id)
    return id


@pytest.fixture
def inside(runpod_sim: RunPodSim, pod: str) -> Iterator[httpx.Client]:
    """A client that has the pod's own key."""
    headers = {"Authorization": f"Bearer {runpod_sim.own_keys.of(pod)}", "User-Agent": "box"}
    with httpx.Client(base_url=runpod_sim.url, headers=headers, timeout=60) as client:
        yield client


def ask(client: httpx.Client, document: str, pod: str) -> httpx.Response:
    return client.post("/graphql", json={"query": document, "variables": {"id": pod}})


def unauthorized(reply: httpx.Response) -> bool:
    return reply.status_code == 200 and [e["message"] for e in reply.json()["errors"]] == ["Unauthorized"]


def test_a_pod_stops_itself_by_rest_or_graphql(
    runpod_sim: RunPodSim, ann: httpx.Client, pod: str, inside: httpx.Client
) -> None:
    assert act(inside, pod, "stop").json()["status"] == "EXITED"
    act(ann, pod, "start")
    ready(ann, pod)
    assert ask(inside, STOP, pod).json()["data"]["podStop"] == {"id": pod, "desiredStatus": "EXITED"}
    assert did(runpod_sim, pod) == [
        ("create", OWNER, True), ("stop", OWN, True), ("start", OWNER, True), ("stop", OWN, True),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["action", "delete", "graphql"])
def test_a_pod_ends_itself_and_its_key_is_no_more(
    runpod_sim: RunPodSim, pod: str, inside: httpx.Client, how: str
) -> None:
    """A job that is root can do it: past every gate of ours, so the books must show by whom."""
    if how == "action":
        assert act(inside, pod, "terminate").status_code == 204
    elif how == "delete":
        assert inside.delete(f"/v2/pods/{pod}").status_code == 204
    else:
        assert ask(inside, TERMINATE, pod).json() == {"data": {"podTerminate": None}}
    assert did(runpod_sim, pod)[-1] == ("terminate", OWN, True)
    refused(act(inside, pod, "terminate"), 401, "token")
    assert runpod_sim.own_keys.all() == []


def test_a_pods_key_opens_nothing_else(
    runpod_sim: RunPodSim, ann: httpx.Client, pod: str, inside: httpx.Client
) -> None:
    other = create(ann)["id"]
    ready(ann, other)
    for reply in (
        inside.get("/v2/pods"),
        inside.get(f"/v2/pods/{pod}"),
        inside.post("/v2/pods", json=BODY),
        inside.patch(f"/v2/pods/{pod}", json={"name": "mine"}),
        act(inside, pod, "start"),
        act(inside, pod, "restart"),
        act(inside, other, "stop"),
        inside.delete(f"/v2/pods/{other}"),
        inside.get("/v2/billing/pods"),
        inside.get("/v2/account/ssh-keys"),
    ):
        refused(reply, 403, "access denied")
    for document in (STOP, TERMINATE):
        assert unauthorized(ask(inside, document, other))
    for query in ("myself { id }", f'pod(input: {{podId: "{pod}"}}) {{ id }}', "gpuTypes { id }", "dataCenters { id }"):
        assert unauthorized(inside.post("/graphql", json={"query": f"query {{ {query} }}"}))
    resume = inside.post("/graphql", json={"query": f'mutation {{ podResume(input: {{podId: "{pod}"}}) {{ id }} }}'})
    assert unauthorized(resume)
    assert all(what in ("create",) for box in (pod, other) for what, _, _ in did(runpod_sim, box))
    assert {call.box for call in runpod_sim.calls} == {"", pod}


def test_faults_befall_the_pod_that_they_name(
    runpod_sim: RunPodSim, ann: httpx.Client, pod: str, inside: httpx.Client
) -> None:
    """Its owner, and another pod with its own key, are let through meanwhile."""
    other = create(ann)["id"]
    ready(ann, other)
    rule = runpod_sim.faults.add("auth", box=pod, times=None)
    refused(act(inside, pod, "stop"), 401, "token")
    assert act(ann, pod, "stop").status_code == 200
    theirs = {"Authorization": f"Bearer {runpod_sim.own_keys.of(other)}", "User-Agent": "box"}
    with httpx.Client(base_url=runpod_sim.url, headers=theirs) as client:
        assert act(client, other, "stop").status_code == 200
    assert rule.fired == 1
    told = {"kind": "too_many", "box": pod, "retry_after": 7}
    runpod_sim.faults.clear()
    assert ann.post("/__sim__/faults", json=told).json()[-1]["box"] == pod
    assert act(inside, pod, "stop").headers["Retry-After"] == "7"


def test_rest_that_takes_no_keys_of_pods(
    runpod_sim: RunPodSim, ann: httpx.Client, pod: str, inside: httpx.Client
) -> None:
    runpod_sim.faults.add("no_pod_keys", times=None, box=pod)
    refused(act(inside, pod, "stop"), 403, "access denied")
    refused(inside.delete(f"/v2/pods/{pod}"), 403, "access denied")
    assert ready(ann, pod)["status"] == "RUNNING"
    assert ask(inside, STOP, pod).json()["data"]["podStop"]["desiredStatus"] == "EXITED"
    assert did(runpod_sim, pod) == [("create", OWNER, True), ("stop", OWN, True)]


@pytest.mark.parametrize("how", ["rest", "graphql"])
def test_a_stop_that_is_answered_and_not_done(
    runpod_sim: RunPodSim, ann: httpx.Client, pod: str, inside: httpx.Client, how: str
) -> None:
    """The answer is that of a stop."""
    runpod_sim.faults.add("stop_ignored", box=pod)
    told = act(inside, pod, "stop").json() if how == "rest" else ask(inside, STOP, pod).json()["data"]["podStop"]
    assert told["status" if how == "rest" else "desiredStatus"] == "EXITED"
    assert ready(ann, pod)["status"] == "RUNNING"
    assert did(runpod_sim, pod)[-1] == ("stop", OWN, False)
    assert act(inside, pod, "stop").json()["status"] == "EXITED"
    assert did(runpod_sim, pod)[-1] == ("stop", OWN, True)


def test_the_vendors_sdk_stops_a_pod_by_its_own_key(
    runpod_sim: RunPodSim, ann: httpx.Client, pod: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a pod: all that its SDK can do there."""
    import runpod

    monkeypatch.setenv("RUNPOD_API_BASE_URL", runpod_sim.url)
    monkeypatch.setattr(runpod, "api_key", runpod_sim.own_keys.of(pod), raising=False)
    from runpod.api import ctl_commands
    from runpod.error import QueryError

    with pytest.raises(QueryError, match="Unauthorized"):
        ctl_commands.get_pods()
    assert ctl_commands.stop_pod(pod)["desiredStatus"] == "EXITED"
    ctl_commands.terminate_pod(pod)
    assert [by for _, by, _ in did(runpod_sim, pod)] == [OWNER, OWN, OWN]


def test_hours_of_compute_are_counted_by_state(runpod_sim: RunPodSim, ann: httpx.Client, pod: str) -> None:
    begun = runpod_sim.clock.now()
    runpod_sim.clock.advance(3600)
    act(ann, pod, "stop")
    runpod_sim.clock.advance(30 * 24 * 3600)
    end = runpod_sim.clock.now()
    rental = runpod_sim.ledger.get(pod)
    assert rental.hours({"RUNNING", "PROVISIONING"}, begun, end) == pytest.approx(1.0)
    assert rental.hours({"RUNNING"}, begun + 1800, begun + 2700) == pytest.approx(0.25)
    assert rental.hours({"EXITED"}, begun, end) == pytest.approx(720.0)
    act(ann, pod, "terminate")
    runpod_sim.clock.advance(3600)
    assert runpod_sim.ledger.get(pod).hours({"EXITED"}, begun, runpod_sim.clock.now()) == pytest.approx(720.0)


# vast.ai


@pytest.fixture
def vast() -> Iterator[VastSimulator]:
    with served() as sim:
        yield sim


@pytest.fixture
def number(vast: VastSimulator) -> int:
    id = rent(sdk(vast))
    until(sdk(vast), id, "running")
    return id


def test_an_instance_shows_stops_starts_and_ends_itself(vast: VastSimulator, number: int) -> None:
    """As the vendor's guide has it, by the vendor's SDK."""
    client = sdk(vast, vast.own_keys.of(str(number)))
    assert client.show_instance(number)["actual_status"] == "running"
    assert client.stop_instance(number)
    until(client, number, "exited")
    assert client.start_instance(number)
    until(client, number, "running")
    assert client.destroy_instance(number)
    assert did(vast, str(number)) == [
        ("create", OWNER, True), ("stop", OWN, True), ("start", OWN, True), ("destroy", OWN, True),
    ]  # fmt: skip
    with vast_refused(401, "auth_error"):
        client.destroy_instance(number)


def test_an_instances_key_opens_nothing_else(vast: VastSimulator, number: int) -> None:
    other = rent(sdk(vast), 2, 1)
    until(sdk(vast), other, "running")
    client = sdk(vast, vast.own_keys.of(str(number)))
    for call in (
        lambda: client.show_instance(other),
        lambda: client.stop_instance(other),
        lambda: client.destroy_instance(other),
        lambda: client.show_instances(),
        lambda: client.label_instance(number, "mine"),
        lambda: client.reboot_instance(number),
        lambda: client.show_user(),
        lambda: client.show_ssh_keys(),
        lambda: client.search_offers(query={}, no_default=True),
        lambda: client.attach_ssh(number, "ssh-ed25519 AAAA job"),
    ):
        with vast_refused(403, "insufficient_permissions"):
            call()
    assert {what for box in (number, other) for what, _, _ in did(vast, str(box))} == {"create"}


def test_the_create_and_the_vendors_recipe_say_the_same_key(vast: VastSimulator) -> None:
    """A person who has the answer of a create, or the box, has the key: it must stand in no log."""
    from tests.simulators.vastai_fixtures import IMAGE, offer_of

    client = sdk(vast)
    told = client.create_instance(offer_of(client, 1)["id"], image=IMAGE, disk=20, cancel_unavail=True, ssh=True)
    key = vast.own_keys.of(str(told["new_contract"]))
    assert told["instance_api_key"] == key
    assert len(key) == 64


def test_faults_of_an_instances_own_stop(vast: VastSimulator, number: int) -> None:
    client, box = sdk(vast, vast.own_keys.of(str(number))), str(number)
    vast.faults.add("auth", MANAGE, box=box)
    with vast_refused(401, "auth_error"):
        client.stop_instance(number)
    vast.faults.add("too_many", MANAGE, box=box)
    with vast_refused(429):
        client.stop_instance(number)
    vast.faults.add("stop_ignored", MANAGE, box=box)
    assert client.stop_instance(number)
    assert until(sdk(vast), number, "running")
    assert did(vast, box) == [("create", OWNER, True), ("stop", OWN, False)]
    vast.faults.add("lost_answer", MANAGE, box=box)
    with pytest.raises(Exception, match="Connection"):
        client.stop_instance(number)
    until(sdk(vast), number, "exited")
    assert did(vast, box)[-1] == ("stop", OWN, True)
    assert vast.faults.unfired() == []


def test_no_key_is_shown_on_the_control_surface(runpod_sim: RunPodSim, vast: VastSimulator, pod: str) -> None:
    rent(sdk(vast))
    for sim in (runpod_sim, vast):
        shown = str([sim.snapshot(), sim.log_outline(), sim.own_keys.all()])
        for secret in (*(own.key for own in sim.own_keys.all()), KEY):
            assert secret not in shown
