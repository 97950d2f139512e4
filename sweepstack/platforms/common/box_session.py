"""Finds the boxes of one key, where a platform lists them whole and shows each by its id.

An adapter has one session for each API key, which all threads of this process share.
"""

from __future__ import annotations

import abc
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Generic, TypeVar

from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NotAuthorized,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    Unreachable,
)
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common import keys
from sweepstack.platforms.common.deadline import Deadline, Watch
from sweepstack.platforms.common.http_client import HttpAnswer, HttpClient, Refusals
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.keys import Key
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.single_flight import SingleFlight

FRESH_SECONDS = 8.0
"""A box may be read from a list of this age, unless a write of ours came after it."""
LAG_SECONDS = 60.0
"""For so long a box that we made may not be found by its id, and still be there. No platform names a figure."""
READ_SECONDS = 180.0
"""Limit for a read: the requests for other boxes come first."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Names:
    """What messages call a platform, its adapter, and its boxes (in the plural)."""

    platform: str
    adapter: str
    boxes: str

    @property
    def one(self) -> str:
        """One of its boxes: "Some Cloud machine"."""
        return f"{self.platform} {self.boxes.removesuffix('s')}"


class BoxSession(abc.ABC):
    """One key at one API address, with its shared answers. Safe to share between threads.

    `names`: what messages call the platform and its boxes; `form`: how an id looks; `path`: of the list, below which
    each box has its own; `no_such_thing`: the code of the answer for an id that the platform does not know. An adapter
    gives these and the methods that are abstract, and reads the rows.
    """

    names: ClassVar[Names]
    form: ClassVar[re.Pattern[str]]
    path: ClassVar[str]
    no_such_thing: ClassVar[str]
    refusals: ClassVar[Refusals]
    one_look_is_enough: ClassVar[bool] = True
    """Whether a box that was shown once is gone when it is not found: False where answers may go back in time."""

    def __init__(self, http: HttpClient) -> None:
        self.http = http
        self._boxes = SingleFlight[Listed]()
        self._made: dict[str, float] = {}  # id → when we made it (monotonic)
        self._ended: set[str] = set()  # ids whose end was accepted

    @abc.abstractmethod
    def account(self) -> str:
        """The account of the key. Raises NotAuthorized, Unreachable."""

    @abc.abstractmethod
    def must_reach(self, account: str, what: str, *, absent: bool) -> None:
        """Raises WrongAccount when what the key says of `what` proves nothing, since it may be another `account`'s.
        `absent`: it was asked for, and is not there."""

    def reached(self, account: str) -> None:  # noqa: B027 (most platforms say whose a key is)
        """Called when the key shows a box that is on record for `account`."""

    @abc.abstractmethod
    def rows(self) -> Iterable[Any]:
        """All boxes of the account, as the platform lists them now. Raises Unreachable."""

    @abc.abstractmethod
    def record_of(self, row: Row, account: str, *, ending: bool) -> BoxRecord:
        """A row as a record. `ending`: its end was accepted, whatever the row says."""

    @abc.abstractmethod
    def carries(self, row: Row, tag: str) -> bool:
        """Whether the row is the box of this tag."""

    def data(self, answer: HttpAnswer, asked: str) -> Any:
        """What a read gave. Raises Unreachable, or NotAuthorized, where it was refused: then nothing is known."""
        if not answer.ok:
            error = self.refused(answer, asked)
            kind = NotAuthorized if isinstance(error, NotAuthorized | InsufficientFunds) else Unreachable
            raise kind(f"{error}. What {self.names.platform} has is not known") from None
        return answer.data

    def refused(self, answer: HttpAnswer, asked: str) -> PlatformError:
        """The error for an answer that is not 2xx. `asked`: what was asked for, for the message."""
        return self.refusals.error(self.http, answer, asked)

    @classmethod
    def checked_id(cls, native_id: str) -> str:
        """The id, checked so that it may stand in a URL's path. Raises RequestRefused for what can't be one."""
        if not cls.form.fullmatch(native_id):
            raise RequestRefused(
                f"{native_id!r} is no id of a {cls.names.platform} {cls.names.boxes.removesuffix('s')}"
            )
        return native_id

    def boxes(self, *, max_age: float = 0.0) -> Listed:
        """All boxes that the key sees. `max_age`: seconds that the list may be old. Raises Unreachable."""

        def read() -> Listed:
            found = Listed.of(self.names, self.rows())
            self._shown(found.by_id)
            return found

        return self._boxes.get(read, max_age=max_age)

    def box(self, native_id: str) -> Row | None:
        """One box, asked for by its id now; None when the platform says that there is none. Raises Unreachable when
        that is not sure: an answer that is not the API's own, or a box that was made a moment ago."""
        name = self.names.platform
        answer = self.http.read(f"{self.path}/{self.checked_id(native_id)}", deadline=Deadline(READ_SECONDS))
        if answer.status == 404 and self.refusals.code(answer) == self.no_such_thing:
            if time.monotonic() - self._made.get(native_id, -1e9) < paced(LAG_SECONDS):
                raise Unreachable(f"{native_id} was made a moment ago and {name} does not show it yet: it may bill")
            return None
        row = self.data(answer, f"to show {native_id}")
        if identifier(row) != native_id:
            raise Unreachable(f"{name} was asked for {native_id} and shows something else: nothing is known of it")
        self._shown([native_id])
        return dict(row)

    def _shown(self, native_ids: Iterable[str]) -> None:
        if self.one_look_is_enough:
            for native_id in native_ids:
                self._made.pop(native_id, None)

    def write(
        self,
        method: str,
        path: str,
        body: Row | None,
        deadline: Deadline | None = None,
        *,
        via: HttpClient | None = None,
    ) -> HttpAnswer:
        """A write that changes a box: from then on no caller gets a list from before it. Raises OutcomeUnknown when the
        answer is lost or does not come."""
        try:
            return (via or self.http).write(method, path, body, deadline=deadline or Deadline(READ_SECONDS))
        finally:
            self._boxes.forget()

    def made(self, native_id: str) -> None:
        """Notes that we made this box now."""
        self._made[native_id] = time.monotonic()

    def ended(self, native_id: str, answer: HttpAnswer) -> HttpAnswer:
        """The answer to a request for the end of a box, which is noted when it was accepted."""
        if answer.ok:
            self._ended.add(native_id)
        return answer

    def is_ending(self, native_id: str) -> bool:
        """Whether this process had its end accepted."""
        return native_id in self._ended

    def added(
        self,
        find: Callable[[], str],
        add: Callable[[], HttpAnswer],
        name_of: Callable[[HttpAnswer], str],
        what: tuple[str, str],
    ) -> str:
        """The name of what the account needs once, such as an SSH key: as `find` has it, else as it was added now.
        Costs nothing. Idempotent: after a lost answer the list decides. `what`: the thing, and what adding it is."""
        thing, adding = what
        why: PlatformError = Unreachable(f"{self.names.platform} has the {thing}, and does not list it")
        for last in (False, True):
            if found := find():
                return found
            if last:
                break
            try:
                answer = add()
            except OutcomeUnknown as error:
                why = Unreachable(f"{error}. Nothing was rented. Next: the same command again")
                continue
            if answer.ok and (name := name_of(answer)):
                return name
            why = self.refused(answer, f"{adding} (nothing was rented)")  # or another command has added it meanwhile
        raise why

    # ------------------------------------------------------- finding a box: other people may use our names

    def recorded(self, row: Row) -> BoxRecord:
        """The row as a record; ENDING when this process had its end accepted."""
        return self.record_of(row, self.account(), ending=self.is_ending(identifier(row)))

    def listed_as(self, row: Row) -> BoxRecord:
        """A row of a list as a record: GONE where the list shows it for longer than it is there."""
        return self.recorded(row)

    def gone(self, native_id: str, account: str) -> BoxRecord:
        """The record of a box that is proved gone."""
        place = f"{self.names.platform}, {self.names.boxes.removesuffix('s')} {native_id}"
        return BoxRecord(native_id, "", account, Phase.GONE, None, None, place)

    def get(self, native_id: str, account: str, *, now: bool = False) -> BoxRecord:
        """See `Platform.get`. `now`: asks for this one, and uses no list. Raises WrongAccount as `must_reach`."""
        self.checked_id(native_id)
        self.must_reach(account, f"the box {native_id}", absent=False)
        row = None if now else self.boxes(max_age=paced(FRESH_SECONDS)).by_id.get(native_id)
        found = self.listed_as(row) if row is not None else self.by_id(native_id)
        if found is None:
            self.must_reach(account, f"the box {native_id}", absent=True)
            return self.gone(native_id, account or self.account())
        self.reached(account)
        return replace(found, account=account or found.account)

    def living(self, native_id: str, account: str, verb: str) -> BoxRecord:
        """The box as it is now. Raises PlatformError for one that is gone or ends: it can't be `verb` (stopped, …)."""
        record = self.get(native_id, account, now=True)
        if record.phase in (Phase.GONE, Phase.ENDING):
            raise PlatformError(f"{native_id} is {record.phase}: it can't be {verb}")
        return record

    def watched(self, native_id: str, account: str, phase: Phase, seconds: float, poll: float) -> BoxRecord:
        """The box as it comes to this phase, or as it is after so many seconds; `poll` between two looks. Blocks.
        Raises Unreachable when that is not known, and PlatformError for a box that ends while it is to be off."""
        seen = replace(self.gone(native_id, account), phase=Phase.UNKNOWN)  # until there was a look

        def there() -> bool:
            nonlocal seen
            seen = self.get(native_id, account, now=True)
            if phase is not Phase.GONE and seen.phase in (Phase.GONE, Phase.ENDING):
                raise PlatformError(f"{native_id} is {seen.phase}: it was ended from elsewhere while it was stopped")
            return seen.phase is phase

        Watch(Deadline(paced(seconds)), f"{native_id} to be {phase}", lambda: paced(poll)).until(there)
        return seen

    def by_id(self, native_id: str) -> BoxRecord | None:
        """The box with this id; None only when it is proved that there is none. Raises Unreachable."""
        row = self.box(native_id)
        return None if row is None else self.recorded(row)

    def by_tag(self, tag: str, account: str = "", *, max_age: float | None = None, known: str = "") -> BoxRecord | None:
        """The oldest box with this tag that is not ending, else one that is ending; None only when a list from now has
        none. `known`: the id on record, which comes before all others. The note names other boxes with the same tag.
        Raises Unreachable; WrongAccount as `must_reach`."""
        self.must_reach(account, f"the box {tag}", absent=False)
        found = self._carrying(tag, paced(FRESH_SECONDS) if max_age is None else max_age)
        if not found and max_age is None:  # a list from a moment ago does not prove that there is none
            found = self._carrying(tag, 0.0)
        if not found:
            self.boxes(max_age=paced(FRESH_SECONDS)).must_be_whole(tag)
            self.must_reach(account, f"the box {tag}", absent=True)
            return None
        first = first_of(found, known, self.names)
        return replace(first, account=account or first.account)

    def tagged(self, prefix: str) -> list[BoxRecord]:
        """Every box whose tag begins with `prefix` or can't be read, sorted by id; last, one record for those without
        an id."""
        boxes = self.boxes(max_age=paced(FRESH_SECONDS))
        records = (self.listed_as(row) for row in boxes.by_id.values())
        return boxes.tagged((one for one in records if one.phase is not Phase.GONE), prefix, self.account())

    def _carrying(self, tag: str, max_age: float) -> list[BoxRecord]:
        rows = self.boxes(max_age=max_age).by_id.values()
        records = [self.listed_as(row) for row in rows if self.carries(row, tag)]
        return [replace(record, tag=tag) for record in records if record.phase is not Phase.GONE]


@dataclass(frozen=True)
class Listed:
    """A complete list of boxes by id. `damaged`: how many entries have no id; with any, no absence is proved."""

    names: Names
    by_id: Mapping[str, Mapping[str, Any]]
    damaged: int = 0

    @classmethod
    def of(cls, names: Names, rows: Iterable[Any]) -> Listed:
        """The list of these entries; of two with the same id it has the last one."""
        rows = list(rows)
        by_id = {identifier(row): row for row in rows if identifier(row)}
        return cls(names, by_id, sum(1 for row in rows if not identifier(row)))

    @property
    def unreadable(self) -> str:
        """How many entries can't be read, for messages."""
        return f"{self.damaged} of {self.names.platform}'s {self.names.boxes} can't be read"

    def must_be_whole(self, tag: str) -> None:
        """Raises Unreachable when it has entries that can't be read: then it proves no absence of the tag."""
        if self.damaged:
            raise Unreachable(f"whether there is a box {tag} is not known: {self.unreadable}. Look at the console")

    def tagged(self, records: Iterable[BoxRecord], prefix: str, account: str) -> list[BoxRecord]:
        """Those of its `records` whose tag begins with `prefix` or can't be read, sorted by id; last, one record for
        all entries without an id."""
        found = [record for record in records if record.tag.startswith(prefix) or not record.tag]
        found.sort(key=lambda record: record.native_id)
        if self.damaged:
            names = self.names
            place = f"{names.platform}, {self.damaged} {names.boxes} whose id can't be read: look at the console"
            found.append(BoxRecord("", "", account, Phase.UNKNOWN, None, None, place, place))
        return found


def first_of(found: list[BoxRecord], known: str, names: Names) -> BoxRecord:
    """Of boxes with the same tag, one or more: the one on record (`known`, an id), else the oldest, and one that is
    ending only when all are. Its note names the others that may bill."""
    found = sorted(found, key=lambda one: (one.phase is Phase.ENDING, one.native_id != known, _age(one)))
    others = [other.native_id for other in found[1:] if other.phase is not Phase.ENDING]
    if not others:
        return found[0]
    ends = ", ".join(f"sweepctl audit --end {names.adapter}:{other}" for other in others)
    return noted(
        found[0],
        f"{len(others) + 1} {names.boxes} carry this tag, and {', '.join(others)} may bill beside it: end what is too "
        f"many: {ends}",
    )


def noted(record: BoxRecord, note: str) -> BoxRecord:
    """The record with a note more."""
    return replace(record, note="; ".join(part for part in (record.note, note) if part))


def _age(record: BoxRecord) -> tuple[datetime, str]:
    return record.created_at or datetime.max.replace(tzinfo=UTC), record.native_id


S = TypeVar("S")


class Sessions(Generic[S]):
    """One session for each API address and key, made by `make` when it is first asked for. Safe to share between
    threads."""

    def __init__(self, make: Callable[[str, str], S]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: dict[tuple[str, str], S] = {}

    def of(self, base: str, key: str) -> S:
        """The session of this address and key. Sends no request."""
        with self._lock:
            if (base, key) not in self._made:
                self._made[base, key] = self._make(base, key)
            return self._made[base, key]

    def forget(self) -> None:
        """Drops all sessions with their cached answers: for tests that change the simulated platform directly."""
        with self._lock:
            self._made.clear()


def base_url(variable: str, usual: str) -> str:
    """The API's address, from the environment variable; without it the `usual` one."""
    return os.environ.get(variable, "").strip().rstrip("/") or usual


def must_be_a_key(key: str, platform: str, missing: str, check: str) -> None:
    """Raises NotAuthorized when there is no key (`missing`: the message), and for one that no HTTP header can carry
    (`check`: where it stands)."""
    if not key:
        raise NotAuthorized(missing)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise NotAuthorized(f"the key for {platform} is not one: it holds blanks or other special signs{check}")


def found(key: Key, account: str, missing: str, adapter: str) -> str:
    """The key that counts for this account (`keys.find`). Raises NotAuthorized, with `missing`, when there is none."""
    value = keys.find(key, account)
    must_be_a_key(value, key.opens, missing, f": {keys.hint(key, value, key.variable)}")
    keys.learn(key, value, adapter)
    return value
