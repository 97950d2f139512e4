"""Machines: how they come up, bill, stop and end.

A machine bills its disk from its creation until it is gone, whatever its state, and its compute by the begun hour from
`starting` until it is off. A machine that is off holds no card: another start may find none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulators.clock import rfc3339
from tests.simulators.ledger import HOUR, RentalLedger
from tests.simulators.paperspace import catalog, events
from tests.simulators.paperspace.catalog import MachineType, Template
from tests.simulators.paperspace.events import Event, Events
from tests.simulators.paperspace.requests import NewMachine
from tests.simulators.timeline import Timeline
from tests.simulators.vendor import Stock

PROVISIONING, STARTING, SERVICE, READY = "provisioning", "starting", "serviceready", "ready"
STOPPING, OFF = "stopping", "off"
GONE = "gone"
"""No state of the vendor's: it is in no answer any more."""
COMPUTES = frozenset({STARTING, SERVICE, READY, STOPPING})
"""The states in which its compute bills."""
STEADY = frozenset({OFF, SERVICE, READY})
"""Nothing is under way."""
PICKED_UP = 1.0
"""Seconds until an event that is new is worked on."""
NO_CAPACITY = "There is no capacity for this machine type in this region. Try again later."


@dataclass(frozen=True)
class Times:
    """How long things take, in virtual seconds. Invented: the vendor publishes no figures. `reads`: so often a machine
    is read besides before each step, for tests whose clock stands still."""

    provisioning: float = 120.0
    starting: float = 60.0
    service: float = 20.0
    """From `serviceready`, when its system is up, until `ready`."""
    stopping: float = 45.0
    deactivating: float = 60.0
    reads: int = 0


AT_ONCE = Times(provisioning=0, starting=0, service=0, stopping=0, deactivating=0, reads=1)


@dataclass
class Machine:
    """One machine. `wanted`: the request that made it."""

    id: str
    account: str
    wanted: NewMachine
    kind: MachineType
    template: Template
    region: str
    number: int
    created: float
    modified: float
    name: str
    status: str = PROVISIONING
    public_ip: str | None = None
    shutdown_after: int | None = None
    """Hours after which it shuts down by itself; None: never."""
    script: str | None = None
    on_since: float | None = None
    """When the session began that bills now."""
    armed: int = 0
    """So often its clock of the shutdown was set or ended: at a start, and when it is off."""
    acting: Event | None = None
    due: Callable[[], None] | None = None
    """A step whose time has come, and that waits for reads."""
    looks: int = 0
    stuck: str = ""
    """The state that it never leaves."""
    start_error: str = ""
    deleting: bool = False
    deleted: float | None = None
    lingers: float | None = 0.0
    """So much longer its end takes; None: for ever."""
    undeletable: bool = False
    odd_status: tuple[str, int] | None = None
    history: list[str] = field(default_factory=list)

    @property
    def dynamic(self) -> bool:
        return self.wanted.publicIpType == "dynamic"


class Machines:
    """All machines of all accounts."""

    def __init__(
        self, ledger: RentalLedger, timeline: Timeline, stock: Stock[MachineType], times: Times, said: Events
    ) -> None:
        self._ledger, self._timeline, self._stock, self.events = ledger, timeline, stock, said
        self.times = times
        self.all: dict[str, Machine] = {}
        self.gone: dict[str, Machine] = {}
        self._addresses = 0

    # Life

    def create(self, account: str, wanted: NewMachine, region: str, template: Template) -> Machine:
        """A new one, whose disk bills from now on."""
        number, now = len(self.all) + len(self.gone) + 1, self._timeline.now()
        id = events.id_of("ps", "machine", number, account)
        kind = self._stock.types[wanted.machineType]
        made = Machine(id, account, wanted, kind, template, region, number, now, now, wanted.name)
        self._ledger.begin(id, account=account, tag=wanted.name, kind="machine", state=PROVISIONING, rate=0.0)
        self.all[id] = made
        self._turn(made, PROVISIONING)
        self._act(made, "create", self.times.provisioning, lambda: self._provisioned(made))
        return made

    def _provisioned(self, one: Machine) -> None:
        self._done(one)
        self._turn(one, OFF)
        if one.wanted.startOnCreate:
            self.start(one)

    def start(self, one: Machine) -> Event:
        """It starts, if there is a card: else its event says later that there is none, and it is off again."""
        begun = self.events.begin(one.account, "start", one.id)
        self._turn(one, STARTING)
        if one.start_error or not self._stock.take(one.kind.label, one.region):
            error = one.start_error or NO_CAPACITY
            self._after(one, begun, self.times.starting, lambda: self._not_started(one, error))
        else:
            one.on_since = self._timeline.now()
            self._turn(one, STARTING)
            self._after(one, begun, self.times.starting, lambda: self._system_up(one))
        return begun

    def _not_started(self, one: Machine, error: str) -> None:
        self._done(one, error)
        self._turn(one, OFF)

    def _system_up(self, one: Machine) -> None:
        self._turn(one, SERVICE)
        if one.dynamic:
            one.public_ip = self.address()
        self._arm(one)
        self._later(one, self.times.service, lambda: self._agent_up(one))

    def _agent_up(self, one: Machine) -> None:
        self._done(one)
        self._turn(one, READY)

    def _arm(self, one: Machine) -> None:
        one.armed += 1
        number = one.armed
        if one.shutdown_after is not None:
            self._timeline.later(one.shutdown_after * HOUR, lambda: self._shut_down_by_itself(one, number))

    def _shut_down_by_itself(self, one: Machine, number: int) -> None:
        """By the clock and not by idleness, as on Linux: a run in it ends."""
        if one.armed == number and one.status in (SERVICE, READY):
            self.stop(one)

    def stop(self, one: Machine) -> Event:
        """Its compute bills until it is off. A start that is not over is cancelled."""
        if one.acting is not None:
            self.events.end(one.acting, state=events.CANCELLED)
        one.acting = one.due = None
        self._turn(one, STOPPING)  # first: where a stop takes no time, its end is due at the next look at the clock
        return self._act(one, "stop", self.times.stopping, lambda: self._stopped(one))

    def _stopped(self, one: Machine) -> None:
        self._done(one)
        self._halt(one)

    def _halt(self, one: Machine) -> None:
        """It is off: the begun hour is paid, the card is another's, an address that is not its own is lost."""
        self._pay_hour(one)
        one.armed += 1
        self._turn(one, OFF)
        self._stock.give(one.kind.label, one.region)
        one.public_ip = None

    def power_off(self, one: Machine) -> None:
        """The platform turns it off all at once, as after a failure of its host."""
        if one.on_since is not None:
            if one.acting is not None:
                self.events.end(one.acting, state=events.CANCELLED)
            one.acting = one.due = None
            self._halt(one)

    def delete(self, one: Machine) -> Event:
        """It shows its last state until it is gone, and its disk bills as long."""
        one.deleting = True
        if one.undeletable:
            begun = self._act(one, "deactivate", self.times.deactivating, lambda: self._kept(one))
        elif one.lingers is None:
            begun = one.acting = self.events.begin(one.account, "deactivate", one.id)
        else:
            seconds = self.times.deactivating + one.lingers
            begun = self._act(one, "deactivate", seconds, lambda: self.end(one))
        return begun

    def _kept(self, one: Machine) -> None:
        """The end failed, and the event says no more than that."""
        if one.acting is not None:
            self.events.end(one.acting, state=events.ERROR)
        one.acting, one.deleting = None, False

    def end(self, one: Machine) -> None:
        """It is gone, with its disk. Again: nothing."""
        if one.status == GONE:
            return
        if one.on_since is not None:
            self._halt(one)
        self._done(one)
        one.status, one.deleted, one.deleting = GONE, self._timeline.now(), False
        self._ledger.end(one.id, GONE)
        self.gone[one.id] = self.all.pop(one.id)
        one.history.append(GONE)

    # Steps

    def _act(self, one: Machine, name: str, seconds: float, step: Callable[[], None]) -> Event:
        begun = self.events.begin(one.account, name, one.id)
        self._after(one, begun, seconds, step)
        return begun

    def _after(self, one: Machine, event: Event, seconds: float, step: Callable[[], None]) -> None:
        """Works on an event: its last step comes in so many seconds."""
        one.acting = event
        self._timeline.later(PICKED_UP, lambda: self.events.run(event) if event.state == events.NEW else None)
        self._later(one, seconds, step)

    def _later(self, one: Machine, seconds: float, step: Callable[[], None]) -> None:
        def come() -> None:
            if one.acting is not acting or one.stuck == one.status:
                return
            if self.times.reads:
                one.due, one.looks = step, 0
            else:
                step()

        acting = one.acting
        self._timeline.later(seconds, come)

    def _done(self, one: Machine, error: str | None = None) -> None:
        if one.acting is not None:
            self.events.end(one.acting, error)
        one.acting = None

    def _turn(self, one: Machine, state: str) -> None:
        one.status, one.modified = state, self._timeline.now()
        if not one.history or one.history[-1] != state:
            one.history.append(state)
        compute = one.kind.usd if one.on_since is not None else 0.0
        self._ledger.turn(one.id, state, compute + catalog.storage_rate(one.wanted.diskSize))

    def _pay_hour(self, one: Machine) -> None:
        """What is left of the hour of compute that has begun."""
        if one.on_since is not None:
            used = round(self._timeline.now() - one.on_since, 3)
            self._ledger.charge(one.id, -used % HOUR, one.kind.usd)
            one.on_since = None

    def address(self) -> str:
        """One of loopback at which nothing listens; never the same twice."""
        self._addresses += 1
        return f"127.73.{self._addresses // 250}.{self._addresses % 250 + 1}"

    # Reading

    def of(self, account: str) -> list[Machine]:
        """An account's machines that are not gone, oldest first."""
        mine = [one for one in self.all.values() if one.account == account]
        return sorted(mine, key=lambda one: one.number)

    def look(self, one: Machine) -> dict[str, Any]:
        """One look at it, as the API shows it."""
        one.looks += 1
        if one.due is not None and one.looks >= self.times.reads:
            step, one.due = one.due, None
            step()
            self._timeline.now()
        shown = self.row(one)
        if one.odd_status:
            state, left = one.odd_status
            shown["state"] = state
            one.odd_status = (state, left - 1) if left > 1 else None
        return shown

    def row(self, one: Machine) -> dict[str, Any]:
        """As the API shows it. The document says numbers for `ram` and storage; its customers read strings."""
        told = one.wanted
        return {
            "id": one.id,
            "name": one.name,
            "state": one.status if one.status != GONE else OFF,
            "os": one.template.os,
            "machineType": one.kind.label,
            "agentType": "LinuxHeadless",
            "cpus": one.kind.cpus,
            "ram": str(one.kind.ram * catalog.GIB),
            "storageTotal": str(told.diskSize * catalog.GIB),
            "storageUsed": str(9 * catalog.GIB),
            "accelerators": one.kind.accelerators(),
            "region": catalog.REGIONS[one.region],
            "privateIp": f"10.73.{one.number // 250}.{one.number % 250 + 1}",
            "networkId": events.id_of("n", "network", one.account, one.region),
            "publicIp": one.public_ip,
            "publicIpType": told.publicIpType or "none",
            "autoShutdownEnabled": one.shutdown_after is not None,
            "autoShutdownTimeout": one.shutdown_after,
            "autoShutdownForce": False,
            "autoSnapshotEnabled": False,
            "autoSnapshotFrequency": None,
            "autoSnapshotSaveCount": None,
            "updatesPending": False,
            "restorePointEnabled": False,
            "restorePointFrequency": None,
            "restorePointSnapshotId": None,
            "usageRate": one.kind.usd,
            "storageRate": round(catalog.storage_rate(told.diskSize), 6),
            "dtCreated": rfc3339(one.created),
            "dtModified": rfc3339(one.modified),
            "dtDeleted": rfc3339(one.deleted) if one.deleted is not None else None,
            "reservation": None,
        }
