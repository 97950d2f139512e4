"""One platform's state and rules, without a socket: routes, admission, refusals, violations, the log of calls.

A platform's simulator is a subclass that fills `routes` and answers; `SimServer` puts it on a port. One lock is held
while a route's handler runs, so handlers see and leave a consistent state.
"""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ValidationError

from tests.simulators.clock import VirtualClock
from tests.simulators.faults import Fault, FaultPlan
from tests.simulators.ledger import Account, RentalLedger
from tests.simulators.own_keys import OWN, OWNER, OwnKeys

USUAL_HEADERS = frozenset(
    {"accept", "accept-encoding", "authorization", "cache-control", "connection", "content-length"}
    | {"content-type", "host", "pragma", "user-agent"}
)


@dataclass
class Request:
    """One call as handlers see it. `faults`: the rules that fire on it, by kind; `account`: who asks, once admitted.

    `box`: the box whose own key it comes with; empty where it is a customer's.
    """

    method: str
    path: str
    query: dict[str, list[str]]
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    route: str = ""
    params: dict[str, str] = field(default_factory=dict)
    account: Account | None = None
    faults: dict[str, Fault] = field(default_factory=dict)
    box: str = ""

    @property
    def who(self) -> Account:
        """The account that asks; admission comes first."""
        assert self.account is not None, f"{self.route} is answered without an account"
        return self.account

    def json(self) -> Any:
        """The body; ValueError when it is no JSON."""
        return json.loads(self.body) if self.body else None


@dataclass
class Reply:
    """An answer. `body`: None for none, bytes as they are, anything else as JSON."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"

    def payload(self) -> bytes:
        """The body's bytes."""
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Refusal(Exception):
    """A handler's way out: nothing was done, this is the answer."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"{reply.status} {reply.body}")
        self.reply = reply


@dataclass(frozen=True)
class Call:
    """One line of the log. `at`: virtual time; `status`: 0 when the answer never came; `path` is without its query."""

    at: float
    method: str
    route: str
    path: str
    status: int
    account: str
    faults: tuple[str, ...]
    box: str = ""
    """The box whose own key it came with."""


M = TypeVar("M", bound=BaseModel)
Handler = Callable[[Request], Reply]


class Simulator:
    """See the module. `latency`: pattern over `METHOD /template` → real seconds, the first that matches; half of it
    passes before the call is carried out. `state`: a folder for what has to outlive a call, made on demand. `machines`:
    its boxes are real machines, which needs `state`, root and sshd."""

    name = "simulator"
    base = ""
    """What every path of the API begins with, where the vendor's address of it has that in it."""
    kinds: Mapping[str, str] = {}
    """Fault kinds of this platform: kind → what it does."""
    headers = USUAL_HEADERS
    """Request headers that a client may send, in lower case; any other is a violation."""

    def __init__(
        self,
        *,
        clock: VirtualClock | None = None,
        latency: Mapping[str, float] | None = None,
        state: Path | None = None,
        machines: bool = False,
    ) -> None:
        if machines and state is None:
            raise ValueError("machines need a folder: state=, --state")
        self.clock = clock or VirtualClock()
        self.ledger = RentalLedger(self.clock)
        self.own_keys = OwnKeys()
        self.faults = FaultPlan(kinds=self.kinds)
        self.latency = dict(latency or {})
        self.state = state
        self.lock = threading.RLock()
        self.accounts: dict[str, Account] = {}
        self.calls: list[Call] = []
        self.violations: list[str] = []
        self.url = ""
        """Where it is served; "" until it is."""
        self._routes: list[tuple[str, str, re.Pattern[str], Handler]] = []
        self._before: dict[str, deque[list[Any]]] = {}

    # What a platform fills in

    def key_of(self, request: Request) -> str:
        """The key that a call comes with, accepted or not: for faults that are about one account's calls."""
        return request.headers.get("authorization", "").removeprefix("Bearer ")

    def admit(self, request: Request) -> None:
        """Before anything else: headers, key, quota. Sets `request.account`, or raises Refusal."""

    def decorate(self, request: Request, reply: Reply) -> None:
        """Headers that every answer to an admitted call carries."""

    def problem(self, status: int, detail: str) -> Reply:
        """An error in the platform's own envelope."""
        return Reply(status, {"error": detail})

    def too_many(self, retry_after: float | None) -> Reply:
        """The platform's 429."""
        reply = self.problem(429, "too many requests")
        if retry_after is not None:
            reply.headers["Retry-After"] = f"{retry_after:g}"
        return reply

    def invalid(self, reasons: list[str]) -> Refusal:
        """A body or a query that does not fit its model."""
        return Refusal(self.problem(400, "; ".join(reasons)))

    def shown(self, account: str) -> list[Any]:
        """An account's boxes as its list shows them: for `remember`."""
        return []

    def outlets(self) -> list[int]:
        """The ports of loopback that a box reaches from inside: where this is served, if it is."""
        return [port] if (port := urlsplit(self.url).port) else []

    def outline(self) -> dict[str, Any]:
        """The platform's objects as plain JSON values, for the control surface."""
        return {}

    def act(self, act: str, arguments: dict[str, Any]) -> Any:
        """Something happens behind the client's back: method `act_<act>`. KeyError: no such act, or no such thing."""
        method = getattr(self, f"act_{act}", None)
        if method is None:
            raise KeyError(f"{self.name} has no act {act!r}")
        with self.lock:
            return method(**arguments)

    def settle(self) -> None:
        """What was due by now has happened: for books that are read while no call reaches the platform."""

    def close(self) -> None:
        """Ends what the simulator itself started."""

    # Routes

    def route(self, call: str, handler: Handler) -> None:
        """Answers `METHOD /path/{parameter}`; `*`: any method; a trailing `{rest*}`: whatever is left, also nothing."""
        method, template = call.split(" ", 1)
        pattern = re.sub(r"\{(\w+)\*\}$", r"(?P<\1>(?:/.*)?)", template)
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern)
        self._routes.append((method, template, re.compile(pattern + r"\Z"), handler))

    def find(self, request: Request) -> Handler | None:
        """The handler of a call, whose template and parameters are put into the request; None: no such route."""
        for method, template, pattern, handler in self._routes:
            if method in (request.method, "*") and (found := pattern.match(request.path)):
                request.route = template
                request.params = {name: unquote(value) for name, value in found.groupdict().items()}
                return handler
        request.route = request.path
        return None

    def answer(self, request: Request, handler: Handler | None) -> Reply:
        """What the platform says, faults of transport aside. Never raises."""
        with self.lock:
            try:
                for header in sorted(set(request.headers) - self.headers):
                    self.violate(f"{request.method} {request.path}: unknown header {header!r}")
                self.admit(request)
                if handler is None:
                    self.violate(f"unknown route: {request.method} {request.path}")
                    raise Refusal(self.problem(404, "no such route"))
                reply = handler(request)
            except Refusal as refusal:
                reply = refusal.reply
            except Exception as error:  # a defect of ours must not look like the platform's
                self.violate(f"the simulator broke on {request.method} {request.path}: {error!r}")
                reply = self.problem(500, "the simulator broke")
            if request.account is not None:
                self.decorate(request, reply)
            return reply

    def book(self, request: Request, box: str, what: str, *, done: bool = True) -> None:
        """Notes in the books what this call does to a box. `done`: False where it is only answered so."""
        self.ledger.note(box, what, OWN if request.box else OWNER, done=done)

    # What callers use

    def violate(self, what: str) -> None:
        """The client did what the platform does not know: the test has to fail, whatever the answer was."""
        with self.lock:
            self.violations.append(what)

    def pardon(self) -> list[str]:
        """Forgets the violations and returns them, for tests that are about them."""
        with self.lock:
            found, self.violations = self.violations, []
            return found

    def customer(self, key: str) -> Account | None:
        """The account of a key."""
        return next((one for one in self.accounts.values() if one.key == key), None)

    def checked(self, model: type[M], value: Any, request: Request | None = None) -> M:
        """A value as its model. An unknown field in the body of `request` fails the test, too. Raises `invalid`."""
        found = parse(model, value)
        if not isinstance(found, list):
            return found
        for text, unknown in found:
            if unknown and request:
                self.violate(f"{request.method} {request.route}: {text}")
        raise self.invalid([text for text, _ in found])

    def known_query(self, request: Request, *known: str) -> None:
        """A query parameter that the vendor's document does not have fails the test."""
        for name in sorted(set(request.query) - set(known)):
            self.violate(f"{request.method} {request.route}: unknown query parameter {name!r}")

    def remember(self, account: str) -> None:
        """Keeps the list as it is, for stale answers: call it before a write."""
        self._before.setdefault(account, deque(maxlen=8)).append(self.shown(account))

    def before(self, account: str, writes: int) -> list[Any]:
        """What the list showed before the last so many writes."""
        kept = self._before.get(account, deque())
        return kept[-min(writes, len(kept))] if kept else []

    def act_rekey(self, account: str, key: str) -> None:
        """An account's key becomes another one; the old one opens nothing."""
        self.accounts[account].key = key

    def check(self) -> None:
        """AssertionError with every violation, if there is one."""
        assert not self.violations, "\n".join([f"{self.name}:", *self.violations])

    def log(self, request: Request, status: int) -> None:
        """Adds a call to the log."""
        who = request.account.id if request.account else ""
        with self.lock:
            self.calls.append(
                Call(
                    self.clock.now(), request.method, request.route, request.path, status, who,
                    tuple(sorted(request.faults)), request.box,
                )
            )  # fmt: skip

    def count(self, match: str = "*") -> int:
        """Calls whose `METHOD /template` matches a shell pattern, whatever became of them."""
        with self.lock:
            return sum(fnmatchcase(f"{call.method} {call.route}", match) for call in self.calls)

    def delay(self, call: str) -> float:
        """Real seconds that a call (`METHOD /template`) takes."""
        return next((seconds for match, seconds in self.latency.items() if fnmatchcase(call, match)), 0.0)

    def snapshot(self) -> dict[str, Any]:
        """Everything as plain JSON values. Account keys are left out."""
        with self.lock:
            return {
                "simulator": self.name,
                "now": self.clock.now(),
                "accounts": {
                    one.id: {"email": one.email, "balance": self.ledger.balance(one)} for one in self.accounts.values()
                },
                "rentals": self.ledger.outline(),
                "violations": list(self.violations),
                "faults": self.faults.outline(),
                "calls": len(self.calls),
                **self.outline(),
            }

    def log_outline(self) -> list[dict[str, Any]]:
        """The log as plain JSON values."""
        with self.lock:
            return [asdict(call) for call in self.calls]


def parse(model: type[M], value: Any) -> M | list[tuple[str, bool]]:
    """A JSON value as its model, or what is wrong with it: (text with a JSON path, whether it is an unknown field).

    Models say `ConfigDict(extra="forbid", strict=True)`.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = []
        for one in error.errors():
            unknown = one["type"] == "extra_forbidden"
            *place, last = one["loc"] or ("",)
            path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in (place if unknown else one["loc"]))
            said = f"additional properties '{last}' not allowed" if unknown else one["msg"]
            found.append((f"${path}: {said}", unknown))
        return found
