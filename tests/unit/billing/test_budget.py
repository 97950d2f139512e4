"""Budgets: what of one is used, what is refused past it, and what is never blocked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from sweepstack.billing.budget import crossed, renting_refused, to_stop, use_of
from sweepstack.billing.ledger import Spent, total
from sweepstack.core.budget import Budget
from sweepstack.core.records import LedgerEntry, LedgerPhase

BEGIN = datetime(2026, 11, 21, 9, tzinfo=UTC)


def at(hours: float) -> datetime:
    return BEGIN + timedelta(hours=hours)


def entry(box: str, phase: LedgerPhase, hours: float, price: float | None = 2.0) -> LedgerEntry:
    return LedgerEntry(
        box=box,
        native_id=f"id-{box}",
        platform="local",
        account="me",
        phase=phase,
        price_per_hour=0.0 if phase == "ended" else price,
        at=at(hours),
    )


def spent(*entries: LedgerEntry, now: float = 10.0, damaged: tuple[tuple[str, str], ...] = ()) -> Spent:
    return total(entries, [], at(now), damaged)


def refusal(budget: Budget, found: Spent, price: float | None = 2.0) -> str:
    return renting_refused(budget, found, box="b", price_per_hour=price, stack="t")


RAN = (entry("a", "running", 0), entry("a", "ended", 5))  # $10, 5 hours
RUNS = (entry("c", "running", 8, 1.5),)  # $3, 2 hours so far


@pytest.mark.parametrize(
    ("limits", "fraction", "over"),
    [
        ({"usd": 26}, 0.5, False),
        ({"usd": 13}, 1.0, True),
        ({"usd": 10}, 1.3, True),
        ({"hours": 14}, 0.5, False),
        ({"hours": 7}, 1.0, True),
        ({"usd": 26, "hours": 7}, 1.0, True),
        ({"usd": 13, "hours": 700}, 1.0, True),
    ],
)
def test_whichever_is_further_counts(limits: dict[str, float], fraction: float, over: bool) -> None:
    use = use_of(Budget(**limits), spent(*RAN, *RUNS))
    assert (use.usd, use.hours) == (13.0, 7.0)
    assert use.fraction == pytest.approx(fraction)
    assert use.over is over
    assert bool(refusal(Budget(**limits), spent(*RAN, *RUNS))) is over


def test_hours_that_a_box_stands_still_are_no_box_hours_and_cost_what_they_cost() -> None:
    use = use_of(Budget(usd=100), spent(entry("a", "running", 0), entry("a", "stopped", 1, 0.1)))
    assert (use.hours, use.usd) == (1.0, pytest.approx(2.9))


def test_the_refusal_does_the_sums_and_names_the_ways_out() -> None:
    text = refusal(Budget(usd=12), spent(*RAN, *RUNS))
    assert text.splitlines()[0] == (
        "box b is not rented: the budget is used up: $13.00 of $12.00 (108 %); $1.50/h goes on."
    )
    assert "a  5.00 h x $2.00 = $10.00" in text
    assert "c  2.00 h x $1.50 = $3.00" in text
    for way in ("raise budget.usd", "pulumi up --stack t", "boxes.b: {want: gone}", "sweepctl finish --stack t"):
        assert way in text
    assert "raise budget.hours" in refusal(Budget(hours=5), spent(*RAN))


def test_many_stretches_are_summed_up() -> None:
    entries = [entry(f"b{number:02}", "running", 0) for number in range(20)]
    lines = refusal(Budget(usd=1), spent(*entries)).splitlines()
    assert "… and 12 more: $240.00" in " ".join(lines)


def test_hours_without_a_price_count_at_the_price_of_the_box_that_is_asked_for() -> None:
    found = spent(entry("a", "running", 0, None), entry("a", "ended", 5))
    assert refusal(Budget(usd=11), found, price=2.0) == ""
    assert "used up: $10.00 of $10.00" in refusal(Budget(usd=10), found, price=2.0)
    assert "whether the budget holds is not known: box a (id-a) has a span without a price" in refusal(
        Budget(usd=11), found, None
    )
    assert refusal(Budget(hours=11), found, None) == "", "hours are known"


def test_a_bill_that_nothing_can_be_said_of_refuses_with_a_way_out() -> None:
    text = refusal(Budget(usd=100), spent(*RAN, damaged=(("id-x", "records/ledger/x.json is damaged"),)))
    assert "not known: records/ledger/x.json is damaged" in text
    assert "moved away" in text
    assert "pulumi up --stack t" in text


def test_who_is_to_be_stopped() -> None:
    found = spent(*RAN, *RUNS, entry("d", "running", 0), entry("d", "stopped", 1))
    assert to_stop(Budget(usd=5, stop=True), found) == ("id-c",)
    assert to_stop(Budget(usd=5), found) == ()
    assert to_stop(Budget(usd=500, stop=True), found) == ()
    assert to_stop(None, found) == ()


@pytest.mark.parametrize(
    ("usd", "expected"),
    [(100, None), (12.5, 0.8), (10, 1.0), (5, 1.0)],  # $10 was spent
)
def test_the_highest_threshold_counts(usd: float, expected: float | None) -> None:
    budget = Budget(usd=usd)
    assert crossed(budget, use_of(budget, spent(*RAN))) == expected


@pytest.mark.parametrize("wrong", [{}, {"usd": 0}, {"usd": -1}, {"hours": 0}, {"usd": 1, "monthly": 2}])
def test_a_budget_that_says_nothing_is_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Budget(**wrong)
