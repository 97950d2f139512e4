"""What an account has left, and how long that lasts: boxes end when a prepaid balance runs out. Pure.

All that bills on the account counts: this sweep's boxes, other boxes as far as the platform tells, and volumes. What a
platform allows below zero is no figure that one can plan with (docs/renting.md), so nothing of it is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.units import spell_rate

ALARM_HOURS = 24.0
"""A balance that lasts no longer is an alarm, whatever the sweep needs: money takes a while to arrive."""
MARGIN_PART, MARGIN_HOURS = 0.2, 1.0
"""What is rented must be carried for this part longer than the forecast, and for so many hours more: cells differ, and
the last files have to be copied."""
MONTH_HOURS = 730.0
_FAR_HOURS = 10 * 12 * MONTH_HOURS
"""What lasts longer gets no date."""


@dataclass(frozen=True)
class BalanceLeft:
    """`usd`: None where it is not known, and `why` not. `prepaid`: whether boxes end when it runs out; None where that
    is not known, which counts as yes. `per_hour`: what bills on the account now, as the platform says (None: it does
    not); `volumes`: that has volumes in it. `said`: the platform's own words for `usd`, where it counts in other
    money."""

    platform: str
    usd: float | None
    prepaid: bool | None = None
    per_hour: float | None = None
    volumes: bool = False
    why: str = ""
    said: str = ""

    def rate(self, boxes: float, volumes: float = 0.0) -> float:
        """USD per hour of all that bills there now. `boxes`, `volumes`: of this sweep; never less than these."""
        said = self.per_hour or 0.0
        return max(boxes + volumes, said if self.volumes else said + volumes)


@dataclass(frozen=True)
class Runway:
    """How long a balance lasts at `per_hour`, all that bills on the account. `needed`: hours until the sweep's last
    cell is through; None where that is not known. `bills`: whether a box of the sweep is there that would end;
    `unpriced`: whether one bills there at a price that is not known, so that `per_hour` is a lower bound."""

    left: BalanceLeft
    per_hour: float
    now: datetime
    needed: float | None = None
    bills: bool = True
    unpriced: bool = False

    @property
    def hours(self) -> float | None:
        """None where the balance is not known, and where nothing bills."""
        return None if self.left.usd is None or self.per_hour <= 0 else max(self.left.usd, 0.0) / self.per_hour

    @property
    def at(self) -> datetime | None:
        """When it is used up; None where `hours` is, and in more than ten years."""
        return None if self.hours is None or self.hours > _FAR_HOURS else self.now + timedelta(hours=self.hours)

    @property
    def too_early(self) -> bool:
        """Whether it is used up before the last cell is through, as far as both are known."""
        return self.hours is not None and self.needed is not None and self.hours < self.needed

    @property
    def short(self) -> bool:
        """Whether a person should add money now."""
        soon = self.hours is not None and self.hours < ALARM_HOURS
        return self.bills and self.left.prepaid is not False and (soon or self.too_early)

    def lasts(self) -> str:
        """`$0.20 left at acme lasts 0.8 h (until 2026-11-23 18:40 UTC) at $0.25/h`."""
        own = f" ({self.left.said})" if self.left.said else ""
        usd = f"${self.left.usd or 0.0:.2f}{own} left at {self.left.platform}"
        if self.hours is None:
            return (
                f"{usd}, and "
                + ("what bills there has no price" if self.unpriced else "nothing bills there")
                + " that is known"
            )
        until = f" (until {self.at:%Y-%m-%d %H:%M} UTC)" if self.at is not None else ""
        at_least = "at least " if self.left.per_hour is None or self.unpriced else ""
        return f"{usd} lasts {self.hours:.1f} h{until} at {at_least}${spell_rate(self.per_hour)}/h"

    def text(self) -> str:
        """The line of a screen; it begins with `balance`."""
        if self.left.usd is None:
            why = self.left.why or "it did not say"
            return f"balance  unknown at {self.left.platform}, so when it ends the boxes is not known: {why}"
        mode = "; it is paid afterwards and ends no box" if self.left.prepaid is False else ""
        more = "; what else bills there is not known" if self.left.per_hour is None and self.hours is not None else ""
        return f"balance  {self.lasts()}{more}{mode}"

    def as_json(self) -> dict[str, Any]:
        """For programs. `hours` and `at` are null where the balance is not known, and `why` says why not."""
        return {
            "platform": self.left.platform,
            "usd": self.left.usd,
            "prepaid": self.left.prepaid,
            "per_hour": self.per_hour,
            "hours": self.hours,
            "at": self.at.isoformat() if self.at is not None else None,
            "short": self.short,
            "why": self.left.why or None,
        }

    def alarm(self, stack: str) -> str:
        """What a person must know and do now; "" where it is not short."""
        if not self.short:
            return ""
        early = f", before the last cell (in {self.needed:.1f} h)" if self.too_early and self.needed is not None else ""
        return (
            f"the balance ends the boxes: {self.lasts()}{early}. Next: add money at {self.left.platform}; what is "
            f"sealed comes first with sweepctl pull --stack {stack}"
        )


def hours_to_carry(hours_left: float | None) -> float:
    """Hours for which a balance must carry what is rented now. `hours_left`: by the forecast; None: nothing was
    measured yet, so that only the margin counts."""
    return (hours_left or 0.0) * (1 + MARGIN_PART) + MARGIN_HOURS


def balance_refusal(runway: Runway, boxes: Sequence[str], added: float, *, stack: str) -> str:
    """Why these boxes are not rented, with the figures and the ways out; "" where the balance carries them, where it is
    not known, and where boxes do not end with it. `added`: USD per hour of them, which is in `runway.per_hour`."""
    hours, needs = runway.hours, hours_to_carry(runway.needed)
    if hours is None or hours >= needs or runway.left.prepaid is False:
        return ""
    known = f"{runway.needed:.1f} h until the last cell, " if runway.needed is not None else "nothing measured yet, "
    before = max(runway.per_hour - added, 0.0)
    already = f" (${spell_rate(before)}/h of it bills there already)" if before > 1e-6 else ""
    platform, names = runway.left.platform, ", ".join(boxes)
    usd = needs * runway.per_hour - max(runway.left.usd or 0.0, 0.0)
    rows = (
        ("next", f"add ${usd:.2f} or more at {platform}, then pulumi up --stack {stack}"),
        ("fewer boxes", f"boxes.{boxes[-1]}: {{want: gone}} in the stack file"),
        ("all the same", 'ignore_balance: "why" in the stack file'),
    )
    lines = [f"  {label:<12}  {text}" for label, text in rows]
    return "\n".join(
        [
            f"{'box' if len(boxes) == 1 else 'boxes'} {names}: not rented, since the balance does not carry "
            f"{'it' if len(boxes) == 1 else 'them'}: {runway.lasts()}{already}; {needs:.1f} h are needed ({known}"
            f"{f'{MARGIN_PART:.0%} more, '.replace('%', ' %') if runway.needed is not None else ''}and "
            f"{MARGIN_HOURS:g} h).",
            "",
            *lines,
        ]
    )
