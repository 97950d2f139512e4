"""What bills, or may, and no state knows of: told by `audit`, and by `status` of its own sweep."""

from __future__ import annotations

from datetime import datetime

from sweepstack.operations.events.event import Event


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
