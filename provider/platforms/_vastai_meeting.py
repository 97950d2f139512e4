"""What all users of one key of vast.ai share in this process: turns, readings, and what was rented and ended."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from provider.pace import Limiter, Shared
from provider.platforms._vastai_pages import Row

INTERVALS: dict[str, tuple[float, int]] = {
    "user": (1.0, 1),
    "create": (4.5, 1),
    "get": (2.0, 1),
    "list": (1.0, 1),
    "state": (1.0, 1),  # start and stop
    "destroy": (3.0, 1),
    "bid": (5.5, 1),
    "volumes": (5.5, 1),
    "ssh": (1.0, 1),
    "search": (60.0, 10),
}
"""Endpoint → seconds and how many requests in them: the API's own figures of 2026-11 (`user` is a guess: no figure)."""


@dataclass(frozen=True)
class Source:
    """The account's end of the API: where, and which key, by its digest."""

    url: str
    digest: str


class Meeting:
    """What all users of one key in this process share: turns, readings, and what was ended."""

    def __init__(self) -> None:
        self.limiters = {name: Limiter(seconds, count) for name, (seconds, count) in INTERVALS.items()}
        self.user: Shared[Row] = Shared()
        self.instances: Shared[dict[int, Row]] = Shared()
        self.volumes: Shared[list[Row]] = Shared()
        self.ended: set[int] = set()
        """Ids whose destroy this process sent and vast.ai accepted."""
        self.gone: dict[int, float] = {}
        """Those of `ended` that were proved gone, and when."""
        self.pages = 1
        """How many requests the last list took."""
        self.sightings: Shared[dict[int, Row]] = Shared()
        """Lists of those that are waited for alone."""
        self.narrow = True
        """Whether a list of some ids alone is to be had: false once it was refused."""
        self._awaited: Counter[int] = Counter()
        self._since: dict[int, float] = {}
        self._lock = threading.Lock()
        self.made: dict[str, int] = {}
        """Label → id of what this process rented last: a list may be from before that."""

    @contextmanager
    def waits_for(self, identifier: int) -> Iterator[None]:
        """While it lasts, every list of those that are waited for asks for this one, too."""
        with self._lock:
            self._since[identifier] = time.monotonic()  # who comes later must not be shown what was before
            self._awaited[identifier] += 1
        try:
            yield
        finally:
            with self._lock:
                self._awaited[identifier] -= 1
                if not self._awaited[identifier]:
                    del self._awaited[identifier], self._since[identifier]

    def awaited(self) -> list[int]:
        """Those that somebody waits for now."""
        with self._lock:
            return sorted(self._since)

    def awaited_for(self, identifier: int) -> float:
        """Seconds for which lists have asked for this one, too."""
        with self._lock:
            return max(0.0, time.monotonic() - self._since.get(identifier, math.inf))

    def pace(self, usual: float, most: float, behind: str) -> float:
        """Seconds between two looks: `usual`, and up to `most` while calls of the endpoint `behind` wait their turn:
        so many boxes come up or end one after the other, and a look serves all that did since the last."""
        return max(usual, min(most, self.limiters[behind].ahead() / 4)) if behind else usual


_meetings: dict[Source, Meeting] = {}
_meetings_lock = threading.Lock()


def meeting_at(source: Source) -> Meeting:
    """The one meeting of a key in this process."""
    with _meetings_lock:
        return _meetings.setdefault(source, Meeting())


def forget() -> None:
    """Nothing that is known so far counts any more: for whoever changes the platform behind our back."""
    with _meetings_lock:
        _meetings.clear()
