"""What a box's journal says of its queue as a whole: set-up steps, whether it is blocked, how long its cells took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from sweep.journal import Entry, Journal


@dataclass(frozen=True)
class Setup:
    """The last set-up step of one version of the code. `seconds`: how long it took, once it ended."""

    setup: str
    code: str
    state: Literal["running", "done", "failed"]
    since: datetime
    seconds: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class QueueState:
    """`took`: sealed cell → seconds of the attempt that sealed it; `attempts_sealed`: and which one that was.
    `resumed`: cell → step of the checkpoint that its last attempt began with.

    `blocked`: the event that says why nothing new starts, until it is taken back.
    """

    setups: tuple[Setup, ...] = ()
    blocked: Mapping[str, Any] | None = None
    took: Mapping[str, float] = field(default_factory=dict)
    resumed: Mapping[str, int] = field(default_factory=dict)
    attempts_sealed: Mapping[str, int] = field(default_factory=dict)


def queue_state(journal: Journal) -> QueueState:
    """Reads the journal once. What an event lacks, or has in another type, is not known."""
    reader = _Reader()
    for entry in journal.entries:
        act = _ACTS.get(entry["event"])
        if act is not None:
            act(reader, entry)
    return QueueState(
        tuple(reader.setups.values()), reader.blocked, reader.took, reader.resumed, reader.attempts_sealed
    )


class _Reader:
    def __init__(self) -> None:
        self.setups: dict[tuple[str, str], Setup] = {}
        self.blocked: Mapping[str, Any] | None = None
        self.began: dict[str, str] = {}
        self.took: dict[str, float] = {}
        self.resumed: dict[str, int] = {}
        self.attempts_sealed: dict[str, int] = {}

    def cell_started(self, entry: Entry) -> None:
        name = entry["cell"]
        self.began[name] = entry["time"]
        self.took.pop(name, None)
        self.resumed.pop(name, None)
        self.prepared(str(entry.get("code", "")))
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

    def setup_step(self, entry: Entry) -> None:
        state: Literal["running", "done", "failed"] = "running"
        if entry["event"] != "setup-started":
            state = "done" if entry["event"] == "setup-finished" else "failed"
        key = str(entry.get("setup", "")), str(entry.get("code", ""))
        if not key[1] and state != "running":  # the contract lets the end name the set-up only
            key = next((known for known in reversed(self.setups) if known[0] == key[0]), key)
        reason = str(entry.get("reason") or "")
        since = datetime.fromisoformat(str(entry["time"]))
        begun = self.setups.pop(key, None)
        seconds = _seconds(entry.get("seconds"))
        if seconds is None and begun is not None and state != "running":
            seconds = (since - begun.since).total_seconds()
        self.setups[key] = Setup(*key, state, since, seconds, reason)

    def prepared(self, code: str) -> None:
        """A cell of this version started: whatever was in the way of it is not any more."""
        for key, setup in self.setups.items():
            if key[1] == code and setup.state == "failed":
                self.setups[key] = replace(setup, state="done", reason="")

    def block(self, entry: Entry) -> None:
        self.blocked = entry

    def unblock(self, entry: Entry) -> None:
        self.blocked = None


_ACTS: dict[str, Callable[[_Reader, Entry], None]] = {
    "cell-started": _Reader.cell_started,
    "cell-sealed": _Reader.cell_sealed,
    "cell-found-sealed": _Reader.cell_found_sealed,
    "setup-started": _Reader.setup_step,
    "setup-finished": _Reader.setup_step,
    "setup-failed": _Reader.setup_step,
    "queue-blocked": _Reader.block,
    "queue-unblocked": _Reader.unblock,
}


def _seconds(value: Any) -> float | None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e10
    return float(value) if good else None
