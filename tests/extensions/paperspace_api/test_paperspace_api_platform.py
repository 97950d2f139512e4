"""The adapter for Paperspace's API by itself: what a machine says, what is asked for, what is started and when."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from sweepstack.extensions.paperspace_api import api
from sweepstack.extensions.paperspace_api.api import login_script
from sweepstack.extensions.paperspace_api.offers import disk_gb, fitting, must_be_possible
from sweepstack.extensions.paperspace_api.platform import PaperspacePlatform
from sweepstack.extensions.paperspace_api.states import record_of
from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    NotYetGone,
    RequestRefused,
    StillCreating,
    Unreachable,
    Unsupported,
    WrongAccount,
)
from sweepstack.onbox.host.offers import Bound, Constraints
from sweepstack.onbox.host.platform import BoxRequest, Phase, Wait
from sweepstack.platforms.registry import load_platform
from tests.short_wait import out_of_time
from tests.simulators.core import VirtualClock
from tests.simulators.paperspace import (
    AT_ONCE,
    CREATE,
    DELETE,
    KEY,
    LIST,
    OTHER_KEY,
    START,
    STOP,
    PaperspaceSim,
)
from tests.unit.loopback import Server, reply
from tests.unit.platforms.api_world import answering, quick, sent, serving

TAG = "sweepstack-a1b2c3-box-0-g1"
OWN = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPaper ann@home"
GPU = {"gpu": {"name": ["A4000"], "count": 1}}
REQUEST = BoxRequest(tag=TAG, name="box-0", public_key=OWN, price_per_hour=0.80, resources=GPU)
ID = "psoxnh2i7"
SCRIPTS = "POST /v1/startup-scripts"


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PaperspacePlatform]:
    quick(monkeypatch, tmp_path, api.KEY_VARIABLE, KEY)
    loaded = load_platform("paperspace_api")
    assert isinstance(loaded, PaperspacePlatform)
    yield loaded
    api.SESSIONS.forget()


@pytest.fixture
def sim(platform: PaperspacePlatform, monkeypatch: pytest.MonkeyPatch) -> Iterator[PaperspaceSim]:
    with serving(PaperspaceSim(clock=VirtualClock(scale=1.0), times=AT_ONCE), monkeypatch, api.BASE_VARIABLE) as sim:
        yield sim


@pytest.fixture
def server(platform: PaperspacePlatform, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with answering(monkeypatch, api.BASE_VARIABLE, "/v1") as server:
        server.routes["GET /v1/auth/session"] = [reply(200, {"user": {"id": "u"}, "team": {"id": "tann"}})]
        yield server


def row(**changes: Any) -> dict[str, Any]:
    """A machine of the vendor's document; its large numbers come as texts."""
    return {
        "id": ID,
        "name": TAG,
        "state": "ready",
        "publicIp": "198.51.100.2",
        "machineType": "A100-80Gx8",
        "accelerators": [{"name": "A100", "memory": "85899345920", "count": "8"}],
        "region": "East Coast (NY2)",
        "usageRate": 25.44,
        "dtCreated": "2026-11-24T10:00:00.000Z",
        "dtDeleted": None,
        **changes,
    }


# What a machine says


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ({}, Phase.RUNNING),
        ({"publicIp": None}, Phase.CREATING),
        ({"state": "provisioning"}, Phase.CREATING),
        ({"state": "starting"}, Phase.CREATING),
        ({"state": "restarting"}, Phase.CREATING),
        ({"state": "serviceready"}, Phase.CREATING),
        ({"state": "upgrading"}, Phase.CREATING),
        ({"state": "stopping"}, Phase.STOPPING),
        ({"state": "off"}, Phase.STOPPED),
        ({"state": "failed"}, Phase.UNKNOWN),
        ({"state": None}, Phase.UNKNOWN),
        ({"state": "off", "dtDeleted": "2026-11-24T11:00:00.000Z"}, Phase.ENDING),
        ({"accelerators": None, "region": 7, "usageRate": "?", "dtCreated": None}, Phase.RUNNING),
    ],
)
def test_a_state_is_a_phase_and_what_is_not_known_is_never_gone(changes: dict[str, Any], phase: Phase) -> None:
    seen = record_of(row(**changes), "tann")
    assert (seen.phase, seen.tag) == (phase, TAG)
    assert (phase is Phase.UNKNOWN) <= bool(seen.note)


def test_numbers_may_be_texts_and_the_region_is_as_a_create_takes_it() -> None:
    seen = record_of(row(), "tann")
    assert (seen.price_per_hour, seen.gpu_count, seen.offer, seen.region) == (25.44, 8, "A100-80Gx8", "ny2")
    assert seen.endpoint is not None
    assert (seen.endpoint.user, seen.endpoint.port) == ("paperspace", 22)


@pytest.mark.parametrize(
    "answer",
    [
        reply(404, {"code": "SOMETHING_ELSE", "message": "no such route"}),
        reply(404, b"<html>gone fishing</html>", kind="text/html"),
        reply(200, {"items": [], "hasMore": False}),
        reply(200, row(id="psanother")),
    ],
)
def test_only_the_api_s_own_word_about_this_machine_proves_its_end(
    server: Server, platform: PaperspacePlatform, answer: Any
) -> None:
    server.routes["GET /v1/machines"] = [reply(200, {"items": [], "hasMore": False})]
    server.routes[f"GET /v1/machines/{ID}"] = [answer]
    with pytest.raises(Unreachable):
        platform.get(ID, "tann")
    server.routes[f"GET /v1/machines/{ID}"] = [reply(404, {"code": "NOT_FOUND", "message": "Machine not found"})]
    assert platform.get(ID, "tann").phase is Phase.GONE


def test_a_key_that_is_another_team_s_by_now_proves_no_end(sim: PaperspaceSim, platform: PaperspacePlatform) -> None:
    box = platform.create(REQUEST, wait=Wait(60))
    sim.act("rekey", {"account": "ann", "key": "simulated0of0ann00000009"})
    sim.act("rekey", {"account": "bob", "key": KEY})
    with pytest.raises(WrongAccount, match=box.account):
        platform.destroy(box.native_id, box.account)
    assert [rental.id for rental in sim.ledger.live("machine")] == [box.native_id]


@pytest.mark.parametrize("end", [{"hasMore": True}, {"hasMore": True, "nextPage": None}, {}, {"hasMore": "no"}])
def test_a_list_that_is_not_whole_proves_nothing(
    server: Server, platform: PaperspacePlatform, end: dict[str, Any]
) -> None:
    server.routes["GET /v1/machines"] = [reply(200, {"items": [], **end})]
    with pytest.raises(Unreachable):
        platform.find_by_tag(TAG)


def test_all_pages_of_a_list_are_read(
    sim: PaperspaceSim, platform: PaperspacePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PAGE", 4)
    ids = [made(sim, f"{TAG}{number}") for number in range(9)]
    sim.calls.clear()
    assert [record.native_id for record in platform.list_tagged(TAG)] == sorted(ids)
    assert sent(sim, LIST) == 3


def test_one_without_a_public_address_says_so(sim: PaperspaceSim, platform: PaperspacePlatform) -> None:
    made(sim, TAG, publicIpType="none")
    out_of_time(lambda wait: platform.create(REQUEST, wait=wait), "it is ready and has no address yet")


def test_machines_that_are_gone_and_still_listed_are_not_found(
    sim: PaperspaceSim, platform: PaperspacePlatform
) -> None:
    first = platform.create(REQUEST, wait=Wait(60))
    platform.destroy(first.native_id, first.account)
    sim.faults.add("list_deleted", LIST, times=None)
    assert platform.list_tagged("") == []
    assert platform.create(REQUEST, wait=Wait(60)).native_id != first.native_id


def made(sim: PaperspaceSim, name: str, **changes: Any) -> str:
    """The id of a machine that another program made, and that is off."""
    body = {"machineType": "A4000", "templateId": "t0nspur5", "diskSize": 50, "region": "ny2", "startOnCreate": False}
    headers = {"Authorization": f"Bearer {KEY}"}
    url = f"{os.environ[api.BASE_VARIABLE]}/machines"
    answer = httpx.post(url, json={"name": name, **body, **changes}, headers=headers)
    return str(answer.json()["data"]["id"])


# What is asked for


def template(name: str, *labels: str, **changes: Any) -> dict[str, Any]:
    types = [{"machineTypeLabel": label, "isAvailable": True} for label in labels]
    told = {"id": f"t-{name}", "name": name, "operatingSystemLabel": f"{name} Server", "defaultSizeGb": 50}
    return {**told, "availableMachineTypes": types, **changes}


TEMPLATES = [
    template("Ubuntu 20.04", "A4000", "A100-80G", "C5", "RTX5000"),
    template("Ubuntu 22.04", "A4000", "A4000x2", "A100-80G", "GPU+"),
    template("ML-in-a-Box Ubuntu 20.04", "A100-80G", "A100-80Gx8", "V100-32G"),
    template("ML-in-a-Box Ubuntu 22.04", "A100-80G", "H100x8"),
    template("Windows 10", "P5000"),
    {"id": "t-broken", "name": "Ubuntu", "availableMachineTypes": ["A6000", {"machineTypeLabel": "A6000"}]},
]


def one(*names: str, **changes: Any) -> Constraints:
    return Constraints(**{"gpu_count": 1, "gpu_names": names, **changes})


@pytest.mark.parametrize(
    ("wanted", "kinds"),
    [
        (one("A4000"), {"A4000": "Ubuntu 22.04"}),
        (one("RTX A4000"), {"A4000": "Ubuntu 22.04"}),
        (one("a100"), {"A100-80G": "ML-in-a-Box Ubuntu 22.04"}),
        (one("A100 80GB", "A4000"), {"A100-80G": "ML-in-a-Box Ubuntu 22.04", "A4000": "Ubuntu 22.04"}),
        (one("A100", gpu_count=8), {"A100-80Gx8": "ML-in-a-Box Ubuntu 20.04"}),
        (one("A4000", gpu_count=2), {"A4000x2": "Ubuntu 22.04"}),
        (one("A100", gpu_memory_gb=Bound(40)), {"A100-80G": "ML-in-a-Box Ubuntu 22.04"}),
        (one("RTX 5000"), {"RTX5000": "Ubuntu 20.04"}),
        (one("GPU+"), {"GPU+": "Ubuntu 22.04"}),
    ],
)
def test_a_card_is_a_machine_type_with_the_best_template(wanted: Constraints, kinds: dict[str, str]) -> None:
    found = fitting(TEMPLATES, wanted)
    assert {kind.label: kind.template_name for kind in found} == kinds
    assert [kind.label for kind in found] == list(kinds)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (one("A6000"), "The types that it names: A100-80G, A100-80Gx8, A4000, A4000x2, GPU"),
        (one("P5000"), "no machine type with 1× P5000"),
        (one("A4000", gpu_count=4), "no machine type with 4× A4000"),
        (one("A4000", gpu_memory_gb=Bound(16)), "does not say how much memory a card has"),
        (one("A100", gpu_memory_gb=Bound(100)), "does not say how much memory a card has"),
    ],
)
def test_a_card_that_no_type_has_is_refused_with_the_types_that_there_are(wanted: Constraints, words: str) -> None:
    with pytest.raises(RequestRefused, match=words):
        fitting(TEMPLATES, wanted)


@pytest.mark.parametrize(
    ("asked", "sold"), [(None, 100), (10, 50), (50, 50), (51, 100), (120, 250), (1999, 2000), (2000, 2000)]
)
def test_a_disk_has_a_size_that_is_sold_and_holds_what_was_asked_for(asked: int | None, sold: int) -> None:
    wanted = one("A4000", disk_gb=asked)
    assert disk_gb(fitting(TEMPLATES, wanted)[0], wanted) == sold
    large = fitting([template("Ubuntu 22.04", "A4000", defaultSizeGb=180)], wanted)[0]
    assert disk_gb(large, wanted) >= 250


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        (Constraints(), RequestRefused, "name the card"),
        (Constraints(gpu_count=1), RequestRefused, "name the card"),
        (one("A4000", spot=True), Unsupported, "no spot boxes"),
        (one("A4000", cpu=8.0), Unsupported, "resources.cpu"),
        (one("A4000", memory_gb=32.0), Unsupported, "resources.memory"),
        (one("A4000", cuda="12.4"), Unsupported, "resources.gpu.cuda"),
        (one("A4000", min_reliability=0.9), Unsupported, "resources.reliability"),
        (one("A4000", disk_gb=3000), Unsupported, "at most 2000 GB"),
        (one("A4000", regions=("us-east",)), RequestRefused, "us-east is no region.*ny2, ca1, ams1"),
    ],
)
def test_what_can_t_be_asked_of_paperspace_is_refused(wanted: Constraints, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        must_be_possible(wanted)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"price_per_hour": None}, r"overrides: \{paperspace-api: \{price_per_hour"),
        ({"mounts": {"mnt/durable": "x"}}, "no volume"),
        ({"tag": "a b"}, "can't be the name"),
        ({"resources": {}}, "name the card"),
    ],
)
def test_what_is_refused_is_refused_before_anything_is_sent(
    sim: PaperspaceSim, platform: PaperspacePlatform, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestRefused, match=words):
        platform.create(replace(REQUEST, **changes), wait=Wait(60))
    assert not sim.calls


def test_a_key_that_is_none_is_refused_before_anything_is_made(
    sim: PaperspaceSim, platform: PaperspacePlatform
) -> None:
    with pytest.raises(RequestRefused, match="public SSH key"):
        platform.create(replace(REQUEST, public_key="ssh-rsa AAAA';reboot;'"), wait=Wait(60))
    assert sent(sim, CREATE) == sent(sim, SCRIPTS) == 0


# What it costs


def test_a_machine_that_costs_more_than_was_said_is_never_started(
    sim: PaperspaceSim, platform: PaperspacePlatform
) -> None:
    for _ in range(2):
        with pytest.raises(StillCreating, match=r"costs 0.76 USD/h.*you allow 0.5.*It is not started") as caught:
            platform.create(replace(REQUEST, price_per_hour=0.5), wait=Wait(60))
    seen = platform.get(caught.value.identifier, platform.account())
    assert seen.phase is Phase.STOPPED
    assert sent(sim, START) == 0
    assert platform.create(REQUEST, wait=Wait(60)).phase is Phase.RUNNING, "it is started once it may cost as much"
    assert (sent(sim, CREATE), sent(sim, START)) == (1, 1)


def test_the_ceiling_of_the_stack_file_counts_too(sim: PaperspaceSim, platform: PaperspacePlatform) -> None:
    with pytest.raises(StillCreating, match=r"you allow 0.7000"):
        platform.create(replace(REQUEST, max_price=0.7), wait=Wait(60))
    assert sent(sim, START) == 0


def test_a_budget_counts_the_higher_of_both_prices(sim: PaperspaceSim, platform: PaperspacePlatform) -> None:
    box = platform.create(replace(REQUEST, price_per_hour=1.25), wait=Wait(60))
    assert (box.price_per_hour, platform.get(box.native_id, box.account).price_per_hour) == (1.25, 0.76)


def test_one_with_another_number_of_cards_is_not_started(sim: PaperspaceSim, platform: PaperspacePlatform) -> None:
    native_id = made(sim, TAG, machineType="H100x8", templateId="tvimtol9")
    with pytest.raises(StillCreating, match=r"8 cards, and 1 are asked for") as caught:
        platform.create(replace(REQUEST, price_per_hour=100.0), wait=Wait(60))
    assert (caught.value.identifier, sent(sim, START)) == (native_id, 0)


# What is started


def test_a_machine_that_was_made_and_never_started_is_started(sim: PaperspaceSim, platform: PaperspacePlatform) -> None:
    native_id = made(sim, TAG, publicIpType="dynamic")
    box = platform.create(REQUEST, wait=Wait(60))
    assert (box.native_id, box.phase) == (native_id, Phase.RUNNING)
    assert sent(sim, CREATE) == 1


def test_one_of_which_it_is_not_known_what_happened_is_not_started(
    server: Server, platform: PaperspacePlatform
) -> None:
    off = row(state="off", machineType="A4000", usageRate=0.76, accelerators=None)
    server.routes["GET /v1/machines"] = [reply(200, {"items": [off], "hasMore": False})]
    server.routes["GET /v1/machine-events"] = [reply(200, {"items": [{"name": "stop"}], "hasMore": False})]
    assert platform.create(REQUEST, wait=Wait(60)).phase is Phase.STOPPED


def test_where_no_card_is_free_at_the_start_it_stays_off_and_a_later_start_has_it(
    sim: PaperspaceSim, platform: PaperspacePlatform
) -> None:
    sim.faults.add("start_fails", START)
    with pytest.raises(StillCreating, match=r"did not start.*no capacity.*its disk does") as caught:
        platform.create(REQUEST, wait=Wait(60))
    assert caught.value.outputs["phase"] == "stopped"
    account = platform.account()
    again = platform.create(REQUEST, wait=Wait(60))
    assert again.phase is Phase.STOPPED, "it was told to start before: the caller decides"
    sim.faults.add("start_fails", START)
    with pytest.raises(NoCapacity):
        platform.start(again.native_id, account, wait=Wait(60))
    assert platform.start(again.native_id, account, wait=Wait(60)).phase is Phase.RUNNING


def test_a_start_whose_answer_is_lost_is_not_sent_again(sim: PaperspaceSim, platform: PaperspacePlatform) -> None:
    sim.faults.add("lost_answer", START)
    assert platform.create(REQUEST, wait=Wait(60)).phase is Phase.RUNNING
    assert sent(sim, START) == 1


def test_a_start_that_was_accepted_and_not_begun_is_no_failure(
    sim: PaperspaceSim, platform: PaperspacePlatform
) -> None:
    """Paperspace may begin it later, and it bills then."""
    sim.faults.add("ignored", START)
    with pytest.raises(StillCreating, match="may bill in full"):
        platform.create(REQUEST, wait=Wait(2))


def test_where_one_region_is_full_the_next_is_asked(sim: PaperspaceSim, platform: PaperspacePlatform) -> None:
    sim.faults.add("out_of_capacity", CREATE)
    assert platform.create(REQUEST, wait=Wait(60)).region == "ca1"
    sim.faults.add("out_of_capacity", CREATE, times=None)
    only = replace(REQUEST, tag=f"{TAG}2", resources={**GPU, "regions": ["AMS1"]})
    with pytest.raises(NoCapacity, match=r"none of 1 offers(.|\n)*A4000 in ams1"):
        platform.create(only, wait=Wait(60))


def test_an_account_that_can_t_pay_is_told_so_in_paperspace_s_words(
    sim: PaperspaceSim, platform: PaperspacePlatform
) -> None:
    for call in (CREATE, "GET /v1/billing/account-standing"):
        sim.faults.add("bad_standing", call, times=None)
    with pytest.raises(InsufficientFunds, match="last invoice is unpaid"):
        platform.create(REQUEST, wait=Wait(60))
    sim.faults.clear()
    sim.faults.add("quota", CREATE)
    with pytest.raises(RequestRefused, match=r"more than the team may have.*limit of machines"):
        platform.create(REQUEST, wait=Wait(60))
    assert sim.ledger.live("machine") == []


# The key


def test_the_startup_script_is_added_once(sim: PaperspaceSim, platform: PaperspacePlatform) -> None:
    sim.faults.add("lost_answer", SCRIPTS)
    platform.create(REQUEST, wait=Wait(60))
    platform.create(replace(REQUEST, tag=f"{TAG}2", public_key=f"{OWN}-office"), wait=Wait(60))
    assert sent(sim, SCRIPTS) == 1
    platform.create(replace(REQUEST, tag=f"{TAG}3", public_key=OWN.replace("Paper", "Other")), wait=Wait(60))
    assert sent(sim, SCRIPTS) == 2


def test_the_startup_script_lets_the_key_in_once_and_keeps_those_that_are_there(tmp_path: Path) -> None:
    """It is run for real, for this user and another home."""
    _, text = login_script(OWN)
    text = text.replace("/home/paperspace", str(tmp_path)).replace(
        "paperspace:paperspace", f"{os.getuid()}:{os.getgid()}"
    )
    keys = tmp_path / ".ssh/authorized_keys"
    keys.parent.mkdir()
    keys.write_text("ssh-rsa AAAAtheirs")  # without an end of line
    subprocess.run(["sh", "-c", text], check=True)
    root = tmp_path / "sweepstack"
    assert sorted(str(one.relative_to(root)) for one in root.rglob("*")) == ["data", "mnt", "mnt/durable", "scratch"]
    shutil.rmtree(root)  # they are made once: a later boot must not put empty ones in the place of lost ones
    subprocess.run(["sh", "-c", text], check=True)
    assert not root.exists()
    lines = [line for line in keys.read_text().splitlines() if line]
    assert lines == ["ssh-rsa AAAAtheirs", " ".join(OWN.split()[:2])]
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.parent.stat().st_mode) == 0o700


def test_without_a_key_both_ways_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(api.KEY_VARIABLE, raising=False)
    with pytest.raises(NotAuthorized, match=r"PAPERSPACE_API_KEY(.|\n)*the platform paperspace with `host:`"):
        load_platform("paperspace_api").account()


def test_the_account_is_the_key_s_team(
    sim: PaperspaceSim, platform: PaperspacePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = platform.account()
    sim.act("rekey", {"account": "ann", "key": "simulated0of0ann00000009"})
    monkeypatch.setenv(api.KEY_VARIABLE, "simulated0of0ann00000009")
    assert platform.account() == mine, "another key of the team"
    monkeypatch.setenv(api.KEY_VARIABLE, OTHER_KEY)
    assert platform.account() != mine


# Its end


def test_a_destroy_stops_the_machine_and_deletes_it_when_it_is_off(
    sim: PaperspaceSim, platform: PaperspacePlatform
) -> None:
    box = platform.create(REQUEST, wait=Wait(60))
    platform.destroy(box.native_id, box.account)
    assert (sent(sim, STOP), sent(sim, DELETE)) == (1, 1)
    assert sim.ledger.live("machine") == []


def test_a_stop_that_does_not_end_keeps_the_destroy_from_its_delete(
    sim: PaperspaceSim, platform: PaperspacePlatform
) -> None:
    box = platform.create(REQUEST, wait=Wait(60))
    sim.machines.times = replace(AT_ONCE, stopping=3600.0)
    with pytest.raises(NotYetGone, match=r"only when it is off.*stopping"):
        platform.destroy(box.native_id, box.account)
    assert sent(sim, DELETE) == 0
    assert platform.get(box.native_id, box.account).phase is Phase.STOPPING


@pytest.mark.parametrize("fault", ["delete_fails", "ignored"])
def test_an_accepted_delete_is_no_proof(
    sim: PaperspaceSim, platform: PaperspacePlatform, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    box = platform.create(REQUEST, wait=Wait(60))
    sim.faults.add(fault, DELETE)
    with pytest.raises(NotYetGone, match="may bill until it is proved gone"):
        platform.destroy(box.native_id, box.account)
    assert platform.get(box.native_id, box.account).phase is not Phase.GONE
    monkeypatch.setattr("sweepstack.extensions.paperspace_api.power.GONE_SECONDS", 1000.0)
    platform.destroy(box.native_id, box.account)
    assert platform.get(box.native_id, box.account).phase is Phase.GONE


def test_one_list_serves_many_reads(
    sim: PaperspaceSim, platform: PaperspacePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = [platform.create(replace(REQUEST, tag=f"{TAG}{number}"), wait=Wait(60)) for number in range(3)]
    monkeypatch.setattr("sweepstack.platforms.common.box_session.FRESH_SECONDS", 1e6)
    sim.calls.clear()
    for box in boxes:
        assert platform.get(box.native_id, box.account).phase is Phase.RUNNING
    assert sent(sim, LIST) == len(sim.calls) <= 1
