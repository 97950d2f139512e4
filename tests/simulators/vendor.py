"""What Lambda's, Paperspace's and RunPod's simulators do alike; each says what its vendor says.

Two customers, boxes by their ids, what befalls a box, a clock by which things happen by themselves, stock by place, and
the machines behind boxes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tests.simulators.clock import VirtualClock
from tests.simulators.faults import Choice
from tests.simulators.ledger import Account, RentalLedger
from tests.simulators.own_keys import PLATFORM
from tests.simulators.simulator import Request, Simulator
from tests.simulators.timeline import Timeline

if TYPE_CHECKING:
    from tests.simulators.machines import Machine

T = TypeVar("T")


def usual(
    create: str, delete: str, reads: str, *, retry_after: Iterable[int | None] = (None, 1), late: Iterable[int] = ()
) -> tuple[Choice, ...]:
    """What a seed draws from at every rental platform. `late`: statuses of a create that was carried out all the same.
    Hangs are left out: they cost real time, and are tested one by one."""
    both = {"reset": [False, True]}
    return (
        *(Choice("too_many", "*", {"retry_after": [*retry_after]}) for _ in range(2)),
        Choice("error_before", "*", {"status": [500, 502, 503]}),
        Choice("error_after", create, {"status": [*late] or [500, 502, 504]}),
        Choice("error_after", delete, {"status": [500, 502]}),
        Choice("lost_answer", create, both),
        Choice("lost_answer", delete, both),
        Choice("lost_request", "*", both),
        Choice("truncated", "*"),
        Choice("html_before", "*", {"status": [502, 403, 524]}),
        Choice("html_after", create, {"status": [502, 524]}),
        Choice("html_ok", reads),
        Choice("not_json", "*"),
    )


class Vendor(Simulator):
    """A subclass says what is a box of its own. `account`: an account's id, of its customer's name; `box`: a box's
    name; `ends`: what its end is called in the books; `up`: the status of one that runs; `odd`: the one that
    `odd_status` shows; `befalls`: faults that befall the account's oldest one that runs, with what is done to it."""

    account, box, ends, up, odd = "user_{}", "box", "terminate", "", ""
    befalls: Mapping[str, str] = {}

    def __init__(
        self,
        *,
        clock: VirtualClock | None = None,
        latency: Mapping[str, float] | None = None,
        state: Path | None = None,
        machines: bool = False,
    ) -> None:
        super().__init__(clock=clock, latency=latency, state=state, machines=machines)
        self.timeline = Timeline(self.clock, self.lock)
        self.ledger = RentalLedger(self.timeline)

    def boxes(self) -> Mapping[str, Any]:
        """Those that there are, of all accounts."""
        raise NotImplementedError

    def oldest_first(self, account: str) -> list[Any]:
        """An account's boxes."""
        raise NotImplementedError

    def finish(self, one: Any) -> None:
        """It is gone, all at once."""
        raise NotImplementedError

    def add_account(self, name: str, key: str, credit: float = 1000.0) -> Account:
        """One more customer."""
        account = Account(self.account.format(name), key, f"{name}@example.com", credit)
        self.accounts[account.id] = account
        return account

    def settle(self) -> None:
        self.timeline.now()

    def befall(self, request: Request) -> None:
        """What happens to a box of the account just before this call."""
        mine = self.oldest_first(request.who.id)
        up = [one for one in mine if one.status == self.up]
        if mine and (rule := request.faults.get("odd_status")):
            mine[-1].odd_status = (rule.get("status", self.odd), rule.get("reads", 1))
        for fault, act in self.befalls.items():
            if up and fault in request.faults:
                self.act(act, {"id": up[0].id})
        if mine and "vanished" in request.faults:
            self.act_vanish(mine[0].id)

    def found(self, id: str) -> Any:
        """A box. KeyError: there is none."""
        self.settle()
        boxes = self.boxes()
        if id not in boxes:
            raise KeyError(f"there is no {self.box} {id!r}")
        return boxes[id]

    def act_vanish(self, id: str) -> None:
        """It is ended in the console, or because the money ran out, all at once."""
        one = self.found(id)
        self.ledger.note(id, self.ends, PLATFORM)
        self.remember(one.account)
        self.finish(one)

    def act_set(self, id: str, **fields: Any) -> None:
        """Something about it changes: `hidden`, `odd_status`…"""
        one = self.found(id)
        for name, value in fields.items():
            if not hasattr(one, name):
                raise KeyError(f"a {self.box} has no {name!r}")
            setattr(one, name, value)
        self.ledger.retag(id, one.name or "")


class Stock(Generic[T]):
    """What is free now: (type, place) → boxes. Tests change it as they like. `types`: by their names."""

    def __init__(self, types: Mapping[str, T], free: Mapping[tuple[str, str], int]) -> None:
        self.types, self.free = dict(types), dict(free)

    def places(self, name: str) -> list[str]:
        """Where a type is to be had."""
        return [place for (kind, place), count in self.free.items() if kind == name and count > 0]

    def take(self, name: str, place: str) -> bool:
        """One fewer, if there is one."""
        if self.free.get((name, place), 0) < 1:
            return False
        self.free[name, place] -= 1
        return True

    def give(self, name: str, place: str) -> None:
        """One more."""
        self.free[name, place] = self.free.get((name, place), 0) + 1

    def empty(self, name: str | None = None, place: str | None = None) -> None:
        """Nothing is left: of one type or all, in one place or everywhere."""
        for kind, where in self.free:
            if name in (None, kind) and place in (None, where):
                self.free[kind, where] = 0


class Machines:
    """The machines behind boxes, by the boxes' ids. What takes time is done in the background, one thing after the
    other for each box."""

    def __init__(self) -> None:
        self.there: dict[str, Machine] = {}
        self._busy: dict[str, threading.Thread] = {}

    def settled(self, id: str) -> Machine | None:
        """The machine of a box, once nothing is under way; None: it has none, or none any more."""
        if busy := self._busy.pop(id, None):
            busy.join()
        return self.there.get(id)

    def machine(self, id: str) -> Machine:
        """The machine of a box. KeyError: it has none, or none any more."""
        self.settled(id)
        return self.there[id]

    def begin(self, id: str, act: Callable[[], None], seconds: float = 0.0) -> None:
        """In the background, so many seconds later."""

        def later() -> None:
            time.sleep(seconds)
            act()

        self.settled(id)
        self._busy[id] = threading.Thread(target=later, daemon=True)
        self._busy[id].start()

    def up(self, id: str) -> bool:
        """Whether its sshd answers."""
        busy, machine = self._busy.get(id), self.there.get(id)
        return machine is not None and machine.alive and (busy is None or not busy.is_alive())

    def end(self, id: str) -> None:
        """Ends it, disk and all. Again: nothing."""
        if self.settled(id):
            self.there.pop(id).kill()

    def close(self) -> None:
        """Ends all of them."""
        for id in [*self._busy, *self.there]:
            self.end(id)
