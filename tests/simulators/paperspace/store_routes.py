"""The routes of all that is no machine: the session, templates, networks, static IPs, snapshots, drives, scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulators.paperspace import catalog, errors
from tests.simulators.paperspace.machine_routes import API, MachineRoutes
from tests.simulators.paperspace.machines import OFF
from tests.simulators.paperspace.paging import PARAMETERS, page
from tests.simulators.paperspace.requests import (
    AssignIp,
    ChangedScript,
    ClaimIp,
    NewDrive,
    NewNetwork,
    NewScript,
    NewSnapshot,
    OnMachine,
    Rename,
)
from tests.simulators.paperspace.stores import Drive, Network, PublicIp, Script, Snapshot, rows
from tests.simulators.simulator import Reply, Request

if TYPE_CHECKING:
    from tests.simulators.paperspace.platform import PaperspaceSim

T = TypeVar("T", Network, PublicIp, Snapshot, Drive, Script)
SESSION = f"GET {API}/auth/session"
SNAPSHOTS, IPS, SCRIPTS = f"{API}/snapshots", f"{API}/public-ips", f"{API}/startup-scripts"
DRIVES, NETWORKS = f"{API}/shared-drives", f"{API}/private-networks"


class StoreRoutes:
    """Answers for one simulator."""

    def __init__(self, sim: PaperspaceSim, machines: MachineRoutes) -> None:
        self._sim, self._machines = sim, machines
        for call, answer in {
            SESSION: self.session,
            f"GET {API}/health": lambda request: Reply(200, "HEALTHY"),
            f"GET {API}/billing/account-standing": self.standing,
            f"GET {API}/os-templates": self.templates,
            f"GET {API}/custom-templates": lambda request: page(request, [], "dtCreated", "name"),
            f"GET {API}/machine-availability": self.availability,
            f"GET {NETWORKS}": self.networks,
            f"POST {NETWORKS}": self.new_network,
            f"GET {NETWORKS}/{{id}}": self.network,
            f"DELETE {NETWORKS}/{{id}}": self.drop_network,
            f"GET {IPS}": self.ips,
            f"POST {IPS}": self.claim,
            f"PUT {IPS}/{{ip}}": self.assign,
            f"DELETE {IPS}/{{ip}}": self.release,
            f"GET {SNAPSHOTS}": self.snapshots,
            f"POST {SNAPSHOTS}": self.new_snapshot,
            f"GET {SNAPSHOTS}/{{id}}": self.snapshot,
            f"PUT {SNAPSHOTS}/{{id}}": self.rename_snapshot,
            f"DELETE {SNAPSHOTS}/{{id}}": self.drop_snapshot,
            f"POST {SNAPSHOTS}/{{id}}/restore": self.restore,
            f"GET {DRIVES}": self.drives,
            f"POST {DRIVES}": self.new_drive,
            f"GET {DRIVES}/{{id}}": self.drive,
            f"DELETE {DRIVES}/{{id}}": self.drop_drive,
            f"GET {SCRIPTS}": self.scripts,
            f"POST {SCRIPTS}": self.new_script,
            f"GET {SCRIPTS}/{{id}}": self.script,
            f"PUT {SCRIPTS}/{{id}}": self.change_script,
            f"DELETE {SCRIPTS}/{{id}}": self.drop_script,
            f"POST {SCRIPTS}/{{id}}/assign": self.put_script,
            f"POST {SCRIPTS}/{{id}}/unassign": self.take_script,
        }.items():
            sim.route(call, answer)

    def _find(self, request: Request, found: dict[str, T], what: str, key: str = "id") -> T:
        """The caller's own thing; else there is none."""
        one = found.get(request.params[key])
        if one is None or one.account != request.who.id:
            raise errors.refusal(errors.NOT_FOUND, f"{what} {request.params[key]} not found")
        return one

    def _region(self, told: str) -> str:
        region = catalog.region_of(told)
        if region is None:
            raise errors.refusal(errors.BAD_REQUEST, f"region: {told!r} does not exist")
        return region

    def _listed(self, request: Request, found: list[tuple[int, dict[str, Any]]], *names: str) -> Reply:
        self._sim.known_query(request, *names, *PARAMETERS)
        for name in names:
            for word in request.query.get(name, []):
                found = [(number, row) for number, row in found if word in row[name]]
        return page(request, found, "dtCreated", *(["name"] if "name" in names else []))

    # The account and the catalogue

    def session(self, request: Request) -> Reply:
        """Null for a key that opens nothing: a 200 like the other."""
        who = request.account
        if who is None:
            return Reply(200, b"null")
        team = {"id": f"t{who.id}", "namespace": f"t{who.id}", "isPrivate": True, "maxMachines": 0, "analyticsId": 1}
        user: dict[str, Any] = {
            "id": f"u{who.id}",
            "email": who.email,
            "firstName": "",
            "lastName": None,
            "teamMemberships": [],
        }
        return Reply(200, {"user": user, "team": {**team, "maxMachines": self._sim.most_machines}})

    def standing(self, request: Request) -> Reply:
        good = self._sim.in_good_standing and "bad_standing" not in request.faults
        body = {"hasPaymentMethod": True, "isAdminLocked": False, "isInGoodStanding": good}
        return Reply(200, {**body, "messages": [] if good else ["Your last invoice is unpaid."]})

    def templates(self, request: Request) -> Reply:
        self._sim.known_query(request, "name", *PARAMETERS)
        word = request.query.get("name", [""])[-1]
        found = [(number, one.outline()) for number, one in enumerate(catalog.TEMPLATES) if word in one.name]
        return page(request, found, "name")

    def availability(self, request: Request) -> Reply:
        """Of this moment: a machine that starts a minute later may find none."""
        self._sim.known_query(request, "machineType", "region")
        for name in ("machineType", "region"):
            if name not in request.query:
                raise errors.refusal(errors.BAD_REQUEST, f"{name}: required")
        place = (request.query["machineType"][-1], self._region(request.query["region"][-1]))
        return Reply(200, {"available": self._sim.stock.free.get(place, 0) > 0})

    # Networks

    def networks(self, request: Request) -> Reply:
        """Without the one that an account has in each region by itself."""
        kept = {id: one for id, one in self._sim.stores.networks.items() if one.listed}
        return self._listed(request, rows(kept, request.who.id, Network.row), "name", "region")

    def new_network(self, request: Request) -> Reply:
        told = self._sim.body(request, NewNetwork)
        made = self._sim.stores.network(request.who.id, told.name, self._region(told.region))
        return Reply(200, made.row())

    def network(self, request: Request) -> Reply:
        """Null for one that is no private network: a 200 like the other."""
        one = self._sim.stores.networks.get(request.params["id"])
        if one is None or one.account != request.who.id or not one.listed:
            return Reply(200, b"null")
        return Reply(200, one.row())

    def drop_network(self, request: Request) -> Reply:
        one = self._find(request, self._sim.stores.networks, "Network")
        if self._sim.stores.uses_network(one.id):
            raise errors.refusal(errors.CONFLICT, f"Network {one.id} is in use.")
        del self._sim.stores.networks[one.id]
        return Reply(200, {"id": one.id})

    # Static IPs

    def ips(self, request: Request) -> Reply:
        return self._listed(request, rows(self._sim.stores.ips, request.who.id, PublicIp.row), "region")

    def claim(self, request: Request) -> Reply:
        told = self._sim.body(request, ClaimIp)
        return Reply(200, self._sim.stores.claim(request.who.id, self._region(told.region)).row())

    def assign(self, request: Request) -> Reply:
        told = self._sim.body(request, AssignIp)
        one = self._find(request, self._sim.stores.ips, "Public IP", "ip")
        machine = self._machines.find(request, told.machineId) if told.machineId is not None else None
        if machine is not None and machine.region != one.region:
            raise errors.refusal(errors.BAD_REQUEST, "The machine is in another region.")
        self._sim.stores.assign(one, machine)
        return Reply(200, one.row())

    def release(self, request: Request) -> Reply:
        """Only one that is on no machine."""
        one = self._find(request, self._sim.stores.ips, "Public IP", "ip")
        if one.machine is not None:
            raise errors.refusal(errors.CONFLICT, f"{one.ip} is assigned to machine {one.machine}.")
        self._sim.stores.release(one)
        return Reply(200, {"ip": one.ip})

    # Snapshots

    def snapshots(self, request: Request) -> Reply:
        return self._listed(request, rows(self._sim.stores.snapshots, request.who.id, Snapshot.row), "machineId")

    def new_snapshot(self, request: Request) -> Reply:
        told = self._sim.body(request, NewSnapshot)
        machine = self._machines.find(request, told.machineId)
        made = self._sim.stores.snapshot(machine, told.name)
        return self._begun(request, made, "snapshot-create")

    def snapshot(self, request: Request) -> Reply:
        return Reply(200, self._find(request, self._sim.stores.snapshots, "Snapshot").row())

    def rename_snapshot(self, request: Request) -> Reply:
        told = self._sim.body(request, Rename)
        one = self._find(request, self._sim.stores.snapshots, "Snapshot")
        one.name = told.name
        return Reply(200, one.row())

    def drop_snapshot(self, request: Request) -> Reply:
        """It bills until its event is done."""
        one = self._find(request, self._sim.stores.snapshots, "Snapshot")
        return self._begun(request, one, "snapshot-delete")

    def restore(self, request: Request) -> Reply:
        """Onto its own machine, which has to be off; of no use when that is gone."""
        self._sim.no_body(request)
        one = self._find(request, self._sim.stores.snapshots, "Snapshot")
        machine = self._sim.machines.all.get(one.machine)
        if machine is None or not one.usable:
            raise errors.refusal(errors.NOT_FOUND, f"Machine {one.machine} not found")
        if machine.state != OFF:
            raise errors.refusal(errors.CONFLICT, f"Machine {machine.id} has to be off.")
        return self._begun(request, one, "snapshot-restore")

    def _begun(self, request: Request, one: Snapshot, what: str) -> Reply:
        """An event that ends by itself."""
        events = self._sim.machines.events
        begun = events.begin(request.who.id, what, one.machine)

        def over() -> None:
            events.end(begun)
            if what == "snapshot-delete":
                self._sim.stores.drop_snapshot(one)

        self._sim.timeline.later(self._sim.machines.times.snapshot, over)
        return Reply(200, {"event": begun.row(), "data": one.row()})

    # Shared drives

    def drives(self, request: Request) -> Reply:
        return self._listed(request, rows(self._sim.stores.drives, request.who.id, Drive.row), "name", "region")

    def new_drive(self, request: Request) -> Reply:
        told = self._sim.body(request, NewDrive)
        region = self._region(told.region)
        network = self._sim.stores.networks.get(told.networkId)
        if network is None or (network.account, network.region) != (request.who.id, region) or not network.listed:
            raise errors.refusal(errors.NOT_FOUND, f"Private network {told.networkId} not found in {region}")
        if told.size not in catalog.DRIVE_SIZES:
            raise errors.refusal(errors.BAD_REQUEST, f"size: one of {', '.join(map(str, catalog.DRIVE_SIZES))}")
        made = self._sim.stores.drive(request.who.id, told.name, region, network.id, told.size)
        return Reply(200, made.row())

    def drive(self, request: Request) -> Reply:
        return Reply(200, self._find(request, self._sim.stores.drives, "Shared drive").row())

    def drop_drive(self, request: Request) -> Reply:
        """At once, whatever mounts it."""
        one = self._find(request, self._sim.stores.drives, "Shared drive")
        self._sim.stores.drop_drive(one)
        return Reply(200, {"id": one.id})

    # Startup scripts

    def scripts(self, request: Request) -> Reply:
        kept = {id: one for id, one in self._sim.stores.scripts.items() if one.deleted is None}
        return self._listed(request, rows(kept, request.who.id, self._row), "name")

    def _row(self, one: Script) -> dict[str, Any]:
        return one.row(self._sim.machines)

    def _script(self, request: Request) -> Script:
        one = self._find(request, self._sim.stores.scripts, "Startup script")
        if one.deleted is not None:
            raise errors.refusal(errors.NOT_FOUND, f"Startup script {one.id} not found")
        return one

    def new_script(self, request: Request) -> Reply:
        told = self._sim.body(request, NewScript)
        return Reply(200, self._row(self._sim.stores.script(request.who.id, told.name, told.script, told.isRunOnce)))

    def script(self, request: Request) -> Reply:
        return Reply(200, self._row(self._script(request)))

    def change_script(self, request: Request) -> Reply:
        told, one = self._sim.body(request, ChangedScript), self._script(request)
        one.name, one.script = told.name or one.name, told.script or one.script
        one.once = told.isRunOnce if told.isRunOnce is not None else one.once
        one.enabled = told.isEnabled if told.isEnabled is not None else one.enabled
        return Reply(200, self._row(one))

    def drop_script(self, request: Request) -> Reply:
        """It is taken off its machines: their next start runs nothing."""
        one = self._script(request)
        one.deleted = self._sim.timeline.now()
        for machine in self._sim.machines.of(request.who.id):
            machine.script = None if machine.script == one.id else machine.script
        return Reply(200, self._row(one))

    def put_script(self, request: Request) -> Reply:
        told, one = self._sim.body(request, OnMachine), self._script(request)
        self._machines.find(request, told.machineId).script = one.id
        return Reply(200, self._row(one))

    def take_script(self, request: Request) -> Reply:
        told, one = self._sim.body(request, OnMachine), self._script(request)
        machine = self._machines.find(request, told.machineId)
        machine.script = None if machine.script == one.id else machine.script
        return Reply(200, self._row(one))
