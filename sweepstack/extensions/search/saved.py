"""What the rule of a search saved: an estimate, by its log and the copies of the journals."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from statistics import median
from typing import Any

from sweepstack.billing.ledger import Spent
from sweepstack.core.journal import Journal, cell_times
from sweepstack.evidence.search_log import read_search_log
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.units import count
from sweepstack.teardown.launched import copied_journal


@dataclass(frozen=True)
class Saved:
    """What a rule saved, estimated: what the stopped cells would have taken, if each had run as long as the median of
    those that ended, without what they took. `usd`: by what the sweep has cost for a second of a cell; None where that
    is not known."""

    cells: int
    hours: float
    usd: float | None

    def as_json(self) -> dict[str, Any]:
        """As `ledger --json` says it, of one sweep or of all."""
        return {"cells": self.cells, "hours": round(self.hours, 6), "usd": self.usd}

    @property
    def words(self) -> str:
        """For a person."""
        price = "" if self.usd is None else f", ${self.usd:.2f}"
        hours = f"about {self.hours:.2f} hours of cells{price}"
        return f"saved  {hours} by {count(self.cells, 'cell')} that a rule stopped early"


def saved_by_stops(store: EvidenceStore, found: Spent) -> Saved | None:
    """None where no rule stopped a cell, or no cell has ended to tell what one takes. Reads the log and the copies of
    the journals. Raises EvidenceError."""
    stopped = read_search_log(store.objects).pruned
    took: list[float] = []
    spent_on: dict[str, float] = {}
    for bill in found.bills if stopped else ():
        journal = copied_journal(store, bill.box, bill.generation) if bill.generation is not None else None
        if journal is not None:
            took += cell_times(journal).took.values()
            for cell, seconds in _until_dropped(journal):
                spent_on[cell] = spent_on.get(cell, 0.0) + seconds
    if not took:
        return None
    each = median(took)
    seconds = sum(max(each - spent_on.get(cell, 0.0), 0.0) for cell in stopped)
    busy = sum(took) + sum(spent_on.values())
    return Saved(len(stopped), seconds / 3600, found.usd / busy * seconds if found.complete and busy else None)


def _until_dropped(journal: Journal) -> Iterator[tuple[str, float]]:
    """(cell, seconds) of each run that a drop ended."""
    began: dict[str, datetime] = {}
    for entry in journal.entries:
        if entry["event"] == "cell-started":
            began[entry["cell"]] = datetime.fromisoformat(str(entry["time"]))
        elif entry["event"] == "cell-dropped" and entry["cell"] in began:
            ended = datetime.fromisoformat(str(entry["time"]))
            yield entry["cell"], max((ended - began.pop(entry["cell"])).total_seconds(), 0.0)
