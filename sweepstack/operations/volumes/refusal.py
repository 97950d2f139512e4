"""The refusal of a volume's end: why it may not end, what that costs, and the next command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweepstack.billing.volume_cost import cost_words

if TYPE_CHECKING:
    from sweepstack.operations.volumes.end_check import VolumeFacts, VolumeVerdict

SHOWN = 12
"""Reasons listed one by one; the rest are counted."""


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
    return "\n".join([f"REFUSED.\nNothing was deleted. Volume {facts.name}: {used}.", "", *body])
