"""Deadlines that a platform sets on a stopped box: when they come, what they kill. Pure.

A clock starts when the ledger has the box as stopped, and a start ends it. A stop that was only found is dated by the
last sign that the box was up: no platform's clock began sooner. The facts are inputs in the state, resolved
from the profile once: who looks at them weeks later needs no profile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from sweepstack.billing.ledger import Bill
from sweepstack.core.box_end import ClockFact
from sweepstack.core.journal import Journal
from sweepstack.onbox.common.dataclass import dataclass

SOON = timedelta(days=3)
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Countdown:
    """One clock that runs. `at`: when it strikes; None where the platform does not say. `left`: 0 when it is over."""

    box: str
    native_id: str
    what: str
    since: datetime
    at: datetime | None
    left: timedelta | None
    kills: tuple[str, ...]

    @property
    def soon(self) -> bool:
        """Whether a person should act now. An unknown deadline always counts as soon."""
        return self.left is None or self.left <= SOON

    def text(self) -> str:
        """`released in 14 d 3 h (2026-12-05 09:00 UTC): kills data`."""
        dies = f": kills {', '.join(self.kills)}" if self.kills else ""
        if self.at is None or self.left is None:
            return f"{self.what} at a time that is not known (stopped since {_moment(self.since)}){dies}"
        if not self.left:
            return f"{self.what} may have happened at {_moment(self.at)}{dies}"
        return f"{self.what} in {_span(self.left)} ({_moment(self.at)}){dies}"


def running(
    facts: Collection[ClockFact],
    bill: Bill | None,
    now: datetime,
    *,
    box: str,
    native_id: str,
    off: datetime | None,
    seen: datetime | None = None,
) -> list[Countdown]:
    """The clocks of one box that run now, by the ledger; else those that may, where it may have gone `off` by itself
    since that moment (None: it can't have). `seen`: as in `countdowns`."""
    found = countdowns(facts, bill, now, seen=seen)
    return found if found or off is None else earliest(facts, box, native_id, off, now)


def countdowns(
    facts: Iterable[ClockFact], bill: Bill | None, now: datetime, *, seen: datetime | None = None
) -> list[Countdown]:
    """The clocks of one box that run now, the first to strike first; none while it runs, or where it has no bill.
    `seen`: the last sign that it was up (None: unknown), for a stop that was only found."""
    since = stopped_since(bill)
    if bill is None or since is None:
        return []
    early = seen if seen is not None and seen < since and _was_found(bill, since) else None
    found = []
    for fact in _of_stops(facts):
        begin = first_stopped(bill) or since if fact.first_stop else since
        if early is not None and begin == since and fact.days is not None:
            found += earliest([fact], bill.box, bill.native_id, early, now)
            continue
        at = None if fact.days is None else begin + fact.days * DAY
        left = None if at is None else max(at - now, timedelta())
        found.append(Countdown(bill.box, bill.native_id, fact.what, begin, at, left, fact.kills))
    # One whose time is unknown may strike first.
    return sorted(found, key=lambda one: (one.at is not None, one.at or now, one.what))


def last_seen(journal: Journal | None, made: datetime | None) -> datetime | None:
    """When a box was certainly up: by the copy of its journal, else when it was `made`; None where neither is known."""
    written = journal.last_at if journal is not None else None
    return written or made


def earliest(facts: Iterable[ClockFact], box: str, native_id: str, seen: datetime, now: datetime) -> list[Countdown]:
    """The clocks of a box that ends its own bill and does not answer, as if it had gone off when it was last `seen`: no
    platform takes it sooner. Those that count in days, the first to strike first."""
    found = []
    for fact in _of_stops(facts):
        if fact.days is not None:
            at = seen + fact.days * DAY
            what = f"{fact.what}, had it gone off when it was last seen,"
            found.append(Countdown(box, native_id, what, seen, at, max(at - now, timedelta()), fact.kills))
    return sorted(found, key=lambda one: (one.at or now, one.what))


def lying(facts: Iterable[ClockFact], box: str, native_id: str, since: datetime, now: datetime) -> list[Countdown]:
    """The clocks of files that were not used, of a box whose oldest file that has no copy lies there `since` then."""
    found = []
    for fact in facts:
        if fact.unused and fact.days is not None:
            at = since + fact.days * DAY
            found.append(Countdown(box, native_id, fact.what, since, at, max(at - now, timedelta()), fact.kills))
    return sorted(found, key=lambda one: (one.at or now, one.what))


def contract_end(
    facts: Iterable[ClockFact], box: str, native_id: str, ends: datetime, now: datetime, kills: tuple[str, ...]
) -> Countdown:
    """The clock of a box whose host lets it until `ends`, whether it runs or stands still; once that is over, when the
    host may delete it. `kills`: the tiers that then die, where no fact of the profile says it."""
    fact = next((one for one in facts if one.contract), None)
    if fact is None or fact.days is None:
        what, at = "its host's contract ends, after which it can't run and may be deleted,", ends
    elif now < ends:
        what, at = f"its host's contract ends, after which it can't run and may be deleted {fact.days:g} d later,", ends
    else:
        what, at = fact.what, ends + fact.days * DAY
    dies = fact.kills if fact is not None else kills
    return Countdown(box, native_id, what, ends, at, max(at - now, timedelta()), dies)


def contract_words(ends: datetime, hours: float | None, now: datetime) -> tuple[str, bool]:
    """What is said of an offer whose host lets it until `ends`, and whether a person should look for another: it ends
    before the `hours` that a box may run by the budget (None: not known; then a day)."""
    left = ends - now
    text = f"its host's contract ends {_moment(ends)}, in {_span(max(left, timedelta()))}"
    if left >= timedelta(hours=24.0 if hours is None else hours):
        return text, False
    least = "a day is over" if hours is None else f"the {hours:g} h that budget.hours has for each box are over"
    return f"{text}, before {least}: then it stops for good, and may be deleted with all that was not pulled", True


def _of_stops(facts: Iterable[ClockFact]) -> list[ClockFact]:
    return [fact for fact in facts if not fact.contract]


def stopped_since(bill: Bill | None) -> datetime | None:
    """When the box came to rest, at whatever prices since; None while it runs, and when it has ended."""
    since = None
    for span in reversed(bill.spans if bill is not None else ()):
        if span.phase != "stopped" or (since is None and span.end is not None):
            break
        since = span.begin
    return since


def _was_found(bill: Bill, since: datetime) -> bool:
    return any(span.found for span in bill.spans if span.begin == since)


def first_stopped(bill: Bill) -> datetime | None:
    """When the box came to rest for the first time; None where it never did."""
    return next((span.begin for span in bill.spans if span.phase == "stopped"), None)


def starting(facts: Iterable[ClockFact], now: datetime) -> str:
    """What a stop would start: `a stop starts a clock: released after 15 d, which kills data (at 2026-12-05 09:00 UTC,
    if it stopped now)`; empty where nothing."""
    words = []
    for fact in _of_stops(facts):
        after = "after a time that is not known" if fact.days is None else f"after {fact.days:g} d"
        kills = f", which kills {', '.join(fact.kills)}" if fact.kills else ""
        date = f" (at {_moment(now + fact.days * DAY)}, if it stopped now)" if fact.days is not None else ""
        words.append(f"{fact.what} {after}{kills}{date}")
    return f"a stop starts a clock: {'; '.join(words)}" if words else ""


def dated(facts: Iterable[ClockFact], begin: datetime) -> str:
    """What follows a stop at `begin`, with dates: `released at 2026-12-05 09:00 UTC: kills data`; "" for nothing."""
    words = []
    for fact in _of_stops(facts):
        when = "at a time that is not known" if fact.days is None else f"at {_moment(begin + fact.days * DAY)}"
        words.append(f"{fact.what} {when}" + (f", which kills {', '.join(fact.kills)}" if fact.kills else ""))
    return "; ".join(words)


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _span(left: timedelta) -> str:
    minutes = int(left.total_seconds() // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
