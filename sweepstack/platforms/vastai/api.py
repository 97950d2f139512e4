"""All calls to vast.ai, through its official SDK; each returns a value or raises one of our errors.

What we must not leave to the SDK (1.9, read in its source): it sends a create again after a lost answer (so we pass
`retry=1` everywhere and decide ourselves what may be sent twice), it takes `success: false` for a success, it reads
VAST_URL once at import, and it does not keep to the API's rate limits.

Each key has a state in this process: rate limiters, shared answers, ids rented and destroyed.

The account's list of instances is read page by page: all, those with some ids or labels, or counts. The list can be
filtered by `id` and `label`, and each page has the number of instances of each label (the API's documentation,
2026-11). So a question about few boxes needs few pages, even in an account with many instances.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, TypeGuard, TypeVar

from sweepstack.core.extras import lacks
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import (
    NotAuthorized,
    NotInstalled,
    PlatformError,
    RequestRefused,
    SweepstackError,
    Unreachable,
)
from sweepstack.onbox.common.xdg import user_folder
from sweepstack.platforms.common import keys
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import REQUEST_SECONDS, answer_seconds, retried
from sweepstack.platforms.common.rate_limit import Quota, RateLimiter, paced
from sweepstack.platforms.common.single_flight import SingleFlight
from sweepstack.platforms.vastai import KEY
from sweepstack.platforms.vastai.states import KEY_HELP, Refusal, error_for, lost_answer

Answer = TypeVar("Answer")

URL_VARIABLE = "VAST_URL"
DEFAULT_URL = "https://console.vast.ai"
VERB_SECONDS = 300.0
"""The deadline of an operation when the caller gives none: enough to wait for other boxes that end at the same time."""
CHARGES_A_PAGE, CHARGE_PAGES = 500, 200
_WRITE_SECONDS = 60.0
"""Limit for the answer to a write."""

Row = dict[str, Any]
Asking = Callable[[Row], Row]
"""Reads one page of the list: takes the parameters, returns the page."""
Column = Literal["id", "label"]

SIZE = 25
"""Rows of a page: the most that vast.ai allows."""
FEW: dict[Column, int] = {"id": 100, "label": SIZE}
"""The most ids or labels in one request, so that its URL does not become too long."""
_PAGES = 400
_READINGS = 4


class Client:
    """The calls to vast.ai with one key. Cheap to make; each operation makes a new one, so that it uses the current
    key.

    Every method blocks, and waits for the rate limit of its endpoint. Reads are retried after a lost answer or a 5xx.
    Writes are sent again only after a 429: then they were not carried out. Raises NotAuthorized when there is no key,
    NotInstalled when there is one and no SDK.
    """

    def __init__(self, account: str = "") -> None:
        """`account`: whose key, where several are known."""
        key = keys.find(KEY, account)
        if missing := lacks("vastai"):
            places = (
                user_folder("XDG_CONFIG_HOME", ".config") / "vastai/vast_api_key",
                user_folder("", ".vast_api_key"),
            )
            if key or any(place.is_file() for place in places):
                raise NotInstalled(f"vast.ai can't be asked: {missing}")
            raise NotAuthorized(f"there is no key for vast.ai: {KEY_HELP}")
        try:
            VastAI = _sdk()
            key = key or str(VastAI(server_url=base_url(), retry=1).client.api_key).strip()  # in a file of its own
        except (RuntimeError, OSError, UnicodeError) as error:
            raise NotAuthorized(f"there is no key for vast.ai ({type(error).__name__}): {KEY_HELP}") from None
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise NotAuthorized(f"what stands where vast.ai's key is looked for is no key: {KEY_HELP}")
        keys.learn(KEY, key, "vastai", "vast.ai's own key file")
        self._new: Callable[[], Any] = lambda: VastAI(api_key=key, server_url=base_url(), retry=1)
        self.source = Source(base_url(), hashlib.sha256(key.encode()).hexdigest())
        self.state = state_of_account(self.source)

    # ------------------------------------------------------------------ reads

    def user(self, deadline: Deadline, *, age: float = 0.0) -> Row:
        """The account of the key: `id`, `email`, `credit` (USD). `age`: seconds that a shared answer may be old."""

        def read() -> Row:
            said: Row = self._read("user", "say whose key this is", lambda sdk: _mapping(sdk.show_user()), deadline)
            if not is_id(said.get("id")):
                raise Unreachable("vast.ai did not say whose key this is: its answer has no id")
            return said

        return self.state.user.get(read, deadline, max_age=age)

    def instances(self, deadline: Deadline, *, age: float = 0.0, forgotten: bool = False) -> dict[int, Row]:
        """Every instance of the account by id. Raises Unreachable unless the list is proved complete. It costs one
        request for each 25 instances: call it only when all are needed, or when the list can't be filtered.
        `forgotten`: as in `SingleFlight.get`."""

        def read() -> dict[int, Row]:
            rows, self.state.pages = complete(lambda asked: self._page(asked, deadline))
            return rows

        return self.state.instances.get(read, deadline, max_age=age, forgotten=forgotten)

    def listed(self, identifier: int, deadline: Deadline, *, age: float = 0.0, forgotten: bool = False) -> Row | None:
        """One instance as the list shows it; None when the list lacks it, which alone proves nothing. `age`: seconds
        that the list may be old. `forgotten`: as in `SingleFlight.get`."""
        return self._some("id", [identifier], deadline, age=age, forgotten=forgotten).get(identifier)

    def labelled(self, wanted: Sequence[str], deadline: Deadline, *, age: float = 0.0) -> list[Row]:
        """The instances with one of these labels, as the list shows them. Sends no request for no labels."""
        if not wanted:
            return []
        found = self._some("label", wanted, deadline, age=age)
        return [row for row in found.values() if row.get("label") in wanted]

    def labels(self, deadline: Deadline, *, age: float = 0.0) -> dict[str, int] | None:
        """How many instances of the account have each label, in one request; None when the counts can't be used."""

        def read() -> Labels:
            return Labels(labels(lambda asked: self._page(asked, deadline)))

        return self.state.labels.get(read, deadline, max_age=age).counts

    def _some(
        self, column: Column, wanted: Sequence[int | str], deadline: Deadline, *, age: float, forgotten: bool = False
    ) -> dict[int, Row]:
        """A shared list of the instances that were asked about lately, `wanted` among them."""
        state, shared = self.state, self.state.some[column]

        only_reads = age > 0 and not forgotten

        def read() -> dict[int, Row]:
            asked: Any = state.lately[column].keys()
            if only_reads and (rows := self._whole(len(asked), deadline)) is not None:
                return rows
            rows, state.pages = some(lambda page: self._page(page, deadline), column, asked)
            return rows

        if state.narrow:
            try:
                known = min(state.lately[column].ask(key) for key in wanted)
                if only_reads and not known:
                    state.lately[column].gather()
                    known = min(state.lately[column].ask(key) for key in wanted)
                return shared.get(read, deadline, max_age=min(age, known), forgotten=forgotten)
            except RequestRefused:  # vast.ai does not filter by this column: it is not asked to again
                state.narrow = False
        return self.instances(deadline, age=age, forgotten=forgotten)

    def _whole(self, asked: int, deadline: Deadline) -> dict[int, Row] | None:
        """All instances of the account, if they need no more pages than a list of `asked` ids; else None. Also serves
        `kept`."""
        begun, most = time.monotonic(), -(-asked // SIZE) * SIZE
        if most == SIZE or not self.state.small:
            return None
        found = complete_if_few(lambda page: self._page(page, deadline), most)
        if found is None:
            self.state.small = False
            return None
        rows, self.state.pages = found
        self.state.instances.keep(begun, rows)
        return rows

    def kept(self, age: float) -> dict[int, Row] | None:
        """Every instance of the account by id, from a list of at most `age` seconds; None without one. Sends no
        request."""
        return self.state.instances.kept(age)

    def instance(self, identifier: int, deadline: Deadline) -> Row | None:
        """One instance, by its own endpoint; None when vast.ai answers `{"instances": null}`, which alone proves
        nothing."""

        def ask(sdk: Any) -> Any:
            # Not show_instance: it raises KeyError when the row lacks a field that we do not need.
            response = sdk.client.get(f"/instances/{identifier}/", query_args={"owner": "me"})
            response.raise_for_status()
            data = _mapping(response.json())
            if Refusal.in_success(data):
                return data
            row = data["instances"]
            return [] if row is None else [_mapping(row)]

        rows = self._read("get", f"show instance {identifier}", ask, deadline)
        return rows[0] if rows else None

    def holds_key(self, identifier: int, public_key: str, deadline: Deadline) -> bool:
        """Whether the instance accepts this public key already."""

        def ask(sdk: Any) -> bool:
            response = sdk.client.get(f"/instances/{identifier}/ssh/")
            response.raise_for_status()
            return public_key.split()[1] in response.text

        return self._read("ssh", f"list the keys of instance {identifier}", ask, deadline)

    def search(self, query: Row, deadline: Deadline, *, kind: str, order: str, storage: float) -> list[Row]:
        """Offers of machines as rows: 64 at most, even when there are more. `kind`: "bid" or "on-demand"; `order`: the
        column to sort by; `storage`: GB that the price includes."""

        def ask(sdk: Any) -> list[Row]:
            return _rows(sdk.search_offers(dict(query), type=kind, order=order, limit=64, storage=storage))

        return self._read("search", "list offers", ask, deadline)

    def search_volumes(self, query: Row, deadline: Deadline, *, storage: float) -> list[Row]:
        """Offers of volumes as rows, cheapest first. `storage`: GB."""

        def ask(sdk: Any) -> list[Row]:
            return _rows(sdk.search_volumes(dict(query), order="storage_cost", storage=storage))

        return self._read("volumes", "list offers of volumes", ask, deadline)

    def volumes(self, deadline: Deadline) -> list[Row]:
        """Every volume of the account, in a list that waiting callers share."""

        def ask(sdk: Any) -> list[Row]:
            # Not show_volumes: it raises KeyError for a row without start_date.
            response = sdk.client.get("/volumes", query_args={"owner": "me", "type": "all_volume"})
            response.raise_for_status()
            return _rows(_mapping(response.json())["volumes"])

        what = "list the account's volumes"
        return self.state.volumes.get(lambda: self._read("volumes", what, ask, deadline), deadline)

    def charges(self, begin: int, until: int, deadline: Deadline) -> list[Row]:
        """All charges for instances between two moments (epoch seconds), from all pages. Raises Unreachable when the
        pages have no end."""
        filters = {"day": {"gte": begin, "lte": until}, "type": {"in": ["instance"]}}
        found: list[Row] = []
        token = ""
        for _ in range(CHARGE_PAGES):
            asked = {"select_filters": filters, "limit": CHARGES_A_PAGE, **({"after_token": token} if token else {})}

            def ask(sdk: Any, asked: Row = asked) -> Row:
                response = sdk.client.get("/charges/", query_args=asked)
                response.raise_for_status()
                return _mapping(response.json())

            page = self._read("charges", "show the charges", ask, deadline)
            found += _rows(page.get("results"))
            token = str(page.get("next_token") or "")
            if not token:
                return found
        raise Unreachable("vast.ai's list of charges has no end, so what was billed is not known")

    # ----------------------------------------------------------------- writes

    def create(self, offer: int, deadline: Deadline, **arguments: Any) -> int:
        """Rents an offer. Returns the new instance's id. Costs money; not idempotent. Raises RentedAnyway when vast.ai
        refused and made an instance all the same."""

        def ask(sdk: Any) -> Any:
            return sdk.create_instance(offer, **arguments)

        said = self._write("create", f"rent offer {offer}", ask, deadline)
        contract = said.get("new_contract") if isinstance(said, dict) else None
        if not is_id(contract):
            raise lost_answer(f"rent offer {offer}", "its answer names no instance", writes=True)
        self.state.made[str(arguments.get("label"))] = contract
        self.state.lately["id"].ask(contract)  # the caller will wait for it: lists of other callers can serve it, too
        return contract

    def destroy(self, identifier: int, deadline: Deadline) -> None:
        """Asks vast.ai to destroy the instance. Irreversible; accepted does not mean gone. Raises NoSuchThing when
        vast.ai says that it has no such instance."""
        self.state.lately["id"].ask(identifier)
        self._write("destroy", f"destroy instance {identifier}", lambda sdk: sdk.destroy_instance(identifier), deadline)
        self.state.ended.add(identifier)

    def start(self, identifier: int, deadline: Deadline) -> None:
        """Asks vast.ai to start the instance. Raises StartQueued when it would start at some later time."""
        self._write("state", f"start instance {identifier}", lambda sdk: sdk.start_instance(identifier), deadline)

    def stop(self, identifier: int, deadline: Deadline) -> None:
        """Asks vast.ai to stop the instance; this also cancels a queued start."""
        self._write("state", f"stop instance {identifier}", lambda sdk: sdk.stop_instance(identifier), deadline)

    def attach_key(self, identifier: int, public_key: str, deadline: Deadline) -> None:
        """Adds a public key to the instance."""
        what = f"let your key into instance {identifier}"
        self._write("ssh", what, lambda sdk: sdk.attach_ssh(identifier, public_key), deadline)

    def change_bid(self, identifier: int, bid: float, deadline: Deadline) -> None:
        """Sets the instance's bid: USD per hour for the whole machine."""
        what = f"bid {bid:g} USD/h for instance {identifier}"
        self._write("bid", what, lambda sdk: sdk.change_bid(identifier, price=bid), deadline)

    def create_volume(self, offer: int, size_gb: int, name: str, deadline: Deadline) -> int | None:
        """Rents a volume. Returns its id, None when the answer does not have it. Costs money; not idempotent."""
        what = f"make the volume {name}"
        said = self._write("volumes", what, lambda sdk: sdk.create_volume(offer, size=size_gb, name=name), deadline)
        given = said.get("volume_id") if isinstance(said, dict) else None
        named = str(said.get("volume_name") or "") if isinstance(said, dict) else ""
        if given is None and named.startswith("V.") and named[2:].isdigit():
            given = int(named[2:])
        return given if is_id(given) else None

    def delete_volume(self, identifier: int, deadline: Deadline) -> None:
        """Asks vast.ai to delete the volume. Irreversible; accepted does not mean gone."""
        self._write("volumes", f"delete volume {identifier}", lambda sdk: sdk.delete_volume(identifier), deadline)

    # ---------------------------------------------------------------- one call

    def _read(self, endpoint: str, what: str, ask: Callable[[Any], Answer], deadline: Deadline) -> Answer:
        return self._sent(endpoint, what, ask, deadline, writes=False)

    def _write(self, endpoint: str, what: str, ask: Callable[[Any], Answer], deadline: Deadline) -> Answer:
        try:
            return self._sent(endpoint, what, ask, deadline, writes=True)
        finally:
            self.state.forget()

    def _sent(
        self, endpoint: str, what: str, ask: Callable[[Any], Answer], deadline: Deadline, *, writes: bool
    ) -> Answer:
        limiter = self.state.limiters[endpoint]
        return retried(
            lambda: self._once(what, ask, deadline, writes=writes), deadline, what, limiter=limiter, writes=writes
        )

    def _once(self, what: str, ask: Callable[[Any], Answer], deadline: Deadline, *, writes: bool) -> Answer:
        import requests

        sdk = self._new()
        sdk.client.timeout = answer_seconds(deadline, _WRITE_SECONDS if writes else REQUEST_SECONDS)
        failure: PlatformError
        try:
            answer = ask(sdk)
        except requests.HTTPError as error:
            reply: Any = error.response
            failure = error_for(Refusal.of(reply.status_code, reply.text, reply.headers), what, writes=writes)
        except requests.RequestException as error:
            why = f"{type(error).__name__} at {self.source.url}"
            failure = lost_answer(what, why, writes=writes and not _never_left(error))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            failure = lost_answer(what, f"its answer does not read ({type(error).__name__})", writes=writes)
        else:
            refusal = Refusal.in_success(answer)
            if refusal is None:
                return answer
            failure = error_for(refusal, what, writes=writes)
        raise failure  # outside of the handlers: the SDK's error holds the request with its key, and is not chained

    def _page(self, asked: Row, deadline: Deadline) -> Row:
        def ask(sdk: Any) -> Row:
            page = _mapping(sdk.show_instances_v1(asked))
            if Refusal.in_success(page):
                return page
            if not all(is_id(row["id"]) for row in _rows(page["instances"])) or not is_id(page["total_instances"], 0):
                raise ValueError("an id or the total is no number")
            return page

        return self._read("list", "list instances", ask, deadline)


def _sdk() -> Any:
    """vast.ai's SDK, without its serverless half, which takes two thirds of the import time, and which it leaves out
    when aiohttp is not installed; and without its own log handler, which writes to stderr past our filters."""
    hidden = not {"vastai", "aiohttp"} & sys.modules.keys()
    if hidden:
        sys.modules["aiohttp"] = None  # type: ignore[assignment]
    try:
        from vastai import VastAI
    finally:
        if hidden:
            del sys.modules["aiohttp"]
    logger = logging.getLogger("vastai")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    logger.propagate = True
    logger.setLevel(logging.WARNING)
    return VastAI


def base_url() -> str:
    """The address of the API, from VAST_URL; without it the real one."""
    return (os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")


def _never_left(error: Exception) -> bool:
    """Whether vast.ai can't have received any of the request, since no connection was made."""
    import requests
    from urllib3.exceptions import NewConnectionError

    if isinstance(error, requests.exceptions.ConnectTimeout):
        return True
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(reason, NewConnectionError)


def _mapping(data: Any) -> Row:
    if not isinstance(data, dict):
        raise TypeError("an object was expected")
    return data


def _rows(data: Any) -> list[Row]:
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
        raise TypeError("a list of objects was expected")
    return data


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


def complete(ask: Asking) -> tuple[dict[int, Row], int]:
    """All instances by id, and the number of pages. Raises Unreachable when no reading is proved complete."""
    return _reliable(ask, {}, lambda row: True)


def complete_if_few(ask: Asking, most: int) -> tuple[dict[int, Row], int] | None:
    """Like `complete`, but None after one page when the account has more than `most` instances."""

    def few(asked: Row) -> Row:
        page = ask(asked)
        if page["total_instances"] > most:
            raise _Many
        return page

    try:
        return complete(few)
    except _Many:
        return None


class _Many(SweepstackError):
    """The account has more instances than asked for."""


def some(ask: Asking, column: Column, wanted: Collection[int] | Collection[str]) -> tuple[dict[int, Row], int]:
    """The instances whose `column` is one of `wanted`, by id, and the number of pages.

    Raises Unreachable as `complete` does; RequestRefused when vast.ai ignores the filter and shows other instances.
    """
    rows: dict[int, Row] = {}
    pages = 0
    keys: list[Any] = sorted(wanted)
    for begin in range(0, len(keys), FEW[column]):
        few = keys[begin : begin + FEW[column]]
        found, took = _reliable(ask, {column: {"in": few}}, _shows(column, few))
        rows, pages = rows | found, pages + took
    return rows, pages


def labels(ask: Asking) -> dict[str, int] | None:
    """How many instances of the account have each label ("" for none); None when the counts don't match the total."""
    page = ask({**_asked({}), "limit": 1})
    counts = page.get("label_counts")
    if not _counted(counts) or sum(counts.values()) != page["total_instances"]:
        return None
    return dict(counts)


def _shows(column: Column, few: list[Any]) -> Callable[[Row], bool]:
    return lambda row: row.get(column) in few


def _asked(filters: Row) -> Row:
    return {"select_filters": filters, "order_by": [{"col": "id", "dir": "asc"}], "limit": SIZE}


def _reliable(ask: Asking, filters: Row, wanted: Callable[[Row], bool]) -> tuple[dict[int, Row], int]:
    """The instances and the number of pages, of a reading that is proved complete. Reads again, `_READINGS` times at
    most, when the account changed between two pages, since a row may then be missing."""
    problem = ""
    for _ in range(_READINGS):
        rows, totals, counts, ended = _walk(ask, filters, wanted)
        problem = _gap(rows, totals, counts) if ended else "it has no last page"
        if not problem:
            return rows, len(totals)
    raise Unreachable(f"vast.ai's list of instances can't be relied on: {problem}; nothing is known")


def _walk(ask: Asking, filters: Row, wanted: Callable[[Row], bool]) -> tuple[dict[int, Row], list[int], Any, bool]:
    """One reading: its rows, each page's total, the last page's counts, and whether there was a last page."""
    rows: dict[int, Row] = {}
    totals: list[int] = []
    counts: Any = {}
    token: str | None = None
    seen: set[str] = set()
    for _ in range(_PAGES):
        asked = _asked(filters)
        page = ask({**asked, "after_token": token} if token else asked)
        if not all(map(wanted, page["instances"])):
            raise RequestRefused("vast.ai's list shows instances that were not asked for")
        rows.update((row["id"], row) for row in page["instances"])
        totals.append(page["total_instances"])
        counts = page.get("label_counts") or {}
        token = page.get("next_token")
        if not token:
            return rows, totals, counts, True
        if token in seen:
            break
        seen.add(token)
    return rows, totals, counts, False


def _gap(rows: dict[int, Row], totals: list[int], counts: Any) -> str:
    """Why the pages may lack an instance; "" when they are complete.

    `counts`, the number of instances of each label, comes with every page. Where it covers the same instances as the
    filter, it shows whether a row is missing. Where it does not, a reading counts only if no instance ended meanwhile.
    """
    if len(rows) < totals[-1]:
        return f"{len(rows)} of {totals[-1]} came"
    if not _counted(counts) or sum(counts.values()) != totals[-1]:
        return "instances ended while it was read" if min(totals) < totals[0] else ""
    held = Counter(label if isinstance(label := row.get("label"), str) else "" for row in rows.values())
    short = [label or "no label" for label, count in counts.items() if held[label or ""] < count]
    return f"it counts more instances with {short[0]} than it lists" if short else ""


def _counted(counts: Any) -> TypeGuard[dict[str, int]]:
    return isinstance(counts, dict) and all(is_id(count, 0) for count in counts.values())


def is_id(value: Any, least: int = 1) -> TypeGuard[int]:
    """Whether the value is a whole number of at least `least`; JSON's `true` is no number."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
