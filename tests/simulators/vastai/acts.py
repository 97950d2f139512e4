"""What happens in the simulated vast.ai behind a client's back: hosts, strangers, the console, time.

Each `act_x` is `POST /__sim__/act {"act": "x", …}`, and `sim.act("x", {…})` in a test. Ids of instances may be text.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tests.simulators.own_keys import PLATFORM
from tests.simulators.vastai.gate import Gate
from tests.simulators.vastai.instance import Instance
from tests.simulators.vastai.market import Machine
from tests.simulators.vastai.requests import Create
from tests.simulators.vastai.settings import Settings


class Acts(Gate):
    """The simulator with what happens by itself."""

    # Customers and settings

    def act_credit(self, account: str, usd: float) -> None:
        """So much is paid in; below zero it is taken back."""
        self.customers[account].credit += usd
        self.world.settle()

    def act_set(self, **settings: Any) -> None:
        """Changes fields of `Settings`."""
        known = {one.name for one in fields(Settings)}
        if unknown := sorted(set(settings) - known):
            raise ValueError(f"no such setting: {', '.join(unknown)}")
        for name, value in settings.items():
            setattr(self.world.settings, name, value)

    # The market

    def act_price(self, machine: int, **prices: float) -> None:
        """A host changes `dph`, `min_bid` or `storage_cost`: bids below the floor are paused, others resume."""
        host = self.world.market.machines[machine]
        for name, value in prices.items():
            if name not in ("dph", "min_bid", "storage_cost"):
                raise ValueError(f"no price {name!r}")
            setattr(host, name, value)
        self.world.settle()

    def act_take(self, machine: int, gpus: int) -> None:
        """Strangers rent GPUs on demand: bids give way, starts have to wait."""
        self.world.market.machines[machine].taken += gpus
        self.world.settle()

    def act_free(self, machine: int) -> None:
        """All strangers leave: what waits starts, and bills."""
        self.world.market.machines[machine].taken = 0
        self.world.settle()

    def take_gpus(self, machine: Machine, seconds: float) -> None:
        """Strangers have all that is free, for so long."""
        machine.taken += self.world.free(machine, None)
        self.world.leave_at[machine.id] = self.world.now + seconds

    # Instances

    def _instance(self, id: int | str) -> Instance:
        return self.world.instances[int(id)]

    def act_outbid(self, id: int | str) -> None:
        """Somebody bids more: the floor of its machine rises above its bid."""
        instance = self._instance(id)
        if instance.bid is None:
            raise ValueError(f"{id} is no interruptible instance")
        instance.machine.min_bid = instance.bid / instance.gpus + 0.01
        self.world.settle()

    def act_vanish(self, id: int | str) -> None:
        """The platform ends it, at once and without a word; also what somebody does in the console."""
        self.ledger.note(str(id), "destroy", PLATFORM)
        self.world.destroy(self._instance(id), 0)

    def act_die(self, id: int | str, word: str = "exited", message: str = "") -> None:
        """Its container ends by itself: `exited`, `unknown`; it keeps its GPUs, and storage bills."""
        instance = self._instance(id)
        instance.stages.clear()
        instance.actual, instance.status_msg = word, message or instance.status_msg
        if word not in ("running", "frozen", "unknown"):
            self.world.boxes.stop(instance)
        self.world.bill(instance)

    def act_stop(self, id: int | str) -> None:
        """Somebody stops it in the console."""
        self.ledger.note(str(id), "stop", PLATFORM)
        self.world.stop(self._instance(id))

    def act_isolate(self, id: int | str, isolated: bool = True) -> None:
        """The network of its machine is gone, both ways; or there again."""
        self.world.boxes.isolate(self._instance(id), isolated)

    def act_session_env(self, on: bool = True) -> None:
        """From the next starts on, sessions over SSH have the vendor's variables, too."""
        self.world.boxes.session_env = on

    def act_rent(self, account: str, offer: int, label: str | None = None, price: float | None = None) -> int:
        """Somebody rents in the console; says the id."""
        body = Create(image="ubuntu:22.04", label=label, price=price, runtype="ssh_direct", cancel_unavail=True)
        reply = self.world.create(self.customers[account], offer, body)
        number: int = reply.body["new_contract"]
        return number

    def act_strangers(self, account: str, count: int, labels: int = 100) -> list[int]:
        """The account has so many more instances, which stand still, under so many labels and a few under none."""
        machine = next(iter(self.world.market.machines.values()))
        made = []
        for number in range(count):
            label = f"team-{number % labels}" if number % 7 else None
            instance = Instance(
                id=next(self.world.ids), account=account, machine=machine, gpus=1, disk=0.0, image="ubuntu:22.04",
                label=label, env={}, onstart=None, args=None, runtype="ssh_direc", bid=None, started=self.world.now,
                end_date=self.world.now + machine.duration, dph=0.0, actual="exited", intended="stopped",
                cur_state="stopped", next_state="stopped", port=self.world.boxes.closed_port,
            )  # fmt: skip
            self.world.instances[instance.id] = instance
            self.ledger.begin(
                str(instance.id), account=account, tag=label or "", kind="stranger", state="exited", rate=0.0
            )
            made.append(instance.id)
        return made
