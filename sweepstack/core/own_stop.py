"""What the journal says of a box that should have ended its own bill and is still there."""

from __future__ import annotations

from datetime import datetime, timedelta

from sweepstack.core.journal import Journal
from sweepstack.onbox.common.units import spell_rate

GOING = timedelta(minutes=5)
"""So long a host that took the command may go on answering."""
BEGINS = "should have stopped itself"
OFF, FAILED = "box-off", "box-off-failed"
OVER = "lease-over"
"""The lease is over, and the box must not, or can't, stop itself."""
STAYS = "its lease is over, and it stays"


def asked_to_stop(journal: Journal | None) -> bool:
    """Whether the last that it did was a try to stop itself."""
    return journal is not None and bool(journal.entries) and journal.entries[-1]["event"] in (OFF, FAILED)


def is_stopping(journal: Journal) -> bool:
    """Whether a try to stop itself has begun, and its end is not on record."""
    return bool(journal.entries) and journal.entries[-1]["event"] == OFF


def noted(data: bytes) -> str:
    """What `lease.lock` says: why the lease can't be looked after, and the journal may not have it; "" mostly."""
    return data.decode("utf-8", "replace").strip()


def could_not_stop(journal: Journal | None, now: datetime, price_per_hour: float | None, noted: str = "") -> str:
    """The alarm for a box that answers `now` (by its clock) and should have stopped itself; "" where none is due.
    `noted`: see the function of that name."""
    last = journal.entries[-1] if journal and journal.entries else {"event": ""}
    bills = f" ${spell_rate(price_per_hour)}/h" if price_per_hour is not None else ""
    if noted:
        return f"{BEGINS}, could not ({noted}): it still bills{bills}"
    if journal is None or last["event"] not in (OFF, FAILED, OVER):
        return ""  # it was given something to do since, or never asked to stop
    if last["event"] == OVER:
        return f"{BEGINS}, could not ({STAYS}: {last.get('why')}): it still bills{bills}"
    if last["event"] == OFF and now - datetime.fromisoformat(str(last["time"])) < GOING:
        return ""
    why = str(last.get("reason") or "its command was issued, and it still runs")
    count = sum(entry["event"] == OFF for entry in journal.entries)
    tried = f"tried {count} times; " if count > 1 else ""
    return f"{BEGINS}, could not ({tried}{last.get('native', 'its command')}: {why}): it still bills{bills}"
