"""What a contract costs over time: rates that change at known moments, and the sum over any span."""

from __future__ import annotations

from dataclasses import dataclass, field

HOUR = 3600.0
HOURS_A_MONTH = 730.0  # its billing guide: the storage part of a price is near GB × $/GB/month ÷ 730


@dataclass
class Meter:
    """USD by kind (`gpu`, `disk`). Times are epoch seconds of the world's clock, never going back."""

    spans: list[tuple[float, float, dict[str, float]]] = field(default_factory=list)
    _rates: dict[str, float] = field(default_factory=dict)
    _since: float = 0.0

    def set(self, now: float, rates: dict[str, float]) -> None:
        """From `now` on, these rates in USD an hour; no rates: nothing bills."""
        if rates == self._rates:
            return
        if self._rates and now > self._since:
            self.spans.append((self._since, now, self._rates))
        self._rates, self._since = dict(rates), now

    def amounts(self, begin: float, end: float) -> dict[str, float]:
        """USD by kind between two moments; `end` is also "now" for what still runs."""
        total: dict[str, float] = {}
        for first, last, rates in [*self.spans, (self._since, end, self._rates)]:
            hours = max(0.0, min(last, end) - max(first, begin)) / HOUR
            for kind, rate in rates.items():
                total[kind] = total.get(kind, 0.0) + rate * hours
        return total

    def total(self, now: float) -> float:
        return sum(self.amounts(0.0, now).values())

    @property
    def billing(self) -> dict[str, float]:
        """What it bills now, USD an hour."""
        return dict(self._rates)

    def began(self) -> float:
        return self.spans[0][0] if self.spans else self._since
