"""The simulated AutoDL, asked over HTTP as its pages say: the envelope, thousandths of a yuan, Pro instances."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulators.autodl import LIST, OFF, SNAPSHOT, STATUS, TOKEN, WALLET, AutodlSim
from tests.simulators.core import SimServer, VirtualClock


@pytest.fixture
def sim() -> Iterator[AutodlSim]:
    made = AutodlSim(clock=VirtualClock(scale=0.0))
    with SimServer(made):
        yield made


def ask(
    sim: AutodlSim, call: str, body: Any = None, *, token: str = TOKEN, query: str = ""
) -> tuple[int, dict[str, Any]]:
    method, path = call.split(" ", 1)
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"{sim.url}{path}{query}", data=data, method=method)
    request.add_header("Authorization", token)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_wallet_is_in_thousandths_of_a_yuan_with_vouchers_beside_it(sim: AutodlSim) -> None:
    sim.act("rent", {"id": "pro-1", "price": 2.0})
    sim.clock.advance(3600)
    _, found = ask(sim, WALLET)
    assert found["code"] == "Success"
    assert found["data"] == {"assets": 98_000, "accumulate": 2_000, "voucher_balance": 25_000, "blocked_asset": 0}
    sim.act("pay_in", {"account": "ann", "yuan": -100})
    assert ask(sim, WALLET)[1]["data"]["assets"] == -2_000, "a debt"


def test_a_refusal_comes_with_status_200_and_a_wrong_token_either_way(sim: AutodlSim) -> None:
    assert ask(sim, STATUS, query="?instance_uuid=pro-9") == (200, _said("RecordNotFoundError", "记录不存在", 1))
    assert ask(sim, WALLET, token="other")[0] == 401
    sim.faults.add("bad_token_200", WALLET)
    status, found = ask(sim, WALLET, token="other")
    assert (status, found["data"]) == (200, None)
    assert found["code"] != "Success"


def _said(code: str, msg: str, number: int) -> dict[str, Any]:
    return {"code": code, "msg": msg, "data": None, "request_id": f"sim-{number}"}


def test_bearer_is_a_violation(sim: AutodlSim) -> None:
    assert ask(sim, WALLET, token=f"Bearer {TOKEN}")[0] == 401
    assert sim.pardon() == ["the token is sent as it is, without `Bearer`"]


def test_the_list_has_pages_and_only_the_customer_s_own(sim: AutodlSim) -> None:
    for number in range(3):
        sim.act("rent", {"id": f"pro-{number}"})
    sim.act("rent", {"id": "pro-bob", "account": "bob"})
    pages = [ask(sim, LIST, {"page_index": index, "page_size": 2})[1]["data"] for index in (1, 2)]
    assert [one["uuid"] for page in pages for one in page["list"]] == ["pro-0", "pro-1", "pro-2"]
    assert [page["max_page"] for page in pages] == [2, 2]
    assert ask(sim, LIST, {"page_index": 0, "page_size": 2})[1]["code"] == "RequestParameterIsWrong"


def test_a_power_off_is_answered_before_it_has_happened_and_then_ends_the_bill(sim: AutodlSim) -> None:
    sim.act("rent", {"id": "pro-1"})
    assert ask(sim, OFF, {"instance_uuid": "pro-1"})[1]["code"] == "Success"
    assert ask(sim, STATUS, query="?instance_uuid=pro-1")[1]["data"] == "running"
    sim.clock.advance(30)
    assert ask(sim, STATUS, query="?instance_uuid=pro-1")[1]["data"] == "shutdown"
    assert sim.ledger.rate("ann") == 0


def test_an_id_in_the_body_of_a_get_may_be_dropped_on_the_way(sim: AutodlSim) -> None:
    sim.act("rent", {"id": "pro-1"})
    assert ask(sim, SNAPSHOT, {"instance_uuid": "pro-1"})[1]["data"]["payg_price"] == 2_000
    sim.faults.add("drops_get_body", SNAPSHOT, times=None)
    assert ask(sim, SNAPSHOT, {"instance_uuid": "pro-1"})[1]["code"] == "RecordNotFoundError"
    assert ask(sim, SNAPSHOT, query="?instance_uuid=pro-1")[1]["code"] == "Success"


def test_without_a_proved_name_instances_are_refused(sim: AutodlSim) -> None:
    sim.act("rent", {"id": "pro-1"})
    sim.verified = False
    assert ask(sim, STATUS, query="?instance_uuid=pro-1")[1]["code"] == "TORealName"
    assert ask(sim, WALLET)[1]["code"] == "Success"


def test_a_release_is_refused_while_it_runs(sim: AutodlSim) -> None:
    sim.act("rent", {"id": "pro-1"})
    release = "POST /api/v1/dev/instance/pro/release"
    assert ask(sim, release, {"instance_uuid": "pro-1"})[1]["code"] == "BadRequest"
    sim.act("shut_down", {"id": "pro-1"})
    assert ask(sim, release, {"instance_uuid": "pro-1"})[1]["code"] == "Success"
    assert sim.ledger.live() == []
