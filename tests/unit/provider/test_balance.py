"""What the account has left stands in the preview and in `status`, as hours; unknown where it is not said in time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.billing.balance import Left
from sweepstack.operations import balances
from sweepstack.platforms.vastai.platform import VastPlatform
from sweepstack.provider.resources import before_renting
from tests.simulators.vastai import VastSimulator
from tests.unit.provider.support import Sweep
from tests.unit.provider.vast_world import vast_world


@pytest.fixture
def sim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VastSimulator]:
    with vast_world(tmp_path, monkeypatch) as sim:
        yield sim


def test_a_preview_says_once_how_long_the_money_lasts(sweep: Sweep, sim: VastSimulator) -> None:
    op = sweep.op()
    for price in (0.25, 0.5):
        before_renting.tell_balance(op, "vastai", price)
    assert sweep.said.text() == "balance  $100.00 left at vastai: 400.0 h at $0.25/h"
    assert balances.left_at("local") is None


def test_little_money_is_a_warning(sweep: Sweep, sim: VastSimulator) -> None:
    sim.act("credit", {"account": "5000", "usd": -99.8})
    before_renting.tell_balance(sweep.op(), "vastai", 0.25)
    assert "balance  $0.20 left at vastai: 0.8 h at $0.25/h" in sweep.said.warnings


def test_who_does_not_answer_in_time_leaves_it_unknown(sim: VastSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balances, "BALANCE_SECONDS", 0.2)
    monkeypatch.setattr(VastPlatform, "balance", lambda self: time.sleep(5))
    left = balances.left_at("vastai")
    assert left == Left("vastai", None)
    assert left is not None
    assert left.text(0.25) == "balance  unknown at vastai: it did not say"
