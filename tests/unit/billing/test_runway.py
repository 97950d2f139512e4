"""How long a balance lasts, by all that bills on the account; unknown is never endless."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sweepstack.billing.balance import BalanceLeft, Runway, balance_refusal, hours_to_carry

NOW = datetime(2026, 11, 23, 13, 28, tzinfo=UTC)


def runway(usd: float | None = 5.2, rate: float = 1.0, needed: float | None = None, **known: object) -> Runway:
    return Runway(BalanceLeft("acme", usd, **{"prepaid": True, "per_hour": rate, **known}), rate, NOW, needed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("left", "boxes", "volumes", "rate"),
    [
        (BalanceLeft("acme", 9.0), 0.5, 0.1, 0.6),  # the platform does not say: what is known here
        (BalanceLeft("acme", 9.0, per_hour=2.0), 0.5, 0.1, 2.1),  # other people's boxes, and our volumes
        (BalanceLeft("acme", 9.0, per_hour=2.0, volumes=True), 0.5, 0.1, 2.0),
        (BalanceLeft("acme", 9.0, per_hour=0.2, volumes=True), 0.5, 0.1, 0.6),  # its figure is a moment old
    ],
)
def test_everything_on_the_account_counts(left: BalanceLeft, boxes: float, volumes: float, rate: float) -> None:
    assert left.rate(boxes, volumes) == pytest.approx(rate)


def test_it_is_a_clock() -> None:
    assert runway().text() == "balance  $5.20 left at acme lasts 5.2 h (until 2026-11-23 18:40 UTC) at $1.00/h"
    unsaid = runway(per_hour=None).text()
    assert unsaid.endswith("at at least $1.00/h; what else bills there is not known")
    assert runway(prepaid=False).text().endswith("it is paid afterwards and ends no box")


def test_unknown_is_said_with_why_and_is_no_number() -> None:
    unknown = runway(None, why="this key may not see it")
    assert (unknown.hours, unknown.at, unknown.short, unknown.alarm("s")) == (None, None, False, "")
    said = "balance  unknown at acme, so when it ends the boxes is not known: this key may not see it"
    assert unknown.text() == said


def test_an_account_in_debt_lasts_no_time_and_one_that_spends_nothing_has_no_end() -> None:
    assert runway(-3.0).hours == 0.0
    assert runway(5.0, 0.0).hours is None
    assert "nothing bills there that is known" in runway(5.0, 0.0).text()
    unpriced = replace(runway(5.0, 0.0), unpriced=True)
    assert "what bills there has no price that is known" in unpriced.text(), "not that nothing bills"
    assert runway(1e9, 1e-9).at is None, "no date is computed that no calendar has"


@pytest.mark.parametrize(
    ("usd", "needed", "short"),
    [
        (23.9, None, True),  # within a day
        (24.1, None, False),
        (30.0, 31.0, True),  # before the last cell
        (30.0, 29.0, False),
    ],
)
def test_the_alarm_comes_in_time(usd: float, needed: float | None, short: bool) -> None:
    assert runway(usd, needed=needed).short is short
    assert runway(usd, needed=needed, prepaid=None).short is short, "not known whether prepaid: it counts as yes"
    assert not runway(usd, needed=needed, prepaid=False).short
    assert bool(runway(usd, needed=needed).alarm("sweep-a")) is short


def test_the_alarm_names_the_next_command() -> None:
    said = runway(5.2, needed=6.0).alarm("sweep-a")
    assert "before the last cell (in 6.0 h)" in said
    assert said.endswith("Next: add money at acme; what is sealed comes first with sweepctl pull --stack sweep-a")


def test_the_margin() -> None:
    assert hours_to_carry(10.0) == pytest.approx(13.0)
    assert hours_to_carry(None) == 1.0


def test_what_the_balance_does_not_carry_is_refused_with_the_figures() -> None:
    said = balance_refusal(runway(6.9, needed=5.0), ["box-0", "box-1"], 0.4, stack="sweep-a")
    assert (
        "boxes box-0, box-1: not rented, since the balance does not carry them: $6.90 left at acme lasts 6.9 h" in said
    )
    assert (
        "($0.60/h of it bills there already); 7.0 h are needed (5.0 h until the last cell, 20 % more, and 1 h)" in said
    )
    assert "add $0.10 or more at acme, then pulumi up --stack sweep-a" in said
    assert "boxes.box-1: {want: gone}" in said
    assert 'ignore_balance: "why"' in said


@pytest.mark.parametrize(
    "fine",
    [
        runway(7.1, needed=5.0),
        runway(1.1),  # nothing measured: the margin alone
        runway(None),
        runway(0.0, needed=5.0, prepaid=False),
        runway(0.0, 0.0, needed=5.0),
    ],
)
def test_what_is_carried_or_not_known_is_not_refused(fine: Runway) -> None:
    assert balance_refusal(fine, ["box-0"], 0.4, stack="sweep-a") == ""


def test_nothing_measured_yet_is_refused_only_below_the_margin() -> None:
    assert "1.0 h are needed (nothing measured yet, and 1 h)" in balance_refusal(runway(0.9), ["b"], 1.0, stack="s")
