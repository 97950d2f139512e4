"""Clocks of a made-up platform: they start at a recorded stop, and end with a start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sweepstack.billing.deadlines import (
    contract_end,
    contract_words,
    countdowns,
    dated,
    earliest,
    last_seen,
    running,
    starting,
    stopped_since,
)
from sweepstack.billing.ledger import FOUND_STOPPED, Bill, total
from sweepstack.core.box_end import ClockFact
from sweepstack.core.journal import Journal
from sweepstack.core.records import LedgerEntry, LedgerPhase

BEGIN = datetime(2026, 11, 21, 9, tzinfo=UTC)
RELEASE = ClockFact(what="released", days=15, kills=("data", "disk"))
CREDIT = ClockFact(what="deleted for want of credit")


def at(days: float) -> datetime:
    return BEGIN + timedelta(days=days)


def bill(*phases: tuple[LedgerPhase, float, float]) -> Bill:
    """(phase, day, price) …"""
    entries = [
        LedgerEntry(
            box="a", native_id="id-a", platform="p", account="me", phase=phase, price_per_hour=price, at=at(day)
        )
        for phase, day, price in phases
    ]
    (found,) = total(entries, [], at(100)).bills
    return found


STOPPED = bill(("running", 0, 2.0), ("stopped", 1, 0.03))


def test_a_clock_starts_at_the_recorded_stop() -> None:
    (clock,) = countdowns([RELEASE], STOPPED, at(2))
    assert (clock.box, clock.native_id, clock.at, clock.left) == ("a", "id-a", at(16), timedelta(days=14))
    assert clock.text() == "released in 14 d (2026-12-07 09:00 UTC): kills data, disk"
    assert not clock.soon


@pytest.mark.parametrize(
    ("phases", "day"),
    [
        ([("running", 0, 2.0)], 5),
        ([("running", 0, 2.0), ("stopped", 1, 0.0), ("running", 3, 2.0)], 5),
        ([("running", 0, 2.0), ("stopped", 1, 0.0), ("ended", 3, 0.0)], 5),
        ([("running", 0, 2.0), ("ended", 3, 0.0)], 5),
    ],
)
def test_it_runs_only_while_the_box_stands_still(phases: list[tuple[LedgerPhase, float, float]], day: float) -> None:
    assert countdowns([RELEASE], bill(*phases), at(day)) == []


def test_a_new_price_starts_no_new_clock_and_a_new_stop_does() -> None:
    dearer = bill(("running", 0, 2.0), ("stopped", 1, 0.03), ("stopped", 5, 0.06))
    assert stopped_since(dearer) == at(1)
    again = bill(("running", 0, 2.0), ("stopped", 1, 0.03), ("running", 4, 2.0), ("stopped", 6, 0.03))
    assert countdowns([RELEASE], again, at(7))[0].at == at(21)


def test_near_the_end() -> None:
    (clock,) = countdowns([RELEASE], STOPPED, at(15.9))
    assert clock.soon
    assert clock.text().startswith("released in 2 h 24 min (")
    (over,) = countdowns([RELEASE], STOPPED, at(40))
    assert over.left == timedelta()
    assert over.text().startswith("released may have happened at 2026-12-07 09:00 UTC")


def test_an_unknown_deadline_is_said_and_comes_first() -> None:
    first, second = countdowns([RELEASE, CREDIT], STOPPED, at(2))
    assert (first.what, first.at, first.left, first.soon) == (CREDIT.what, None, None, True)
    assert "at a time that is not known (stopped since 2026-11-22 09:00 UTC)" in first.text()
    assert second.what == "released"


def test_a_clock_of_a_box_that_may_be_off_counts_where_none_runs_by_the_ledger() -> None:
    """A recorded stop is the truth; without one, what it did by itself is dated by when it was last seen."""

    def clocks(known: Bill, off: datetime | None) -> list[tuple[str, datetime | None]]:
        found = running([RELEASE, CREDIT], known, at(9), box="a", native_id="id-a", off=off)
        return [(clock.what, clock.at) for clock in found]

    assert clocks(STOPPED, at(5)) == [(CREDIT.what, None), ("released", at(16))]
    going = bill(("running", 0, 2.0))
    assert clocks(going, None) == []
    assert clocks(going, at(5)) == [("released, had it gone off when it was last seen,", at(20))]


def test_a_stop_that_was_only_found_counts_from_the_last_sign_of_the_box() -> None:
    """The platform's clock began with the stop, and not with the first look that found it."""
    entry = {"box": "a", "native_id": "id-a", "platform": "p", "account": "me"}
    entries = [
        LedgerEntry(**entry, phase="running", price_per_hour=2.0, at=at(0)),
        LedgerEntry(**entry, phase="stopped", price_per_hour=0.03, at=at(20), how=FOUND_STOPPED),
        LedgerEntry(**entry, phase="stopped", price_per_hour=0.06, at=at(21)),
    ]
    (known,) = total(entries, [], at(100)).bills

    def clocks(known: Bill, seen: datetime | None) -> list[tuple[str, datetime | None]]:
        return [(clock.what, clock.at) for clock in countdowns([RELEASE, CREDIT], known, at(22), seen=seen)]

    early = "released, had it gone off when it was last seen,"
    assert clocks(known, at(9)) == [(CREDIT.what, None), (early, at(24))]
    assert clocks(known, None) == clocks(known, at(21)) == [(CREDIT.what, None), ("released", at(35))]
    ours = bill(("running", 0, 2.0), ("stopped", 20, 0.03))
    assert clocks(ours, at(9)) == [(CREDIT.what, None), ("released", at(35))], "a stop of ours is dated by itself"
    assert countdowns([CREDIT], known, at(22), seen=at(9))[0].since == at(20), "where no day is known, nothing is"


def test_a_box_was_up_when_its_journal_was_written_last_and_when_it_was_made() -> None:
    written = Journal(entries=({"event": "a", "time": at(1).isoformat()}, {"event": "b", "time": at(3).isoformat()}))
    assert last_seen(written, at(0)) == at(3)
    assert last_seen(Journal(), at(0)) == last_seen(None, at(0)) == at(0)
    assert last_seen(None, None) is None


def test_no_bill_no_clock() -> None:
    assert countdowns([RELEASE], None, at(2)) == []


def test_what_a_stop_would_start() -> None:
    assert starting([], at(0)) == ""
    assert starting([RELEASE, CREDIT], at(0)) == (
        "a stop starts a clock: released after 15 d, which kills data, disk (at 2026-12-06 09:00 UTC, if it stopped "
        "now); deleted for want of credit after a time that is not known"
    )


CONTRACT = ClockFact(what="the contract is over and the host may delete it", days=2, kills=("data",), contract=True)


def test_no_stop_starts_the_clock_of_a_contract() -> None:
    """Found on 6f8d950f: each stopped box of vast.ai was told to be deleted two days later."""
    assert countdowns([CONTRACT], STOPPED, at(2)) == []
    assert running([CONTRACT], STOPPED, at(2), box="a", native_id="id-a", off=at(1)) == []
    assert earliest([CONTRACT], "a", "id-a", at(1), at(2)) == []
    assert starting([CONTRACT], at(2)) == ""
    assert dated([CONTRACT], at(2)) == ""
    assert [clock.what for clock in countdowns([CONTRACT, RELEASE], STOPPED, at(2))] == ["released"]


def test_a_contract_ends_whether_the_box_runs_or_not_and_is_over_then() -> None:
    clock = contract_end((CONTRACT,), "a", "id-a", at(10), at(2), ("disk",))
    assert (clock.at, clock.left, clock.kills, clock.soon) == (at(10), timedelta(days=8), ("data",), False)
    assert clock.text() == (
        "its host's contract ends, after which it can't run and may be deleted 2 d later, in 8 d "
        "(2026-12-01 09:00 UTC): kills data"
    )
    assert contract_end((CONTRACT,), "a", "id-a", at(10), at(8), ()).soon
    over = contract_end((CONTRACT,), "a", "id-a", at(10), at(11), ())
    assert over.text() == f"{CONTRACT.what} in 1 d (2026-12-03 09:00 UTC): kills data"
    assert contract_end((CONTRACT,), "a", "id-a", at(10), at(13), ()).text().startswith(f"{CONTRACT.what} may have")
    older = contract_end((RELEASE,), "a", "id-a", at(10), at(2), ("disk",))
    assert (older.at, older.kills) == (at(10), ("disk",)), "a state of an older version has no such fact"


@pytest.mark.parametrize(
    ("hours", "ends", "short", "words"),
    [
        (None, 2, False, "its host's contract ends 2026-11-23 09:00 UTC, in 2 d"),
        (None, 0.5, True, "in 12 h 0 min, before a day is over: then it stops for good, and may be deleted"),
        (600, 20, True, "in 20 d, before the 600 h that budget.hours has for each box are over"),
        (600, 25, False, "in 25 d"),
        (6, 0.5, False, "in 12 h 0 min"),
        (6, -1, True, "in 0 min, before the 6 h"),
    ],
)
def test_an_offer_that_ends_before_the_budget_is_told(
    hours: float | None, ends: float, short: bool, words: str
) -> None:
    said, early = contract_words(at(ends), hours, at(0))
    assert early is short
    assert words in said
