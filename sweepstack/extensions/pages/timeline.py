"""Cells on boxes over time: each attempt is a bar on the slot where it ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from sweepstack.billing.ledger import Bill
from sweepstack.core.journal import Entry, Journal
from sweepstack.extensions.pages.page_data import BoxStory, SweepFacts, task_of
from sweepstack.extensions.pages.plots import Span, Spans
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.units import spell_rate

TONES = {
    "sealed": "good",
    "running": "work",
    "failed": "bad",
    "stopped": "warn",
    "cut off": "warn",
    "set-up": "other",
    "billed while running": "bill",
    "billed while stopped": "still",
}
"""`stopped`: it was ended from outside, by a drop or a stop of its box. `cut off`: its runner died, or its box was
taken away (preempted, deleted, power cut); the next attempt goes on from a checkpoint."""


@dataclass(frozen=True)
class Attempt:
    """One try of one cell on one box, by its journal. `what`: a key of TONES; `slot`: where it ran (`slot 0`, or
    `7_0 slot 0` of one of several workers), "" where it is not on record."""

    cell: str
    number: int
    slot: str
    begin: datetime
    end: datetime
    what: str
    note: str = ""


def attempts(journal: Journal, over: datetime, *, working: bool | None) -> list[Attempt]:
    """All attempts and set-ups that the journal tells, by their beginning. `over`: now, or when the box's bill ended;
    `working`: its runner is alive, so what has no end runs."""
    reader = _Reader()
    for entry in journal.entries:
        reader.read(entry)
    last = journal.last_at
    for cell in list(reader.open):
        if working:
            reader.close(cell, over, "running")
        else:
            reader.close(cell, min(over, last) if last is not None and last < over else over, "cut off")
    return sorted(reader.found, key=lambda one: one.begin)


class _Reader:
    def __init__(self) -> None:
        self.open: dict[str, tuple[Entry, datetime]] = {}
        self.found: list[Attempt] = []
        self.last: datetime | None = None

    def read(self, entry: Entry) -> None:
        at, event, cell = datetime.fromisoformat(entry["time"]), entry["event"], str(entry.get("cell", ""))
        if event in ("runner-stopped", "worker-ended") and "worker" in entry:  # others go on with theirs
            for name in [name for name, (began, _) in self.open.items() if began.get("worker") == entry["worker"]]:
                self.close(name, at, "cut off", "its worker ended")
        elif (
            event == "runner-started" and "worker" not in entry
        ):  # of what its predecessor left open, nothing has run since its last entry
            for name in list(self.open):
                self.close(name, self.last or at, "cut off", "its runner ended")
        elif event == "cell-started":
            if cell in self.open:
                self.close(cell, self.last or at, "cut off")
            self.open[cell] = entry, at
        elif event == "cell-sealed":
            self.close(cell, at, "sealed")
        elif event == "cell-failed":
            outside = entry.get("class") == "stopped"
            self.close(cell, at, "stopped" if outside else "failed", str(entry.get("reason", "")))
        elif event == "cell-dropped":
            self.close(cell, at, "stopped", f"dropped: {entry.get('reason', '')}")
        elif event == "setup-started":
            self.open[_setup(entry)] = entry, at
        elif event in ("setup-finished", "setup-failed"):
            self.close(
                _setup(entry), at, "set-up" if event == "setup-finished" else "failed", str(entry.get("reason", ""))
            )
        self.last = at

    def close(self, cell: str, at: datetime, what: str, note: str = "") -> None:
        found = self.open.pop(cell, None)
        if found is not None:
            entry, begin = found
            number = entry.get("attempt", 0)
            slot = f"slot {entry['slot']}" if "slot" in entry else ""
            if "worker" in entry:
                slot = f"{task_of(entry['worker'])} {slot or 'slot 0'}"
            self.found.append(Attempt(cell, number, slot, begin, max(at, begin), what, note))


def _setup(entry: Entry) -> str:
    """Workers that share a box prepare different set-ups at once."""
    return f"set-up of {task_of(entry['worker'])}" if "worker" in entry else "set-up"


def timeline(facts: SweepFacts) -> Spans:
    """The plot of all boxes ever rented, in the order of their names."""
    lanes: list[str] = []
    spans: list[Span] = []
    for story in facts.boxes:
        bill = facts.snapshot.spent.of(story.native_id) if facts.snapshot.spent else None
        lane = f"{story.label} bill"
        billed = list(_billed(bill, lane, facts.snapshot.now)) if bill else []
        if billed:
            lanes.append(lane)
            spans += billed
        made = attempts_of(facts, story)
        slots = sorted({one.slot for one in made if one.slot}, key=lambda slot: (len(slot), slot)) or [""]
        names = {slot: f"{story.label} {slot}".strip() for slot in slots}
        if made:
            lanes += names.values()
        for one in made:
            what = f"attempt {one.number}" if one.number else ""
            note = ": ".join(filter(None, (what, one.note[:200])))
            lane = names.get(one.slot, names[slots[0]])
            spans.append(Span(lane, millis(one.begin), millis(one.end), one.what, one.cell, note))
    return Spans("Attempts of cells on the slots of boxes, and the boxes' bills", lanes, spans, TONES)


def attempts_of(facts: SweepFacts, story: BoxStory) -> list[Attempt]:
    """What one box did, until now or until its bill ended."""
    if story.journal is None:
        return []
    bill = facts.snapshot.spent.of(story.native_id) if facts.snapshot.spent else None
    over = bill.ended_at if bill is not None and bill.ended_at is not None else facts.snapshot.now
    return attempts(story.journal, over, working=story.working)


def _billed(bill: Bill, lane: str, now: datetime) -> Iterator[Span]:
    for index, span in enumerate(bill.spans):
        price = "price not known" if span.price_per_hour is None else f"${spell_rate(span.price_per_hour)}/h"
        ended = f"; then {bill.ended_how or 'ended'}" if index == len(bill.spans) - 1 and span.end else ""
        what = "billed while running" if span.phase == "running" else "billed while stopped"
        yield Span(lane, millis(span.begin), millis(span.end or now), what, bill.native_id, price + ended)


def millis(moment: datetime) -> float:
    """Milliseconds since 1970, as the plots count."""
    return round(moment.timestamp() * 1000)


def busy(made: Sequence[Attempt]) -> list[tuple[datetime, datetime]]:
    """When a cell or the set-up ran, as intervals that don't overlap, by time."""
    joined: list[tuple[datetime, datetime]] = []
    for one in sorted(made, key=lambda one: one.begin):
        if joined and one.begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], one.end)
        else:
            joined.append((one.begin, one.end))
    return joined
