"""The ledger beside the bill that a platform shows, box by box. Pure.

The ledger counts hours by prices; a platform counts by its own clock, posts minutes later, rounds, and bills traffic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sweepstack.billing.ledger import Bill
from sweepstack.onbox.host.capabilities import Billed

CENT = 0.01
LAG_HOURS = 1 / 6
"""A platform posts charges so long after they arise, and a box begins and ends by its clock, not when we saw it."""
Verdict = Literal["agrees", "differs", "not billed", "not in the ledger", "unknown"]


@dataclass(frozen=True)
class Line:
    """One box. `ours`, `theirs`: USD, None where that side has none; `traffic`: of theirs, which the ledger does not
    count; `slack`: the difference that is rounding. `unpriced`: the spans that `ours` lacks, so that it is a lower
    bound."""

    box: str
    native_id: str
    platform: str
    ours: float | None
    theirs: float | None
    traffic: float
    slack: float
    verdict: Verdict
    unpriced: int = 0

    @property
    def difference(self) -> float | None:
        """Theirs without traffic, minus ours; None where a side has no figure, or no whole one."""
        return (
            None
            if self.ours is None or self.theirs is None or self.unpriced
            else self.theirs - self.traffic - self.ours
        )

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**vars(self), "difference": self.difference}


def compare(
    bills: Iterable[Bill], billed: Iterable[Billed], now: datetime, platform: str, prefix: str
) -> tuple[list[Line], list[Billed]]:
    """A line for each box of the ledger, and for each on the bill whose tag begins with `prefix`; then what else is on
    the account's bill: other sweeps, other people. Both in order."""
    left = {one.native_id: one for one in billed}
    lines = [_line(bill, left.pop(bill.native_id, None), now) for bill in bills if bill.platform == platform]
    for one in [one for one in left.values() if prefix and one.tag.startswith(prefix)]:
        del left[one.native_id]
        box = one.tag.removeprefix(prefix)
        lines.append(Line(box, one.native_id, platform, None, one.usd, one.traffic, CENT, "not in the ledger"))
    return lines, list(left.values())


def _line(bill: Bill, found: Billed | None, now: datetime) -> Line:
    ours = bill.usd(now)
    slack = CENT + LAG_HOURS * max((span.price_per_hour or 0.0 for span in bill.spans), default=0.0)
    theirs, traffic = (found.usd, found.traffic) if found is not None else (None, 0.0)
    verdict: Verdict
    if ours is None or bill.unpriced:
        less = ours is not None and theirs is not None and theirs - traffic < ours - slack
        verdict = "differs" if less else "unknown"
    elif theirs is None:
        verdict = "agrees" if ours <= slack else "not billed"
    else:
        verdict = "agrees" if abs(theirs - traffic - ours) <= slack else "differs"
    return Line(bill.box, bill.native_id, bill.platform, ours, theirs, traffic, slack, verdict, bill.unpriced)
