"""What the simulated Paperspace has to rent: regions, machine types with prices and stock, templates. Most figures are
invented.

The API tells no price before a machine exists; then its `usageRate` and `storageRate` do, whose units no page of the
vendor says. Here both are USD an hour. The largest disk costs what the vendor's pages say (2026-06).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.simulators.ledger import HOUR, MONTH
from tests.simulators.vendor import Stock

REGIONS = {"ny2": "East Coast (NY2)", "ca1": "West Coast (CA1)", "ams1": "Europe (AMS1)"}
"""As they are asked for → as machines show them."""
DISKS = {50: 5.0, 100: 7.0, 250: 10.0, 500: 20.0, 1000: 60.0, 2000: 120.0}
"""GB → USD a month. No others are taken; a disk grows and never shrinks."""
GIB = 2**30


def storage_rate(size: int) -> float:
    """USD an hour of a machine's disk."""
    return DISKS[size] * HOUR / MONTH


def region_of(told: str) -> str | None:
    """The region that a request names, in small letters or, as on one page of the vendor's, in capitals."""
    return told.lower() if told in REGIONS or told in {name.upper() for name in REGIONS} else None


@dataclass(frozen=True)
class MachineType:
    """One entry of the catalogue; `usd`: for an hour of the whole machine. `memory`: GiB of one card."""

    label: str
    usd: float
    gpu: str = ""
    memory: int = 0
    gpus: int = 1
    cpus: int = 8
    ram: int = 30

    def accelerators(self) -> list[dict[str, Any]] | None:
        """As the API shows them: its document says a number for the memory, and its customers read a string."""
        if not self.gpu:
            return None
        return [{"name": self.gpu, "memory": str(self.memory * GIB), "count": self.gpus}]


TYPES = (
    MachineType("C5", 0.08, cpus=4, ram=8),
    MachineType("P4000", 0.51, "Quadro P4000", 8),
    MachineType("A4000", 0.76, "RTX A4000", 16, ram=45),
    MachineType("A6000", 1.89, "RTX A6000", 48, ram=45),
    MachineType("A100-80G", 3.18, "A100 80GB", 80, cpus=12, ram=90),
    MachineType("H100", 5.95, "H100 80GB", 80, cpus=20, ram=250),
    MachineType("H100x8", 47.60, "H100 80GB", 80, 8, cpus=128, ram=1638),
)


@dataclass(frozen=True)
class Template:
    """One machine image. `types`: the labels that it runs on."""

    id: str
    name: str
    os: str
    types: frozenset[str]

    def outline(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "agentType": "LinuxHeadless",
            "operatingSystemLabel": self.os,
            "defaultSizeGb": 50,
            "availableMachineTypes": [
                {"machineTypeLabel": one.label, "isAvailable": one.label in self.types} for one in TYPES
            ],
            "dtCreated": "2024-03-05T00:00:00.000Z",
        }


_ALL = frozenset(one.label for one in TYPES)
TEMPLATES = (
    Template("tkni3aa4", "Ubuntu 20.04", "Ubuntu 20.04 Server", _ALL - {"H100", "H100x8"}),
    Template("t0nspur5", "Ubuntu 22.04", "Ubuntu 22.04 Server", _ALL - {"H100", "H100x8"}),
    Template("tvimtol9", "ML-in-a-Box Ubuntu 22.04", "Ubuntu 22.04 MLiaB", frozenset({"H100", "H100x8", "A100-80G"})),
)
"""Not every template runs on every machine type, as on the vendor's H100."""


def stock() -> Stock[MachineType]:
    """Plenty of everything, but for a type that is nowhere; H100 is in one region alone. A machine that is off holds
    nothing of it."""
    free = {
        (one.label, place): 0 if one.gpus == 8 or (one.label == "H100" and place != "ny2") else 100
        for one in TYPES
        for place in REGIONS
    }
    return Stock({one.label: one for one in TYPES}, free)
