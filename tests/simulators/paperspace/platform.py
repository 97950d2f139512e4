"""The simulated Paperspace: accounts, admission, and what happens to a machine behind its owner's back.

Sources: the vendor's OpenAPI document as its command-line client types it (Paperspace/cli, api/openapi.ts, 2026-02, and
errors.ts for the codes) and as its reference page showed it (docs.digitalocean.com, Paperspace API reference, edited
2025-04); its how-to pages (a machine has to be off before it is deactivated); and what the authors of a Terraform
provider wrote down of the real one (Metaphysic-ai's, psclient): numbers that come as strings, an event in error that
tells no error, a PATCH with a content type and no body that is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel

from tests.simulators.clock import VirtualClock
from tests.simulators.ledger import Account, RentalLedger
from tests.simulators.own_keys import PLATFORM
from tests.simulators.paperspace import errors
from tests.simulators.paperspace.account_routes import SESSION, AccountRoutes, Script
from tests.simulators.paperspace.catalog import Stock
from tests.simulators.paperspace.events import Events
from tests.simulators.paperspace.machine_routes import API, MachineRoutes
from tests.simulators.paperspace.machines import READY, Machine, Machines, Times
from tests.simulators.paperspace.requests import NoFields
from tests.simulators.quotas import WindowQuota
from tests.simulators.simulator import Refusal, Reply, Request, Simulator
from tests.simulators.timeline import Timeline

M = TypeVar("M", bound=BaseModel)
KEY, OTHER_KEY = "simulated0of0ann00000001", "simulated0of0bob00000002"
PER_MINUTE = 120
"""Requests of an account, with `limits`. The vendor publishes none; its code for it exists."""
KINDS = {
    "out_of_capacity": "create: refused at once, nothing is made",
    "quota": "create: 403, the team's limit of machines",
    "bad_standing": "create, standing: the account is not in good standing",
    "auth": "any call: 401 UNAUTHORIZED",
    "stuck": "create: it never gets further than serviceready, and bills",
    "start_fails": "create, start: there is no card; the event says so later (`error`), and it is off",
    "delete_lingers": "delete: it takes `seconds` (600) more, None for ever, and its disk bills",
    "delete_fails": "delete: the event ends in error, tells none, and the machine is there still",
    "ignored": "start, stop, delete: answered as begun, and nothing happens; the event stays new",
    "list_deleted": "list: those that are gone, too, off and with a dtDeleted",
    "stale_list": "list: as it was before the last `writes` (1)",
    "odd_state": "any call: the account's newest machine shows `state` (upgrading) for `reads` (1)",
    "preempted": "any call: the account's oldest machine that is ready is turned off first",
    "vanished": "any call: the account's oldest machine is gone first",
}


class PaperspaceSim(Simulator):
    """See the package. Two accounts exist, `ann` (key `KEY`) and `bob` (`OTHER_KEY`); `add_account` makes more.

    `limits`: there is a limit of requests in a minute.
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
    ) -> None:
        super().__init__(clock=clock, latency=latency, state=state)
        self.timeline = Timeline(self.clock, self.lock)
        self.ledger = RentalLedger(self.timeline)
        self.stock = Stock()
        self.machines = Machines(self.ledger, self.timeline, self.stock, times or Times(), Events(self.timeline))
        self.scripts: dict[str, Script] = {}
        self._pace = WindowQuota(PER_MINUTE) if limits else None
        self.add_account("ann", KEY)
        self.add_account("bob", OTHER_KEY)
        MachineRoutes(self)
        AccountRoutes(self)

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
        request.account = account
        if self._pace and self._pace.take(account.id, self.clock.now()) is not None:
            raise Refusal(self.too_many(None))
        self._befall(request)

    def _befall(self, request: Request) -> None:
        """What happens to a machine of the account just before this call."""
        mine = self.machines.of(request.who.id)
        ready = [one for one in mine if one.state == READY]
        if mine and (rule := request.faults.get("odd_state")):
            mine[-1].odd_state = (rule.get("state", "upgrading"), rule.get("reads", 1))
        if ready and "preempted" in request.faults:
            self.act_power_off(ready[0].id)
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
        return {"machines": machines}

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

    def act_empty(self, label: str | None = None, place: str | None = None) -> None:
        """No more stock: of a type or all, in a region or everywhere."""
        self.stock.empty(label, place)

    def _machine(self, id: str) -> Machine:
        self.settle()
        if id not in self.machines.all:
            raise KeyError(f"there is no machine {id!r}")
        return self.machines.all[id]
