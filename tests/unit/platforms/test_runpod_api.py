"""The adapter against scripted answers: pages, shared lists, what proves an end, what a create does when refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    NotYetGone,
    NotYetStopped,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    StillCreating,
    Unreachable,
    Unsupported,
    WrongAccount,
)
from sweepstack.onbox.host.offers import Balance, Constraints
from sweepstack.onbox.host.platform import BoxRequest, Phase, Wait
from sweepstack.platforms.runpod import api
from sweepstack.platforms.runpod.offers import candidates
from sweepstack.platforms.runpod.platform import RunpodPlatform
from sweepstack.platforms.runpod.states import GB_MONTH, STOPPED_GB_MONTH
from sweepstack.profiles.load import load_profile
from tests.unit.loopback import PROBLEM, Server, cut, reply
from tests.unit.platforms.api_world import answering, quick
from tests.unit.platforms.test_runpod_states import TAG, pod

FULL = "There are no longer any instances available with the requested specifications. Please refresh and try again."
KEY = "rpa_0123456789abcdefghij"
NOT_FOUND = reply(404, {"title": "Not Found", "status": 404, "detail": "pod not found"}, kind=PROBLEM)
POD = pod()["id"]
NEW = pod(status="PROVISIONING", runtime=None, ssh={"proxy": None, "direct": None})


def refusal(status: int, detail: str) -> Any:
    return reply(status, {"title": "No", "status": status, "detail": detail}, kind=PROBLEM)


def card(name: str, price: float, **changes: Any) -> dict[str, Any]:
    """A GpuType of the catalog."""
    return {
        "id": f"NVIDIA {name}",
        "name": name,
        "pool": None,
        "manufacturer": "NVIDIA",
        "memory": 24,
        "secure": True,
        "community": True,
        "price": {"secure": price, "community": price / 2},
        "maxCount": {"secure": 8, "community": 1},
        "availability": "HIGH",
        "dataCenters": [{"id": "US-TX-3", "name": "Texas", "availability": "LOW"}],
        **changes,
    }


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    quick(monkeypatch, tmp_path, api.KEY_VARIABLE, KEY)
    with answering(monkeypatch, api.BASE_VARIABLE) as server:
        server.routes = {
            "POST /graphql": [reply(200, {"data": {"myself": {"id": "me", "pods": []}}})],
            "GET /v2/pods": [reply(200, {"pods": []})],
            "GET /v2/catalog/gpus": [reply(200, {"gpus": [card("L4", 0.4), card("A40", 0.3), card("H100", 2.0)]})],
        }
        yield server


def request(**changes: Any) -> BoxRequest:
    return BoxRequest(**{"tag": TAG, "name": "box-0", "public_key": "ssh-ed25519 AAAA me", **changes})


def create(**changes: Any) -> Any:
    return RunpodPlatform().create(request(**changes), wait=Wait(10))


def count(server: Server, route: str) -> int:
    return [f"{method} {path.partition('?')[0]}" for method, path, *_ in server.seen].count(route)


def sent(server: Server, route: str) -> list[dict[str, Any]]:
    return [json.loads(body) for method, path, _, body in server.seen if f"{method} {path.partition('?')[0]}" == route]


def page(pods: list[Any], following: str | None) -> Any:
    return reply(200, {"pods": pods, "pagination": {"nextCursor": following, "hasNextPage": following is not None}})


def test_a_list_is_read_to_its_last_page(server: Server) -> None:
    server.routes["GET /v2/pods"] = [page([pod(id="a1")], "c1"), page([], "c2"), page([pod(id="b2")], None)]
    assert [record.native_id for record in RunpodPlatform().list_tagged("")] == ["a1", "b2"]
    assert [path for _, path, *_ in server.seen if path.startswith("/v2/pods")] == [
        "/v2/pods",
        "/v2/pods?cursor=c1",
        "/v2/pods?cursor=c2",
    ]


@pytest.mark.parametrize(
    "last",
    [
        page([], "c1"),
        reply(200, {"pods": [], "pagination": {"hasNextPage": True, "nextCursor": None}}),
        refusal(422, "malformed cursor"),
        reply(200, {"pods": None}),
        reply(200, []),
    ],
)
def test_a_list_that_is_not_whole_proves_nothing(server: Server, last: Any) -> None:
    server.routes["GET /v2/pods"] = [page([pod(id="a1")], "c1"), last]
    with pytest.raises(Unreachable):
        RunpodPlatform().find_by_tag("sweepstack-other")


def test_a_hundred_reads_at_once_are_a_few_lists(server: Server) -> None:
    server.routes["GET /v2/pods"] = [reply(200, {"pods": [pod(id=f"p{number}") for number in range(100)]})]
    platform = RunpodPlatform()
    platform.account()
    with ThreadPoolExecutor(32) as pool:
        records = list(pool.map(lambda number: platform.get(f"p{number}", "me"), range(100)))
    assert {record.phase for record in records} == {Phase.RUNNING}
    assert count(server, "GET /v2/pods") <= 100 // 32 + 5
    assert count(server, "POST /graphql") == 1


@pytest.mark.parametrize(
    ("found", "listed"),
    [
        (reply(404, b"<html>404</html>", kind="text/html"), reply(200, {"pods": []})),
        (reply(503, {"detail": "oops"}), reply(200, {"pods": []})),
        (refusal(403, "forbidden"), reply(200, {"pods": []})),
        (NOT_FOUND, reply(200, {"pods": [{"name": TAG}]})),
        (reply(200, {"id": "other"}), reply(200, {"pods": []})),
        (NOT_FOUND, reply(200, {"pods": {}})),
        (reply(410, {"detail": "retired"}), reply(200, {"pods": []})),
    ],
)
def test_nothing_less_is_gone(server: Server, found: Any, listed: Any) -> None:
    server.routes |= {f"GET /v2/pods/{POD}": [found], "GET /v2/pods": [listed]}
    with pytest.raises(PlatformError):
        RunpodPlatform().get(POD, "me")


def test_what_is_listed_again_is_there(server: Server) -> None:
    server.routes |= {
        f"GET /v2/pods/{POD}": [NOT_FOUND],
        "GET /v2/pods": [reply(200, {"pods": []}), reply(200, {"pods": [pod()]})],
    }
    assert RunpodPlatform().get(POD, "me").phase is Phase.RUNNING


def test_a_key_of_another_account_is_asked_for_anew(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.routes["GET /v2/pods"] = [reply(200, {"pods": [pod()]})]
    for _ in range(3):
        assert RunpodPlatform().get(POD, "me").phase is Phase.RUNNING
    assert count(server, "POST /graphql") == 1
    server.routes["POST /graphql"] = [reply(200, {"data": {"myself": {"id": "other"}}})]
    monkeypatch.setenv(api.KEY_VARIABLE, "rpa_another")
    with pytest.raises(WrongAccount, match="other"):
        RunpodPlatform().get(POD, "me")


@pytest.mark.parametrize(
    "answer",
    [
        reply(200, {"data": {"myself": None}}),
        reply(200, {"errors": [{"message": "Something went wrong"}], "data": None}),
        reply(429, {"detail": "slow"}),
        reply(502, b"<html>", kind="text/html"),
        cut,
    ],
)
def test_whose_key_it_is_must_be_known(server: Server, answer: Any) -> None:
    server.routes["POST /graphql"] = [answer]
    with pytest.raises(Unreachable):
        RunpodPlatform().get(POD, "me")
    assert count(server, "GET /v2/pods") == 0


def shown_by_the_older(server: Server, **pods: str) -> None:
    """RunPod's older interface has these pods: id → name."""
    told = [{"id": native_id, "name": name, "env": []} for native_id, name in pods.items()]
    server.routes["POST /graphql"] = [reply(200, {"data": {"myself": {"id": "me", "pods": told}}})]


def test_nothing_is_gone_that_the_older_interface_shows(server: Server) -> None:
    """REST may answer as another account, or lag: its 404 and its list are one source, and one is no proof."""
    server.routes |= {f"GET /v2/pods/{POD}": [NOT_FOUND], f"DELETE /v2/pods/{POD}": [reply(204)]}
    shown_by_the_older(server, **{POD: TAG})
    with pytest.raises(Unreachable, match=f"no pod {POD}, and its older one shows it"):
        RunpodPlatform().get(POD, "me")
    with pytest.raises(NotYetGone):
        RunpodPlatform().destroy(POD, "me")
    shown_by_the_older(server)
    assert RunpodPlatform().get(POD, "me").phase is Phase.GONE


@pytest.mark.parametrize(
    "broken", [reply(502, b"<html>", kind="text/html"), reply(200, {"data": {"myself": {"id": "me"}}})]
)
def test_nothing_is_gone_while_the_older_interface_does_not_say(server: Server, broken: Any) -> None:
    server.routes[f"GET /v2/pods/{POD}"] = [NOT_FOUND]
    RunpodPlatform().account()
    server.routes["POST /graphql"] = [broken]
    with pytest.raises(Unreachable):
        RunpodPlatform().get(POD, "me")
    with pytest.raises(Unreachable):
        RunpodPlatform().find_by_tag(TAG)


def test_a_tag_that_only_the_older_interface_shows_is_there(server: Server) -> None:
    shown_by_the_older(server, **{POD: TAG})
    server.routes[f"GET /v2/pods/{POD}"] = [reply(200, pod())]
    found = RunpodPlatform().find_by_tag(TAG)
    assert found is not None
    assert found.native_id == POD
    server.routes[f"GET /v2/pods/{POD}"] = [NOT_FOUND]
    with pytest.raises(Unreachable, match="older one shows it"):
        RunpodPlatform().find_by_tag(TAG)


def test_nothing_is_gone_for_an_account_that_the_key_is_not_of_any_more(server: Server) -> None:
    server.routes |= {
        f"GET /v2/pods/{POD}": [NOT_FOUND],
        "POST /graphql": [reply(200, {"data": {"myself": {"id": name, "pods": []}}}) for name in ("me", "other")],
    }
    RunpodPlatform().account()
    time.sleep(0.4)  # what is known of the account serves others for 300 ms here
    with pytest.raises(WrongAccount, match="other"):
        RunpodPlatform().get(POD, "me")


def test_no_key_and_a_wrong_one_say_where_it_goes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.routes["POST /graphql"] = [reply(401, {"detail": "missing"})]
    with pytest.raises(NotAuthorized, match=api.KEY_VARIABLE) as caught:
        RunpodPlatform().account()
    assert KEY not in str(caught.value)
    monkeypatch.delenv(api.KEY_VARIABLE)
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(NotAuthorized, match=api.KEY_VARIABLE):
        RunpodPlatform().account()


def test_offers_are_cheapest_first_and_what_was_asked_for(server: Server) -> None:
    centers = [{"id": "EU-RO-1", "availability": "HIGH"}, {"id": "US-KS-2", "availability": "NONE"}]
    gpus = [
        card("H100", 2.0, memory=80),
        card("L4", 0.4),
        card("A40", 0.3, memory=48, dataCenters=centers),
        card("T4", 0.1, secure=False),
        card("V100", 0.1, availability="NONE"),
        card("RTX 3090", 0.2, maxCount={"secure": 1, "community": 8}),
        {"id": "?"},
        "junk",
    ]
    server.routes["GET /v2/catalog/gpus"] = [reply(200, {"gpus": gpus})]

    def offers(**changes: Any) -> list[str]:
        return [offer.gpu for offer in RunpodPlatform().offers(Constraints(gpu_count=2, **changes))]

    assert offers() == ["A40", "L4", "H100"]
    assert offers(max_price=0.81) == ["A40", "L4"]
    assert offers(gpu_names=("h100", "L4")) == ["L4", "H100"]
    assert offers(regions=("EU",)) == ["A40"]
    assert offers(regions=("US-KS-2",)) == []
    (first, *_) = RunpodPlatform().offers(Constraints(gpu_count=2))
    assert (first.gpu_count, first.region, first.stock) == (2, "EU-RO-1", "high")
    assert first.price_per_hour == pytest.approx(0.6 + (20 + 20) * 0.10 / 730)


@pytest.mark.parametrize(
    ("asked", "gpus_and_disks", "stopped"),
    [
        ({}, 0.25 + (20 + 20) * 0.10 / 730, 20 * 0.20 / 730),
        ({"disk_gb": 1000}, 0.25 + (20 + 1000) * 0.10 / 730, 1000 * 0.20 / 730),
        ({"disk_gb": 1000, "volume": "me.vol1"}, 0.25 + 1000 * 0.10 / 730, 0.0),
        ({"volume": "me.vol1"}, 0.25 + 20 * 0.10 / 730, 0.0),
    ],
)
def test_a_price_has_the_disks_that_are_asked_for(asked: dict[str, Any], gpus_and_disks: float, stopped: float) -> None:
    """Found on 6f8d950f: a disk of 1000 GB cost 56 % more than `place` and `max_price` knew."""
    (one,) = candidates([card("L4", 0.25)], Constraints(gpu_count=1, **asked))
    assert one.offer.price_per_hour == pytest.approx(gpus_and_disks, abs=1e-6)
    assert one.offer.stopped_per_hour == pytest.approx(stopped)
    assert candidates([card("L4", 0.25)], Constraints(gpu_count=1, max_price=0.25, **asked)) == []


def test_the_price_of_a_disk_is_that_of_the_profile() -> None:
    profile = load_profile("runpod")
    assert {tier.price_per_gb_month for tier in profile.tiers.values()} == {GB_MONTH}
    (kept,) = profile.verbs["stop"].bills_after
    assert f"{STOPPED_GB_MONTH:.2f} USD per GB and month" in kept


def test_what_runpod_cannot_give_is_refused_before_anything_is_asked(server: Server) -> None:
    with pytest.raises(Unsupported):
        RunpodPlatform().offers(Constraints(min_reliability=0.9))
    with pytest.raises(Unsupported):
        create(resources={"reliability": 0.9})
    assert server.seen == []


def test_the_next_offer_is_tried_in_the_order_of_the_price_and_the_chosen_one_first(server: Server) -> None:
    server.routes |= {
        "POST /v2/pods": [refusal(400, FULL), refusal(403, "access denied"), reply(201, pod())],
        "GET /v2/pods": [reply(200, {"pods": []}), reply(200, {"pods": [pod()]})],
    }
    create(offer="NVIDIA H100")
    assert [body["gpu"]["id"] for body in sent(server, "POST /v2/pods")] == ["NVIDIA H100", "NVIDIA A40", "NVIDIA L4"]


@pytest.mark.parametrize(
    ("answers", "kind", "posts"),
    [
        ([refusal(400, FULL)], NoCapacity, 3),
        ([refusal(400, "odd mounts")], RequestRefused, 3),
        ([refusal(400, "odd mounts"), refusal(400, FULL)], NoCapacity, 3),
        ([refusal(403, "access denied")], NotAuthorized, 3),
        ([refusal(402, "no money")], InsufficientFunds, 1),
        ([refusal(400, "Insufficient balance to deploy")], InsufficientFunds, 1),
        ([refusal(422, "additional properties 'x' not allowed")], RequestRefused, 1),
        ([refusal(401, "no")], NotAuthorized, 1),
    ],
)
def test_each_refusal_has_its_consequence(
    server: Server, answers: list[Any], kind: type[PlatformError], posts: int
) -> None:
    server.routes["POST /v2/pods"] = answers
    with pytest.raises(kind) as caught:
        create()
    assert type(caught.value) is kind
    assert count(server, "POST /v2/pods") == posts


@pytest.mark.parametrize("lost", [cut, reply(500, {"detail": "oops"}), reply(502, b"<html>", kind="text/html")])
def test_a_lost_answer_is_looked_up_and_never_asked_again(server: Server, lost: Any) -> None:
    empty = reply(200, {"pods": []})
    server.routes |= {"POST /v2/pods": [lost], "GET /v2/pods": [empty, empty, cut, reply(200, {"pods": [pod()]})]}
    assert create().native_id == POD
    assert count(server, "POST /v2/pods") == 1


def test_a_lost_answer_that_nothing_shows_of_stays_unknown(server: Server) -> None:
    server.routes["POST /v2/pods"] = [cut]
    with pytest.raises(OutcomeUnknown):
        create()
    assert count(server, "POST /v2/pods") == 1
    assert count(server, "GET /v2/pods") >= 5


def test_a_pod_that_two_answers_leave_out_while_it_boots_is_not_removed(server: Server) -> None:
    whole = [reply(200, {"pods": [NEW]}), reply(200, {"pods": []}), reply(200, {"pods": []})]
    server.routes |= {
        "POST /v2/pods": [reply(201, NEW)],
        "GET /v2/pods": [reply(200, {"pods": []}), *whole, reply(200, {"pods": [pod()]})],
        f"GET /v2/pods/{POD}": [NOT_FOUND],
    }
    assert create().native_id == POD
    assert count(server, f"GET /v2/pods/{POD}") >= 1, "nobody ever asked for it"


def test_a_pod_without_an_id_is_looked_for(server: Server) -> None:
    server.routes |= {
        "POST /v2/pods": [reply(201, {})],
        "GET /v2/pods": [reply(200, {"pods": []}), reply(200, {"pods": [pod()]})],
    }
    assert create().native_id == POD


@pytest.mark.parametrize(("status", "bills"), [("EXITED", "volume disk"), ("ERROR", "in full"), ("ODD", "may bill")])
def test_a_pod_that_dies_while_it_starts_keeps_its_id_and_says_what_it_bills(
    server: Server, status: str, bills: str
) -> None:
    server.routes |= {
        "POST /v2/pods": [reply(201, NEW)],
        "GET /v2/pods": [reply(200, {"pods": []}), reply(200, {"pods": [pod(status=status)]})],
    }
    with pytest.raises(StillCreating) as caught:
        create()
    assert caught.value.identifier == POD
    assert bills in caught.value.reasons[0]


def test_a_pod_above_the_ceiling_is_reported_and_not_ended(server: Server) -> None:
    server.routes |= {
        "POST /v2/pods": [reply(201, pod(cost=0.9))],
        "GET /v2/pods": [reply(200, {"pods": []}), reply(200, {"pods": [pod(cost=0.9)]})],
    }
    with pytest.raises(StillCreating, match=r"0\.9000 USD/h") as caught:
        create(max_price=0.5)
    assert caught.value.identifier == POD
    assert "DELETE" not in server.methods
    server.routes["GET /v2/pods"] = [reply(200, {"pods": []})]
    with pytest.raises(NoCapacity):
        create(max_price=0.1, tag="sweepstack-x")
    assert count(server, "POST /v2/pods") == 1


def test_of_two_with_one_tag_the_oldest_is_kept_and_the_other_is_named(server: Server) -> None:
    twins = [pod(id="new1", createdAt="2026-11-21T11:00:00Z"), pod(id="old1"), pod(id="dead1", status="TERMINATED")]
    server.routes["GET /v2/pods"] = [reply(200, {"pods": twins})]
    found = RunpodPlatform().find_by_tag(TAG)
    assert found is not None
    assert found.native_id == "old1"
    assert "new1" in found.note
    assert "dead1" not in found.note


def test_a_destroy_is_proved_or_not_yet(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """C02: on RunPod until it is not found any more."""
    monkeypatch.setattr(api, "PROVED_SECONDS", 1e6)
    server.routes |= {
        f"DELETE /v2/pods/{POD}": [reply(204)],
        f"GET /v2/pods/{POD}": [reply(200, pod()), NOT_FOUND],
        "GET /v2/pods": [reply(200, {"pods": []})],
    }
    platform = RunpodPlatform()
    with pytest.raises(NotYetGone):
        platform.destroy(POD, "me")
    assert platform.get(POD, "me").phase is Phase.GONE
    asked = count(server, f"GET /v2/pods/{POD}")
    assert platform.get(POD, "me").phase is Phase.GONE
    assert count(server, f"GET /v2/pods/{POD}") == asked  # proved once, a moment ago, of what we ended ourselves
    server.routes[f"DELETE /v2/pods/{POD}"] = [NOT_FOUND]
    platform.destroy(POD, "me")


@pytest.mark.parametrize(("answer", "kind"), [(cut, NotYetGone), (refusal(409, "cluster member"), RequestRefused)])
def test_a_destroy_that_failed_is_said_so(server: Server, answer: Any, kind: type[PlatformError]) -> None:
    server.routes |= {f"DELETE /v2/pods/{POD}": [answer], "GET /v2/pods": [reply(200, {"pods": [pod()]})]}
    with pytest.raises(kind):
        RunpodPlatform().destroy(POD, "me")
    assert count(server, f"DELETE /v2/pods/{POD}") == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(reply(200, pod()), NotYetStopped), (cut, NotYetStopped), (refusal(400, "no"), RequestRefused)],
)
def test_a_stop_that_is_not_proved_is_no_success(server: Server, answer: Any, kind: type[PlatformError]) -> None:
    server.routes |= {f"POST /v2/pods/{POD}/action": [answer], "GET /v2/pods": [reply(200, {"pods": [pod()]})]}
    with pytest.raises(kind):
        RunpodPlatform().stop(POD, "me")


def test_a_locked_pod_is_not_stopped(server: Server) -> None:
    server.routes["GET /v2/pods"] = [reply(200, {"pods": [pod(locked=True)]})]
    with pytest.raises(RequestRefused, match="locked"):
        RunpodPlatform().stop(POD, "me")
    assert "POST" not in [method for method, path, *_ in server.seen if path != "/graphql"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refusal(400, "There are not enough free GPUs on the host machine to start this pod."), NoCapacity),
        (refusal(402, "balance"), InsufficientFunds),
        (refusal(409, "not allowed"), RequestRefused),
    ],
)
def test_a_start_that_is_refused_says_why(server: Server, answer: Any, kind: type[PlatformError]) -> None:
    resting = pod(status="EXITED", runtime=None)
    server.routes |= {f"POST /v2/pods/{POD}/action": [answer], "GET /v2/pods": [reply(200, {"pods": [resting]})]}
    with pytest.raises(kind):
        RunpodPlatform().start(POD, "me", wait=Wait(10))


VOLUME = {"id": "vol1", "name": "tag-v", "size": 50, "dataCenter": "US-TX-3", "type": "STANDARD"}


def test_a_volume_is_made_once_grown_and_never_shrunk(server: Server) -> None:
    centers = [
        {"id": "US-TX-3", "name": "Texas", "networkVolumeTypes": ["STANDARD"]},
        {"id": "US-KS-1", "name": "Kansas", "networkVolumeTypes": []},
    ]
    server.routes |= {
        "GET /v2/catalog/datacenters": [reply(200, {"dataCenters": centers})],
        "GET /v2/network-volumes": [reply(200, {"networkVolumes": []})],
        "POST /v2/network-volumes": [reply(201, VOLUME)],
        "PATCH /v2/network-volumes/vol1": [reply(200, {**VOLUME, "size": 80})],
    }
    platform = RunpodPlatform()
    for missing in ({}, {"size_gb": 50}, {"region": "US-TX-3"}):
        with pytest.raises(RequestRefused):
            platform.ensure_volume("tag-v", "durable", **missing)  # type: ignore[arg-type]
    for region in ("US-KS-1", "US-XX-1"):
        with pytest.raises(RequestRefused, match="US-TX-3"):
            platform.ensure_volume("tag-v", "durable", size_gb=50, region=region)
    made = platform.ensure_volume("tag-v", "durable", size_gb=50, region="us-tx-3")
    assert (made.native_id, made.created, made.region, made.size_gb, made.account) == (
        "me.vol1",
        True,
        "US-TX-3",
        50,
        "me",
    )
    server.routes["GET /v2/network-volumes"] = [reply(200, {"networkVolumes": [VOLUME]})]
    assert platform.ensure_volume("tag-v", "durable").created is False
    assert platform.ensure_volume("tag-v", "durable", size_gb=20).size_gb == 50
    assert platform.ensure_volume("tag-v", "durable", size_gb=80).size_gb == 80
    assert sent(server, "POST /v2/network-volumes") == [
        {key: VOLUME[key] for key in ("name", "size", "dataCenter", "type")}
    ]
    assert sent(server, "PATCH /v2/network-volumes/vol1") == [{"size": 80}]


def test_a_box_with_a_volume_goes_where_it_is(server: Server) -> None:
    elsewhere = card("A40", 0.3, dataCenters=[{"id": "EU-RO-1", "availability": "HIGH"}])
    server.routes |= {
        "GET /v2/network-volumes": [reply(200, {"networkVolumes": [VOLUME]})],
        "GET /v2/catalog/gpus": [reply(200, {"gpus": [elsewhere, card("L4", 0.4)]})],
        "POST /v2/pods": [reply(201, pod())],
        "GET /v2/pods": [reply(200, {"pods": []}), reply(200, {"pods": [pod()]})],
    }
    create(mounts={"mnt/durable": "me.vol1"})
    (body,) = sent(server, "POST /v2/pods")
    assert body["gpu"]["id"] == "NVIDIA L4"
    assert body["dataCenterIds"] == ["US-TX-3"]
    assert body["mounts"] == {"network": [{"volumeId": "vol1", "path": "/sweepstack/mnt/durable"}]}


def test_a_volume_in_use_is_not_deleted(server: Server) -> None:
    using = pod(mounts={"network": [{"volumeId": "vol1", "path": "/sweepstack/mnt/durable"}]})
    server.routes |= {
        "GET /v2/network-volumes": [reply(200, {"networkVolumes": [VOLUME]})],
        "GET /v2/pods": [reply(200, {"pods": [using]})],
    }
    with pytest.raises(RequestRefused, match=POD):
        RunpodPlatform().delete_volume("me.vol1", "me")
    server.routes |= {
        "GET /v2/pods": [reply(200, {"pods": []})],
        "DELETE /v2/network-volumes/vol1": [reply(204)],
    }
    with pytest.raises(NotYetGone):
        RunpodPlatform().delete_volume("me.vol1", "me")
    server.routes |= {
        "GET /v2/network-volumes": [reply(200, {"networkVolumes": []})],
        "GET /v2/network-volumes/vol1": [NOT_FOUND],
    }
    RunpodPlatform().delete_volume("me.vol1", "me")
    assert RunpodPlatform().get_volume("me.vol1") is None


V2_BALANCE, QUERY = "GET /v2/billing/balance", "POST /graphql"


def told_by_query(**fields: Any) -> Any:
    return reply(200, {"data": {"myself": fields}})


def test_the_balance_is_told_by_whichever_interface_has_it(server: Server) -> None:
    server.routes[V2_BALANCE] = [reply(200, {"balanceAmount": 12.5, "billingMode": "PREPAID"})]
    server.routes[QUERY] = [told_by_query(clientBalance=12.4, currentSpendPerHr=0.75, spendLimit=80)]
    assert RunpodPlatform().balance() == Balance(12.5, True, 80.0, per_hour=0.75, volumes=True)
    server.routes[V2_BALANCE] = [NOT_FOUND]
    server.routes[QUERY] = [told_by_query(clientBalance=3.0, currentSpendPerHr=0.0, spendLimit=80)]
    assert RunpodPlatform().balance() == Balance(3.0, None, 80.0, per_hour=0.0, volumes=True)


def test_a_balance_without_a_rate_is_still_a_balance(server: Server) -> None:
    server.routes[V2_BALANCE] = [reply(200, {"balanceAmount": -1.0, "billingMode": "POSTPAID"})]
    server.routes[QUERY] = [reply(410, {"error": "gone"})]
    found = RunpodPlatform().balance()
    assert found is not None
    assert (found.usd, found.prepaid, found.per_hour) == (-1.0, False, None)


def test_a_key_without_billing_sees_no_balance(server: Server) -> None:
    server.routes[V2_BALANCE] = [refusal(403, "billing:read is missing")]
    server.routes[QUERY] = [told_by_query(clientBalance=None)]
    assert RunpodPlatform().balance() is None


@pytest.mark.parametrize("native_id", ["", ".", "../pods", "a/b", "a?b", "x\0y", "local-AAAAAAAAAA", "a" * 65])
def test_an_id_that_cannot_be_one_is_not_put_into_a_path(server: Server, native_id: str) -> None:
    platform = RunpodPlatform()
    for ask in (platform.get, platform.destroy, platform.stop, platform.channel):
        with pytest.raises(PlatformError):
            ask(native_id, "me")
    assert server.seen == []


def test_sessions_are_per_key_and_address(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    first = api.session()
    assert api.session() is first
    monkeypatch.setenv(api.KEY_VARIABLE, "rpa_another")
    assert api.session() is not first


def test_the_key_is_read_where_runpods_own_tools_write_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(api.KEY_VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".runpod" / "config.toml"
    with pytest.raises(NotAuthorized, match="there is no key for RunPod"):
        api.api_key()
    file.parent.mkdir()
    for text in ("[other]\n", "default = 3", "api_key"):
        file.write_text(text)
        with pytest.raises(NotAuthorized, match=r"there is no key|TOML"):
            api.api_key()
    file.write_text(f'[default]\napi_key = "{KEY}"\n')
    assert api.api_key() == KEY


def test_the_sdk_reads_its_key_file_and_leaves_the_program_alone(tmp_path: Path) -> None:
    """On the provider's stdout the engine listens."""
    file = tmp_path / ".runpod/config.toml"
    file.parent.mkdir()
    file.write_text(f'[default]\napi_key = "{KEY}"\n')
    program = """
import logging, sys
from sweepstack.platforms.runpod import api
assert api.api_key() == sys.argv[1]
assert not {"runpod", "aiohttp", "paramiko"} & set(sys.modules), "more of the SDK than is asked"
logging.getLogger("httpx").info("GET somewhere")
print(logging.getLogger().handlers, logging.getLogger().level)
"""
    env = {name: value for name, value in os.environ.items() if name != api.KEY_VARIABLE} | {"HOME": str(tmp_path)}
    command = [sys.executable, "-c", program, KEY]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=True)
    assert ended.stdout == "[] 30\n"
