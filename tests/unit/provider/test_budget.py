"""A budget refuses renting, with its arithmetic, and nothing else; the preview says how it stands."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta

import pytest

from sweepstack.billing.ledger import record_phase
from sweepstack.core.budget import Budget
from sweepstack.core.records import LedgerPhase
from sweepstack.core.resources import BoxState
from sweepstack.onbox.common.errors import SweepstackError, TeardownRefused
from sweepstack.provider.session import Severity
from tests.unit.provider.support import BOX, GATE, IDENTITY, Sweep, approval_for, approved

USED = {"usd": 10}


def charge(sweep: Sweep, box: str, native_id: str, *, hours: float, price: float | None, ended: bool = False) -> None:
    """As if this box had been rented `hours` ago."""
    phases: list[tuple[LedgerPhase, float]] = [("running", hours), *([("ended", 0.0)] if ended else [])]
    for phase, ago in phases:
        record_phase(
            sweep.store,
            box=box,
            native_id=native_id,
            platform="local",
            account="me",
            phase=phase,  # type: ignore[arg-type]
            price_per_hour=price,
            at=datetime.now(UTC) - timedelta(hours=ago),
        )


def test_nothing_is_rented_past_the_budget(sweep: Sweep) -> None:
    charge(sweep, "old", "local-old", hours=25, price=0.5, ended=True)
    with pytest.raises(SweepstackError) as refused:
        sweep.box(budget=USED)
    text = str(refused.value)
    assert "box box-0 is not rented: the budget is used up: $12.50 of $10.00 (125 %)" in text
    assert "old  25.00 h x $0.50 = $12.50" in text
    assert f"sweepctl finish --stack {sweep.op().stack}" in text
    assert sweep.listed() == []
    assert sweep.store.births() == [], "nothing was asked for, so nothing is on record"
    sweep.box(budget={"usd": 13})
    assert len(sweep.listed()) == 1


def test_hours_count_as_well(sweep: Sweep) -> None:
    charge(sweep, "old", "local-old", hours=25, price=0.0, ended=True)
    with pytest.raises(SweepstackError, match=r"25\.0 of 25 box-hours \(100 %\)"):
        sweep.box(budget={"hours": 25})


def test_what_is_rented_already_is_adopted_past_the_budget(sweep: Sweep) -> None:
    box = sweep.box()
    charge(sweep, "old", "local-old", hours=25, price=0.5, ended=True)
    assert sweep.box(budget=USED).native_id == box.native_id


def test_the_next_generation_is_renting(sweep: Sweep) -> None:
    box = sweep.box()
    charge(sweep, "old", "local-old", hours=25, price=0.5, ended=True)
    shutil.rmtree(sweep.root(box))
    with pytest.raises(SweepstackError, match="is not rented: the budget is used up"):
        sweep.box(budget=USED)
    assert sweep.listed() == []


def test_a_box_ends_past_the_budget(sweep: Sweep) -> None:
    box = sweep.trained()
    box = BoxState.model_validate(box.model_dump() | {"budget": USED})
    charge(sweep, "old", "local-old", hours=25, price=0.5, ended=True)
    cleared = approved(box, approval_for(box, receipt=sweep.verified(box)))
    BOX.update(sweep.op(), box.native_id, cleared, sweep.box_inputs(budget=USED))
    BOX.delete(sweep.op(), cleared.native_id, cleared)
    assert sweep.listed() == []


def test_unknown_spending_refuses_only_where_no_price_can_be_taken(sweep: Sweep) -> None:
    charge(sweep, "old", "local-old", hours=4, price=None, ended=True)
    with pytest.raises(SweepstackError, match="whether the budget holds is not known: box old"):
        sweep.box(budget=USED, price_per_hour=None)
    with pytest.raises(SweepstackError, match=r"\$12\.00 of \$10\.00"):
        sweep.box(budget=USED, price_per_hour=None, max_price=3.0)
    sweep.box(budget=USED, price_per_hour=0.0)


def checked(sweep: Sweep, **outlook: object) -> tuple[str, str]:
    """(warnings, infos) of a preview."""
    sweep.said.lines.clear()
    known = {"boxes": 1, "slots": 1, "price_per_hour": 0.5, "cells": 2} | outlook
    IDENTITY.check(sweep.op("Identity", "identity"), None, sweep.identity_inputs(budget=USED, outlook=known))
    return sweep.said.warnings, sweep.said.text(Severity.INFO)


def test_the_first_preview_says_how_long_it_lasts(sweep: Sweep) -> None:
    sweep.said.lines.clear()
    new = sweep.identity_inputs(
        budget=USED, pull_to="elsewhere", outlook={"boxes": 2, "slots": 2, "price_per_hour": 0.5, "cells": 2}
    )
    IDENTITY.check(sweep.op("Identity", "identity"), None, new)
    said = sweep.said.text(Severity.INFO)
    assert "budget: $0.00 of $10.00 (0 %); the rest lasts 10.0 h with 2 boxes at $1.00/h" in said
    assert not (sweep.project / "elsewhere").exists(), "a preview makes nothing"


def test_the_preview_says_how_it_stands(sweep: Sweep) -> None:
    charge(sweep, "old", "local-old", hours=10, price=0.5, ended=True)
    warnings, infos = checked(sweep)
    assert warnings == ""
    assert "budget: $5.00 of $10.00 (50 %); the rest lasts 10.0 h with 1 box at $0.50/h" in infos


def test_the_preview_projects_by_what_the_boxes_measured(sweep: Sweep) -> None:
    charge(sweep, "old", "local-old", hours=19.99, price=0.5, ended=True)
    sweep.trained()
    warnings, infos = checked(sweep)
    assert warnings == ""
    assert "at the end" in infos
    warnings, _ = checked(sweep, cells=10**8)
    assert "MORE THAN THE BUDGET" in warnings


def test_the_preview_warns_past_it(sweep: Sweep) -> None:
    charge(sweep, "old", "local-old", hours=25, price=0.5, ended=True)
    assert "used up: nothing more is rented" in checked(sweep)[0]


def test_a_ledger_that_can_t_be_read_is_said_and_stops_no_preview(sweep: Sweep) -> None:
    box = sweep.box()
    births = sweep.store.root / "records" / "births"
    next(births.iterdir()).write_text("{")
    assert "what was spent is not known" in checked(sweep)[0]
    assert sweep.listed() == [box.native_id]


def test_a_refused_delete_says_what_of_the_budget_is_used(sweep: Sweep) -> None:
    """Also where a gate or a queue refuses, which know nothing of budgets: it is kept in the evidence."""
    IDENTITY.update(sweep.op("Identity", "identity"), "x", sweep.identity, sweep.identity_inputs(budget={"usd": 10}))
    charge(sweep, "old", "local-old", hours=4, price=0.5, ended=True)
    box = sweep.trained()
    gate = sweep.gate(box)
    with pytest.raises(TeardownRefused, match=r"waiting costs .*budget \$2\.\d\d of \$10\.00 \(2\d %\)"):
        GATE.delete(sweep.op("Gate", "box-0"), "x", gate)
    with_budget = sweep.identity.model_copy(update={"budget": Budget(usd=10)})
    IDENTITY.update(sweep.op("Identity", "identity"), "x", with_budget, sweep.identity_inputs())
    with pytest.raises(TeardownRefused) as refused:
        GATE.delete(sweep.op("Gate", "box-0"), "x", gate)
    assert "budget" not in str(refused.value)
