"""vast.ai's official SDK behind one door: every call returns a value or raises from our error tree.

What the SDK does and we must not leave to it (1.9, read in its source): it sends a create again after a lost answer
(hence `retry=1` everywhere, and our own rules for what may be sent twice), it takes `success: false` for a success, it
reads VAST_URL once at import, and it knows nothing of the pace that the API allows.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar

from provider.pace import Limiter, Patience, Shared, scaled
from provider.platforms._vastai_errors import KEY_HELP, Refusal, error_for, lost_answer
from provider.redact import learn
from sweep.errors import NotAuthorized, PlatformError, RateLimited, Unreachable

Answer = TypeVar("Answer")
Row = dict[str, Any]

URL_VARIABLE = "VAST_URL"
TIMEOUT_VARIABLE = "SWEEPSTACK_API_TIMEOUT"
DEFAULT_URL = "https://console.vast.ai"
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
PATIENCE_SECONDS = 300.0
"""For a verb that is given no deadline; its turn comes after those of all boxes that are ended at the same time."""
_READ_SECONDS, _WRITE_SECONDS = 30.0, 60.0
_READS = 4
_TURNS_REFUSED = 10
_PAGE = 25
_PAGES = 400
_MAX_BACK_OFF = 60.0


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
        self.made: dict[str, int] = {}
        """Label → id of what this process rented last: a list may be from before that."""


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


class Client:
    """Calls one at a time; cheap to make, and made anew for every verb, so that a changed key is noticed.

    Reads are sent again after a lost answer or a 5xx; writes never, unless they were refused as too fast, which means
    that they were not carried out.
    """

    def __init__(self) -> None:
        try:
            import vastai

            _quiet()
            sdk = vastai.VastAI(server_url=_url(), retry=1)
            key = str(sdk.client.api_key).strip()
        except (RuntimeError, OSError, UnicodeError) as error:
            raise NotAuthorized(f"there is no key for vast.ai ({type(error).__name__}): {KEY_HELP}") from None
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise NotAuthorized(f"what stands where vast.ai's key is looked for is no key: {KEY_HELP}")
        learn({"VAST_API_KEY": key})
        self._new: Callable[[], Any] = lambda: vastai.VastAI(api_key=key, server_url=_url(), retry=1)
        self.source = Source(_url(), hashlib.sha256(key.encode()).hexdigest())
        self.meeting = meeting_at(self.source)

    # ------------------------------------------------------------------ reads

    def user(self, patience: Patience, *, age: float = 0.0) -> Row:
        """The account of the key: `id`, `email`, `credit`. `age`: seconds that an earlier reading may be old."""

        def read() -> Row:
            said: Row = self._read("user", "say whose key this is", lambda sdk: _mapping(sdk.show_user()), patience)
            if not _is_id(said.get("id")):
                raise Unreachable("vast.ai did not say whose key this is: its answer has no id")
            return said

        return self.meeting.user.get(read, patience, age=age)

    def instances(self, patience: Patience, *, age: float = 0.0, forgotten: bool = False) -> dict[int, Row]:
        """Every instance of the account by id: proved complete, or Unreachable. `forgotten`: as in `Shared.get`."""
        return self.meeting.instances.get(lambda: self._all_instances(patience), patience, age=age, forgotten=forgotten)

    def instance(self, identifier: int, patience: Patience) -> Row | None:
        """One instance; None when vast.ai says `{"instances": null}`, which alone proves nothing."""

        def ask(sdk: Any) -> Any:
            # Not show_instance: that raises KeyError for a row that lacks a field which nobody needs.
            response = sdk.client.get(f"/instances/{identifier}/", query_args={"owner": "me"})
            response.raise_for_status()
            data = _mapping(response.json())
            if Refusal.in_success(data):
                return data
            row = data["instances"]
            return [] if row is None else [_mapping(row)]

        rows = self._read("get", f"show instance {identifier}", ask, patience)
        return rows[0] if rows else None

    def holds_key(self, identifier: int, public_key: str, patience: Patience) -> bool:
        """Whether the instance already lets this public key in."""

        def ask(sdk: Any) -> bool:
            response = sdk.client.get(f"/instances/{identifier}/ssh/")
            response.raise_for_status()
            return public_key.split()[1] in response.text

        return self._read("ssh", f"list the keys of instance {identifier}", ask, patience)

    def search(self, query: Row, patience: Patience, *, kind: str, order: str, storage: float) -> list[Row]:
        """Offers of machines: 64 at most, whatever there is."""

        def ask(sdk: Any) -> list[Row]:
            return _rows(sdk.search_offers(dict(query), type=kind, order=order, limit=64, storage=storage))

        return self._read("search", "list offers", ask, patience)

    def search_volumes(self, query: Row, patience: Patience, *, storage: float) -> list[Row]:
        """Offers of volumes."""

        def ask(sdk: Any) -> list[Row]:
            return _rows(sdk.search_volumes(dict(query), order="storage_cost", storage=storage))

        return self._read("volumes", "list offers of volumes", ask, patience)

    def volumes(self, patience: Patience) -> list[Row]:
        """Every volume of the account; one reading for all that wait for their turn."""

        def ask(sdk: Any) -> list[Row]:
            # Not show_volumes: that raises KeyError for a row without start_date.
            response = sdk.client.get("/volumes", query_args={"owner": "me", "type": "all_volume"})
            response.raise_for_status()
            return _rows(_mapping(response.json())["volumes"])

        what = "list the account's volumes"
        return self.meeting.volumes.get(lambda: self._read("volumes", what, ask, patience), patience)

    # ----------------------------------------------------------------- writes

    def create(self, offer: int, patience: Patience, **arguments: Any) -> int:
        """Rents an offer; the new instance's id. Costs money. Raises RentedAnyway where a refusal made one."""

        def ask(sdk: Any) -> Any:
            return sdk.create_instance(offer, **arguments)

        said = self._write("create", f"rent offer {offer}", ask, patience)
        contract = said.get("new_contract") if isinstance(said, dict) else None
        if not _is_id(contract):
            raise lost_answer(f"rent offer {offer}", "its answer names no instance", writes=True)
        self.meeting.made[str(arguments.get("label"))] = contract
        return contract

    def destroy(self, identifier: int, patience: Patience) -> None:
        """Accepted is not gone. NoSuchThing where vast.ai has none of that id."""
        self._write("destroy", f"destroy instance {identifier}", lambda sdk: sdk.destroy_instance(identifier), patience)
        self.meeting.ended.add(identifier)

    def start(self, identifier: int, patience: Patience) -> None:
        """Asks for it to run. StartQueued where it would only start later."""
        self._write("state", f"start instance {identifier}", lambda sdk: sdk.start_instance(identifier), patience)

    def stop(self, identifier: int, patience: Patience) -> None:
        """Asks for it to stand still; takes back a start that is queued."""
        self._write("state", f"stop instance {identifier}", lambda sdk: sdk.stop_instance(identifier), patience)

    def attach_key(self, identifier: int, public_key: str, patience: Patience) -> None:
        """Lets a public key in."""
        what = f"let your key into instance {identifier}"
        self._write("ssh", what, lambda sdk: sdk.attach_ssh(identifier, public_key), patience)

    def change_bid(self, identifier: int, bid: float, patience: Patience) -> None:
        """USD per hour of the whole machine."""
        what = f"bid {bid:g} USD/h for instance {identifier}"
        self._write("bid", what, lambda sdk: sdk.change_bid(identifier, price=bid), patience)

    def create_volume(self, offer: int, size_gb: int, name: str, patience: Patience) -> int | None:
        """Rents a volume; its id where the answer has it. Costs money."""
        what = f"make the volume {name}"
        said = self._write("volumes", what, lambda sdk: sdk.create_volume(offer, size=size_gb, name=name), patience)
        given = said.get("volume_id") if isinstance(said, dict) else None
        named = str(said.get("volume_name") or "") if isinstance(said, dict) else ""
        if given is None and named.startswith("V.") and named[2:].isdigit():
            given = int(named[2:])
        return given if _is_id(given) else None

    def delete_volume(self, identifier: int, patience: Patience) -> None:
        """Accepted is not gone."""
        self._write("volumes", f"delete volume {identifier}", lambda sdk: sdk.delete_volume(identifier), patience)

    # ---------------------------------------------------------------- one call

    def _read(self, endpoint: str, what: str, ask: Callable[[Any], Answer], patience: Patience) -> Answer:
        return self._sent(endpoint, what, ask, patience, writes=False)

    def _write(self, endpoint: str, what: str, ask: Callable[[Any], Answer], patience: Patience) -> Answer:
        try:
            return self._sent(endpoint, what, ask, patience, writes=True)
        finally:
            self.meeting.instances.forget()

    def _sent(
        self, endpoint: str, what: str, ask: Callable[[Any], Answer], patience: Patience, *, writes: bool
    ) -> Answer:
        seconds, count = INTERVALS[endpoint]
        lost, refused = 0, 0
        while True:
            self.meeting.limiters[endpoint].turn(patience, what)
            try:
                return self._once(what, ask, patience, writes=writes)
            except RateLimited as error:
                refused += 1
                later = error.retry_after or seconds / count
                if later > _MAX_BACK_OFF or refused >= _TURNS_REFUSED:
                    raise
                patience.pause(scaled(min(later * 1.5 ** (refused - 1), _MAX_BACK_OFF)), f"a turn to {what}")
            except Unreachable:
                lost += 1
                if writes or lost >= _READS:
                    raise
                patience.pause(scaled(0.5 * 2 ** (lost - 1)), f"vast.ai to {what}")

    def _once(self, what: str, ask: Callable[[Any], Answer], patience: Patience, *, writes: bool) -> Answer:
        import requests

        sdk = self._new()
        sdk.client.timeout = _timeout(patience, writes=writes)
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
        raise failure  # outside of the handlers: what the SDK raised holds the request with its key

    def _all_instances(self, patience: Patience) -> dict[int, Row]:
        """All pages. Read again when the account changed between two of them: a row may have slipped through."""
        problem = ""
        for _ in range(_READS):
            rows: dict[int, Row] = {}
            totals: list[int] = []
            counts: dict[str, int] = {}
            token: str | None = None
            seen: set[str] = set()
            for _ in range(_PAGES):
                page = self._page(token, patience)
                rows.update((row["id"], row) for row in page["instances"])
                totals.append(page["total_instances"])
                counts = page.get("label_counts") or {}
                token = page.get("next_token")
                if not token or token in seen:
                    break
                seen.add(token)
            problem = _gap(rows, totals, counts) if not token else "it has no last page"
            if not problem:
                self.meeting.pages = len(totals)
                return rows
        raise Unreachable(f"vast.ai's list of instances can't be relied on: {problem}; nothing is known")

    def _page(self, token: str | None, patience: Patience) -> Row:
        asked: Row = {"select_filters": {}, "order_by": [{"col": "id", "dir": "asc"}], "limit": _PAGE}
        if token:
            asked["after_token"] = token

        def ask(sdk: Any) -> Row:
            page = _mapping(sdk.show_instances_v1(asked))
            if Refusal.in_success(page):
                return page
            if not all(_is_id(row["id"]) for row in _rows(page["instances"])) or not _is_id(page["total_instances"], 0):
                raise ValueError("an id or the total is no number")
            return page

        return self._read("list", "list instances", ask, patience)


def _gap(rows: dict[int, Row], totals: list[int], counts: Any) -> str:
    """Why the pages may not be the whole account; empty when they are.

    `counts`, how many instances bear each label, comes with every page and is of the whole account: it finds a row that
    slipped between two pages while others ended. Without it, any end between two pages makes them worthless.
    """
    if len(rows) < totals[-1]:
        return f"{len(rows)} of {totals[-1]} came"
    counted = isinstance(counts, dict) and all(_is_id(count, 0) for count in counts.values())
    if not counted or sum(counts.values()) != totals[-1]:
        return "instances ended while it was read" if min(totals) < totals[0] else ""
    held = Counter(label if isinstance(label := row.get("label"), str) else "" for row in rows.values())
    short = [label or "no label" for label, count in counts.items() if held[label or ""] < count]
    return f"it counts more instances with {short[0]} than it lists" if short else ""


def _is_id(value: Any, least: int = 1) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _quiet() -> None:
    """The SDK brings a handler of its own, which writes to stderr past all filters."""
    logger = logging.getLogger("vastai")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    logger.propagate = True
    logger.setLevel(logging.WARNING)


def _url() -> str:
    return (os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")


def _timeout(patience: Patience, *, writes: bool) -> float:
    """Seconds that one answer is waited for."""
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    usual = _WRITE_SECONDS if writes else _READ_SECONDS
    try:
        usual = min(usual, float(text)) if text else usual
    except ValueError:
        raise PlatformError(f"{TIMEOUT_VARIABLE} is {text!r}, and it is a number of seconds: `unset` it") from None
    return max(1.0, min(usual, patience.left())) if usual >= 1 else max(0.05, usual)


def _never_left(error: Exception) -> bool:
    """Whether no byte of the request can have reached vast.ai: no connection was made."""
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
