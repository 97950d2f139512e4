"""A budget: how much a sweep may cost, and what follows from what it has cost. Pure.

Nothing here ends or stops anything.
It blocks renting alone. A stop, a delete, a pull and a verify go on past it.
"""

from __future__ import annotations

from sweepstack.billing.ledger import Spent, without_price
from sweepstack.core.budget import Budget
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.units import spell_rate

BUDGET = "budget.json"
"""The record of it in the evidence: what the last `up` brought in, for commands that have no state at hand."""
_LISTED = 8


@dataclass(frozen=True)
class BudgetUse:
    """How much of a budget is used. `fraction`: of usd or of hours, whichever is further; 1.0 is all of it.

    `unknown`: what was spent and has no figure; then the rest are lower bounds. `unpriced`: spans among it.
    """

    budget: Budget
    usd: float
    hours: float
    unknown: tuple[str, ...] = ()
    unpriced: int = 0

    @property
    def fraction(self) -> float:
        """The further of the two."""
        return max(
            0.0 if self.budget.usd is None else self.usd / self.budget.usd,
            0.0 if self.budget.hours is None else self.hours / self.budget.hours,
        )

    @property
    def over(self) -> bool:
        """Whether all of it is used up."""
        return self.fraction >= 1.0

    def text(self) -> str:
        """`$61.20 of $60.00, 32.4 of 30 box-hours (108 %)`."""
        lacks = without_price(self.unpriced)
        parts = [] if self.budget.usd is None else [f"${self.usd:.2f} of ${self.budget.usd:.2f}{lacks}"]
        parts += [] if self.budget.hours is None else [f"{self.hours:.1f} of {self.budget.hours:g} box-hours"]
        bound = "at least " if self.unknown else ""
        return f"{bound}{', '.join(parts)} ({self.fraction:.0%})".replace("%)", " %)")


def use_of(budget: Budget, spent: Spent, price_where_unknown: float | None = None) -> BudgetUse:
    """What of the budget is used. `price_where_unknown`: USD per hour for hours without a price on record."""
    usd, unpriced, unknown = 0.0, 0, list(spent.problems)
    for bill in spent.bills:
        usd += bill.usd(spent.at) or 0.0
        if price_where_unknown is not None:
            blank = [span for span in bill.spans if span.price_per_hour is None]
            usd += sum(span.hours(spent.at) for span in blank) * price_where_unknown
        elif bill.unpriced and not bill.problem:
            unpriced += bill.unpriced
            unknown.append(f"box {bill.box} ({bill.native_id}){without_price(bill.unpriced).replace(', plus', ' has')}")
        if not bill.spans and not bill.problem:
            unknown.append(f"box {bill.box} ({bill.native_id}) has no price on record")
    if budget.usd is None:
        unknown = list(spent.problems)
    # A bill that a damaged entry belongs to is counted by its birth record, in full: that is a figure.
    counted = {bill.problem for bill in spent.bills if bill.problem and bill.spans}
    return BudgetUse(budget, usd, spent.hours, tuple(why for why in unknown if why not in counted), unpriced)


def renting_refused(budget: Budget, spent: Spent, *, box: str, price_per_hour: float | None, stack: str) -> str:
    """Why `box` may not be rented, with the arithmetic and the ways out; empty when it may be.

    `price_per_hour`: its own, or the most that it may cost; also taken for hours without a price on record.
    """
    use = use_of(budget, spent, price_per_hour)
    if not use.over and not use.unknown:
        return ""
    goes_on = f"; ${spell_rate(spent.per_hour)}/h goes on" if spent.per_hour else ""
    if use.over:
        head = f"box {box} is not rented: the budget is used up: {use.text()}{goes_on}."
    else:
        head = f"box {box} is not rented: whether the budget holds is not known: {'; '.join(use.unknown)}."
    rows = [("spent", line) for line in arithmetic(spent)]
    raised = "budget." + ("usd" if budget.usd is not None and use.usd >= budget.usd else "hours")
    if use.over:
        rows.append(("next", f"raise {raised} in the stack file, then pulumi up --stack {stack}"))
    else:
        rows.append(
            ("next", "name the price (overrides.<platform>.price_per_hour); a damaged entry of the ledger counts")
        )
        rows.append(("", f"no more once its file is moved away. Then pulumi up --stack {stack}"))
    rows.append(("go on without", f"boxes.{box}: {{want: gone}} in the stack file"))
    rows.append(("end it", f"sweepctl finish --stack {stack}"))
    width = max(len(label) for label, _ in rows)
    labelled = [
        f"{label if index == 0 or label != rows[index - 1][0] else '':<{width}}  {text}"
        for index, (label, text) in enumerate(rows)
    ]
    return "\n".join([head, "", *labelled])


def arithmetic(spent: Spent) -> list[str]:
    """One line a stretch at one price: `box-0  17.50 h x $1.89 = $33.08`, the dearest first."""
    lines = []
    for bill in spent.bills:
        for span in bill.spans:
            hours, usd = span.hours(spent.at), span.usd(spent.at)
            price = "no price" if span.price_per_hour is None else f"${spell_rate(span.price_per_hour)}"
            stopped = " stopped" if span.phase == "stopped" else ""
            lines.append((usd or 0.0, f"{bill.box}  {hours:.2f} h{stopped} x {price} = {_usd(usd)}"))
    lines.sort(key=lambda line: -line[0])
    shown = [text for _, text in lines[:_LISTED]]
    rest = lines[_LISTED:]
    return shown + ([f"… and {len(rest)} more: ${sum(usd for usd, _ in rest):.2f}"] if rest else [])


def _usd(value: float | None) -> str:
    return "?" if value is None else f"${value:.2f}"


def to_stop(budget: Budget | None, spent: Spent) -> tuple[str, ...]:
    """Native ids of the boxes that run although the budget is used up, where the person asked for a stop; else none.

    Whether a stop is possible and kills nothing unsaved is the stop's own check, and it comes before each of them.
    """
    if budget is None or not budget.stop or not use_of(budget, spent).over:
        return ()
    return tuple(bill.native_id for bill in spent.bills if bill.open is not None and bill.open.phase == "running")


def crossed(budget: Budget, use: BudgetUse) -> float | None:
    """The highest threshold that was reached; None when there is none."""
    return max((threshold for threshold in budget.notify if use.fraction >= threshold), default=None)
