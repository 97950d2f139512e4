"""What a person reads of a volume: what it costs a month and until when, and why it may not end."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweep.volumes.ending import VolumeFacts, VolumeVerdict

SHOWN = 12
"""Reasons listed one by one; the rest are counted."""


def cost_words(per_month: float | None, keep_until: str | None, *, today: date | None = None) -> str:
    """`$7.00/month, kept until 2027-01-31`."""
    text = "price unknown" if per_month is None else f"${per_month:.2f}/month"
    if not keep_until:
        return text
    if overdue(keep_until, today or date.today()):
        bills = "it goes on billing until it is ended" if per_month != 0 else "nobody has ended it"
        return f"{text}, was to be kept until {keep_until}, which is over: {bills}"
    return f"{text}, kept until {keep_until}"


def overdue(keep_until: str | None, today: date) -> bool:
    """Whether the day until which it was wanted is over."""
    try:
        return keep_until is not None and keep_until != "" and date.fromisoformat(keep_until) < today
    except ValueError:
        return False


def refusal(facts: VolumeFacts, verdict: VolumeVerdict, *, stack: str) -> str:
    """The refusal for one volume, as lines of text, with the commands that lead to its end."""
    rows: list[tuple[str, str]] = []
    for index, reason in enumerate(verdict.reasons[:SHOWN]):
        rows.append(("locked because" if index == 0 else "", reason))
    if len(verdict.reasons) > SHOWN:
        rows.append(("", f"… and {len(verdict.reasons) - SHOWN} more"))
    rows.append(("used by", ", ".join(user.stack for user in verdict.users) or "no sweep on record"))
    size = f" of {facts.size_gb} GB" if facts.size_gb else ""
    rows.append(("would die", f"volume {facts.name} ({facts.native_id}){size} with all that is on it"))
    rows.append(("waiting costs", cost_words(facts.price_per_month, facts.keep_until)))
    up = f"pulumi up --stack {stack} && pulumi destroy --stack {stack}"
    rows.append(("next", f"sweepctl finish --stack {stack}    (approve, up, destroy: says whose cells are not safe)"))
    rows.append(("give up", f'sweepctl approve --stack {stack} --abandon {facts.name} --reason "…" && {up}'))
    width = max(len(label) for label, _ in rows)
    body = [f"{label:<{width}}  {text}" for label, text in rows]
    count = len(verdict.users)
    used = f"{count} sweep{'' if count == 1 else 's'} used it"
    return "\n".join([f"REFUSED. Nothing was deleted. Volume {facts.name}: {used}.", "", *body])
