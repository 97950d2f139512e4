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
from tests.simulators.own_keys import PLATFORM
from tests.simulators.paperspace import catalog, errors
from tests.simulators.paperspace.account_routes import SESSION, AccountRoutes, Script
from tests.simulators.paperspace.events import Events
from tests.simulators.paperspace.machine_routes import API, MachineRoutes
from tests.simulators.paperspace.machines import READY, Machine, Machines, Times
from tests.simulators.paperspace.requests import NoFields
from tests.simulators.quotas import WindowQuota
from tests.simulators.simulator import Refusal, Reply, Request
from tests.simulators.vendor import Vendor

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
    "odd_status": "any call: the account's newest machine shows `status` (upgrading) for `reads` (1)",
    "preempted": "any call: the account's oldest machine that is ready is turned off first",
    "vanished": "any call: the account's oldest machine is gone first",
}


class PaperspaceSim(Vendor):
    """See the package. Two accounts exist, `ann` (key `KEY`) and `bob` (`OTHER_KEY`); `add_account` makes more.

    `limits`: there is a limit of requests in a minute.
    """

    name, account, box, ends = "paperspace", "{}", "machine", "delete"
    up, odd = READY, "upgrading"
    befalls: Mapping[str, str] = MappingProxyType({"preempted": "power_off"})
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
        self.stock = catalog.stock()
        self.machines = Machines(self.ledger, self.timeline, self.stock, times or Times(), Events(self.timeline))
        self.scripts: dict[str, Script] = {}
        self._pace = WindowQuota(PER_MINUTE) if limits else None
        self.add_account("ann", KEY)
        self.add_account("bob", OTHER_KEY)
        MachineRoutes(self)
        AccountRoutes(self)

    # Admission and envelopes

    def admit(self, request: Request) -> None:
        self.settle()
        account = self.customer(self.key_of(request))
        if account is None or "auth" in request.faults:
            if f"{request.method} {request.route}" == SESSION:
                return
            raise errors.refusal(errors.UNAUTHORIZED, "Invalid API key")
        request.account = account
        if self._pace and self._pace.take(account.id, self.clock.now()) is not None:
            raise Refusal(self.too_many(None))
        self.befall(request)

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

    def boxes(self) -> Mapping[str, Machine]:
        return self.machines.all

    def oldest_first(self, account: str) -> list[Machine]:
        return self.machines.of(account)

    def finish(self, one: Machine) -> None:
        self.machines.end(one)

    def outline(self) -> dict[str, Any]:
        self.settle()
        machines = {
            one.id: {"account": one.account, "name": one.name, "state": one.status, "history": one.history}
            for one in [*self.machines.all.values(), *self.machines.gone.values()]
        }
        return {"machines": machines}

    def act_power_off(self, id: str) -> None:
        """The platform turns it off all at once."""
        one = self.found(id)
        self.ledger.note(id, "stop", PLATFORM)
        self.remember(one.account)
        self.machines.power_off(one)

    def act_empty(self, label: str | None = None, place: str | None = None) -> None:
        """No more stock: of a type or all, in a region or everywhere."""
        self.stock.empty(label, place)
