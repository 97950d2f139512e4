"""The ledger: what every box ever rented has cost.

Entries are only ever added, one file each, in the evidence.
An entry says "from this moment on, this native id is in this phase, at this price"; the spans between them are worked
out when reading. So two writers need no lock, a repeated entry changes nothing, and a damaged one hurts nothing else.

It is compared with the bill that a platform shows, box by box: the ledger counts hours by prices; a platform counts by
its own clock, posts minutes later, rounds, and bills traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

from sweepstack.core.records import Birth, LedgerEntry, LedgerPhase
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.host.capabilities import Billed

if TYPE_CHECKING:
    from sweepstack.evidence.store import EvidenceStore

HOUR = 3600.0
_PHASES: tuple[LedgerPhase, ...] = ("running", "stopped", "ended")
FOUND_STOPPED = "found stopped: the box itself, its platform or a person at its console stopped it, no later than this"
"""`how` of a stop that no command of ours made: the true moment lies before the recorded one."""

CENT = 0.01
LAG_HOURS = 1 / 6
"""A platform posts charges so long after they arise, and a box begins and ends by its clock, not when we saw it."""
Verdict = Literal["agrees", "differs", "not billed", "not in the ledger", "unknown"]


@dataclass(frozen=True)
class Span:
    """One phase at one price (USD per hour; None: unknown). `end` is None while it goes on. `found`: a stop that was
    only found, and began earlier than `begin`."""

    phase: LedgerPhase
    price_per_hour: float | None
    begin: datetime
    end: datetime | None
    found: bool = False

    def hours(self, now: datetime) -> float:
        """How long it lasted, or lasts so far."""
        return max(((self.end or now) - self.begin).total_seconds(), 0.0) / HOUR

    def usd(self, now: datetime) -> float | None:
        """What it cost, or costs so far; None where its price is not known."""
        return None if self.price_per_hour is None else self.hours(now) * self.price_per_hour


@dataclass(frozen=True)
class Bill:
    """One rented thing. `ended_how`: why it ended, "" where that is not on record. `problem`: what is not known."""

    box: str
    native_id: str
    platform: str
    account: str
    generation: int | None
    spans: tuple[Span, ...]
    ended_at: datetime | None
    ended_how: str = ""
    problem: str = ""

    @property
    def open(self) -> Span | None:
        """The span that goes on, or None when the box has ended."""
        return self.spans[-1] if self.spans and self.spans[-1].end is None else None

    @property
    def begin(self) -> datetime | None:
        """When its bill began."""
        return self.spans[0].begin if self.spans else None

    def hours(self, now: datetime, phase: LedgerPhase | None = None) -> float:
        """Hours in `phase`, or in all."""
        return sum(span.hours(now) for span in self.spans if phase in (None, span.phase))

    @property
    def unpriced(self) -> int:
        """The number of spans whose price is not known."""
        return sum(span.price_per_hour is None for span in self.spans)

    @property
    def whole(self) -> bool:
        """Whether `usd` is all that it cost; else that is a lower bound, or None."""
        return bool(self.spans) and not self.unpriced

    def usd(self, now: datetime) -> float | None:
        """What it cost so far, as far as prices are known; None where no price is."""
        costs = [cost for span in self.spans if (cost := span.usd(now)) is not None]
        return sum(costs) if costs else None

    @property
    def per_hour(self) -> float | None:
        """USD per hour now: 0 when it has ended, None where unknown."""
        if self.open is not None:
            return self.open.price_per_hour
        return 0.0 if self.ended_at is not None else None


@dataclass(frozen=True)
class Spent:
    """All bills together. `usd` and `hours` are lower bounds unless `complete`; `hours`: of boxes that ran, added up.

    `problems`: what could not be read or is not on record; nothing of it was counted as zero in silence.
    """

    bills: tuple[Bill, ...]
    at: datetime
    problems: tuple[str, ...] = ()

    @property
    def usd(self) -> float:
        return sum(bill.usd(self.at) or 0.0 for bill in self.bills)

    @property
    def hours(self) -> float:
        return sum(bill.hours(self.at, "running") for bill in self.bills)

    @property
    def per_hour(self) -> float:
        """What all of it costs per hour now."""
        return sum(bill.per_hour or 0.0 for bill in self.bills)

    @property
    def complete(self) -> bool:
        """Whether every bill has its prices, a beginning and, if it ended, an end."""
        return not self.problems and all(bill.whole for bill in self.bills)

    @property
    def text(self) -> str:
        """`$3.20`; or `at least $3.20, plus a span without a price`."""
        unpriced = sum(bill.unpriced for bill in self.bills)
        return f"{'' if self.complete else 'at least '}${self.usd:.2f}{without_price(unpriced)}"

    def of(self, native_id: str) -> Bill | None:
        """The bill of one native id."""
        return next((bill for bill in self.bills if bill.native_id == native_id), None)

    def per_hour_of(self, native_ids: Iterable[str]) -> float:
        """What these boxes cost per hour now, as far as it is known."""
        bills = [bill for native_id in native_ids if (bill := self.of(native_id)) is not None]
        return sum(bill.per_hour or 0.0 for bill in bills)


def without_price(spans: int) -> str:
    """What is said behind a sum that so many spans are not in, since their price is not known; "" for none."""
    return (
        "" if not spans else ", plus a span without a price" if spans == 1 else f", plus {spans} spans without a price"
    )


def record_phase(
    store: EvidenceStore,
    *,
    box: str,
    native_id: str,
    platform: str,
    account: str,
    phase: LedgerPhase,
    price_per_hour: float | None,
    at: datetime,
    how: str = "",
) -> None:
    """Writes down that `native_id` is in `phase` since `at`, at this price (USD per hour; 0 once it has ended).

    Idempotent: what the ledger says already is not written again. `how`: why it ended, or FOUND_STOPPED. Raises
    EvidenceError. Costs nothing, blocks for one small write.
    """
    entry = LedgerEntry(
        box=box,
        native_id=native_id,
        platform=platform,
        account=account,
        phase=phase,
        price_per_hour=0.0 if phase == "ended" else price_per_hour,
        at=at,
        how=how,
    )
    known = sorted(store.ledger(native_id)[0], key=_order)
    if any(_same(one, entry) and one.at == at for one in known):
        return
    before = [one for one in known if one.at <= at]
    if before and _same(before[-1], entry):
        return
    store.write_ledger(entry)


def _same(one: LedgerEntry, other: LedgerEntry) -> bool:
    return _rate(one) == _rate(other)


def spent(store: EvidenceStore, now: datetime, births: Iterable[Birth] | None = None) -> Spent:
    """Every bill, by box and beginning. Reads only. Raises EvidenceError when the evidence can't be read at all.

    `births`: all of them, where the caller has just read them.

    A box without an entry (rented by an older version), or with a damaged one, is counted by its birth record: from
    birth to end at the price that it was rented for, which is never too little where it stood still in between.
    """
    entries, damaged = store.ledger()
    return total(entries, store.births() if births is None else births, now, damaged)


def bill_of(store: EvidenceStore, box: str, generation: int, native_id: str, now: datetime) -> Bill | None:
    """The bill of one box, as `spent` has it; None where neither the ledger nor a birth record knows it. Reads what is
    on record of this box alone, which is what makes it fit for each look at a box. Raises EvidenceError."""
    entries, damaged = store.ledger(native_id)
    birth = store.birth(box, generation)
    return total(entries, [birth] if birth is not None else [], now, damaged).of(native_id)


def total(
    entries: Iterable[LedgerEntry], births: Iterable[Birth], now: datetime, damaged: Sequence[tuple[str, str]] = ()
) -> Spent:
    """The same from what was read. Pure. `damaged`: (native id, why) of the entries that don't read."""
    by_id: dict[str, list[LedgerEntry]] = {}
    for entry in sorted(entries, key=_order):
        by_id.setdefault(entry.native_id, []).append(entry)
    hurt = dict(damaged)
    bills = []
    born = {birth.native_id: birth for birth in births if birth.native_id is not None}
    for native_id in {**by_id, **born}:
        birth, own = born.get(native_id), by_id.get(native_id, [])
        if birth is not None:
            begin = _at_birth(birth, native_id)
            if native_id in hurt:
                own = [begin]
            elif not own or own[0].at > begin.at:  # rented by a version that kept no ledger
                own = [begin, *own]
        bills.append(_bill(own, birth, hurt.get(native_id, "")))
    for native_id in hurt:
        if native_id not in by_id and native_id not in born:
            bills.append(Bill("?", native_id, "?", "?", None, (), None, problem=hurt[native_id]))
    bills.sort(key=lambda bill: (bill.box, bill.begin or now, bill.native_id))
    return Spent(tuple(bills), now, tuple(why for _, why in damaged))


def _at_birth(birth: Birth, native_id: str) -> LedgerEntry:
    return LedgerEntry(
        box=birth.box,
        native_id=native_id,
        platform=birth.platform,
        account=birth.account,
        phase="running",
        price_per_hour=birth.price_per_hour,
        at=birth.created_at or birth.begun_at,
    )


def _bill(entries: Sequence[LedgerEntry], birth: Birth | None, problem: str) -> Bill:
    """`entries`: of one native id, by time, at least one."""
    # One whose end made it stand still bills until it is released (`sweepstack.teardown.close_box`).
    ends_by_birth = ended_at = birth.ended_at if birth is not None and not birth.rests else None
    spans: list[Span] = []
    for entry, after in zip(entries, [*entries[1:], None], strict=True):
        if entry.phase == "ended":
            continue
        end = after.at if after is not None else ends_by_birth
        last = spans[-1] if spans else None
        if last is not None and last.end == entry.at and (last.phase, last.price_per_hour) == _rate(entry):
            spans[-1] = replace(last, end=end)
        else:
            found = entry.phase == "stopped" and entry.how == FOUND_STOPPED
            spans.append(Span(entry.phase, entry.price_per_hour, entry.at, end, found))
    how = birth.ended_how or "" if birth is not None else ""
    if entries[-1].phase == "ended":
        over = list(takewhile(lambda entry: entry.phase == "ended", reversed(entries)))[-1]
        ended_at, how = over.at, over.how or how
    return Bill(
        box=entries[0].box,
        native_id=entries[0].native_id,
        platform=entries[0].platform,
        account=entries[0].account,
        generation=birth.generation if birth is not None else None,
        spans=tuple(spans),
        ended_at=ended_at,
        ended_how=how,
        problem=problem,
    )


def _order(entry: LedgerEntry) -> tuple[datetime, int, float]:
    """By time; what happened at the same moment in one order for everybody."""
    return entry.at, _PHASES.index(entry.phase), -1.0 if entry.price_per_hour is None else entry.price_per_hour


def _rate(entry: LedgerEntry) -> tuple[LedgerPhase, float | None]:
    return entry.phase, entry.price_per_hour


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
