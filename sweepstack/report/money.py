"""Cost over time, by what was paid for: boxes at work, idle, stopped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from sweepstack.billing.ledger import HOUR, Bill, Span
from sweepstack.onbox.common.units import spell_rate
from sweepstack.report.blocks import Areas, Block, Facts, Table, Text
from sweepstack.report.facts import SweepFacts
from sweepstack.report.timeline import attempts_of, busy, millis

WORK, IDLE, STOPPED, UNKNOWN = "at work", "idle", "stopped", "not known whether it worked"
TONES = {WORK: "work", IDLE: "bad", STOPPED: "still", UNKNOWN: "warn"}
MOST_POINTS = 1500

Change = tuple[datetime, str, float]
"""From this moment on, so many USD an hour more (or less) are paid for this."""


def money(facts: SweepFacts) -> list[Block]:
    """The section on money: the sums, the plot, a row for each box."""
    spent = facts.snapshot.spent
    if spent is None or not spent.bills:
        return [Text("No ledger can be read: what was paid is not known." if spent is None else "Nothing was rented.")]
    now = spent.at
    changes = sorted(_changes(facts), key=lambda change: change[0])
    sums = {name: sum(rate * _hours(at, now) for at, one, rate in changes if one == name) for name in TONES}
    pairs = [
        ("so far", f"{spent.text}, {spent.hours:.2f} hours of running boxes"),
        *((name, f"${usd:.2f} ({usd / spent.usd:.0%})") for name, usd in sums.items() if usd >= 0.005 and spent.usd),
        ("an hour now", f"${spell_rate(spent.per_hour)}"),
    ]
    blocks: list[Block] = [Facts(pairs)]
    blocks += [Text(problem, "warn") for problem in spent.problems]
    blocks += [Text(line) for line in facts.view.money_lines]
    blocks.append(_plot(changes, now))
    rows = [_row(bill, now) for bill in spent.bills]
    headers = ("box", "id", "platform", "from", "to", "hours", "USD", "end")
    blocks.append(Table("Every box that was rented", headers, rows, right=frozenset({5, 6})))
    return blocks


def _plot(changes: list[Change], now: datetime) -> Areas:
    """The rates, added up over time. `changes`: by time."""
    sums, rates = dict.fromkeys(TONES, 0.0), dict.fromkeys(TONES, 0.0)
    times: list[float] = []
    layers: dict[str, list[float]] = {name: [] for name in sums}
    before: datetime | None = None
    for at, name, rate in [*(change for change in changes if change[0] <= now), (now, WORK, 0.0)]:
        if before is None or at > before:
            for one in sums:
                sums[one] += rates[one] * (_hours(before, at) if before is not None else 0.0)
            times.append(millis(at))
            for one, total in sums.items():
                layers[one].append(round(total, 6))
            before = at
        rates[name] += rate
    keep = range(0, len(times), len(times) // MOST_POINTS + 1)
    kept = sorted({*keep, len(times) - 1})
    shown = {name: [values[index] for index in kept] for name, values in layers.items() if values[-1] > 0}
    return Areas("Cost so far, by what the boxes did", "USD", [times[index] for index in kept], shown, TONES)


def _changes(facts: SweepFacts) -> Iterator[Change]:
    """When each box began and ceased to cost something for this."""
    stories = {story.native_id: story for story in facts.boxes}
    assert facts.snapshot.spent is not None
    now = facts.snapshot.spent.at
    for bill in facts.snapshot.spent.bills:
        story = stories.get(bill.native_id)
        known = story is not None and story.journal is not None
        worked = busy(attempts_of(facts, story)) if story is not None and known else []
        for span in bill.spans:
            if span.price_per_hour is None:
                continue
            for name, begin, end in _parts(span, worked, known, now):
                if end > begin:
                    yield begin, name, span.price_per_hour
                    yield end, name, -span.price_per_hour


def _parts(
    span: Span, worked: list[tuple[datetime, datetime]], known: bool, now: datetime
) -> Iterator[tuple[str, datetime, datetime]]:
    """The span, cut at what ran meanwhile."""
    begin, end = span.begin, span.end or now
    if span.phase != "running" or not known:
        yield (STOPPED if span.phase != "running" else UNKNOWN), begin, end
        return
    at = begin
    for first, last in worked:
        first, last = max(first, at), min(last, end)
        if first < last:
            yield IDLE, at, first
            yield WORK, first, last
            at = last
    yield IDLE, at, end


def _hours(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds() / HOUR


def _row(bill: Bill, now: datetime) -> tuple[str, ...]:
    usd = bill.usd(now)
    return (
        bill.box,
        bill.native_id,
        bill.platform,
        stamp(bill.begin),
        stamp(bill.ended_at) if bill.ended_at else "goes on" if bill.open else "not known",
        f"{bill.hours(now):.2f}",
        "not known" if usd is None else f"{'' if bill.whole else 'at least '}{usd:.2f}",
        bill.problem or bill.ended_how,
    )


def stamp(moment: datetime | None) -> str:
    """A time in UTC, for people."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}" if moment is not None else "not known"
