"""The routes of all that is no machine: the session, the account, templates, startup scripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulators.clock import rfc3339
from tests.simulators.paperspace import catalog, events
from tests.simulators.paperspace.machine_routes import API
from tests.simulators.paperspace.paging import PARAMETERS, page
from tests.simulators.paperspace.requests import NewScript
from tests.simulators.simulator import Reply, Request

if TYPE_CHECKING:
    from tests.simulators.paperspace.platform import PaperspaceSim

SESSION, SCRIPTS = f"GET {API}/auth/session", f"{API}/startup-scripts"


@dataclass
class Script:
    """One startup script."""

    id: str
    account: str
    name: str
    script: str
    once: bool
    number: int
    created: float


class AccountRoutes:
    """Answers for one simulator."""

    def __init__(self, sim: PaperspaceSim) -> None:
        self._sim = sim
        sim.route(SESSION, self.session)
        sim.route(f"GET {API}/billing/account-standing", self.standing)
        sim.route(f"GET {API}/os-templates", self.templates)
        sim.route(f"GET {SCRIPTS}", self.scripts)
        sim.route(f"POST {SCRIPTS}", self.new_script)

    def session(self, request: Request) -> Reply:
        """Null for a key that opens nothing: a 200 like the other."""
        who = request.account
        if who is None:
            return Reply(200, b"null")
        team = {"id": f"t{who.id}", "namespace": f"t{who.id}", "isPrivate": True, "maxMachines": 50, "analyticsId": 1}
        user: dict[str, Any] = {
            "id": f"u{who.id}",
            "email": who.email,
            "firstName": "",
            "lastName": None,
            "teamMemberships": [],
        }
        return Reply(200, {"user": user, "team": team})

    def standing(self, request: Request) -> Reply:
        good = "bad_standing" not in request.faults
        body = {"hasPaymentMethod": True, "isAdminLocked": False, "isInGoodStanding": good}
        return Reply(200, {**body, "messages": [] if good else ["Your last invoice is unpaid."]})

    def templates(self, request: Request) -> Reply:
        self._sim.known_query(request, *PARAMETERS)
        named = sorted(catalog.TEMPLATES, key=lambda one: one.name)
        return page(request, [(number, one.outline()) for number, one in enumerate(named)])

    def scripts(self, request: Request) -> Reply:
        """`name` matches a part of it."""
        self._sim.known_query(request, "name", *PARAMETERS)
        word = request.query.get("name", [""])[-1]
        mine = [one for one in self._sim.scripts.values() if one.account == request.who.id and word in one.name]
        return page(request, [(one.number, self._row(one)) for one in mine])

    def new_script(self, request: Request) -> Reply:
        told, number = self._sim.body(request, NewScript), len(self._sim.scripts) + 1
        id = events.id_of("su", "script", number)
        now = self._sim.timeline.now()
        made = Script(id, request.who.id, told.name, told.script, told.isRunOnce, number, now)
        self._sim.scripts[id] = made
        return Reply(200, self._row(made))

    def _row(self, one: Script) -> dict[str, Any]:
        """As the API shows it: without what it does."""
        machines = self._sim.machines.of(one.account)
        return {
            "id": one.id,
            "name": one.name,
            "description": None,
            "isEnabled": True,
            "isRunOnce": one.once,
            "assignedMachineIds": [machine.id for machine in machines if machine.script == one.id],
            "dtCreated": rfc3339(one.created),
            "dtDeleted": None,
        }
