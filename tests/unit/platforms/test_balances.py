"""What each simulated platform says of money, held against its own books: balance, rate, bill."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.host.capabilities import HasBalance, HasBill
from sweepstack.onbox.host.platform import BoxRecord, Wait
from sweepstack.platforms.registry import need
from tests.simulators.ledger import HOUR
from tests.simulators.rental import whole_rentals

BILL = {"runpod": "GET /v2/billing/pods", "vastai": "GET */charges/"}


@pytest.fixture(params=whole_rentals())
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    harness = importlib.import_module(f"tests.conformance.harness_{request.param}").Harness
    found = harness(tmp_path, monkeypatch, machines=False)
    yield found
    found.close()


def rented(world: Any, tag: str) -> BoxRecord:
    asked = world.request(tag, resources={"gpu": {"count": 1}, "disk": "20GB"})
    record: BoxRecord = world.connect().create(asked, wait=Wait(60))
    return record


def moment(world: Any) -> datetime:
    return datetime.fromtimestamp(world.sim.clock.now(), UTC)


def later(world: Any, hours: float) -> None:
    """Longer than what was read may be reused."""
    world.sim.clock.advance(hours * HOUR)
    world.repair()


def test_the_balance_says_what_all_boxes_bill(world: Any) -> None:
    records = [rented(world, f"sweepstack-a-box-{number}-g1") for number in range(2)]
    later(world, 3)
    found = need(world.connect(), HasBalance).balance()
    assert found is not None
    books, account = world.sim.ledger, records[0].account
    whose = next(one for one in world.sim.accounts.values() if one.id == account)
    assert found.per_hour == pytest.approx(books.rate(account), rel=0.05)
    assert found.usd == pytest.approx(books.balance(whose), abs=0.05)
    assert found.prepaid is True


def test_the_bill_is_the_platform_s_own_books(world: Any) -> None:
    begin = moment(world) - timedelta(hours=1)
    lives, ends = (rented(world, f"sweepstack-a-box-{number}-g1") for number in range(2))
    later(world, 30)  # over midnight
    platform = need(world.connect(), HasBill)
    platform.destroy(ends.native_id, ends.account)
    later(world, 3)
    billed = {one.native_id: one for one in platform.billed(begin, moment(world))}
    assert set(billed) == {lives.native_id, ends.native_id}
    for native_id, one in billed.items():
        assert one.usd == pytest.approx(world.sim.ledger.get(native_id).usd, abs=0.02), "33 h of one, 30 of the other"
    assert billed[lives.native_id].usd > billed[ends.native_id].usd > 0


def test_a_bill_that_does_not_come_is_no_empty_bill(world: Any) -> None:
    rented(world, "sweepstack-a-box-0-g1")
    world.sim.faults.add("html_ok", BILL[world.adapter], times=None)
    with pytest.raises(PlatformError):
        need(world.connect(), HasBill).billed(moment(world) - timedelta(days=1), moment(world))
