"""Asks a box for many things in one round trip, before they are needed.

Callers stay as they are. Code that knows what will be asked calls `prefetch` before (`Prefetches`). Each of those calls
is then answered once from what came. What was not prefetched is asked as ever.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import Unreachable

STALL_SECONDS = 60.0
FRESH_SECONDS = 30.0
"""An answer that was not asked for by then is thrown away: the box is asked again."""
MOST_NEWEST = 64
READS = frozenset({"read", "lock_held", "walk", "tails"})
"""Verbs of a channel that may be prefetched: they change nothing."""


@dataclass(frozen=True)
class Question:
    """One request, as the channel's method of that name sends it. `deadline`: seconds between signs of life. `of_box`:
    it is about the box; else about the machine that several boxes lie on."""

    verb: str
    args: Mapping[str, Any]
    deadline: float = STALL_SECONDS
    of_box: bool = True


def read(path: str) -> Question:
    """`Channel.read` of a whole file."""
    return Question("read", {"path": path, "offset": 0, "limit": None})


def lock_held(path: str) -> Question:
    """`Channel.lock_held`."""
    return Question("lock_held", {"path": path})


def walk(folders: Sequence[str], *, skip: Sequence[str] = (), limit: int, seconds: float) -> Question:
    """`Channel.walk`."""
    words = {"folders": list(folders), "skip": list(skip), "limit": limit, "seconds": seconds}
    return Question("walk", words, seconds + STALL_SECONDS)


def tails(paths: Sequence[str], most: int) -> Question:
    """`Channel.tails`."""
    return Question("tails", {"paths": list(paths), "limit": most})


def touch(path: str) -> Question:
    """`Channel.touch`. Its answer is not kept: a call that follows touches the file again."""
    return Question("touch", {"path": path})


def newest(folder: str, below: str, most: int) -> Question:
    """What `Channel.tails` with this `most` will ask of files `folder/*/*/below`: those that changed last."""
    return Question("newest", {"folder": folder, "below": below, "count": MOST_NEWEST, "limit": most})


@runtime_checkable
class Prefetches(Protocol):
    """A channel that can be asked many things at once."""

    def prefetch(self, questions: Sequence[Question]) -> None:
        """Asks all of these in one round trip; each call that follows is answered by it, once. What the box answers
        with an error, that call raises. Asks nothing where answers are there already. Raises Unreachable."""
        ...


@runtime_checkable
class PrefetchesBoxes(Protocol):
    """A platform that can be asked many things at once."""

    def prefetch(self, native_id: str, account: str, questions: Sequence[Question], tagged: str = "") -> None:
        """Asks for a box, for what is to be read of it, and with `tagged` for every box whose tag begins with that, in
        one round trip. The `get`, the `list_tagged` and the channel's calls that follow on this very object are each
        answered by it, once; what the platform or the box answers with an error, they raise. Raises Unreachable."""
        ...


@dataclass(frozen=True)
class PrefetchedAnswer:
    """What came for one question: data and a value, or what the call has to raise."""

    data: bytes
    value: Any
    error: Exception | None = None

    def get(self) -> tuple[bytes, Any]:
        """Raises what the box answered with."""
        if self.error is not None:
            raise self.error
        return self.data, self.value


class Answers:
    """What came for the questions about one box. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, PrefetchedAnswer] = {}
        self._newest: list[Newest] = []
        self._at = -float("inf")

    def keep(self, questions: Sequence[Question], answers: Sequence[PrefetchedAnswer]) -> None:
        """Instead of all that was known. Raises Unreachable for answers that can't be any."""
        known, ends = {}, []
        for question, answer in zip(questions, answers, strict=True):
            if question.verb == "touch":
                continue
            if question.verb != "newest":
                known[_key(question.verb, question.args)] = answer
            elif answer.error is None:
                ends.append(Newest(question.args, answer.value))
        with self._lock:
            self._known, self._newest, self._at = known, ends, time.monotonic()

    def take(self, verb: str, args: Mapping[str, Any]) -> PrefetchedAnswer | None:
        """The answer to this very request, the first time that it is asked for."""
        with self._lock:
            self._age()
            return self._known.pop(_key(verb, args), None)

    def take_tails(self, paths: Sequence[str], most: int) -> tuple[dict[str, Any], list[str]]:
        """Of these files, the ends that came, as a box says them; and those that have to be asked for."""
        with self._lock:
            self._age()
            found: dict[str, Any] = {}
            left = list(paths)
            for newest in self._newest:
                if newest.most == most:
                    found.update({path: newest.tails.pop(path) for path in left if path in newest.tails})
                    left = [path for path in left if path not in found and not newest.absent(path)]
            return found, left

    def clear(self) -> None:
        """Something was changed on the box: what was read before holds no more."""
        with self._lock:
            self._known, self._newest = {}, []

    def __bool__(self) -> bool:
        with self._lock:
            self._age()
            return bool(self._known or self._newest)

    def _age(self) -> None:
        if time.monotonic() - self._at > FRESH_SECONDS:
            self._known, self._newest = {}, []


class Newest:
    """The ends of some files below a folder, and which others are there."""

    def __init__(self, asked: Mapping[str, Any], said: Any) -> None:
        try:
            self.tails = dict(said["tails"])
            self._others = None if said["others"] is None else frozenset(said["others"])
        except (KeyError, TypeError, ValueError) as error:
            raise Unreachable("the box gave an answer that can't be one: nothing of it is believed") from error
        self.most = asked["limit"]
        self._seen = frozenset(self.tails)
        self._folder, self._below = f"{asked['folder']}/".split("/"), asked["below"].split("/")

    def absent(self, path: str) -> bool:
        """Whether the box looked where this would lie, and it was not there."""
        if self._others is None or path in self._others or path in self._seen:
            return False
        begin, parts = self._folder[:-1], path.split("/")
        like = parts[: len(begin)] == begin and parts[-len(self._below) :] == self._below
        return like and len(parts) == len(begin) + 2 + len(self._below)


def _key(verb: str, args: Mapping[str, Any]) -> str:
    return json.dumps([verb, args], sort_keys=True)
