"""Instances: how they boot, bill and end. There is no stop."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from tests.simulators.lambda_api import catalog
from tests.simulators.lambda_api.catalog import InstanceType
from tests.simulators.lambda_api.hosts import NoHosts
from tests.simulators.lambda_api.requests import Launch
from tests.simulators.ledger import RentalLedger
from tests.simulators.timeline import Timeline
from tests.simulators.vendor import Stock

BOOTING, ACTIVE, UNHEALTHY = "booting", "active", "unhealthy"
TERMINATING, TERMINATED, PREEMPTED = "terminating", "terminated", "preempted"
MINUTE = 60.0
STUCK = "stuck"
"""A trouble: it boots for ever. `UNHEALTHY` as one: it never gets further than that."""


@dataclass(frozen=True)
class Times:
    """How long things take in virtual seconds, by default those that customers measured (see `platform`). `reads`: so
    often an instance is read besides before it is active, for tests whose clock stands still."""

    launching: float = 5.0
    """From the launch until `actions.terminate` says that it can be terminated."""
    address: float = 71.0
    """From the launch until it has an address; it is booting still."""
    active: float = 244.0
    terminating: float = 60.0
    remembered: float = 600.0
    """So long an instance that is terminated can be asked for by its id."""
    reads: int = 0


AT_ONCE = Times(launching=0, address=0, active=0, terminating=0, reads=1)


@dataclass
class Instance:
    """One instance."""

    id: str
    account: str
    wanted: Launch
    kind: InstanceType
    number: int
    name: str | None
    status: str = BOOTING
    ip: str = ""
    launched: bool = False
    """From then on it can be terminated."""
    passed: bool = False
    """Its time to boot is over; it may lack reads."""
    trouble: str = ""
    reads: int = 0
    hidden: int = 0
    hidden_in_list: bool = False
    no_address: int | None = 0
    """For so many reads more it shows no address; None: for ever."""
    odd_status: tuple[str, int] | None = None
    lingers: float | None = 0.0
    """So much longer it is terminating; None: for ever."""
    history: list[str] = field(default_factory=list)

    @property
    def region(self) -> str:
        return self.wanted.region_name


class Instances:
    """All instances of all accounts."""

    def __init__(
        self,
        ledger: RentalLedger,
        timeline: Timeline,
        stock: Stock[InstanceType],
        times: Times,
        hosts: NoHosts | None = None,
    ) -> None:
        self._ledger, self._timeline, self._stock = ledger, timeline, stock
        self._hosts = hosts or NoHosts()
        self.times = times
        self.all: dict[str, Instance] = {}
        """Those that can be asked for by their id: also for a while those that are terminated."""
        self.gone: dict[str, Instance] = {}

    # Life

    def launch(self, account: str, wanted: Launch, trouble: str = "") -> Instance:
        """A new one, which begins to boot and costs nothing yet. The stock is taken already."""
        number = len(self.all) + len(self.gone) + 1
        id = hashlib.sha256(f"instance {number} of {account}".encode()).hexdigest()[:32]
        kind = self._stock.types[wanted.instance_type_name]
        made = Instance(id, account, wanted, kind, number, wanted.name, trouble=trouble)
        self._ledger.begin(id, account=account, tag=wanted.name or "", kind="instance", state=BOOTING, rate=0.0)
        self.all[id] = made
        self._timeline.later(self.times.launching, lambda: self._launched(made))
        self._timeline.later(self.times.address, lambda: self._addressed(made))
        self._timeline.later(self.times.active, lambda: self._passed(made))
        made.history.append("launched")
        self._hosts.boot(made)
        return made

    def shut_down(self, one: Instance) -> None:
        """Its system was powered off from inside: the console says Alert, and it is billed on."""
        self._hosts.cut(one)
        self._turn(one, UNHEALTHY)

    def preempt(self, one: Instance) -> None:
        """The vendor takes it back. Whether it bills on is not documented, so it does until it is terminated."""
        self._hosts.cut(one)
        self._turn(one, PREEMPTED)

    def terminate(self, one: Instance) -> None:
        """It bills until it is terminated, which takes a while. Again: nothing."""
        if one.status in (TERMINATING, TERMINATED):
            return
        self._hosts.cut(one)
        self._turn(one, TERMINATING)
        if one.lingers is not None:
            self._timeline.later(self.times.terminating + one.lingers, lambda: self.end(one))

    def end(self, one: Instance) -> None:
        """It is terminated: its disk is lost, nothing bills. Again: nothing."""
        if one.status == TERMINATED:
            return
        one.status = TERMINATED
        self._hosts.kill(one)
        self._ledger.end(one.id, TERMINATED, step=MINUTE)
        self._stock.give(one.kind.name, one.region)
        self._timeline.later(self.times.remembered, lambda: self._forget(one))
        one.history.append(TERMINATED)

    def _launched(self, one: Instance) -> None:
        one.launched = True

    def _addressed(self, one: Instance) -> None:
        if one.status == BOOTING:
            one.ip = self._hosts.address(one)

    def _passed(self, one: Instance) -> None:
        one.passed = True
        if not self.times.reads:
            self._up(one)

    def _up(self, one: Instance) -> None:
        if one.status == BOOTING and one.trouble != STUCK and self._hosts.ready(one):
            self._turn(one, UNHEALTHY if one.trouble == UNHEALTHY else ACTIVE)

    def _forget(self, one: Instance) -> None:
        self.gone[one.id] = self.all.pop(one.id)

    def _turn(self, one: Instance, status: str) -> None:
        """Once it was up it bills, whatever becomes of it. One that was terminated before costs nothing, and one that
        is terminated stays so."""
        if one.status == TERMINATED:
            return
        bills = status in (ACTIVE, UNHEALTHY, PREEMPTED) or self._ledger.get(one.id).rate > 0
        one.status = status
        one.history.append(status)
        self._ledger.turn(one.id, status, one.kind.cents / 100 if bills else 0.0)

    # Reading

    def of(self, account: str) -> list[Instance]:
        """An account's instances that are not terminated, oldest first."""
        mine = [one for one in self.all.values() if one.account == account and one.status != TERMINATED]
        return sorted(mine, key=lambda one: one.number)

    def ended(self, account: str) -> list[Instance]:
        """An account's instances that are terminated and not forgotten."""
        return [one for one in self.all.values() if one.account == account and one.status == TERMINATED]

    def look(self, one: Instance) -> dict[str, Any]:
        """One look at it, as the API shows it."""
        one.reads += 1
        if one.passed and one.reads > self.times.reads:
            self._up(one)
        shown = self.row(one)
        if one.no_address:
            one.no_address -= 1
        if one.odd_status:
            status, left = one.odd_status
            shown["status"] = status
            one.odd_status = (status, left - 1) if left > 1 else None
        return shown

    def row(self, one: Instance) -> dict[str, Any]:
        """`Instance` of the vendor's document. What is not there is left out; `is_reserved` and `workspace_id` are in
        its answers and not in the document (a customer, 2026-08)."""
        shown: dict[str, Any] = {
            "id": one.id,
            "status": one.status,
            "ssh_key_names": list(one.wanted.ssh_key_names),
            "file_system_names": [],
            "region": catalog.region(one.region),
            "instance_type": one.kind.outline(),
            "actions": self._actions(one),
            "tags": [tag.model_dump() for tag in one.wanted.tags],
            "firewall_rulesets": [],
            "is_reserved": False,
            "workspace_id": f"workspace-of-{one.account}",
        }
        if one.name is not None:
            shown["name"] = one.name
        if one.ip and one.no_address == 0:
            shown |= {"ip": one.ip, "private_ip": "10.19." + ".".join(one.ip.split(".")[2:])}
            shown["hostname"] = one.ip.replace(".", "-")
        if one.status == ACTIVE:
            token = hashlib.sha256(one.id.encode()).hexdigest()[:32]
            shown |= {
                "jupyter_token": token,
                "jupyter_url": f"https://jupyter-{one.id}.lambdaspaces.com/?token={token}",
            }
        return shown

    def _actions(self, one: Instance) -> dict[str, Any]:
        """`InstanceActionAvailability`."""
        code = ""
        if one.status in (TERMINATING, TERMINATED):
            code = "vm-is-terminating"
        elif not one.launched:
            code = "vm-has-not-launched"
        blocked = {"available": False, "reason_code": code, "reason_description": f"Blocked: {code}."}
        booting = {**blocked, "reason_code": "vm-has-not-launched", "reason_description": "It boots."}
        other = blocked if code else booting if one.status == BOOTING else {"available": True}
        ends = blocked if code in ("vm-is-terminating", "vm-has-not-launched") else {"available": True}
        return dict.fromkeys(("migrate", "rebuild", "restart", "cold_reboot"), other) | {"terminate": ends}
