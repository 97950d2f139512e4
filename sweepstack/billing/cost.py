"""What boxes cost: price × time. An unknown price stays unknown.

The price is the platform's, or the one in the stack config. What a volume costs a month, and until which day it is
kept, is said as a person reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime

from sweepstack.billing.budget import use_of
from sweepstack.billing.ledger import Spent
from sweepstack.core.budget import Budget
from sweepstack.onbox.common.dataclass import dataclass, field


@dataclass(frozen=True)
class Running:
    """One rented thing: USD per hour, when its bill began and ended (None: it still runs), and whether it works.

    `idle` is None where unknown. `gone` without `until`: it ended at a time that is not on record. `known`: USD so
    far by the ledger, which knows of stops and changed prices; None where it has no figure. `unpriced`: the spans
    that are not in it, since their price is not known.
    """

    price_per_hour: float | None
    since: datetime | None
    until: datetime | None = None
    gone: bool = False
    idle: bool | None = None
    known: float | None = None
    unpriced: int = 0

    def so_far(self, now: datetime) -> float | None:
        """USD until now, or until its end; None where price, beginning or end are unknown."""
        if self.known is not None:
            return self.known
        if self.price_per_hour is None or self.since is None or (self.gone and self.until is None):
            return None
        hours = ((self.until or now) - self.since).total_seconds() / 3600
        return max(hours, 0.0) * self.price_per_hour


@dataclass(frozen=True)
class Meter:
    """USD: per hour now, in all so far, and of the hourly rate the part that buys no training right now.

    `incomplete`: something has no price or no dates on record, so the figures are lower bounds; `unpriced`: so many
    spans of the ledger have no price. `projected`: in all when the last cell is through, by what was measured; None:
    nothing to go by.
    """

    per_hour: float
    so_far: float
    idle: float
    incomplete: bool = False
    projected: float | None = None
    unpriced: int = 0


@dataclass(frozen=True)
class BoxCosts:
    """What a refusal says of money. USD: of this box per hour now and so far, and of the whole sweep per hour.

    `unpriced`: the spans of this box that `so_far` lacks, since their price is not known. `budget`: how much of it is
    used, in words. `kept`: what survives, tier → USD a month, where a price is known.
    """

    per_hour: float | None
    so_far: float | None
    sweep_per_hour: float
    budget: str = ""
    kept: Mapping[str, float] = field(default_factory=dict)
    unpriced: int = 0


def box_costs(
    spent: Spent,
    native_id: str,
    budget: Budget | None = None,
    per_gb_month: Mapping[str, float] | None = None,
    kept_bytes: int = 0,
) -> BoxCosts | None:
    """The costs of one box by the ledger; None when it has no bill there."""
    bill = spent.of(native_id)
    if bill is None:
        return None
    return BoxCosts(
        per_hour=bill.per_hour,
        so_far=bill.usd(spent.at),
        sweep_per_hour=spent.per_hour,
        budget=use_of(budget, spent).text() if budget is not None else "",
        kept={tier: price * kept_bytes / 1e9 for tier, price in (per_gb_month or {}).items() if kept_bytes},
        unpriced=bill.unpriced,
    )


def meter(things: Iterable[Running], now: datetime) -> Meter:
    """The sum over everything that was ever rented for a sweep."""
    per_hour = so_far = idle = 0.0
    incomplete, unpriced = False, 0
    for thing in things:
        cost = thing.so_far(now)
        incomplete |= cost is None or thing.unpriced > 0
        unpriced += thing.unpriced
        so_far += cost or 0.0
        if thing.gone or thing.until is not None or thing.price_per_hour is None:
            continue
        per_hour += thing.price_per_hour
        if thing.idle:
            idle += thing.price_per_hour
    return Meter(per_hour, so_far, idle, incomplete, unpriced=unpriced)


def cost_words(per_month: float | None, keep_until: str | None, *, today: date | None = None) -> str:
    """`$7.00/month, kept until 2027-01-31`."""
    text = "price unknown" if per_month is None else f"${per_month:.2f}/month"
    if not keep_until:
        return text
    if overdue(keep_until, today or date.today()):
        bills = "it goes on billing until it is ended" if per_month != 0 else "it was not ended yet"
        return f"{text}, was to be kept until {keep_until}, which is over: {bills}"
    return f"{text}, kept until {keep_until}"


def overdue(keep_until: str | None, today: date) -> bool:
    """Whether the day until which it was wanted is over."""
    try:
        return keep_until is not None and keep_until != "" and date.fromisoformat(keep_until) < today
    except ValueError:
        return False
