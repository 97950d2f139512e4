"""A box that should have ended its own bill, and is still there (hosts.md S1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sweepstack.core.journal import Journal, asked_to_stop, could_not_stop, noted

NOW = datetime(2026, 11, 22, 12, 40, tzinfo=UTC)


def journal(*events: tuple[str, float]) -> Journal:
    entries = tuple(
        {"event": event, "time": (NOW - timedelta(minutes=ago)).isoformat(), "native": "关机"}
        | ({"reason": "it ended with 127: sh: 1: shutdown: not found"} if event == "box-off-failed" else {})
        for event, ago in events
    )
    return Journal(entries=entries)


def test_it_says_what_it_bills_and_why() -> None:
    found = could_not_stop(journal(("cell-sealed", 15), ("box-off", 5), ("box-off-failed", 5)), NOW, 0.3)
    assert found == (
        "should have stopped itself, could not (关机: it ended with 127: sh: 1: shutdown: not found): "
        "it still bills $0.30/h"
    )
    again = could_not_stop(journal(*[("box-off", 9), ("box-off-failed", 9)] * 3), NOW, None)
    assert "tried 3 times" in again
    assert again.endswith("it still bills")


@pytest.mark.parametrize(
    ("events", "alarm"),
    [
        ([("box-off", 1)], False),  # it may be about to go
        ([("box-off", 6)], True),  # an older runner, which did not write how its command ended
        ([("box-off", 9), ("box-off-failed", 9), ("cell-started", 1)], False),
        ([("cell-sealed", 9)], False),
        ([], False),
    ],
)
def test_when_it_is_due(events: list[tuple[str, float]], alarm: bool) -> None:
    assert bool(could_not_stop(journal(*events), NOW, 0.3)) == alarm
    assert could_not_stop(None, NOW, 0.3) == ""


def test_a_lease_that_is_over_where_the_box_stays() -> None:
    over = {"event": "lease-over", "time": NOW.isoformat(), "why": "a stop wipes data"}
    found = could_not_stop(Journal(entries=(over,)), NOW, 0.3)
    assert found == (
        "should have stopped itself, could not (its lease is over, and it stays: a stop wipes data): "
        "it still bills $0.30/h"
    )
    assert not asked_to_stop(Journal(entries=(over,)))
    assert asked_to_stop(journal(("box-off", 1)))
    assert could_not_stop(Journal(entries=(over, {**over, "event": "cell-started"})), NOW, 0.3) == ""


def test_a_box_that_cannot_write_its_journal_is_told_by_the_note_in_its_lock() -> None:
    why = "it could not look after its lease: the journal can't be written"
    sealed = journal(("cell-sealed", 15))
    assert could_not_stop(sealed, NOW, 0.3, noted(b" " * 256)) == could_not_stop(sealed, NOW, 0.3, noted(b"")) == ""
    found = could_not_stop(sealed, NOW, 0.3, noted(why.encode().ljust(256)))
    assert found == f"should have stopped itself, could not ({why}): it still bills $0.30/h"
