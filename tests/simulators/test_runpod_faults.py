"""What can go wrong at the simulated RunPod, kind by kind: each fault does what it says, once, and no more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.simulators.core import TRANSPORT, draw
from tests.simulators.runpod import CREATE, DELETE, GET, GRAPHQL, KINDS, LIST, MENU, RunPodSim
from tests.simulators.runpod.spot import SPOT_KINDS
from tests.simulators.test_runpod_sim import BODY, act, create, get, listed, ready, refused, volume

Ask = Callable[[httpx.Client], httpx.Response]
ACTION = "POST /v2/pods/{id}/action"
TESTED: set[str] = set()
OF_OWN_KEYS = {"no_key", "no_pod_keys", "stop_ignored"}
"""Tested with the keys of pods, in test_own_keys.py and test_own_keys_inside.py."""


def arm(sim: RunPodSim, kind: str, match: str = "*", **told: Any) -> None:
    TESTED.add(kind)
    sim.faults.add(kind, match, **told)


@pytest.mark.parametrize(
    ("kind", "match", "ask", "status", "words"),
    [
        ("out_of_capacity", CREATE, lambda c: c.post("/v2/pods", json=BODY), 400, "no longer any instances"),
        ("low_balance", CREATE, lambda c: c.post("/v2/pods", json=BODY), 402, "balance"),
        ("no_permission", CREATE, lambda c: c.post("/v2/pods", json=BODY), 403, "access denied"),
        ("auth", LIST, lambda c: c.get("/v2/pods"), 401, "token"),
        ("retired", LIST, lambda c: c.get("/v2/pods"), 410, "retired"),
        ("retired", GRAPHQL, lambda c: c.post("/graphql", json={"query": "query { myself { id } }"}), 410, "retired"),
        ("no_account", "GET /v2/account", lambda c: c.get("/v2/account"), 404, "not found"),
    ],
)
def test_a_refusal_that_makes_nothing(
    runpod_sim: RunPodSim, ann: httpx.Client, kind: str, match: str, ask: Ask, status: int, words: str
) -> None:
    arm(runpod_sim, kind, match)
    refused(ask(ann), status, words)
    assert runpod_sim.ledger.all() == []
    assert ask(ann).status_code < 300
    assert runpod_sim.faults.unfired() == []


def test_capacity_comes_back_after_the_first_candidates(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    arm(runpod_sim, "out_of_capacity", CREATE, times=3)
    assert [ann.post("/v2/pods", json=BODY).status_code for _ in range(4)] == [400, 400, 400, 201]


@pytest.mark.parametrize("kind", ["error_after", "lost_answer", "html_after", "truncated", "not_json"])
def test_a_create_without_an_answer_exists_and_bills(runpod_sim: RunPodSim, ann: httpx.Client, kind: str) -> None:
    runpod_sim.faults.add(kind, CREATE)
    try:
        assert ann.post("/v2/pods", json=BODY).status_code != 401
    except httpx.TransportError:
        assert kind in ("lost_answer", "truncated")
    (rental,) = runpod_sim.ledger.live()
    assert (rental.tag, listed(ann)) == ("box", [rental.id])


@pytest.mark.parametrize("kind", ["error_before", "lost_request", "html_before", "too_many", "html_ok"])
def test_a_create_that_did_not_arrive_makes_nothing(runpod_sim: RunPodSim, ann: httpx.Client, kind: str) -> None:
    runpod_sim.faults.add(kind, CREATE)
    try:
        assert ann.post("/v2/pods", json=BODY).status_code != 201
    except httpx.TransportError:
        assert kind == "lost_request"
    assert runpod_sim.ledger.all() == []


def test_too_many_requests_with_and_without_a_time(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    runpod_sim.faults.add("too_many", LIST, retry_after=7)
    runpod_sim.faults.add("too_many", LIST)
    assert [ann.get("/v2/pods").headers.get("Retry-After") for _ in range(2)] == ["7", None]


@pytest.mark.parametrize("status", ["RUNNING", "STARTING"])
def test_never_ready(runpod_sim: RunPodSim, ann: httpx.Client, status: str) -> None:
    arm(runpod_sim, "never_ready", CREATE, status=status)
    pod = create(ann)["id"]
    runpod_sim.clock.advance(86_400)
    seen = [get(ann, pod) for _ in range(20)]
    assert {(s["status"], s["runtime"] is None, s["ssh"]["direct"] is None) for s in seen} == {(status, True, True)}
    assert runpod_sim.ledger.spent("user_ann") > 24 * 0.27, "and it bills"
    assert act(ann, pod, "stop").status_code == 200
    assert act(ann, pod, "start").status_code == 200
    assert ready(ann, pod)


@pytest.mark.parametrize("status", ["EXITED", "ERROR"])
def test_dies_while_starting(runpod_sim: RunPodSim, ann: httpx.Client, status: str) -> None:
    arm(runpod_sim, "dies_while_starting", CREATE, reads=1, status=status)
    pod = create(ann)["id"]
    assert [get(ann, pod)["status"] for _ in range(3)] == ["RUNNING", status, status]
    assert runpod_sim.ledger.get(pod).ended is None


def test_a_new_pod_is_not_known_everywhere_at_once(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    arm(runpod_sim, "missing_at_first", CREATE, reads=2)
    pod = create(ann)["id"]
    assert listed(ann) == [pod]
    assert [ann.get(f"/v2/pods/{pod}").status_code for _ in range(3)] == [404, 404, 200]
    arm(runpod_sim, "missing_at_first", CREATE, reads=1, in_list=True)
    other = create(ann)["id"]
    assert [listed(ann), listed(ann)] == [[pod], [other, pod]]


def test_a_start_without_gpus(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann, gpu={"id": "NVIDIA A40", "count": 2})["id"]
    assert len(ready(ann, pod)["runtime"]["gpus"]) == 2
    act(ann, pod, "stop")
    arm(runpod_sim, "zero_gpus", ACTION)
    assert act(ann, pod, "start").status_code == 200
    seen = ready(ann, pod)
    assert (seen["gpu"]["count"], seen["runtime"]["gpus"]) == (2, [])


def test_stock_is_right_after_a_start_without_gpus(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    before = dict(runpod_sim.stock.free)
    arm(runpod_sim, "zero_gpus", CREATE)
    ann.delete(f"/v2/pods/{create(ann)['id']}")
    assert runpod_sim.stock.free == before


def test_a_host_that_is_full(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    act(ann, pod, "stop")
    arm(runpod_sim, "start_no_gpus", ACTION)
    refused(act(ann, pod, "start"), 400, "not enough free GPUs on the host")
    assert act(ann, pod, "start").status_code == 200


@pytest.mark.parametrize(("status", "shown"), [("", "RUNNING"), ("TERMINATED", "TERMINATED")])
@pytest.mark.parametrize("how", ["delete", "terminate"])
def test_deleted_and_still_there(runpod_sim: RunPodSim, ann: httpx.Client, status: str, shown: str, how: str) -> None:
    arm(runpod_sim, "delete_lingers", DELETE if how == "delete" else ACTION, reads=2, status=status)
    pod = create(ann)["id"]
    assert (ann.delete(f"/v2/pods/{pod}") if how == "delete" else act(ann, pod, "terminate")).status_code == 204
    assert [get(ann, pod)["status"], listed(ann)] == [shown, [pod]]
    assert runpod_sim.ledger.get(pod).ended is None
    refused(ann.get(f"/v2/pods/{pod}"), 404)
    assert runpod_sim.ledger.get(pod).ended is not None


def test_deleted_and_there_for_ever(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    arm(runpod_sim, "delete_lingers", DELETE, reads=None, times=2)
    pod = create(ann)["id"]
    for _ in range(2):
        assert ann.delete(f"/v2/pods/{pod}").status_code == 204
        assert listed(ann) == [pod] * 1
    assert all(get(ann, pod) for _ in range(10))
    assert ann.delete(f"/v2/pods/{pod}").status_code == 204
    assert listed(ann) == []


def test_a_delete_that_hangs_was_carried_out(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    runpod_sim.faults.add("hang_after", DELETE)
    with pytest.raises(httpx.ReadTimeout):
        ann.delete(f"/v2/pods/{pod}", timeout=0.5)
    ends = time.monotonic() + 60
    while listed(ann):  # the server may take longer than that client waits
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_a_stop_that_is_refused_or_late(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    arm(runpod_sim, "stop_refused", ACTION)
    refused(act(ann, pod, "stop"), 400)
    arm(runpod_sim, "conflict", ACTION)
    refused(act(ann, pod, "stop"), 409)
    arm(runpod_sim, "stop_lingers", ACTION, reads=2)
    assert act(ann, pod, "stop").json()["status"] == "RUNNING"
    assert [get(ann, pod)["status"] for _ in range(3)] == ["RUNNING", "EXITED", "EXITED"]


def test_a_list_of_yesterday(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    first = create(ann)["id"]
    second = create(ann)["id"]
    arm(runpod_sim, "stale_list", LIST, writes=1)
    assert [listed(ann), listed(ann)] == [[first], [second, first]]
    ann.delete(f"/v2/pods/{first}")
    arm(runpod_sim, "stale_list", LIST, writes=1)
    assert [listed(ann), listed(ann)] == [[second, first], [second]]
    volume(ann)
    arm(runpod_sim, "stale_list", "GET /v2/network-volumes")
    assert ann.get("/v2/network-volumes").json() == {"networkVolumes": []}


def test_an_empty_list_and_a_short_page(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    ids = [create(ann)["id"] for _ in range(3)][::-1]
    arm(runpod_sim, "empty_list", LIST)
    assert listed(ann) == []
    arm(runpod_sim, "short_page", LIST)
    told = ann.get("/v2/pods", params={"limit": "1000"}).json()
    assert ([p["id"] for p in told["pods"]], told["pagination"]["hasNextPage"]) == (ids[:1], True)
    rest = ann.get("/v2/pods", params={"cursor": told["pagination"]["nextCursor"]}).json()
    assert [p["id"] for p in rest["pods"]] == ids[1:]


def test_a_status_that_nobody_has_heard_of(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    arm(runpod_sim, "odd_status", GET, status="MIGRATING")
    assert [get(ann, pod)["status"] for _ in range(2)] == ["MIGRATING", "RUNNING"]
    assert get(ann, pod)["actions"]


def test_a_stopped_pod_that_shows_its_price(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    act(ann, pod, "stop")
    arm(runpod_sim, "cost_while_stopped", GET)
    assert (get(ann, pod)["cost"], get(ann, pod)["status"]) == (0.27, "EXITED")


def test_preempted_and_vanished(runpod_sim: RunPodSim, ann: httpx.Client, bob: httpx.Client) -> None:
    theirs = create(bob)["id"]
    pod = create(ann)["id"]
    ready(ann, pod)
    arm(runpod_sim, "preempted", GET)
    assert get(ann, pod)["status"] == "EXITED"
    arm(runpod_sim, "vanished", GET)
    refused(ann.get(f"/v2/pods/{pod}"), 404)
    assert listed(bob) == [theirs]
    assert runpod_sim.ledger.get(pod).ended is not None


def test_a_key_that_is_another_accounts_now(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    arm(runpod_sim, "foreign_account", times=2)
    assert listed(ann) == []
    refused(ann.get(f"/v2/pods/{pod}"), 404)
    assert listed(ann) == [pod]


def test_the_proxy_refuses(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    arm(runpod_sim, "cloudflare", LIST)
    reply = ann.get("/v2/pods")
    assert (reply.status_code, reply.headers["Content-Type"]) == (403, "text/html; charset=UTF-8")


def test_a_catalogue_that_promises_too_much(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    runpod_sim.act("empty", {})
    arm(runpod_sim, "always_high", "GET /v2/catalog/*")
    told = ann.get("/v2/catalog/gpus", params={"include": "AVAILABILITY", "product": "POD"}).json()
    assert {gpu["availability"] for gpu in told["gpus"]} == {"HIGH"}
    refused(ann.post("/v2/pods", json=BODY), 400, "no longer any instances")


def test_graphql_errors_come_with_200(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    arm(runpod_sim, "graphql_error", "POST /graphql", message="Something went wrong")
    reply = ann.post("/graphql", json={"query": "query { myself { id } }"})
    assert (reply.status_code, reply.json()["errors"][0]["message"]) == (200, "Something went wrong")


def test_what_happens_behind_the_back(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    pod = create(ann)["id"]
    port = ready(ann, pod)["ssh"]["direct"]["port"]
    twin = runpod_sim.act("duplicate", {"id": pod})
    assert [get(ann, one)["name"] for one in listed(ann)] == ["box", "box"]
    assert runpod_sim.ledger.doubled("pod") == {"box": sorted([pod, twin])}
    runpod_sim.act("move_ports", {"id": pod})
    assert ready(ann, pod)["ssh"]["direct"]["port"] != port
    runpod_sim.act("rekey", {"account": "user_ann", "key": "new"})
    refused(ann.get("/v2/pods"), 401)
    for told in ({"id": "nope"}, {"id": pod, "colour": "red"}):
        with pytest.raises(KeyError):
            runpod_sim.act("set", told)


def test_every_kind_has_its_test() -> None:
    """Runs last in this file, and only means something with the others before it."""
    if len(TESTED) > 5:
        assert set(KINDS) == TESTED | OF_OWN_KEYS | set(SPOT_KINDS)


def test_the_menu_draws_only_what_exists() -> None:
    assert {choice.kind for choice in MENU} <= set(KINDS) | set(TRANSPORT)
    sim = RunPodSim()
    kinds = {sim.faults.append(rule).kind for seed in range(300) for rule in draw(seed, MENU)}
    assert kinds == {choice.kind for choice in MENU}
