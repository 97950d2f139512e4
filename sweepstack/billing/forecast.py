"""What a sweep will have cost when all its cells are done."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime

from sweepstack.billing.budget import BudgetUse
from sweepstack.billing.ledger import HOUR
from sweepstack.core.budget import Budget, Outlook
from sweepstack.core.journal import Journal
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.units import count, spell_rate


@dataclass(frozen=True)
class Forecast:
    """At the end: USD in all, and hours of running boxes. None: not known. `hours_left`: until the last cell."""

    usd: float | None
    hours: float | None
    hours_left: float | None

    def exceeds(self, budget: Budget) -> bool:
        """Whether a figure that is known is above the budget's."""
        too_dear = budget.usd is not None and self.usd is not None and self.usd > budget.usd
        return too_dear or (budget.hours is not None and self.hours is not None and self.hours > budget.hours)

    def text(self, budget: Budget) -> str:
        """`about $72.40 and 34 box-hours at the end`: what the budget speaks of, where it is known."""
        parts = [f"${self.usd:.2f}"] if budget.usd is not None and self.usd is not None else []
        parts += [f"{self.hours:.1f} box-hours"] if budget.hours is not None and self.hours is not None else []
        return f"about {' and '.join(parts)} at the end" if parts else ""


def forecast(use: BudgetUse, *, hours_left: float | None, boxes: int, per_hour: float | None) -> Forecast:
    """`per_hour`: USD per hour of all boxes that will run until the end, `boxes` of them."""
    if hours_left is None:
        return Forecast(None, None, None)
    usd = None if per_hour is None else use.usd + hours_left * per_hour
    return Forecast(usd, use.hours + hours_left * boxes, hours_left)


def hours_left(journals: Sequence[Journal], outlook: Outlook, now: datetime) -> float | None:
    """Hours until the last cell is through, by the median of the cells measured so far; None: nothing was measured.

    A cell that several journals know counts as the furthest of them says.
    """
    sealed: set[str] = set()
    over: set[str] = set()
    running: dict[str, float] = {}
    measured: list[float] = []
    for journal in journals:
        for name, cell in journal.cells.items():
            if cell.state == "sealed":
                sealed.add(name)
                if cell.started_at and cell.ended_at:
                    measured.append((cell.ended_at - cell.started_at).total_seconds())
            elif cell.state == "dropped" or (cell.state == "failed" and cell.final):
                over.add(name)
            elif cell.state == "running" and cell.started_at:
                running[name] = max((now - cell.started_at).total_seconds(), 0.0)  # a box has a clock of its own
    done = sealed | over
    left = max(outlook.cells - len(done), 0)
    if not left:
        return 0.0
    if not measured or not outlook.slots:
        return None
    median = statistics.median(measured)
    at_work = [max(median - seconds, 0.0) for name, seconds in running.items() if name not in done]
    seconds = sum(at_work) + median * max(left - len(at_work), 0)
    return seconds / outlook.slots / HOUR


def lasts(budget: Budget, use: BudgetUse, *, boxes: int, per_hour: float | None) -> float | None:
    """Hours until what is left of the budget is used up at this rate; None where the rate is not known or nothing."""
    limits: list[float] = []
    if budget.usd is not None and per_hour:
        limits.append((budget.usd - use.usd) / per_hour)
    if budget.hours is not None and boxes:
        limits.append((budget.hours - use.hours) / boxes)
    return max(min(limits), 0.0) if limits else None


def preview_line(budget: Budget, use: BudgetUse, seen: Forecast, outlook: Outlook) -> tuple[bool, str]:
    """Whether it is a warning, and the one line about the budget: use, projection, how long the rest lasts."""
    per_hour = None if outlook.price_per_hour is None else outlook.price_per_hour * outlook.boxes
    words = [f"budget: {use.text()}"]
    if seen.text(budget):
        words.append(seen.text(budget))
    rest = lasts(budget, use, boxes=outlook.boxes, per_hour=per_hour)
    if rest is not None and not use.over:
        words.append(f"the rest lasts {_span(rest)} with {count(outlook.boxes, 'box')}{_rate(per_hour)}")
    if use.over:
        words.append("used up: nothing more is rented; what runs goes on")
    elif seen.exceeds(budget):
        words.append("MORE THAN THE BUDGET: it runs out before the last cell")
    words += [f"not counted: {why}" for why in use.unknown]
    return use.over or seen.exceeds(budget) or bool(use.unknown), "; ".join(words)


def _span(hours: float) -> str:
    return f"{hours * 60:.0f} min" if hours < 2 else f"{hours:.1f} h"


def _rate(per_hour: float | None) -> str:
    return "" if per_hour is None else f" at ${spell_rate(per_hour)}/h"


def sealed_bytes(journals: Iterable[Journal]) -> int:
    """Bytes of all sealed cells, by the journals: what lies on the tier that survives."""
    sizes: dict[str, int] = {}
    for journal in journals:
        for entry in journal.entries:
            if entry["event"] == "cell-sealed" and isinstance(entry.get("bytes"), int):
                sizes[str(entry["cell"])] = int(entry["bytes"])
    return sum(sizes.values())
