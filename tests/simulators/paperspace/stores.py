"""What outlives machines: networks, static IPs, snapshots, shared drives, startup scripts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulators.clock import rfc3339
from tests.simulators.ledger import HOUR, MONTH, RentalLedger
from tests.simulators.paperspace import catalog, events
from tests.simulators.paperspace.machines import Machine, Machines
from tests.simulators.timeline import Timeline

FREQUENCY = {"hourly": HOUR, "daily": 24 * HOUR, "weekly": 168 * HOUR, "monthly": MONTH}
SNAPSHOT_GB = 9
"""What a snapshot of a machine holds."""


@dataclass
class Network:
    """One private network; or, unless `listed`, the one that an account has in each region from the beginning."""

    id: str
    account: str
    name: str
    region: str
    number: int
    created: float
    listed: bool = True

    def row(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "region": self.region,
            "network": f"10.{self.number % 250}.0.0",
            "netmask": "255.255.255.0",
            "dtCreated": rfc3339(self.created),
            "dtDeleted": None,
        }


@dataclass
class PublicIp:
    """One static IP. It bills until it is released, whether it is assigned or not."""

    ip: str
    account: str
    region: str
    number: int
    created: float
    machine: str | None = None

    def row(self) -> dict[str, Any]:
        """As the API shows it."""
        shown: dict[str, Any] = {"ip": self.ip, "region": self.region, "dtCreated": rfc3339(self.created)}
        if self.machine is not None:
            shown["assignedMachineId"] = self.machine
        return shown


@dataclass
class Snapshot:
    """One snapshot. It bills until it is deleted. `usable`: False once its machine is gone."""

    id: str
    account: str
    name: str
    machine: str
    number: int
    automatic: bool
    usable: bool = True

    def row(self) -> dict[str, Any]:
        """As the API shows it: without a date and without a size."""
        return {"id": self.id, "name": self.name, "machineId": self.machine, "isAutoSnapshot": self.automatic}


@dataclass
class Drive:
    """One shared drive, in one network of one region."""

    id: str
    account: str
    name: str
    region: str
    network: str
    size: int
    number: int
    created: float

    def row(self) -> dict[str, Any]:
        """As the API shows it, with its password."""
        return {
            "id": self.id,
            "name": self.name,
            "region": self.region,
            "networkId": self.network,
            "size": self.size * catalog.GIB,
            "mountPoint": f"//10.99.0.{self.number % 250}/{self.id}",
            "username": self.id,
            "password": events.id_of("", "password", self.id),
            "dtCreated": rfc3339(self.created),
            "dtDeleted": None,
        }


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
    enabled: bool = True
    deleted: float | None = None

    def row(self, machines: Machines) -> dict[str, Any]:
        """As the API shows it: without what it does."""
        return {
            "id": self.id,
            "name": self.name,
            "description": None,
            "isEnabled": self.enabled,
            "isRunOnce": self.once,
            "assignedMachineIds": [one.id for one in machines.of(self.account) if one.script == self.id],
            "dtCreated": rfc3339(self.created),
            "dtDeleted": rfc3339(self.deleted) if self.deleted is not None else None,
        }


class Stores:
    """All of them, of all accounts."""

    def __init__(self, ledger: RentalLedger, timeline: Timeline, machines: Machines) -> None:
        self._ledger, self._timeline, self._machines = ledger, timeline, machines
        self.networks: dict[str, Network] = {}
        self.ips: dict[str, PublicIp] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.drives: dict[str, Drive] = {}
        self.scripts: dict[str, Script] = {}
        self._number = 0
        machines.ended.append(self._machine_gone)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _machine_gone(self, machine: Machine) -> None:
        """The vendor's pages disagree on what becomes of snapshots, so both: they are of no use, and they bill. A
        static IP is kept, on no machine."""
        for snapshot in self.snapshots.values():
            if snapshot.machine == machine.id:
                snapshot.usable = False
        for ip in self.ips.values():
            if ip.machine == machine.id:
                ip.machine = None

    # Networks

    def network(self, account: str, name: str, region: str, *, listed: bool = True) -> Network:
        """A new one."""
        number = self._next()
        id = events.id_of("n", "network", number)
        made = self.networks[id] = Network(id, account, name, region, number, self._timeline.now(), listed)
        return made

    def usual_network(self, account: str, region: str) -> Network:
        """That of an account's region, made when it is first asked for."""
        for one in self.networks.values():
            if (one.account, one.region, one.listed) == (account, region, False):
                return one
        return self.network(account, "default", region, listed=False)

    def uses_network(self, id: str) -> bool:
        """Whether a machine or a drive is in it."""
        machines = [one.network for one in self._machines.all.values()]
        return id in [*machines, *(one.network for one in self.drives.values())]

    # Static IPs

    def claim(self, account: str, region: str, machine: Machine | None = None) -> PublicIp:
        """A new one, which bills from now on."""
        ip = self._machines.address()
        made = PublicIp(ip, account, region, self._next(), self._timeline.now())
        self.ips[ip] = made
        rate = min(catalog.STATIC_IP, catalog.STATIC_IP_MONTH * HOUR / MONTH)
        self._ledger.begin(ip, account=account, tag=ip, kind="public_ip", state="claimed", rate=rate)
        if machine is not None:
            self.assign(made, machine)
        return made

    def assign(self, ip: PublicIp, machine: Machine | None) -> None:
        """It is that machine's now, and no other's; None: no machine's."""
        old = self._machines.all.get(ip.machine or "")
        if old is not None:
            old.static, old.public_ip = False, None
        ip.machine = machine.id if machine is not None else None
        if machine is not None:
            machine.static, machine.public_ip = True, ip.ip

    def ip_of(self, machine: Machine) -> PublicIp | None:
        """The static one of a machine."""
        return next((one for one in self.ips.values() if one.machine == machine.id), None)

    def release(self, ip: PublicIp) -> None:
        """It bills no more."""
        self.assign(ip, None)
        del self.ips[ip.ip]
        self._ledger.end(ip.ip)

    # Snapshots

    def snapshot(self, machine: Machine, name: str, *, automatic: bool = False) -> Snapshot:
        """A new one, which bills from now on."""
        number = self._next()
        id = events.id_of("ss", "snapshot", number)
        made = Snapshot(id, machine.account, name, machine.id, number, automatic)
        self.snapshots[id] = made
        rate = SNAPSHOT_GB * catalog.PER_GB * HOUR / MONTH
        self._ledger.begin(id, account=machine.account, tag=name, kind="snapshot", state="kept", rate=rate)
        return made

    def drop_snapshot(self, one: Snapshot) -> None:
        """It bills no more."""
        if self.snapshots.pop(one.id, None) is not None:
            self._ledger.end(one.id)

    def automatic(self, machine: Machine) -> None:
        """From now on a snapshot by the clock, as long as the machine wants it; the oldest one goes for it."""
        told = machine.wanted
        if not told.autoSnapshotEnabled or machine.id not in self._machines.all:
            return
        mine = [one for one in self.snapshots.values() if one.machine == machine.id and one.automatic]
        if len(mine) >= (told.autoSnapshotSaveCount or 1):
            self.drop_snapshot(mine[0])
        self.snapshot(machine, f"auto-{self._number + 1}", automatic=True)
        self._timeline.later(FREQUENCY[told.autoSnapshotFrequency or "daily"], lambda: self.automatic(machine))

    # Drives and scripts

    def drive(self, account: str, name: str, region: str, network: str, size: int) -> Drive:
        """A new one, which bills from now on by its size."""
        number = self._next()
        id = events.id_of("sd", "drive", number)
        made = self.drives[id] = Drive(id, account, name, region, network, size, number, self._timeline.now())
        rate = size * catalog.PER_GB * HOUR / MONTH
        self._ledger.begin(id, account=account, tag=name, kind="shared_drive", state="kept", rate=rate)
        return made

    def drop_drive(self, one: Drive) -> None:
        """It is gone with what it held."""
        del self.drives[one.id]
        self._ledger.end(one.id)

    def script(self, account: str, name: str, text: str, once: bool) -> Script:
        """A new one, on no machine."""
        number = self._next()
        id = events.id_of("su", "script", number)
        made = self.scripts[id] = Script(id, account, name, text, once, number, self._timeline.now())
        return made


def rows(
    found: dict[str, Any], account: str, show: Callable[[Any], dict[str, Any]]
) -> list[tuple[int, dict[str, Any]]]:
    """An account's things of one kind, oldest first, as `paging.page` takes them."""
    return sorted(((one.number, show(one)) for one in found.values() if one.account == account), key=lambda row: row[0])
