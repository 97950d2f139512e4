"""What tools that play on any rental platform must know of one: a `rental.py` in each simulator's folder says it.

So a new simulator is found by the fault plans, the tests on rented boxes, the live runs and the benches by its folder.
"""

from __future__ import annotations

import importlib
import json
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.simulators.core import VirtualClock
from tests.simulators.faults import Choice

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Customers:
    """A simulated platform with two customers. `key`, `other_key`: their keys; `account`: the first one's id."""

    sim: Any
    key: str
    other_key: str
    account: str


@dataclass(frozen=True)
class Options:
    """What `Rental.open` is asked for. `machines`: its boxes are real, and lie in `state`; `offers`: so many boxes can
    be rented, where that is not without end; `limits`: of requests in a time; `create_seconds`: of ours, for a create;
    `boot_reads`: looks that see a box come up; `pace`: what our waits are scaled by, and what they wait for."""

    state: Path | None = None
    machines: bool = False
    offers: int = 4
    limits: bool = False
    create_seconds: float = 0.0
    boot_reads: int = 1
    pace: float = 1.0


USUAL = Options()


class Rental(Protocol):
    """One platform. `url`, `key`: the variables that lead there; `create`, `read`, `delete`: patterns of its routes,
    `METHOD /template`; `menu`: what a seed draws faults from."""

    url: str
    key: str
    create: str
    read: str
    delete: str
    menu: Sequence[Choice]
    spot_menu: Sequence[Choice]
    """What a seed draws besides, where its boxes are rented by bids."""
    imports: tuple[str, ...]
    """The modules that an adapter imports at its first calls: the vendor's SDK, and what it speaks HTTP with."""
    box: str
    """The kind of a box in the platform's ledger."""
    computes: frozenset[str]
    """The states of a box in the ledger in which its compute bills, and not its disk alone."""
    preempted: str
    """What `Simulator.act` is asked for, that the platform stops a box by itself."""
    whole: bool
    """It stops boxes, keeps volumes, rents by bids, and tells balance and bill; else it has only what every one has."""
    volume_region: str
    """Where a test's volume is to be: not where a box without one would go, which is the cheapest place. Empty where
    there are none."""
    volume_month: str
    """What 10 GB cost there by the platform's own books, as our screens say it."""
    list: str
    """The route of the list of boxes. `page`: boxes that one answer of it lists."""
    page: int
    limits: str
    """What one account may ask in a time, in words."""
    scale: float
    """So many of the platform's seconds may pass in one of ours when its limits are measured."""

    def open(self, clock: VirtualClock, asked: Options = USUAL) -> Customers:
        """A new world with two customers."""
        ...

    def bystanders(self, customers: Customers, url: str, tag: str, *, newest: bool) -> list[str]:
        """Rents a box in each account for another sweep. `newest`: what befalls the account's newest box is to befall
        one that is rented later; else what befalls the oldest."""
        ...

    def least_seconds(self, command: str, boxes: int, create_seconds: float) -> float:
        """How long `up` or `destroy` of so many boxes takes at least, with these limits and so long a create: for the
        calls that the protocol needs."""
        ...

    def where(self, sim: Any, native_id: str) -> str:
        """Where a box stands by the platform's books, in the words in which a volume's place is asked for."""
        ...


def posted(url: str, key: str, body: Any) -> Any:
    """The JSON that a POST is answered with, which must be accepted."""
    headers = {"Authorization": f"Bearer {key}", "User-Agent": "another sweep", "Content-Type": "application/json"}
    call = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    with urllib.request.urlopen(call, timeout=10) as answer:
        return json.load(answer)


def rentals() -> list[str]:
    """The adapters of all simulated rental platforms, sorted."""
    return sorted(found.parent.name for found in Path(__file__).parent.glob("*/rental.py"))


def whole_rentals() -> list[str]:
    """Those that have all of what a platform may have."""
    return [adapter for adapter in rentals() if rental(adapter).whole]


def rental(adapter: str) -> Rental:
    """That of one platform."""
    found: Rental = importlib.import_module(f"tests.simulators.{adapter}.rental").Rental()
    return found


def key_variables() -> list[str]:
    """The variables that hold a key of one of them."""
    return [rental(adapter).key for adapter in rentals()]


def stack_of(adapter: str) -> str:
    """The stack that ships for this platform: whose first candidate it is."""
    for file in sorted((ROOT / "stacks").glob("Pulumi.*.yaml")):
        sweep = yaml.safe_load(file.read_text())["config"].get("sweepstack:sweep", {})
        if sweep.get("candidates", [""])[0].replace("-", "_") == adapter:
            return file.name.removeprefix("Pulumi.").removesuffix(".yaml")
    raise LookupError(f"no stack ships for {adapter}")
