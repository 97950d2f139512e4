"""What the journal says of a box that should have ended its own bill and is still there."""

from __future__ import annotations

from datetime import datetime, timedelta

from sweepstack.core.journal import Journal

GOING = timedelta(minutes=5)
"""So long a host that took the command may go on answering."""
BEGINS = "should have stopped itself"
OFF, FAILED = "box-off", "box-off-failed"


def could_not_stop(journal: Journal | None, now: datetime, price_per_hour: float | None) -> str:
    """The alarm for a box that answers `now` (by its clock) and should have stopped itself; "" where none is due."""
    tries = [entry for entry in journal.entries if entry["event"] in (OFF, FAILED)] if journal else []
    if journal is None or not tries or journal.entries[-1]["event"] not in (OFF, FAILED):
        return ""  # it was given something to do since, or never asked to stop
    last = tries[-1]
    if last["event"] == OFF and now - datetime.fromisoformat(str(last["time"])) < GOING:
        return ""
    why = str(last.get("reason") or "its command was issued, and it still runs")
    bills = f" ${price_per_hour:.2f}/h" if price_per_hour is not None else ""
    count = sum(entry["event"] == OFF for entry in tries)
    tried = f"tried {count} times; " if count > 1 else ""
    return f"{BEGINS}, could not ({tried}{last.get('native', 'its command')}: {why}): it still bills{bills}"
