"""What the account has left stands in the preview as a clock, and what it does not carry is not rented."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.billing.balance import BalanceLeft
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.operations import balances
from sweepstack.platforms.vastai.platform import VastPlatform
from sweepstack.provider.resources import before_renting, market
from sweepstack.provider.session import Operation
from tests.simulators.vastai import VastSimulator
from tests.unit.provider.support import BOX, Sweep
from tests.unit.provider.vast_world import TEARDOWN, vast_world

BOXES = ("box-0", "box-1", "box-2")
PRICE = 0.3
"""USD per hour of the cheapest machine, without its disk."""


@pytest.fixture
def sim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VastSimulator]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("_asked", "_promised", "_remembered"):
        monkeypatch.setattr(market, name, {})
    with vast_world(tmp_path, monkeypatch, machines=3) as sim:
        yield sim


def left(sim: VastSimulator, usd: float) -> None:
    sim.act("credit", {"account": "5000", "usd": usd - 100})


def shown(sweep: Sweep, op: Operation, name: str = "box-0", **changes: Any) -> None:
    """What the engine does in a preview with a box that is not rented: its check, then the preview of its create."""
    checked(sweep, op, name, **changes)
    inputs = {"name": name, "adapter": "vastai", "evidence": sweep.identity.evidence, **changes}
    BOX.preview_create(op, inputs)


def checked(sweep: Sweep, op: Operation, name: str = "box-0", **changes: Any) -> None:
    known = {"name": name, "adapter": "vastai", "resources": {"gpu": {"count": 1}}, "dry_run": True}
    assert market.preview(op, {**known, **changes}, Evidence(sweep.identity.evidence)) == []


def expect(op: Operation, hours: float | None, boxes: int = 1, *there: str) -> None:
    before_renting.expect(op, before_renting.Expected(hours, boxes, frozenset(there)))


REFUSED = "the balance does not carry"


def test_a_preview_says_once_how_long_the_money_lasts(sweep: Sweep, sim: VastSimulator) -> None:
    op = sweep.op()
    expect(op, None, boxes=3)
    for name in BOXES:
        shown(sweep, op, name)
    (line,) = [text for _, text in sweep.said.lines if text.startswith("balance")]
    assert line.startswith("balance  $100.00 left at vastai lasts ")
    hours = float(line.split(" lasts ")[1].split(" h ")[0])
    assert hours == pytest.approx(100 / (3 * PRICE), rel=0.1), "of all three, although only the first was seen"
    assert balances.left_at("local") is None


def test_what_the_balance_does_not_carry_to_the_end_is_refused(sweep: Sweep, sim: VastSimulator) -> None:
    left(sim, 6.0)  # for 20 h of one box, 10 h of two, 6.5 h of three
    op = sweep.op()
    expect(op, 6.0, boxes=3)
    for name in BOXES[:2]:
        shown(sweep, op, name)
    with pytest.raises(SweepstackError) as caught:
        shown(sweep, op, "box-2")
    assert "not rented, since the balance does not carry them: $6.00 left at vastai lasts" in str(caught.value)
    assert "8.2 h are needed (6.0 h until the last cell, 20 % more, and 1 h)" in str(caught.value)


def test_a_box_that_is_only_checked_is_not_refused(sweep: Sweep, sim: VastSimulator) -> None:
    """The engine checks all boxes of the program, also those that `--target` leaves alone, as `tend` does it."""
    left(sim, 0.1)
    checked(sweep, sweep.op())


def test_a_box_that_is_there_is_adopted_whatever_is_left(sweep: Sweep, sim: VastSimulator) -> None:
    left(sim, 0.1)
    op = sweep.op()
    expect(op, 6.0, 1, "box-0")
    shown(sweep, op)
    with pytest.raises(SweepstackError, match=REFUSED):
        shown(sweep, op, "box-1")


def test_other_boxes_of_the_account_count(sweep: Sweep, sim: VastSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    op = sweep.op()
    expect(op, 6.0)
    monkeypatch.setattr(before_renting, "left_at", lambda adapter: BalanceLeft(adapter, 5.0, True, per_hour=2.0))
    with pytest.raises(SweepstackError, match=r"\(\$2\.00/h of it bills there already\)"):
        shown(sweep, op)


def test_a_reason_in_the_stack_file_rents_all_the_same(sweep: Sweep, sim: VastSimulator) -> None:
    left(sim, 0.1)
    shown(sweep, sweep.op(), ignore_balance="a card is on file")
    assert "Rented all the same, since ignore_balance says: a card is on file" in sweep.said.warnings


@pytest.mark.parametrize("consent", ["approval", "leaving"])
def test_an_up_that_brings_an_approval_in_goes_through_and_rents_nothing(
    sweep: Sweep, sim: VastSimulator, consent: str
) -> None:
    left(sim, 0.1)
    shown(sweep, sweep.op(), **{consent: {"receipt": "x"}})
    assert REFUSED in sweep.said.warnings


def test_it_is_asked_again_before_a_box_is_rented(sweep: Sweep, sim: VastSimulator) -> None:
    left(sim, 0.1)
    facts = {"adapter": "vastai", "mounts": {}, "teardown": TEARDOWN, "price_per_hour": None, "max_price": 0.5}
    inputs = sweep.box_inputs(resources={"gpu": {"count": 1}}, **facts)
    with pytest.raises(SweepstackError, match=REFUSED):
        BOX.create(sweep.op(), inputs)
    assert sim.ledger.live() == []
    identifier, _ = BOX.create(sweep.op(), inputs.model_copy(update={"ignore_balance": "a card is on file"}))
    assert [one.id for one in sim.ledger.live()] == [identifier]


def test_little_money_is_a_warning_and_none_refused_without_a_forecast(sweep: Sweep, sim: VastSimulator) -> None:
    left(sim, 0.5)  # 1.6 h of one box: above the margin
    shown(sweep, sweep.op())
    assert "balance  $0.50 left at vastai lasts 1." in sweep.said.warnings


def test_who_does_not_answer_in_time_leaves_it_unknown_and_is_no_refusal(
    sweep: Sweep, sim: VastSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balances, "BALANCE_SECONDS", 0.2)
    monkeypatch.setattr(VastPlatform, "balance", lambda self: time.sleep(5))
    assert balances.left_at("vastai") == BalanceLeft("vastai", None, why="it did not answer within 0.2 s")
    shown(sweep, sweep.op())
    assert "so when it ends the boxes is not known: it did not answer within 0.2 s" in sweep.said.warnings


def test_a_key_that_may_not_see_it_leaves_it_unknown(sim: VastSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VastPlatform, "balance", lambda self: None)
    assert balances.left_at("vastai") == BalanceLeft("vastai", None, why="this key may not see it")
