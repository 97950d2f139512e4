"""One thing that a person should hear of: what it is, where, what it costs, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sweepstack.billing.budget import BudgetUse, crossed
from sweepstack.billing.forecast import Forecast
from sweepstack.config.events import Kind
from sweepstack.config.secrets import without_given
from sweepstack.core.budget import Budget
from sweepstack.core.printable import printable
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.dataclass import dataclass, field

LONGEST = 400
"""The most characters of a sentence: its end may be what a job printed."""
FEW = 3
"""So many events of one kind are told one by one; more of them in one message."""


@dataclass(frozen=True)
class Event:
    """`id`: the same for the same thing, whichever command saw it; another one when it happens again. `sentence`: what
    happened. `next`: the command to type. `at`: when it was seen. `per_hour`, `per_month`: USD of what goes on being
    billed. `details`: more fields of the JSON body. `record_before`: the record in which an older version noted that
    the webhook was told of this; "" where there was none.
    """

    kind: Kind
    id: str
    stack: str
    sentence: str
    next: str
    at: datetime
    box: str | None = None
    cell: str | None = None
    per_hour: float | None = None
    per_month: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    record_before: str = ""

    @property
    def cost(self) -> str:
        """What it costs as long as it goes on; "" for nothing."""
        price, span = (self.per_month, "month") if self.per_month else (self.per_hour, "h")
        return f"${price:.2f}/{span} goes on" if price else ""

    @property
    def words(self) -> str:
        """The sentence and its cost, safe to print and to send: a reason may hold what a job printed."""
        sentence = printable(without_given(self.sentence), LONGEST)
        return f"{sentence}; {self.cost}" if self.cost else sentence

    @property
    def text(self) -> str:
        """All of it as one line, for chat services."""
        return f"{self.stack}: {self.words}. Next: {self.next}"

    def line(self) -> str:
        """As `status --watch` prints it."""
        return f"{self.at.astimezone():%H:%M:%S}  {self.kind:<9}  {self.words}. Next: {self.next}"

    def as_json(self) -> dict[str, Any]:
        """The documented body of a webhook's message."""
        return {
            "text": self.text,
            "id": self.id,
            "kind": self.kind,
            "stack": self.stack,
            "box": self.box,
            "cell": self.cell,
            "cost": self.cost,
            "per_hour": self.per_hour,
            "next": self.next,
            "at": self.at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            **self.details,
        }


def messages(events: Sequence[Event]) -> Iterator[tuple[Event, tuple[str, ...]]]:
    """What is sent for these events: each message, and the ids of the events that it tells of.

    A sweep in which a hundred cells fail at once is one message, not a hundred.
    """
    for kind in dict.fromkeys(event.kind for event in events):
        alike = [event for event in events if event.kind == kind]
        if len(alike) <= FEW:
            yield from ((event, (event.id,)) for event in alike)
        else:
            yield _together(alike), tuple(event.id for event in alike)


def _together(events: Sequence[Event]) -> Event:
    first, ids = events[0], [event.id for event in events]
    shown = "; ".join(event.words for event in events[:FEW])
    return Event(
        kind=first.kind,
        id=f"{first.kind}/{digest_of(sorted(ids))[7:19]}",
        stack=first.stack,
        sentence=f"{len(events)} times {first.kind}: {shown}; and {len(events) - FEW} more",
        next=f"sweepctl status --stack {first.stack}",
        at=first.at,
        details={"events": [event.as_json() for event in events]},
    )


def stray(
    which: str,
    named: str,
    *,
    why: str,
    stack: str,
    next: str,
    now: datetime,
    per_hour: float | None,
    per_month: float | None = None,
) -> Event:
    """`which`: the same for the same thing, whichever command found it. `next`: what settles it, if that is known."""
    return Event(
        kind="audit",
        id=f"audit/{which}",
        stack=stack,
        sentence=f"{named}: {why}",
        next=next or "sweepctl audit",
        at=now,
        per_hour=per_hour,
        per_month=per_month,
    )


def budget_event(
    budget: Budget, use: BudgetUse, seen: Forecast, *, stack: str, per_hour: float | None, now: datetime
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
