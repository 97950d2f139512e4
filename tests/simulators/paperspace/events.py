"""Machine events: what a client polls after each call that takes time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from tests.simulators.clock import rfc3339
from tests.simulators.timeline import Timeline

NEW, RUNNING, DONE, ERROR, CANCELLED = "new", "in progress", "done", "error", "cancelled"


def id_of(prefix: str, *what: object) -> str:
    """An id in the vendor's form: a prefix and some letters."""
    return prefix + hashlib.sha256(" ".join(map(str, what)).encode()).hexdigest()[:10]


@dataclass
class Event:
    """One event. `error`: what went wrong, which an event in the state `error` may lack."""

    id: str
    account: str
    name: str
    machine: str | None
    number: int
    created: float
    state: str = NEW
    started: float | None = None
    finished: float | None = None
    error: str | None = None

    def row(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "machineId": self.machine,
            "dtCreated": rfc3339(self.created),
            "dtStarted": rfc3339(self.started) if self.started is not None else None,
            "dtFinished": rfc3339(self.finished) if self.finished is not None else None,
            "error": self.error,
        }


class Events:
    """All events. They stay when their machine is gone."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.all: dict[str, Event] = {}

    def begin(self, account: str, name: str, machine: str | None) -> Event:
        """A new one, which is not worked on yet."""
        number = len(self.all) + 1
        made = Event(id_of("", "event", number), account, name, machine, number, self._timeline.now())
        self.all[made.id] = made
        return made

    def run(self, event: Event) -> None:
        """It is worked on."""
        event.state, event.started = RUNNING, self._timeline.now()

    def end(self, event: Event, error: str | None = None, *, state: str = "") -> None:
        """It is over: done, or in error with what is known of it. `state`: another one, with no error told."""
        event.started = event.started if event.started is not None else self._timeline.now()
        event.finished, event.error = self._timeline.now(), error
        event.state = state or (ERROR if error else DONE)

    def of(self, account: str, machine: str | None = None) -> list[Event]:
        """An account's events, oldest first; of one machine alone, if it is named."""
        return [one for one in self.all.values() if one.account == account and machine in (None, one.machine)]
