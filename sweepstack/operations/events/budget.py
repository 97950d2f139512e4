"""A threshold of the budget that was crossed, as an event."""

from __future__ import annotations

from datetime import datetime

from sweepstack.billing.budget import Budget, Use, crossed
from sweepstack.billing.forecast import Forecast
from sweepstack.operations.events.event import Event


def budget_event(
    budget: Budget, use: Use, seen: Forecast, *, stack: str, per_hour: float | None, now: datetime
) -> Event | None:
    """The highest threshold that was crossed; None where none was. A raised budget has thresholds of its own."""
    threshold = crossed(budget, use)
    if threshold is None:
        return None
    words = [f"{_part(threshold)} of the budget is used: {use.text()}"]
    if seen.text(budget):
        words.append(seen.text(budget))
    if threshold >= 1:
        words.append("nothing more is rented" + ("; boxes are stopped where they can be" if budget.stop else ""))
    limits = f"{budget.usd or 0:g}usd-{budget.hours or 0:g}h-{threshold:g}"
    return Event(
        kind="budget",
        id=f"budget/{limits}",
        stack=stack,
        sentence="; ".join(words),
        next=f"sweepctl status --stack {stack}",
        at=now,
        per_hour=per_hour,
        details={
            "threshold": threshold,
            "used": {"usd": round(use.usd, 4), "hours": round(use.hours, 4), "fraction": round(use.fraction, 4)},
            "budget": {"usd": budget.usd, "hours": budget.hours},
            "projected": {"usd": seen.usd, "hours": seen.hours},
        },
        record_before=f"notices/{limits}.json",
    )


def _part(threshold: float) -> str:
    return f"{threshold:.0%}".replace("%", " %")
