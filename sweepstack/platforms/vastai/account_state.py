"""What all users of one key of vast.ai share in this process: turns, readings, and what was rented and ended."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

from sweepstack.platforms.common.rate_limit import Quota, RateLimiter, paced
from sweepstack.platforms.common.single_flight import SingleFlight
from sweepstack.platforms.vastai.pages import Column, Row

QUOTAS = {
    "user": Quota(1, 1.0),
    "create": Quota(1, 4.5),
    "get": Quota(1, 2.0),
    "list": Quota(1, 1.0),
    "state": Quota(1, 1.0),  # start and stop
    "destroy": Quota(1, 3.0),
    "bid": Quota(1, 5.5),
    "volumes": Quota(1, 5.5),
    "ssh": Quota(1, 1.0),
    "search": Quota(10, 60.0),
}
"""Of each endpoint: the API's own figures of 2026-11 (`user` is a guess: no figure)."""
LATELY_SECONDS = 20.0
"""So long after it was asked about last do lists ask for a box, too."""
GATHER_SECONDS = 0.1
MOST_GATHER_SECONDS = 5.0
"""Of who only reads: a list waits until so long no new box was asked about, so that it has all of a preview."""


@dataclass(frozen=True)
class Source:
    """The account's end of the API: where, and which key, by its digest."""

    url: str
    digest: str


@dataclass(frozen=True)
class Labels:
    """How many instances bear each label; None where vast.ai's counts can't be used."""

    counts: dict[str, int] | None


class Lately:
    """Those that were asked about lately: every list asks for all of them, so those who ask at once share it."""

    def __init__(self) -> None:
        self._asked: dict[int | str, tuple[float, float]] = {}  # since when without a break, and when last
        self._newest = -math.inf  # when one was asked about that no list asks for yet
        self._lock = threading.Lock()

    def ask(self, key: int | str) -> float:
        """Seconds for which lists have asked for this one, too: an answer from before that says nothing of it."""
        with self._lock:
            now = time.monotonic()
            since, last = self._asked.get(key, (now, -math.inf))
            if now - last > paced(LATELY_SECONDS):
                since = self._newest = now
            self._asked[key] = since, now
            return now - since

    def gather(self) -> None:
        """Waits while others come that are new. Whoever comes after a list was begun needs one of its own."""
        end = time.monotonic() + paced(MOST_GATHER_SECONDS)
        while (rest := min(self._newest + paced(GATHER_SECONDS), end) - time.monotonic()) > 0:
            time.sleep(rest)

    def keys(self) -> list[int | str]:
        """For the list that is about to be asked for."""
        with self._lock:
            now = time.monotonic()
            self._asked = {key: times for key, times in self._asked.items() if now - times[1] <= paced(LATELY_SECONDS)}
            return list(self._asked)


class AccountState:
    """What all users of one key in this process share: turns, readings, and what was ended."""

    def __init__(self) -> None:
        self.limiters = {name: RateLimiter(quota) for name, quota in QUOTAS.items()}
        self.user: SingleFlight[Row] = SingleFlight()
        self.instances: SingleFlight[dict[int, Row]] = SingleFlight()
        """All of the account: for who asks for all, and where no less is to be had."""
        self.some: dict[Column, SingleFlight[dict[int, Row]]] = {"id": SingleFlight(), "label": SingleFlight()}
        """Those that were asked about lately, by their ids or labels."""
        self.lately: dict[Column, Lately] = {"id": Lately(), "label": Lately()}
        self.labels: SingleFlight[Labels] = SingleFlight()
        self.volumes: SingleFlight[list[Row]] = SingleFlight()
        self.ended: set[int] = set()
        """Ids whose destroy this process sent and vast.ai accepted."""
        self.gone: dict[int, float] = {}
        """Those of `ended` that were proved gone, and when."""
        self.pages = 1
        """How many requests the last list took."""
        self.narrow = True
        """Whether a list of some ids or labels alone is to be had: false once it was refused."""
        self.small = True
        """Whether all of the account may be no longer than a list of those that were asked about: false once it was."""
        self.made: dict[str, int] = {}
        """Label → id of what this process rented last: a list may be from before that."""

    def forget(self) -> None:
        """What was read before this moment is not given to who only reads."""
        for rows in (self.instances, *self.some.values()):
            rows.forget()
        self.labels.forget()

    def pace(self, usual: float, most: float, behind: str) -> float:
        """Seconds between two looks: `usual`, and up to `most` while calls of the endpoint `behind` wait their turn:
        so many boxes come up or end one after the other, and a look serves all that did since the last."""
        return max(usual, min(most, self.limiters[behind].queue_seconds() / 4)) if behind else usual


_states: dict[Source, AccountState] = {}
_states_lock = threading.Lock()


def state_of_account(source: Source) -> AccountState:
    """The one state of a key in this process."""
    with _states_lock:
        return _states.setdefault(source, AccountState())


def forget() -> None:
    """Nothing that is known so far counts any more: for whoever changes the platform behind our back."""
    with _states_lock:
        _states.clear()
