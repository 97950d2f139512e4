"""The simulated Paperspace: accounts, admission, and what happens to a machine behind its owner's back.

Sources: the vendor's OpenAPI document as its command-line client types it (Paperspace/cli, api/openapi.ts, 2026-02, and
errors.ts for the codes) and as its reference page showed it (docs.digitalocean.com, Paperspace API reference, edited
2025-04); its how-to pages (a machine has to be off before it is deactivated; a static IP and storage bill until they
are released); and what the authors of a Terraform provider wrote down of the real one (Metaphysic-ai's, psclient):
numbers that come as strings, an event in error that tells no error, a shutdown clock that does not change, a PATCH with
a content type and no body that is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel

from tests.simulators.clock import VirtualClock
from tests.simulators.faults import Choice
from tests.simulators.ledger import Account, RentalLedger
from tests.simulators.own_keys import PLATFORM
from tests.simulators.paperspace import errors
from tests.simulators.paperspace.catalog import Stock
from tests.simulators.paperspace.events import Events
from tests.simulators.paperspace.machine_routes import (
    API,
    CREATE,
    DELETE,
    EVENT,
    GET,
    LIST,
    RESTART,
    START,
    STOP,
    MachineRoutes,
)
from tests.simulators.paperspace.machines import READY, Machine, Machines
from tests.simulators.paperspace.requests import NoFields
from tests.simulators.paperspace.store_routes import SESSION, StoreRoutes
from tests.simulators.paperspace.stores import Stores
from tests.simulators.paperspace.timeline import Times
from tests.simulators.quotas import WindowQuota
from tests.simulators.simulator import Refusal, Reply, Request, Simulator
from tests.simulators.timeline import Timeline

M = TypeVar("M", bound=BaseModel)
KEY, OTHER_KEY = "simulated0of0ann00000001", "simulated0of0bob00000002"
PER_MINUTE = 120
"""Requests of an account, with `limits`. The vendor publishes none; its code for it exists."""
USUAL_SHUTDOWN = 24
"""Hours after which a machine shuts down by itself, if its create says nothing of it: no default is documented."""
KINDS = {
    "out_of_capacity": "create: refused at once, nothing is made",
    "quota": "create: 403, the team's limit of machines",
    "bad_standing": "create, standing: the account is not in good standing",
    "auth": "any call: 401 UNAUTHORIZED",
    "forbidden": "any call: 403 FORBIDDEN",
    "foreign_account": "any call: the key is another account's now",
    "stuck_provisioning": "create: it is provisioning for ever, so it can be neither stopped nor deleted",
    "stuck_starting": "create: it is starting for ever, and bills",
    "stuck": "create: it never gets further than serviceready, and bills",
    "start_fails": "create, start: there is no card; the event says so later (`error`), and it is off",
    "stop_stuck": "stop: it is stopping for ever, and bills",
    "late_address": "create: it shows no address for `reads` (3), also when it is ready; None for ever",
    "missing_at_first": "create: GET is 404 for the first `reads` (2); `in_list`: lists leave it out as often",
    "delete_lingers": "delete: it takes `seconds` (600) more, None for ever, and its disk bills",
    "delete_fails": "delete: the event ends in error, tells none, and the machine is there still",
    "ignored": "start, stop, restart, delete: answered as begun, and nothing happens; the event stays new",
    "list_deleted": "list: those that are gone, too, off and with a dtDeleted",
    "stale_list": "list: as it was before the last `writes` (1)",
    "empty_list": "list: nothing, though there is something",
    "odd_state": "any call: the account's newest machine shows `state` (upgrading) for `reads` (1)",
    "preempted": "any call: the account's oldest machine that is ready is turned off first",
    "shut_down": "any call: the account's oldest machine that is ready was powered off from inside first",
    "vanished": "any call: the account's oldest machine is gone first",
}
READS, ALL = "GET *", "*"
MENU = (
    *(Choice("too_many", ALL, {"retry_after": [None]}) for _ in range(2)),
    Choice("error_before", ALL, {"status": [500, 502, 503]}),
    Choice("error_after", CREATE, {"status": [500, 502, 504]}),
    Choice("error_after", DELETE, {"status": [500, 502]}),
    Choice("error_after", STOP, {"status": [500, 502]}),
    Choice("lost_answer", CREATE, {"reset": [False, True]}),
    Choice("lost_answer", DELETE, {"reset": [False, True]}),
    Choice("lost_answer", STOP, {"reset": [False, True]}),
    Choice("lost_request", ALL, {"reset": [False, True]}),
    Choice("truncated", ALL),
    Choice("html_before", ALL, {"status": [502, 403, 524]}),
    Choice("html_after", CREATE, {"status": [502, 524]}),
    Choice("html_ok", READS),
    Choice("not_json", ALL),
    Choice("stale_list", LIST, {"writes": [1, 2]}),
    Choice("list_deleted", LIST),
    Choice("out_of_capacity", CREATE),
    Choice("quota", CREATE),
    Choice("bad_standing", CREATE),
    Choice("start_fails", CREATE),
    Choice("stuck_starting", CREATE),
    Choice("stuck", CREATE),
    Choice("late_address", CREATE, {"reads": [1, 3]}),
    Choice("missing_at_first", CREATE, {"reads": [1, 2], "in_list": [False, True]}),
    Choice("stop_stuck", STOP),
    Choice("ignored", STOP),
    Choice("ignored", DELETE),
    Choice("delete_lingers", DELETE, {"seconds": [30.0, 600.0]}),
    Choice("delete_fails", DELETE),
    Choice("odd_state", READS, {"state": ["upgrading", "failed"]}),
    Choice("preempted", READS),
    Choice("shut_down", READS),
    Choice("vanished", READS),
)
"""What a seed draws from. Hangs are left out: they cost real time, and are tested one by one."""


class PaperspaceSim(Simulator):
    """See the package. Two accounts exist, `ann` (key `KEY`) and `bob` (`OTHER_KEY`); `add_account` makes more.

    `limits`: there is a limit of requests in a minute. `usual_shutdown`: hours, see `USUAL_SHUTDOWN`; None: never.
    """

    name = "paperspace"
    base = API
    kinds: Mapping[str, str] = MappingProxyType(KINDS)

    def __init__(
        self,
        *,
        clock: VirtualClock | None = None,
        latency: Mapping[str, float] | None = None,
        state: Path | None = None,
        times: Times | None = None,
        limits: bool = False,
        usual_shutdown: int | None = USUAL_SHUTDOWN,
    ) -> None:
        super().__init__(clock=clock, latency=latency, state=state)
        self.timeline = Timeline(self.clock, self.lock)
        self.ledger = RentalLedger(self.timeline)
        self.stock = Stock()
        self.machines = Machines(self.ledger, self.timeline, self.stock, times or Times(), Events(self.timeline))
        self.stores = Stores(self.ledger, self.timeline, self.machines)
        self.most_machines = 50
        """An account's quota."""
        self.in_good_standing = True
        self.usual_shutdown = usual_shutdown
        self._pace = WindowQuota(PER_MINUTE) if limits else None
        self.add_account("ann", KEY)
        self.add_account("bob", OTHER_KEY)
        StoreRoutes(self, MachineRoutes(self))

    def add_account(self, name: str, key: str, credit: float = 1000.0) -> Account:
        """One more customer; its id is its name."""
        account = Account(name, key, f"{name}@example.com", credit)
        self.accounts[account.id] = account
        return account

    # Admission and envelopes

    def admit(self, request: Request) -> None:
        self.settle()
        scheme = request.headers.get("authorization", "").partition(" ")[0]
        account = self.customer(self.key_of(request)) if scheme == "Bearer" else None
        if account is None or "auth" in request.faults:
            if f"{request.method} {request.route}" == SESSION:
                return
            raise errors.refusal(errors.UNAUTHORIZED, "Invalid API key")
        if "foreign_account" in request.faults:
            account = self.other_than(account)
        request.account = account
        if self._pace and self._pace.take(account.id, self.clock.now()) is not None:
            raise Refusal(self.too_many(None))
        if "forbidden" in request.faults:
            raise errors.refusal(errors.FORBIDDEN, "You may not do this.")
        self._befall(request)

    def _befall(self, request: Request) -> None:
        """What happens to a machine of the account just before this call."""
        mine = self.machines.of(request.who.id)
        ready = [one for one in mine if one.state == READY]
        if mine and (rule := request.faults.get("odd_state")):
            mine[-1].odd_state = (rule.get("state", "upgrading"), rule.get("reads", 1))
        if ready and "preempted" in request.faults:
            self.act_power_off(ready[0].id)
        if ready and "shut_down" in request.faults:
            self.act_shut_down(ready[0].id)
        if mine and "vanished" in request.faults:
            self.act_vanish(mine[0].id)

    def problem(self, status: int, detail: str) -> Reply:
        return errors.of_status(status, detail)

    # What handlers use

    def body(self, request: Request, model: type[M]) -> M:
        """The body as its model; 400 otherwise. An unknown field fails the test, too."""
        if not request.headers.get("content-type", "").startswith("application/json"):
            raise errors.refusal(errors.BAD_REQUEST, "The content type has to be application/json.")
        try:
            value = request.json()
        except ValueError:
            value = None
        if value is None:
            raise errors.refusal(errors.PARSE, "The body is no JSON.")
        return self.checked(model, value, request)

    def invalid(self, reasons: list[str]) -> Refusal:
        return errors.refusal(errors.BAD_REQUEST, "; ".join(reasons))

    def no_body(self, request: Request) -> None:
        """A call that needs none; one that says it has JSON must have some, though only `{}`."""
        if request.body or "content-type" in request.headers:
            self.body(request, NoFields)

    def shown(self, account: str) -> list[Any]:
        return [(one.number, self.machines.row(one)) for one in self.machines.of(account)]

    # Behind the client's back

    def settle(self) -> None:
        self.timeline.now()

    def outline(self) -> dict[str, Any]:
        self.settle()
        machines = {
            one.id: {"account": one.account, "name": one.name, "state": one.state, "history": one.history}
            for one in [*self.machines.all.values(), *self.machines.gone.values()]
        }
        return {"machines": machines, "snapshots": list(self.stores.snapshots), "public_ips": list(self.stores.ips)}

    def act_shut_down(self, id: str) -> None:
        """Its system is powered off from inside: it is serviceready, and bills on."""
        self.machines.shut_down(self._machine(id))

    def act_power_off(self, id: str) -> None:
        """The platform turns it off all at once."""
        one = self._machine(id)
        self.ledger.note(id, "stop", PLATFORM)
        self.remember(one.account)
        self.machines.power_off(one)

    def act_vanish(self, id: str) -> None:
        """It is deleted in the console, all at once."""
        one = self._machine(id)
        self.ledger.note(id, "delete", PLATFORM)
        self.remember(one.account)
        self.machines.end(one)

    def act_duplicate(self, id: str) -> str:
        """A second machine of the same request appears, as after a blind retry. Returns its id."""
        one = self._machine(id)
        self.remember(one.account)
        return self.machines.create(one.account, one.wanted, one.region, one.network, one.template).id

    def act_set(self, id: str, **fields: Any) -> None:
        """Something about it changes: `name`, `stuck`, `no_address`, `hidden`, `lingers`…"""
        one = self._machine(id)
        for name, value in fields.items():
            if not hasattr(one, name):
                raise KeyError(f"a machine has no {name!r}")
            setattr(one, name, value)
        self.ledger.retag(id, one.name)

    def act_empty(self, label: str | None = None, place: str | None = None) -> None:
        """No more stock: of a type or all, in a region or everywhere."""
        self.stock.empty(label, place)

    def _machine(self, id: str) -> Machine:
        self.settle()
        if id not in self.machines.all:
            raise KeyError(f"there is no machine {id!r}")
        return self.machines.all[id]


__all__ = [
    "API", "CREATE", "DELETE", "EVENT", "GET", "KEY", "KINDS", "LIST", "MENU", "OTHER_KEY", "RESTART", "START", "STOP",
    "PaperspaceSim",
]  # fmt: skip
