"""The routes of machines and of their events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulators.paperspace import catalog, errors
from tests.simulators.paperspace.events import Event
from tests.simulators.paperspace.machines import (
    NO_CAPACITY,
    OFF,
    PROVISIONING,
    READY,
    SERVICE,
    STARTING,
    STEADY,
    STOPPING,
    Machine,
)
from tests.simulators.paperspace.paging import PARAMETERS, page
from tests.simulators.paperspace.requests import ChangedMachine, NewMachine
from tests.simulators.simulator import Reply, Request

if TYPE_CHECKING:
    from tests.simulators.paperspace.platform import PaperspaceSim

API = "/v1"
CREATE, LIST = f"POST {API}/machines", f"GET {API}/machines"
GET, DELETE, UPDATE = f"GET {API}/machines/{{id}}", f"DELETE {API}/machines/{{id}}", f"PUT {API}/machines/{{id}}"
START, STOP = f"PATCH {API}/machines/{{id}}/start", f"PATCH {API}/machines/{{id}}/stop"
RESTART = f"PATCH {API}/machines/{{id}}/restart"
EVENTS, EVENT = f"GET {API}/machine-events", f"GET {API}/machine-events/{{id}}"
LONGEST_SHUTDOWN = 168
"""Hours: a week."""
MOST_SNAPSHOTS = 9


class MachineRoutes:
    """Answers for one simulator."""

    def __init__(self, sim: PaperspaceSim) -> None:
        self._sim = sim
        sim.route(CREATE, self.create)
        sim.route(LIST, self.listed)
        sim.route(GET, self.one)
        sim.route(UPDATE, self.update)
        sim.route(DELETE, self.delete)
        sim.route(START, self.start)
        sim.route(STOP, self.stop)
        sim.route(RESTART, self.restart)
        sim.route(EVENTS, self.events)
        sim.route(EVENT, self.event)

    # Reading

    def listed(self, request: Request) -> Reply:
        """Those that are not gone. `name` and the other filters match a part of what they look at."""
        self._sim.known_query(request, "name", "region", "agentType", "machineType", *PARAMETERS)
        if rule := request.faults.get("stale_list"):
            return page(request, self._sim.before(request.who.id, rule.get("writes", 1)), "dtCreated", "name", "state")
        if "empty_list" in request.faults:
            return page(request, [], "dtCreated")
        machines = self._sim.machines
        shown: list[tuple[int, dict[str, Any]]] = []
        for one in machines.of(request.who.id):
            if one.hidden and one.hidden_in_list:
                one.hidden -= 1
            else:
                shown.append((one.number, machines.look(one)))
        if "list_deleted" in request.faults:
            gone = [one for one in machines.gone.values() if one.account == request.who.id]
            shown += [(one.number, machines.row(one)) for one in gone]
        for name in ("name", "region", "agentType", "machineType"):
            for wanted in request.query.get(name, []):
                word = catalog.REGIONS.get(wanted, wanted)
                shown = [(number, row) for number, row in shown if word in row[name]]
        return page(request, shown, "dtCreated", "name", "state")

    def one(self, request: Request) -> Reply:
        found = self.find(request, request.params["id"])
        if found.hidden:
            found.hidden -= 1
            raise errors.refusal(errors.NOT_FOUND, f"Machine {found.id} not found")
        return Reply(200, self._sim.machines.look(found))

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
        return page(request, [(one.number, one.row()) for one in mine], "dtCreated")

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
        if "quota" in request.faults or len(self._sim.machines.of(who)) >= self._sim.most_machines:
            raise errors.refusal(errors.FORBIDDEN, "Your team has reached its limit of machines.")
        if not self._sim.in_good_standing or "bad_standing" in request.faults:
            raise errors.refusal(errors.FORBIDDEN, "Your account is not in good standing.")
        region = self._region(told.region)
        network = self._checked(request, told, region)
        if "out_of_capacity" in request.faults:
            raise errors.refusal(errors.BAD_REQUEST, NO_CAPACITY)
        self._sim.remember(who)
        template = next(one for one in catalog.TEMPLATES if one.id == told.templateId)
        made = self._sim.machines.create(who, told, region, network, template)
        self._first(request, made)
        self._sim.book(request, made.id, "create")
        return self._begun(made, self._sim.machines.events.of(who, made.id)[0])

    def _first(self, request: Request, made: Machine) -> None:
        """What a request and the rules say of a machine that is new."""
        told, sim = made.wanted, self._sim
        made.shutdown_after = told.autoShutdownTimeout if told.autoShutdownEnabled else None
        if told.autoShutdownEnabled is None:
            made.shutdown_after = sim.usual_shutdown
        made.script = told.startupScriptId
        if told.publicIpType == "static":
            sim.stores.claim(request.who.id, made.region, made)
        if told.takeInitialSnapshot:
            sim.stores.snapshot(made, "initial")
        sim.stores.automatic(made)
        for fault, state in (("stuck_provisioning", PROVISIONING), ("stuck_starting", STARTING), ("stuck", SERVICE)):
            if fault in request.faults:
                made.stuck = state
        if rule := request.faults.get("start_fails"):
            made.start_error = rule.get("error", NO_CAPACITY)
        if rule := request.faults.get("late_address"):
            made.no_address = rule.get("reads", 3)
        if rule := request.faults.get("missing_at_first"):
            made.hidden, made.hidden_in_list = rule.get("reads", 2), rule.get("in_list", False)

    def _region(self, told: str) -> str:
        region = catalog.region_of(told)
        if region is None:
            raise errors.refusal(errors.BAD_REQUEST, f"region: {told!r} is none of {', '.join(catalog.REGIONS)}")
        return region

    def _checked(self, request: Request, told: NewMachine, region: str) -> str:
        """Everything that a create names is there. Returns the network."""
        sim, who = self._sim, request.who.id
        self._sized(told.machineType, told.diskSize)
        template = next((one for one in catalog.TEMPLATES if one.id == told.templateId), None)
        if template is None:
            raise errors.refusal(errors.NOT_FOUND, f"Template {told.templateId} not found")
        if told.machineType not in template.types:
            raise errors.refusal(errors.BAD_REQUEST, "The template is not available on this machine type.")
        self._clocks(told)
        script = sim.stores.scripts.get(told.startupScriptId or "")
        if told.startupScriptId is not None and (script is None or script.account != who or script.deleted is not None):
            raise errors.refusal(errors.NOT_FOUND, f"Startup script {told.startupScriptId} not found")
        if any(user != f"u{who}" for user in told.accessorIds):
            raise errors.refusal(errors.NOT_FOUND, "User not found")
        if told.networkId is None:
            return sim.stores.usual_network(who, region).id
        network = sim.stores.networks.get(told.networkId)
        if network is None or (network.account, network.region) != (who, region):
            raise errors.refusal(errors.NOT_FOUND, f"Network {told.networkId} not found in {region}")
        return network.id

    def _sized(self, label: str, size: int) -> None:
        if label not in self._sim.stock.types:
            raise errors.refusal(errors.BAD_REQUEST, f"machineType: {label!r} does not exist")
        if size not in catalog.DISKS:
            raise errors.refusal(errors.BAD_REQUEST, f"diskSize: one of {', '.join(map(str, catalog.DISKS))}")

    def _clocks(self, told: NewMachine | ChangedMachine) -> None:
        """What belongs together is there together."""
        hours, count = told.autoShutdownTimeout, told.autoSnapshotSaveCount
        if bool(told.autoShutdownEnabled) != (hours is not None):
            raise errors.refusal(errors.BAD_REQUEST, "autoShutdownTimeout goes with autoShutdownEnabled")
        if hours is not None and not 1 <= hours <= LONGEST_SHUTDOWN:
            raise errors.refusal(errors.BAD_REQUEST, f"autoShutdownTimeout: hours, 1 to {LONGEST_SHUTDOWN}")
        if told.autoSnapshotEnabled and (told.autoSnapshotFrequency is None or count is None):
            raise errors.refusal(errors.BAD_REQUEST, "autoSnapshotEnabled needs its frequency and its count")
        if count is not None and not 1 <= count <= MOST_SNAPSHOTS:
            raise errors.refusal(errors.BAD_REQUEST, f"autoSnapshotSaveCount: 1 to {MOST_SNAPSHOTS}")

    # Later

    def update(self, request: Request) -> Reply:
        """A shutdown clock that runs can't be set anew: the answer is 200, and nothing changed. It can be ended."""
        found, told = self.find(request, request.params["id"]), self._sim.body(request, ChangedMachine)
        given = {name: value for name, value in told.model_dump().items() if value is not None}
        wanted = found.wanted.model_copy(update={k: v for k, v in given.items() if k in NewMachine.model_fields})
        self._sized(wanted.machineType, wanted.diskSize)
        if wanted.diskSize < found.wanted.diskSize:
            raise errors.refusal(errors.BAD_REQUEST, "diskSize: a disk does not shrink")
        if found.state != OFF and (wanted.machineType, wanted.diskSize) != (found.kind.label, found.wanted.diskSize):
            raise errors.refusal(errors.CONFLICT, "The machine has to be off.")
        if told.publicIpType == "dynamic" and found.wanted.publicIpType != "dynamic":
            raise errors.refusal(errors.BAD_REQUEST, "publicIpType: dynamic only at the creation")
        if told.autoShutdownEnabled or told.autoSnapshotEnabled:
            self._clocks(told)
        self._sim.remember(request.who.id)
        stores = self._sim.stores
        if told.publicIpType == "static" and stores.ip_of(found) is None:
            stores.claim(request.who.id, found.region, found)
        elif told.publicIpType == "none" and (ip := stores.ip_of(found)) is not None:
            stores.assign(ip, None)
        if told.autoShutdownEnabled is False:
            self._sim.machines.set_clock(found, None)
        elif told.autoShutdownEnabled and found.shutdown_after is None:
            self._sim.machines.set_clock(found, told.autoShutdownTimeout)
        found.wanted, found.name = wanted, wanted.name
        self._sim.ledger.retag(found.id, found.name)
        self._sim.machines.resize(found)
        if told.autoSnapshotEnabled:
            stores.automatic(found)
        begun = self._sim.machines.events.begin(request.who.id, "vm-upgrade", found.id)
        self._sim.machines.events.end(begun)
        return self._begun(found, begun)

    def start(self, request: Request) -> Reply:
        found = self._steady(request, OFF)
        if rule := request.faults.get("start_fails"):
            found.start_error = rule.get("error", NO_CAPACITY)
        else:
            found.start_error = ""
        return self._do(request, found, "start")

    def stop(self, request: Request) -> Reply:
        found = self._steady(request, READY, SERVICE)
        if "stop_stuck" in request.faults:
            found.stuck = STOPPING
        return self._do(request, found, "stop")

    def restart(self, request: Request) -> Reply:
        return self._do(request, self._steady(request, READY), "restart")

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
        busy = found.acting is not None and found.state != SERVICE
        if found.state not in states or found.state not in STEADY or busy or found.deleting:
            what = "is being deleted" if found.deleting else f"is {found.state}"
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
