"""Who rents what, since when, and what it has cost: the truth that tests hold an adapter's claims against."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.simulators.clock import VirtualClock

HOUR = 3600.0
MONTH = 730 * HOUR  # hours of a month, as rental prices are quoted


@dataclass
class Account:
    """One customer. `credit`: USD ever paid in; what is left of it is `RentalLedger.balance`."""

    id: str
    key: str
    email: str = ""
    credit: float = 100.0


@dataclass(frozen=True)
class Act:
    """Something was done to a rental. `by`: OWNER, OWN or PLATFORM of `own_keys`; `done`: False where the platform
    answered that it was done, and it was not."""

    at: float
    what: str
    by: str
    done: bool = True


@dataclass
class Rental:
    """One thing that bills or has billed. `usd`: accrued until `since`; `ended`: None while it lives."""

    id: str
    account: str
    tag: str
    kind: str
    begun: float
    state: str
    rate: float
    since: float
    usd: float = 0.0
    usd_by_state: dict[str, float] = field(default_factory=dict)
    ended: float | None = None
    stretches: list[tuple[float, float, float]] = field(default_factory=list)
    """(from, until, rate), in order, one for each change of the rate."""
    walk: list[tuple[float, str]] = field(default_factory=list)
    """(since, state), in order."""
    acts: list[Act] = field(default_factory=list)
    """Who did what to it, in order."""

    def hours(self, states: Collection[str], begin: float, end: float) -> float:
        """Hours that it spent in one of these states, between two moments."""
        untils = [since for since, _ in self.walk[1:]] + [self.ended if self.ended is not None else end]
        spells = [(since, until) for (since, state), until in zip(self.walk, untils, strict=True) if state in states]
        return sum(max(0.0, min(end, until) - max(begin, since)) for since, until in spells) / HOUR

    def between(self, begin: float, end: float, most: float = float("inf")) -> float:
        """USD for a time, whose end is not part of it; `most`: count no more than this rate."""
        return sum(
            max(0.0, min(end, until) - max(begin, since)) * min(rate, most) / HOUR
            for since, until, rate in self.stretches
        )


class RentalLedger:
    """Every rental there ever was. Accrues USD to the second, at its state's `rate` (USD an hour)."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._rentals: dict[str, Rental] = {}

    def begin(self, id: str, *, account: str, tag: str, kind: str, state: str, rate: float) -> Rental:
        """Billing starts now. Each id once, for ever."""
        if id in self._rentals:
            raise ValueError(f"{id} was rented before")
        now = self._clock.now()
        rental = Rental(id, account, tag, kind, now, state, rate, now, walk=[(now, state)])
        self._rentals[id] = rental
        return rental

    def turn(self, id: str, state: str, rate: float) -> None:
        """From now on it is in `state` and costs `rate` an hour. One that has ended stays ended."""
        rental = self._rentals[id]
        self._settle(rental)
        if rental.ended is None:
            if state != rental.state:
                rental.walk.append((self._clock.now(), state))
            rental.state, rental.rate = state, rate

    def charge(self, id: str, seconds: float, rate: float) -> None:
        """So many seconds at a rate (USD an hour) are paid besides, at once: the rest of an hour that has begun."""
        rental = self._rentals[id]
        self._settle(rental)
        usd = seconds * rate / HOUR
        rental.usd += usd
        rental.usd_by_state[rental.state] = rental.usd_by_state.get(rental.state, 0.0) + usd
        rental.stretches.insert(-1, (rental.since, rental.since + seconds, rate))

    def end(self, id: str, state: str = "ended", *, step: float = 0.0) -> None:
        """Billing stops now. Again: nothing. `step`: of the time since it first cost something, a begun step of so
        many seconds is paid whole."""
        rental = self._rentals[id]
        self._settle(rental)
        if rental.ended is None:
            self._fill(rental, step)
            rental.state, rental.rate, rental.ended = state, 0.0, self._clock.now()

    def note(self, id: str, what: str, by: str, *, done: bool = True) -> None:
        """A customer or the box itself does something to it; also to one that has ended."""
        self._rentals[id].acts.append(Act(self._clock.now(), what, by, done))

    def retag(self, id: str, tag: str) -> None:
        """The rental goes by another name."""
        self._rentals[id].tag = tag

    def get(self, id: str) -> Rental:
        """One rental, settled until now. KeyError: there never was one."""
        self._settle(self._rentals[id])
        return self._rentals[id]

    def all(self) -> list[Rental]:
        """Every rental in the order of their beginnings, settled until now."""
        for rental in self._rentals.values():
            self._settle(rental)
        return list(self._rentals.values())

    def live(self, kind: str | None = None, account: str | None = None) -> list[Rental]:
        """Those that have not ended."""
        return [r for r in self.all() if r.ended is None and kind in (None, r.kind) and account in (None, r.account)]

    def leaked(self, known: Iterable[str], kind: str | None = None) -> list[Rental]:
        """Living rentals that nobody knows: their ids are not in `known`."""
        ids = set(known)
        return [rental for rental in self.live(kind) if rental.id not in ids]

    def doubled(self, kind: str) -> dict[str, list[str]]:
        """Tags that two or more rentals of one account carried at the same time, with their ids: rented twice."""
        found: dict[str, list[str]] = {}
        rentals = [r for r in self.all() if r.kind == kind]
        for n, one in enumerate(rentals):
            for other in rentals[n + 1 :]:
                same = (one.account, one.tag) == (other.account, other.tag)
                if same and (one.ended is None or one.ended > other.begun):
                    found[one.tag] = sorted({*found.get(one.tag, ()), one.id, other.id})
        return found

    def spent(self, account: str) -> float:
        """USD that an account has spent until now."""
        return sum(rental.usd for rental in self.all() if rental.account == account)

    def rate(self, account: str, kind: str | None = None) -> float:
        """USD an hour that an account spends now."""
        return sum(rental.rate for rental in self.live(kind, account))

    def balance(self, account: Account) -> float:
        """USD left of an account's credit; may be below zero."""
        return account.credit - self.spent(account.id)

    def outline(self) -> list[dict[str, Any]]:
        """All rentals as plain JSON values."""
        return [asdict(rental) for rental in self.all()]

    def _fill(self, rental: Rental, step: float) -> None:
        """Pays for what is left of the step that has begun."""
        first = next((begin for begin, _, rate in rental.stretches if rate > 0), None)
        if first is None or not step:
            return
        rest = round(first - rental.since, 3) % step
        usd = rest * rental.rate / HOUR
        rental.usd += usd
        rental.usd_by_state[rental.state] = rental.usd_by_state.get(rental.state, 0.0) + usd
        rental.stretches.append((rental.since, rental.since + rest, rental.rate))

    def _settle(self, rental: Rental) -> None:
        if rental.ended is None:
            now = self._clock.now()
            usd = (now - rental.since) * rental.rate / HOUR
            rental.usd += usd
            rental.usd_by_state[rental.state] = rental.usd_by_state.get(rental.state, 0.0) + usd
            last = rental.stretches[-1] if rental.stretches else None
            if last and last[2] == rental.rate:
                rental.stretches[-1] = (last[0], now, rental.rate)
            else:
                rental.stretches.append((rental.since, now, rental.rate))
            rental.since = now
