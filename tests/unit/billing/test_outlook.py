"""What it will have cost at the end: by what was measured, and nothing where nothing was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sweepstack.billing.budget import BudgetUse
from sweepstack.billing.forecast import forecast, hours_left, lasts, preview_line, sealed_bytes
from sweepstack.core.budget import Budget, Outlook
from sweepstack.core.journal import CellProgress, Journal

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)


def cell(name: str, state: str, began: float = 0, took: float | None = None, final: bool = False) -> CellProgress:
    """`began` hours ago; it took that many."""
    started = NOW - timedelta(hours=began)
    return CellProgress(
        name,
        state,  # type: ignore[arg-type]
        started_at=started if state != "pending" else None,
        ended_at=None if took is None else started + timedelta(hours=took),
        final=final,
    )


def journal(*cells: CellProgress) -> Journal:
    return Journal(cells={one.name: one for one in cells})


def outlook(**known: object) -> Outlook:
    return Outlook.model_validate({"boxes": 1, "slots": 1, "price_per_hour": 2.0, "cells": 4} | known)


def use(usd: float = 10.0, hours: float = 5.0, **limits: float) -> BudgetUse:
    return BudgetUse(Budget.model_validate(limits or {"usd": 60}), usd, hours)


def test_the_rest_by_the_median_of_what_is_sealed() -> None:
    known = journal(cell("a", "sealed", 9, 1), cell("b", "sealed", 9, 3), cell("c", "sealed", 9, 2))
    assert hours_left([known], outlook(), NOW) == 2.0
    assert hours_left([known], outlook(boxes=2, slots=2), NOW) == 1.0
    assert hours_left([known], outlook(cells=9, boxes=2, slots=6), NOW) == 2.0


def test_a_running_cell_counts_for_what_it_still_has_to_do() -> None:
    known = journal(cell("a", "sealed", 9, 2), cell("b", "running", 1.5), cell("c", "running", 5))
    assert hours_left([known], outlook(cells=3), NOW) == 0.5


def test_a_cell_that_moved_counts_once() -> None:
    before = journal(cell("a", "sealed", 9, 2), cell("b", "running", 8))
    after = journal(cell("b", "sealed", 4, 2))
    assert hours_left([before, after], outlook(cells=3), NOW) == 2.0


def test_dropped_and_failed_cells_are_over() -> None:
    known = journal(cell("a", "sealed", 9, 2), cell("b", "dropped"), cell("c", "failed", 3, 1, final=True))
    assert hours_left([known], outlook(cells=3), NOW) == 0.0
    again = journal(cell("a", "sealed", 9, 2), cell("c", "failed", 3, 1))
    assert hours_left([again], outlook(cells=2), NOW) == 2.0


def test_nothing_measured_is_not_zero() -> None:
    assert hours_left([], outlook(), NOW) is None
    assert hours_left([journal(cell("a", "running", 1))], outlook(), NOW) is None
    assert hours_left([journal(cell("a", "sealed", 9, 2))], outlook(boxes=0, slots=0), NOW) is None
    assert hours_left([journal(cell("a", "sealed", 9, 2))], outlook(cells=1), NOW) == 0.0


def test_the_end_is_what_was_spent_and_the_rest_at_the_rate() -> None:
    seen = forecast(use(), hours_left=3.0, boxes=2, per_hour=4.0)
    assert (seen.usd, seen.hours) == (22.0, 11.0)
    unknown = forecast(use(), hours_left=3.0, boxes=2, per_hour=None)
    assert (unknown.usd, unknown.hours) == (None, 11.0)
    assert forecast(use(), hours_left=None, boxes=2, per_hour=4.0).text(Budget(usd=1)) == ""


@pytest.mark.parametrize(
    ("limits", "exceeds"), [({"usd": 22}, False), ({"usd": 21}, True), ({"hours": 11}, False), ({"hours": 10}, True)]
)
def test_a_projection_above_the_budget(limits: dict[str, float], exceeds: bool) -> None:
    assert forecast(use(), hours_left=3.0, boxes=2, per_hour=4.0).exceeds(Budget.model_validate(limits)) is exceeds


def test_how_long_the_rest_lasts() -> None:
    assert lasts(Budget(usd=60), use(), boxes=2, per_hour=5.0) == 10.0
    assert lasts(Budget(usd=60, hours=9), use(), boxes=2, per_hour=5.0) == 2.0
    assert lasts(Budget(usd=60), use(), boxes=2, per_hour=None) is None
    assert lasts(Budget(usd=60), use(), boxes=0, per_hour=0.0) is None
    assert lasts(Budget(usd=9), use(), boxes=1, per_hour=1.0) == 0.0


def test_the_line_of_a_preview() -> None:
    fine = forecast(use(), hours_left=3.0, boxes=1, per_hour=2.0)
    warns, line = preview_line(Budget(usd=60), use(), fine, outlook())
    assert not warns
    assert line == (
        "budget: $10.00 of $60.00 (17 %); about $16.00 at the end; the rest lasts 25.0 h with 1 box at $2.00/h"
    )
    assert "the rest lasts 90 min with" in preview_line(Budget(usd=13), use(), fine, outlook())[1]
    warns, line = preview_line(Budget(usd=12), use(usd=10, hours=5), fine, outlook())
    assert warns
    assert "MORE THAN THE BUDGET" in line
    used = BudgetUse(Budget(usd=10), 10.0, 5.0)
    warns, line = preview_line(Budget(usd=10), used, forecast(used, hours_left=0, boxes=1, per_hour=2.0), outlook())
    assert warns
    assert "nothing more is rented; what runs goes on" in line
    unknown = BudgetUse(Budget(usd=60), 10.0, 5.0, ("box a has no price on record",))
    warns, line = preview_line(Budget(usd=60), unknown, fine, outlook())
    assert warns
    assert "at least $10.00" in line
    assert "not counted: box a" in line


def test_bytes_that_survive_are_those_of_the_last_seal() -> None:
    entries = [
        {"event": "cell-sealed", "cell": "a", "bytes": 5},
        {"event": "cell-sealed", "cell": "a", "bytes": 7},
        {"event": "cell-sealed", "cell": "b", "bytes": 1},
        {"event": "cell-started", "cell": "c"},
    ]
    assert sealed_bytes([Journal(entries=tuple(entries))]) == 8
