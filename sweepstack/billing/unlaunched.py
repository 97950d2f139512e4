"""Finds boxes that bill although nothing was launched on them: no lease of a runner holds them.

Where the platform has a timer in its start command, and its key works, such a box stops itself. These are those whose
birth record is open, so each command that looks at them names them once their lease would have been over.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sweepstack.core.records import Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.units import spell_rate

LEAST_GRACE = timedelta(hours=1)
"""Between the deadline and a stop by `tend`, at least: what is launched may be large, and an `up` may be sending it."""


@dataclass(frozen=True)
class Unheld:
    """One at `now`. Its `birth` has a deadline, `launch_by`."""

    birth: Birth
    now: datetime

    @property
    def over(self) -> bool:
        """Whether something should have been launched on it by now."""
        return self.birth.launch_by is not None and self.now >= self.birth.launch_by

    @property
    def long_over(self) -> bool:
        """Whether it is over for so long that no `up` can be at it any more."""
        by = self.birth.launch_by
        return by is not None and self.now >= by + max(LEAST_GRACE, by - self.birth.begun_at)

    def words(self, stack: str) -> str:
        """What it is, what it costs, and, where it is `over`, the next command."""
        birth, hours = self.birth, (self.now - self.birth.begun_at).total_seconds() / 3600
        price = birth.price_per_hour
        bills = "" if price is None else f" at ${spell_rate(price)}/h (about ${price * max(hours, 0.0):.2f})"
        what = f"{birth.box} ({birth.native_id or birth.tag} on {birth.platform})"
        if not self.over and birth.launch_by is not None:
            late = f"{birth.launch_by:%H:%M} UTC"
            return f"{what}: no lease holds it yet, nothing was launched on it; from {late} on this is an alarm"
        end = f'sweepctl give-up --stack {stack} data/{birth.box} --reason "…", then pulumi up and pulumi destroy'
        return (
            f"{what} was rented {hours:.1f} h ago{bills}, and nothing was launched on it: no lease of a runner ends "
            f"its bill. Next: pulumi up --stack {stack}; or, to end it, {end}"
        )


def unheld(store: EvidenceStore, births: Iterable[Birth], now: datetime) -> tuple[Unheld, ...]:
    """Those on record that may be there. Reads a launch record each. Raises EvidenceError."""
    return tuple(
        Unheld(birth, now)
        for birth in births
        if birth.ended_at is None
        and birth.launch_by is not None
        and (birth.native_id or birth.asked_at)
        and store.launch(birth.box, birth.generation) is None
    )
