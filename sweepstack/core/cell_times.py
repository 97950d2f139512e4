"""How long the cells of a box took, and from where they went on, by its journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sweepstack.core.journal import Entry, Journal


@dataclass(frozen=True)
class CellTimes:
    """`took`: sealed cell → seconds of the attempt that sealed it; `attempts_sealed`: and which one that was.
    `resumed`: cell → step of the checkpoint that its last attempt began with.
    """

    took: Mapping[str, float] = field(default_factory=dict)
    resumed: Mapping[str, int] = field(default_factory=dict)
    attempts_sealed: Mapping[str, int] = field(default_factory=dict)


def cell_times(journal: Journal) -> CellTimes:
    """Reads the journal once. What an event lacks, or has in another type, is not known."""
    reader = _Reader()
    for entry in journal.entries:
        act = _ACTS.get(entry["event"])
        if act is not None:
            act(reader, entry)
    return CellTimes(reader.took, reader.resumed, reader.attempts_sealed)


class _Reader:
    def __init__(self) -> None:
        self.began: dict[str, str] = {}
        self.took: dict[str, float] = {}
        self.resumed: dict[str, int] = {}
        self.attempts_sealed: dict[str, int] = {}

    def cell_started(self, entry: Entry) -> None:
        name = entry["cell"]
        self.began[name] = entry["time"]
        self.took.pop(name, None)
        self.resumed.pop(name, None)
        step = entry.get("checkpoint_step")
        if isinstance(step, int) and not isinstance(step, bool):
            self.resumed[name] = step

    def cell_sealed(self, entry: Entry) -> None:
        name = entry["cell"]
        seconds = _seconds(entry.get("seconds"))
        if seconds is None and name in self.began:
            begun, ended = (datetime.fromisoformat(str(text)) for text in (self.began[name], entry["time"]))
            seconds = max((ended - begun).total_seconds(), 0.0)
        if seconds is not None:
            self.took[name] = seconds
            self.attempts_sealed[name] = int(entry["attempt"])

    def cell_found_sealed(self, entry: Entry) -> None:
        self.began.pop(entry["cell"], None)  # how long that took, an earlier box knew


_ACTS: dict[str, Callable[[_Reader, Entry], None]] = {
    "cell-started": _Reader.cell_started,
    "cell-sealed": _Reader.cell_sealed,
    "cell-found-sealed": _Reader.cell_found_sealed,
}


def _seconds(value: Any) -> float | None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e10
    return float(value) if good else None
