"""What a volume costs a month, and until which day it is kept, as a person reads it."""

from __future__ import annotations

from datetime import date


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
