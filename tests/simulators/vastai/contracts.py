"""Contracts of the simulated vast.ai over time: who holds which GPUs, what gives way, what each of them bills.

Pure Python: a clock goes in, rows come out. `settle` makes all happen that was due. Source: vast.ai's billing guide.
"""

from __future__ import annotations

import itertools
from typing import Any

from tests.simulators.core import Refusal, RentalLedger, VirtualClock
from tests.simulators.own_keys import OwnKeys
from tests.simulators.vastai import replies
from tests.simulators.vastai.boxes import Boxes, NoBoxes
from tests.simulators.vastai.instance import Instance, Stage
from tests.simulators.vastai.market import DAY, Machine, Market
from tests.simulators.vastai.settings import Settings, VastAccount
from tests.simulators.vastai.volumes import Volumes

STOPPED = "exited"
"""What `actual_status` is of one that was stopped."""
BROKE_GRACE = DAY
"""Seconds from stopped for want of credit to destroyed."""


class Contracts:
    """See the module. Not thread-safe by itself."""

    def __init__(
        self,
        clock: VirtualClock,
        ledger: RentalLedger,
        accounts: dict[str, VastAccount],
        boxes: Boxes | None = None,
        own_keys: OwnKeys | None = None,
    ) -> None:
        self.clock, self.ledger = clock, ledger
        self.own_keys = own_keys or OwnKeys()
        self.boxes: Boxes = boxes or NoBoxes()
        self.settings = Settings()
        self.market = Market()
        self.accounts = accounts
        self.instances: dict[int, Instance] = {}
        self.volumes = Volumes(self)
        self.ids = itertools.count(20_000_001, 13)
        self.leave_at: dict[int, float] = {}  # machine → when its strangers leave

    # Looking

    @property
    def now(self) -> float:
        return self.clock.now()

    def own(self, account: VastAccount) -> list[Instance]:
        """What the account's views show, by id."""
        return [i for i in self.instances.values() if i.account == account.id and not i.forgotten]

    def find(self, account: VastAccount, number: int) -> Instance | None:
        """The account's instance, unless it is destroyed; another account's is as if there were none."""
        found = self.instances.get(number)
        return None if found is None or found.forgotten or found.account != account.id else found

    def need(self, account: VastAccount, number: int, missing: Refusal | None = None) -> Instance:
        found = self.find(account, number)
        if found is None or found.destroyed_at is not None:
            raise missing or replies.no_such_instance(number)
        return found

    def free(self, machine: Machine, bid: float | None) -> int:
        """GPUs that such a renter could have: bids give way to on-demand and to higher bids."""
        firm = [i for i in self._holders(machine) if i.bid is None or (bid is not None and i.bid >= bid)]
        return machine.gpus - machine.taken - sum(i.gpus for i in firm)

    def _holders(self, machine: Machine) -> list[Instance]:
        return [i for i in self.instances.values() if i.machine is machine and i.holds]

    def looked_at(self, instance: Instance) -> None:
        """A view has shown it: what waited for that comes nearer."""
        instance.looked_at(self.now)
        self.bill(instance)

    # GPUs

    def _take(self, instance: Instance) -> None:
        """Its GPUs are its own; the lowest bids that no longer fit give way."""
        instance.holds, instance.outbid, instance.queued = True, False, False
        machine = instance.machine
        weaker = sorted((i for i in self._holders(machine) if i.bid is not None and i is not instance), key=_bid)
        for other in weaker:
            if machine.taken + sum(i.gpus for i in self._holders(machine)) <= machine.gpus:
                return
            self.pause(other)

    def pause(self, instance: Instance) -> None:
        """Outbid: it stands still without notice; disk kept, and billed."""
        self._stand_still(instance)
        instance.outbid = True
        self.bill(instance)

    def halt(self, instance: Instance) -> None:
        """Stopped by its host, without notice; it does not come back by itself."""
        self._stand_still(instance)
        self.bill(instance)

    def _stand_still(self, instance: Instance, *, grace: bool = False) -> None:
        instance.stages.clear()
        instance.actual = None if instance.actual is None else STOPPED
        instance.intended = instance.cur_state = instance.next_state = "stopped"
        instance.holds = instance.outbid = instance.queued = False
        self.boxes.stop(instance, grace=grace)

    def _queue(self, instance: Instance) -> None:
        instance.queued, instance.intended, instance.next_state = True, "running", "running"

    def _may_run(self, instance: Instance) -> bool:
        enough = instance.bid is None or instance.bid >= instance.machine.min_bid * instance.gpus
        return enough and not instance.expired and self.free(instance.machine, instance.bid) >= instance.gpus

    def _boot(self, instance: Instance, first: str = "created") -> None:
        """On its way to running, through what a client sees meanwhile."""
        settings, now = self.settings, self.now
        instance.intended = instance.cur_state = instance.next_state = "running"
        reads, by = settings.boot_reads, now + max(settings.by_itself, settings.boot_seconds)
        stages = [Stage("loading", reads, by=by), Stage("running", reads, now + settings.boot_seconds, by=by)]
        if first == "created":
            stages.insert(0, Stage("created", reads, by=by))
        else:
            stages[0].reads = settings.start_reads
        if instance.dies:
            stages[-1].status = "exited"
        else:
            stages[-1].enter = lambda: self.boxes.start(instance, new_port=True)
        instance.follow(*stages)
        instance.advance(now)

    # Time

    def settle(self) -> None:
        """All that was due by now has happened."""
        now = self.now
        for number, moment in list(self.leave_at.items()):
            if moment <= now:
                del self.leave_at[number]
                self.market.machines[number].taken = 0
        living = [i for i in self.instances.values() if not i.forgotten]
        for instance in living:
            if instance.destroyed_at is None and now >= instance.end_date and not instance.expired:
                instance.expired = True
                self._stand_still(instance)
            instance.advance(now)
        for instance in sorted((i for i in living if i.holds and i.bid is not None), key=_bid):
            if not self._bid_holds(instance):
                self.pause(instance)
        waiting = [i for i in living if (i.outbid or i.queued) and i.destroyed_at is None]
        for instance in sorted(waiting, key=lambda i: (i.bid is not None, -_bid(i))):
            if self._may_run(instance):
                self._take(instance)
                self._boot(instance, "created" if instance.actual is None else "loading")
        for instance in living:
            self.bill(instance)
        for account in self.accounts.values():
            self._collect(account)

    def _bid_holds(self, instance: Instance) -> bool:
        machine = instance.machine
        room = machine.gpus - machine.taken - sum(i.gpus for i in self._holders(machine) if i is not instance)
        return (instance.bid or 0.0) >= machine.min_bid * instance.gpus and room >= instance.gpus

    def _collect(self, account: VastAccount) -> None:
        """Without credit everything stops, and is destroyed after a grace."""
        if self.ledger.balance(account) > 0:
            account.broke_since = None
            return
        mine = [i for i in self.own(account) if i.destroyed_at is None]
        for instance in mine:
            if instance.holds or instance.queued or instance.outbid:
                self._stand_still(instance)
                self.bill(instance)
        if account.broke_since is None:
            account.broke_since = self.now
        elif self.now - account.broke_since >= BROKE_GRACE:
            for instance in mine:
                instance.destroyed_at, instance.forgotten = self.now, True
                self.bill(instance)
                self.boxes.end(instance)
            self.volumes.end_all(account)

    def bill(self, instance: Instance) -> None:
        """Meter and ledger say what its state costs."""
        instance.bill(self.now)
        identity, rate = str(instance.id), sum(instance.meter.billing.values())
        if instance.destroyed_at is not None:
            self.ledger.end(identity, "destroyed")
            self.own_keys.end(identity)
        else:
            self.ledger.turn(identity, instance.actual or "null", rate)

    def outline(self) -> dict[str, Any]:
        """Instances, volumes and offers as plain values, for the control surface."""
        return {
            "instances": {
                str(i.id): {
                    "account": i.account, "label": i.label, "machine": i.machine.id, "actual_status": i.actual,
                    "cur_state": i.cur_state, "queued": i.queued, "outbid": i.outbid, "bid": i.bid, "port": i.port,
                    "destroyed": i.destroyed_at is not None, "visible": not i.forgotten, "volume": i.volume,
                }
                for i in self.instances.values()
            },
            "volumes": self.volumes.outline(),
            "offers": sorted(self.market.offers),
        }  # fmt: skip


def _bid(instance: Instance) -> float:
    return instance.bid or 0.0
