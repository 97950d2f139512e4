"""Per-key state of vast.ai in this process: rate limiters, shared answers, ids rented and destroyed."""

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
    "charges": Quota(1, 1.0),
    "search": Quota(10, 60.0),
}
"""Endpoint → its quota: the API's own figures of 2026-11 (`user` is a guess, since there is no figure)."""
LATELY_SECONDS = 20.0
"""For so long after a box was asked about, lists ask for it, too."""
GATHER_SECONDS = 0.1
MOST_GATHER_SECONDS = 5.0
"""For callers that only read: a list waits until no new box was asked about for `GATHER_SECONDS`, so that it has all
boxes of a preview."""


@dataclass(frozen=True)
class Source:
    """An API address and a key (`digest`: its sha256 in hex): what the shared state belongs to."""

    url: str
    digest: str


@dataclass(frozen=True)
class Labels:
    """How many instances have each label; None when vast.ai's counts can't be used."""

    counts: dict[str, int] | None


class RecentlyAsked:
    """The ids or labels that were asked about lately. Every list asks for all of them, so that callers which ask at the
    same time share one list."""

    def __init__(self) -> None:
        # asked about since when without a gap, and when last (monotonic)
        self._asked: dict[int | str, tuple[float, float]] = {}
        self._newest = -math.inf  # when a box was asked about that no list had asked for
        self._lock = threading.Lock()

    def ask(self, key: int | str) -> float:
        """Notes that `key` is asked about. Returns the seconds for which lists have asked for it already: an older
        list says nothing about it."""
        with self._lock:
            now = time.monotonic()
            since, last = self._asked.get(key, (now, -math.inf))
            if now - last > paced(LATELY_SECONDS):
                since = self._newest = now
            self._asked[key] = since, now
            return now - since

    def gather(self) -> None:
        """Blocks while callers ask about new boxes. A caller that comes after a list has begun needs another list."""
        end = time.monotonic() + paced(MOST_GATHER_SECONDS)
        while (rest := min(self._newest + paced(GATHER_SECONDS), end) - time.monotonic()) > 0:
            time.sleep(rest)

    def keys(self) -> list[int | str]:
        """The ids or labels that the next list has to ask for."""
        with self._lock:
            now = time.monotonic()
            self._asked = {key: times for key, times in self._asked.items() if now - times[1] <= paced(LATELY_SECONDS)}
            return list(self._asked)


class AccountState:
    """The state of one key, shared by all threads of this process."""

    def __init__(self) -> None:
        self.limiters = {name: RateLimiter(quota) for name, quota in QUOTAS.items()}
        self.user: SingleFlight[Row] = SingleFlight()
        self.instances: SingleFlight[dict[int, Row]] = SingleFlight()
        """Lists of all instances: for callers that need all, or when the list can't be filtered."""
        self.some: dict[Column, SingleFlight[dict[int, Row]]] = {"id": SingleFlight(), "label": SingleFlight()}
        """Lists of the instances that were asked about lately, by id or by label."""
        self.lately: dict[Column, RecentlyAsked] = {"id": RecentlyAsked(), "label": RecentlyAsked()}
        self.labels: SingleFlight[Labels] = SingleFlight()
        self.volumes: SingleFlight[list[Row]] = SingleFlight()
        self.ended: set[int] = set()
        """Ids whose destroy this process sent and vast.ai accepted."""
        self.gone: dict[int, float] = {}
        """Id of `ended` → when it was proved gone (monotonic)."""
        self.pages = 1
        """How many requests the last list needed."""
        self.narrow = True
        """Whether vast.ai lets us filter the list by ids or labels: False once it refused that."""
        self.small = True
        """Whether the whole account may be no longer than a list of the boxes that were asked about: False once it was
        longer."""
        self.made: dict[str, int] = {}
        """Label → id of the instance that this process rented last: a list may be from before that."""

    def forget(self) -> None:
        """Callers that only read get no answer from before this moment any more."""
        for rows in (self.instances, *self.some.values()):
            rows.forget()
        self.labels.forget()

    def pace(self, usual: float, most: float, behind: str) -> float:
        """Seconds between two looks: `usual`, and up to `most` while requests to the endpoint `behind` wait for the
        rate limit. Many boxes then start or end one after the other, and one look serves all of them."""
        return max(usual, min(most, self.limiters[behind].queue_seconds() / 4)) if behind else usual


_states: dict[Source, AccountState] = {}
_states_lock = threading.Lock()


def state_of_account(source: Source) -> AccountState:
    """The state of this key in this process; made at the first call."""
    with _states_lock:
        return _states.setdefault(source, AccountState())


def forget() -> None:
    """Drops all shared state: for tests that change the simulated platform directly."""
    with _states_lock:
        _states.clear()
