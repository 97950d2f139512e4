"""Tells of events at the places that the stack config names. Each command that looks does so.

None waits long for a server, or fails with it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from pydantic import ValidationError

from sweepstack.cli.output import note
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.events import EventsConfig
from sweepstack.core.budget import Budget
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.operations.events.channels import Channel, channels_of
from sweepstack.operations.events.deliver import Delivery, deliver
from sweepstack.operations.events.event import Event
from sweepstack.operations.events.holding_now import events_of
from sweepstack.operations.sweep.sources import Sources
from sweepstack.status.compose import SweepView
from sweepstack.status.snapshot import Snapshot

PATIENCE = 5.0
"""Seconds that a finished command still waits for an answer."""
AGAIN_SECONDS = 60.0
"""Seconds until a command that runs on tries a server again that did not take a message."""


def channels(file: StackFile, budget: Budget | None) -> tuple[list[Channel], str]:
    """The places to tell by this stack file and by the budget of the last `up`; and what is wrong with the file's."""
    try:
        raw = file.sweep().get("events") if file.path.exists() else None
        return channels_of(None if raw is None else EventsConfig.model_validate(raw), budget), ""
    except (ConfigError, ValidationError):  # what it says may quote a secret that was written there by mistake
        return channels_of(None, budget), f"{file.shown} does not say whom to tell of events (its `events` do not read)"


class Events:
    """The events of one command: it calls `look` after each snapshot and `end` at its end. Neither changes its
    answer."""

    def __init__(self) -> None:
        self._delivery: Delivery | None = None
        self._tried = -AGAIN_SECONDS
        self._done: set[tuple[str, str]] = set()
        self._said: set[str] = set()
        self._last: tuple[EvidenceStore, Sequence[Channel], Sequence[Event]] | None = None

    def look(self, sources: Sources, snapshot: Snapshot, view: SweepView) -> list[Event]:
        """The events that hold now. Begins to tell those that were not told yet, and returns at once."""
        events = events_of(snapshot, view)
        if sources.store is not None and sources.target.evidence is None:
            there, problem = channels(sources.target.file, snapshot.budget)
            self._say(problem)
            self.tell(sources.store, there, events)
        return events

    def tell(self, store: EvidenceStore, there: Sequence[Channel], events: Sequence[Event]) -> None:
        """Begins to tell these places of these events, unless what was begun before is still under way, or failed a
        moment ago."""
        self._last = (store, there, events)
        if self._delivery is not None:
            if self._delivery.under_way():
                return  # a later look, or `end`, tells what has come meanwhile
            self._settle(0)
        if events and there and time.monotonic() - self._tried >= AGAIN_SECONDS:
            self._delivery = deliver(store, there, events, self._done)

    def end(self) -> None:
        """Waits a moment for the answers; if there are none, says so on stderr."""
        deadline = time.monotonic() + PATIENCE
        if self._delivery is not None:
            self._settle(PATIENCE)
            if self._last is not None and time.monotonic() < deadline:
                self.tell(*self._last)
                self._settle(deadline - time.monotonic())

    def _settle(self, seconds: float) -> None:
        if self._delivery is None:
            return
        failed = self._delivery.wait(seconds)
        self._done |= self._delivery.told
        self._say(failed)
        self._delivery = None
        self._tried = time.monotonic() if failed else self._tried

    def _say(self, problem: str) -> None:
        if problem and problem not in self._said:
            self._said.add(problem)
            note(problem)
