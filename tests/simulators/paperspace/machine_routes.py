"""The routes of machines and of their events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulators.paperspace import catalog, errors
from tests.simulators.paperspace.events import Event
from tests.simulators.paperspace.machines import (
    NO_CAPACITY,
    OFF,
    READY,
    SERVICE,
    STEADY,
    Machine,
)
from tests.simulators.paperspace.paging import PARAMETERS, page
from tests.simulators.paperspace.requests import NewMachine
from tests.simulators.simulator import Reply, Request

if TYPE_CHECKING:
    from tests.simulators.paperspace.platform import PaperspaceSim

API = "/v1"
CREATE, LIST = f"POST {API}/machines", f"GET {API}/machines"
GET, DELETE = f"GET {API}/machines/{{id}}", f"DELETE {API}/machines/{{id}}"
START, STOP = f"PATCH {API}/machines/{{id}}/start", f"PATCH {API}/machines/{{id}}/stop"
USUAL_SHUTDOWN = 24
"""Hours after which a machine shuts down by itself, if its create says nothing of it: no default is documented."""
EVENTS, EVENT = f"GET {API}/machine-events", f"GET {API}/machine-events/{{id}}"


class MachineRoutes:
    """Answers for one simulator."""

    def __init__(self, sim: PaperspaceSim) -> None:
        self._sim = sim
        sim.route(CREATE, self.create)
        sim.route(LIST, self.listed)
        sim.route(GET, self.one)
        sim.route(DELETE, self.delete)
        sim.route(START, self.start)
        sim.route(STOP, self.stop)
        sim.route(EVENTS, self.events)
        sim.route(EVENT, self.event)

    # Reading

    def listed(self, request: Request) -> Reply:
        """Those that are not gone."""
        self._sim.known_query(request, *PARAMETERS)
        if rule := request.faults.get("stale_list"):
            return page(request, self._sim.before(request.who.id, rule.get("writes", 1)))
        machines = self._sim.machines
        shown = [(one.number, machines.look(one)) for one in machines.of(request.who.id)]
        if "list_deleted" in request.faults:
            gone = [one for one in machines.gone.values() if one.account == request.who.id]
            shown += [(one.number, machines.row(one)) for one in gone]
        return page(request, shown)

    def one(self, request: Request) -> Reply:
        return Reply(200, self._sim.machines.look(self.find(request, request.params["id"])))

    def find(self, request: Request, id: str) -> Machine:
        """The caller's own machine; else there is none."""
        found = self._sim.machines.all.get(id)
        if found is None or found.account != request.who.id:
            raise errors.refusal(errors.NOT_FOUND, f"Machine {id} not found")
        return found

    def events(self, request: Request) -> Reply:
        self._sim.known_query(request, "machineId", *PARAMETERS)
        machine = request.query.get("machineId", [None])[-1]
        mine = self._sim.machines.events.of(request.who.id, machine)
        return page(request, [(one.number, one.row()) for one in mine])

    def event(self, request: Request) -> Reply:
        """To look at an event is a look at its machine."""
        found = self._sim.machines.events.all.get(request.params["id"])
        if found is None or found.account != request.who.id:
            raise errors.refusal(errors.NOT_FOUND, "Machine event not found")
        machine = self._sim.machines.all.get(found.machine or "")
        if machine is not None:
            self._sim.machines.look(machine)
        return Reply(200, found.row())

    # Create

    def create(self, request: Request) -> Reply:
        told, who = self._sim.body(request, NewMachine), request.who.id
        if "quota" in request.faults:
            raise errors.refusal(errors.FORBIDDEN, "Your team has reached its limit of machines.")
        if "bad_standing" in request.faults:
            raise errors.refusal(errors.FORBIDDEN, "Your account is not in good standing.")
        region = self._region(told.region)
        self._checked(request, told)
        if "out_of_capacity" in request.faults:
            raise errors.refusal(errors.BAD_REQUEST, NO_CAPACITY)
        self._sim.remember(who)
        template = next(one for one in catalog.TEMPLATES if one.id == told.templateId)
        made = self._sim.machines.create(who, told, region, template)
        self._first(request, made)
        self._sim.book(request, made.id, "create")
        return self._begun(made, self._sim.machines.events.of(who, made.id)[0])

    def _first(self, request: Request, made: Machine) -> None:
        """What a request and the rules say of a machine that is new."""
        told = made.wanted
        made.shutdown_after = USUAL_SHUTDOWN if told.autoShutdownEnabled is None else None
        made.script = told.startupScriptId
        if "stuck" in request.faults:
            made.stuck = SERVICE
        if rule := request.faults.get("start_fails"):
            made.start_error = rule.get("error", NO_CAPACITY)

    def _region(self, told: str) -> str:
        region = catalog.region_of(told)
        if region is None:
            raise errors.refusal(errors.BAD_REQUEST, f"region: {told!r} is none of {', '.join(catalog.REGIONS)}")
        return region

    def _checked(self, request: Request, told: NewMachine) -> None:
        """Everything that a create names is there."""
        self._sized(told.machineType, told.diskSize)
        template = next((one for one in catalog.TEMPLATES if one.id == told.templateId), None)
        if template is None:
            raise errors.refusal(errors.NOT_FOUND, f"Template {told.templateId} not found")
        if told.machineType not in template.types:
            raise errors.refusal(errors.BAD_REQUEST, "The template is not available on this machine type.")
        script = self._sim.scripts.get(told.startupScriptId or "")
        if told.startupScriptId is not None and (script is None or script.account != request.who.id):
            raise errors.refusal(errors.NOT_FOUND, f"Startup script {told.startupScriptId} not found")

    def _sized(self, label: str, size: int) -> None:
        if label not in self._sim.stock.types:
            raise errors.refusal(errors.BAD_REQUEST, f"machineType: {label!r} does not exist")
        if size not in catalog.DISKS:
            raise errors.refusal(errors.BAD_REQUEST, f"diskSize: one of {', '.join(map(str, catalog.DISKS))}")

    # Later

    def start(self, request: Request) -> Reply:
        found = self._steady(request, OFF)
        if rule := request.faults.get("start_fails"):
            found.start_error = rule.get("error", NO_CAPACITY)
        else:
            found.start_error = ""
        return self._do(request, found, "start")

    def stop(self, request: Request) -> Reply:
        return self._do(request, self._steady(request, READY, SERVICE), "stop")

    def delete(self, request: Request) -> Reply:
        """Only one that is off, and where nothing is under way."""
        found = self._steady(request, OFF)
        if rule := request.faults.get("delete_lingers"):
            found.lingers = rule.get("seconds", 600.0)
        found.undeletable = "delete_fails" in request.faults
        return self._do(request, found, "delete")

    def _steady(self, request: Request, *states: str) -> Machine:
        self._sim.no_body(request)
        found = self.find(request, request.params["id"])
        busy = found.acting is not None and found.status != SERVICE
        if found.status not in states or found.status not in STEADY or busy or found.deleting:
            what = "is being deleted" if found.deleting else f"is {found.status}"
            raise errors.refusal(errors.CONFLICT, f"Machine {found.id} {what}: it has to be {' or '.join(states)}.")
        return found

    def _do(self, request: Request, found: Machine, what: str) -> Reply:
        """`ignored`: answered as begun, with an event that is never worked on."""
        self._sim.remember(request.who.id)
        ignored = "ignored" in request.faults
        name = "deactivate" if what == "delete" else what
        if ignored:
            begun = self._sim.machines.events.begin(request.who.id, name, found.id)
        else:
            begun = getattr(self._sim.machines, what)(found)
        self._sim.book(request, found.id, what, done=not (ignored or found.undeletable))
        return self._begun(found, begun)

    def _begun(self, one: Machine, event: Event) -> Reply:
        return Reply(200, {"event": event.row(), "data": self._sim.machines.row(one)})
