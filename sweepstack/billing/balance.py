"""What an account has left, as hours at the present rate: boxes end when a prepaid balance runs out."""

from __future__ import annotations

from dataclasses import dataclass

LITTLE_HOURS = 2.0


@dataclass(frozen=True)
class Left:
    """`usd`: None where it is not known. `prepaid`: whether boxes end when it runs out; None where it is not known."""

    platform: str
    usd: float | None
    prepaid: bool | None = None

    def hours(self, per_hour: float) -> float | None:
        """How long it lasts at this rate, USD per hour; None where that is not known, or nothing is spent."""
        return None if self.usd is None or per_hour <= 0 else max(self.usd, 0.0) / per_hour

    def little(self, per_hour: float) -> bool:
        """Whether money should be added now."""
        hours = self.hours(per_hour)
        return self.prepaid is not False and hours is not None and hours < LITTLE_HOURS

    def text(self, per_hour: float) -> str:
        """`balance  $0.20 left at acme: 0.8 h at $0.25/h`. `per_hour`: of what is spent there, 0 for nothing."""
        if self.usd is None:
            return f"balance  unknown at {self.platform}: it did not say"
        hours = self.hours(per_hour)
        lasts = "" if hours is None else f": {hours:.1f} h at ${per_hour:.2f}/h"
        return f"balance  ${self.usd:.2f} left at {self.platform}{lasts}"
