"""What AutoDL's account has left: as its API tells it, and on every screen that shows how long money lasts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sweepstack.billing.balance import BalanceLeft
from sweepstack.cli.commands.doctor import platforms
from sweepstack.cli.commands.doctor.finding import Finding
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.extensions import adapters
from sweepstack.onbox.common.errors import NotAuthorized, OutcomeUnknown, PlatformError, RequestRefused, Unreachable
from sweepstack.operations.balances import left_at
from sweepstack.platforms.autodl.wallet import CNY_PER_USD, Api, AutodlWallet, connect, refused
from sweepstack.platforms.common.http_client import HttpAnswer
from sweepstack.platforms.registry import has_wallet, payer
from sweepstack.status.money import runways
from tests.simulators.autodl import LIST, OFF, WALLET, AutodlSim
from tests.unit.autodl_world import autodl_world
from tests.unit.status.test_following import snapshot

ROOT = Path(__file__).parents[3]
HOST = "ssh:root@connect.westb.seetacloud.com:12345"


@pytest.fixture
def autodl(monkeypatch: pytest.MonkeyPatch) -> Iterator[AutodlSim]:
    with autodl_world(monkeypatch) as sim:
        yield sim


def usd() -> float:
    wallet = connect()
    assert wallet is not None
    return wallet.balance().usd


def left() -> BalanceLeft:
    found = left_at("autodl")
    assert found is not None
    return found


# What it says


def test_it_tells_thousandths_of_a_yuan_and_we_count_dollars(autodl: AutodlSim) -> None:
    assert usd() == pytest.approx(100 / CNY_PER_USD)
    autodl.act("rent", {"id": "pro-1", "price": 2.0})
    autodl.clock.advance(3600)
    assert usd() == pytest.approx(98 / CNY_PER_USD)
    assert left().said == "¥98.00 at 7.5 to the dollar"
    assert left().per_hour is None, "ordinary instances are in no API, so what bills is not known"


def test_what_is_frozen_does_not_count_and_vouchers_do_not_either(autodl: AutodlSim) -> None:
    autodl.act("freeze", {"account": "ann", "yuan": 30.0})
    autodl.vouchers["ann"] = 50.0
    assert usd() == pytest.approx(70 / CNY_PER_USD)
    assert left().said.endswith("¥50.00 in vouchers is not counted")


def test_arrears_are_below_zero(autodl: AutodlSim) -> None:
    autodl.act("pay_in", {"account": "ann", "yuan": -120.0})
    assert usd() == pytest.approx(-20 / CNY_PER_USD)


@pytest.mark.parametrize(("kind", "error"), [("odd_amount", Unreachable), ("html_ok", PlatformError)])
def test_an_answer_that_does_not_read_is_unknown_and_never_an_amount(
    autodl: AutodlSim, kind: str, error: type[Exception]
) -> None:
    autodl.faults.add(kind, WALLET, times=None)
    with pytest.raises(error):
        usd()
    assert left().usd is None


def test_a_read_is_asked_again_although_it_is_a_post(autodl: AutodlSim) -> None:
    for kind in ("lost_answer", "error_before"):
        autodl.faults.add(kind, WALLET)
    assert usd() > 0
    assert autodl.count(WALLET) == 3


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("TORealName", 200, NotAuthorized),
        ("PermissionDenied", 200, NotAuthorized),
        ("InternalError", 200, Unreachable),
        ("RequestParameterIsWrong", 200, RequestRefused),
        ("NeverSeenBefore", 200, RequestRefused),
        ("Success", 200, Unreachable),
        (None, 403, NotAuthorized),
        (None, 404, RequestRefused),
    ],
)
def test_each_refusal_is_its_error_whatever_its_status(code: str | None, status: int, error: type[Exception]) -> None:
    found = refused(Api("a-token").http, HttpAnswer(status, {"code": code, "msg": "why", "data": None}), "the balance")
    assert type(found) is error
    assert "why" in str(found)


def test_a_refusal_with_status_200_is_no_balance(autodl: AutodlSim) -> None:
    autodl.faults.add("refused_200", WALLET)
    with pytest.raises(Unreachable, match="InternalError"):
        usd()
    assert usd() > 0


@pytest.mark.parametrize("status", [401, 200])
def test_a_wrong_token_is_told_apart_and_not_shown(
    autodl: AutodlSim, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    if status == 200:
        autodl.faults.add("bad_token_200", times=None)
    monkeypatch.setenv("AUTODL_TOKEN", "no-token-of-anybody")
    with pytest.raises((NotAuthorized, RequestRefused)) as caught:
        usd()
    assert "no-token-of-anybody" not in str(caught.value)
    monkeypatch.setenv("AUTODL_TOKEN", "two words")
    assert "AUTODL_TOKEN" in left().why


def test_without_a_token_nothing_is_asked(autodl: AutodlSim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTODL_TOKEN")
    assert connect() is None
    assert left_at("autodl") is None
    assert autodl.calls == []


# Whose balance pays


def test_a_host_there_is_paid_from_the_wallet_and_no_other_is() -> None:
    assert payer(HOST, "autodl") == "autodl"
    assert payer(HOST, "gpushare") == payer(HOST) == HOST
    assert payer("vastai", "vastai") == "vastai"
    assert not has_wallet("../autodl")
    assert "autodl" not in adapters(), "nothing there is rented by us"


def told() -> dict[str, Finding]:
    return {
        found.name: found for _, check in platforms.checks(StackConfig.load(ROOT, "sweep-autodl")) for found in check()
    }


def test_doctor_says_what_is_left_and_what_to_do(autodl: AutodlSim, monkeypatch: pytest.MonkeyPatch) -> None:
    found = told()["balance at autodl"]
    assert (found.verdict, found.found) == ("ok", "$13.33 (¥100.00 at 7.5 to the dollar) left")
    autodl.act("pay_in", {"account": "ann", "yuan": -100.0})
    assert told()["balance at autodl"].verdict == "warn"
    monkeypatch.setenv("AUTODL_TOKEN", "no-token-of-anybody")
    assert told()["balance at autodl"].verdict == "unknown"
    monkeypatch.delenv("AUTODL_TOKEN")
    found = told()["balance at autodl"]
    assert found.verdict == "ok"
    assert "AUTODL_TOKEN" in found.found


def test_status_counts_the_wallet_s_boxes_against_it() -> None:
    base = snapshot("ssh")
    [one] = base.box_snapshots
    box = one.box.model_copy(update={"adapter": HOST, "platform": "autodl"})
    seen = replace(base, box_snapshots=(replace(one, box=box),), balances=(BalanceLeft("autodl", 6.0, said="¥45.00"),))
    [shown] = runways(seen, None)
    assert shown.hours == pytest.approx(12.0)
    assert shown.short
    assert shown.text().startswith("balance  $6.00 (¥45.00) left at autodl lasts 12.0 h (until 2026-11-22 21:00 UTC)")


# Pro instances


def wallet() -> AutodlWallet:
    found = connect()
    assert found is not None
    return found


def test_the_instance_behind_an_address_is_found_and_no_other_s(autodl: AutodlSim) -> None:
    for id, port, whose in (("pro-1", 2201, "ann"), ("pro-2", 2202, "ann"), ("pro-3", 2203, "bob")):
        autodl.act("rent", {"id": id, "port": port, "account": whose})
    assert wallet().host_at("127.0.0.1", 2202) == ("pro-2", "running", False)
    assert wallet().host_at("127.0.0.1", 2203) is None
    assert wallet().host_at("connect.westb.seetacloud.com", 2202) is None
    autodl.act("shut_down", {"id": "pro-2"})
    assert wallet().host_at("127.0.0.1", 2202) == ("pro-2", "shutdown", True)


def test_its_id_arrives_also_where_the_gateway_drops_a_body(autodl: AutodlSim) -> None:
    autodl.act("rent", {"id": "pro-1", "port": 2201})
    autodl.faults.add("drops_get_body", times=None)
    found = wallet().host_at("127.0.0.1", 2201)
    assert found is not None


def test_a_list_that_ends_too_early_or_two_at_one_address_say_nothing(autodl: AutodlSim) -> None:
    for number in range(60):
        autodl.act("rent", {"id": f"pro-{number}", "port": 3000 + number // 59 * 58})
    autodl.faults.add("page_short", LIST)
    with pytest.raises(Unreachable, match="of 60"):
        wallet().host_at("127.0.0.1", 1)
    with pytest.raises(Unreachable, match="59 Pro instances at 127"):
        wallet().host_at("127.0.0.1", 3000)


def test_power_off_waits_until_it_is_off_and_is_idempotent(monkeypatch: pytest.MonkeyPatch) -> None:
    with autodl_world(monkeypatch, scale=1000) as sim:
        sim.act("rent", {"id": "pro-1", "port": 2201})
        wallet().power_off_host("pro-1")
        assert sim.instances["pro-1"].status == "shutdown"
        wallet().power_off_host("pro-1")
        assert sim.count(OFF) == 1
        assert list(sim.instances) == ["pro-1"], "a release is a person's"


def test_a_power_off_that_does_nothing_is_not_taken_for_one(autodl: AutodlSim) -> None:
    autodl.act("rent", {"id": "pro-1", "port": 2201})
    autodl.faults.add("off_ignored", OFF)
    with pytest.raises(OutcomeUnknown, match="still says that it is running"):
        wallet().power_off_host("pro-1")
