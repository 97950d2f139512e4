"""What the simulated RunPod has to rent: GPU types with prices and stock by data centre. Figures are invented.

Ids have the vendor's form. Prices are USD an hour for a single GPU. Stock is counted in GPUs; community machines
stand in no data centre that can be named.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

SECURE, COMMUNITY = "SECURE", "COMMUNITY"
CONTAINER_GB = 0.10  # USD a GB and month while running; nothing while stopped
VOLUME_GB, VOLUME_GB_STOPPED = 0.10, 0.20
NETWORK_GB, NETWORK_GB_ABOVE, NETWORK_STEP = 0.07, 0.05, 1000
FAST_GB = 0.14


@dataclass
class GpuType:
    """One entry of the catalogue; a price of None: not in that cloud."""

    id: str
    name: str
    memory: int
    secure: float | None
    community: float | None
    pool: str | None = None
    most: int = 8
    cuda: tuple[str, ...] = ("12.4", "12.8")
    manufacturer: str = "NVIDIA"  # or AMD, UNKNOWN

    def price(self, cloud: str) -> float | None:
        """USD an hour for one of them."""
        return self.secure if cloud == SECURE else self.community


@dataclass
class DataCenter:
    """A place; `volumes`: the tiers of network volumes that it has, its default first: with both, the dear one."""

    id: str
    name: str
    region: str
    volumes: tuple[str, ...]
    compliance: tuple[str, ...] = ()
    global_network: bool = True

    def outline(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "region": self.region,
            "networkVolumeTypes": list(self.volumes),
            "compliance": list(self.compliance),
            "globalNetwork": self.global_network,
        }


GPUS = (
    GpuType("NVIDIA RTX A5000", "RTX A5000", 24, 0.27, 0.16, "AMPERE_24"),
    GpuType("NVIDIA GeForce RTX 3090", "RTX 3090", 24, 0.46, 0.22, "AMPERE_24"),
    GpuType("NVIDIA A40", "A40", 48, 0.40, None, "AMPERE_48"),
    GpuType("NVIDIA GeForce RTX 4090", "RTX 4090", 24, 0.69, 0.34, "ADA_24"),
    GpuType("NVIDIA A100 80GB PCIe", "A100 PCIe", 80, 1.64, 1.19, "AMPERE_80"),
    GpuType("NVIDIA H100 80GB HBM3", "H100 SXM", 80, 2.99, 2.69, "HOPPER_80"),
    GpuType("NVIDIA H200", "H200 SXM", 141, 3.99, None, "HOPPER_141"),
)
ODD = (  # listed like all others: a part of a card (MIG), and cards that no CUDA runs on
    GpuType("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb", "PRO 6000 MIG 24GB", 24, 0.12, None),
    GpuType("AMD Instinct MI300X OAM", "MI300X", 192, 0.11, None, manufacturer="AMD"),
    GpuType("Someone X1", "X1", 192, 0.10, None, manufacturer="UNKNOWN"),
)
CENTERS = (
    DataCenter("US-TX-3", "US-TX-3", "NORTH_AMERICA", ("HIGH_PERFORMANCE", "STANDARD"), ("SOC_2_TYPE_2",)),
    DataCenter("US-KS-2", "US-KS-2", "NORTH_AMERICA", ("STANDARD",)),
    DataCenter("EU-RO-1", "EU-RO-1", "EUROPE", ("STANDARD",), ("GDPR",)),
    DataCenter("EU-SE-1", "EU-SE-1", "EUROPE", ()),
)


def _full(count: int = 400) -> dict[tuple[str, str, str | None], int]:
    """Plenty of everything everywhere."""
    stock: dict[tuple[str, str, str | None], int] = {}
    for gpu in GPUS:
        for center in CENTERS:
            stock[gpu.id, SECURE, center.id] = count if gpu.secure else 0
        stock[gpu.id, COMMUNITY, None] = count if gpu.community else 0
    return stock


@dataclass
class Stock:
    """What is free now: (GPU type, cloud, data centre or None) → GPUs. Tests change it as they like."""

    gpus: dict[str, GpuType] = field(default_factory=lambda: {gpu.id: replace(gpu) for gpu in GPUS})
    centers: dict[str, DataCenter] = field(default_factory=lambda: {center.id: replace(center) for center in CENTERS})
    free: dict[tuple[str, str, str | None], int] = field(default_factory=_full)
    floors: dict[tuple[str, str], float] = field(default_factory=dict)
    """(GPU type, cloud) → the least bid that holds now, USD an hour for a single GPU; else half of the price."""

    def floor(self, gpu: str, cloud: str) -> float | None:
        """The least bid that holds now, USD an hour for a single GPU; None where the cloud has no such GPU."""
        price = self.gpus[gpu].price(cloud)
        return None if price is None else self.floors.get((gpu, cloud), round(price / 2, 4))

    def add(self, *gpus: GpuType, count: int = 400) -> None:
        """More types, so many of each in every data centre."""
        for gpu in gpus:
            self.gpus[gpu.id] = gpu
            self.free |= {(gpu.id, SECURE, center): count for center in self.centers}
            self.free[gpu.id, COMMUNITY, None] = 0

    def places(self, gpu: str, cloud: str, count: int, wanted: list[str]) -> list[str | None]:
        """Where so many are free together, fullest first; `wanted`: data centres, none for any."""
        found = [
            (free, where)
            for (id, kind, where), free in self.free.items()
            if (id, kind) == (gpu, cloud) and free >= count > 0 and (not wanted or where in wanted)
        ]
        return [where for _, where in sorted(found, key=lambda pair: (-pair[0], str(pair[1])))]

    def take(self, gpu: str, cloud: str, where: str | None, count: int) -> bool:
        """So many fewer, if there are so many."""
        if self.free.get((gpu, cloud, where), 0) < count:
            return False
        self.free[gpu, cloud, where] -= count
        return True

    def give(self, gpu: str, cloud: str, where: str | None, count: int) -> None:
        """So many more."""
        self.free[gpu, cloud, where] = self.free.get((gpu, cloud, where), 0) + count

    def empty(self, gpu: str | None = None, where: str | None = None) -> None:
        """Nothing is left: of one type or all, in one place or everywhere."""
        for id, cloud, place in self.free:
            if gpu in (None, id) and where in (None, place):
                self.free[id, cloud, place] = 0

    def level(self, gpu: str, cloud: str, count: int, where: str | None = None) -> str:
        """NONE, LOW, MEDIUM or HIGH, for machines with so many; in one data centre or anywhere."""
        wanted = [where] if where else []
        machines = max((self.free[gpu, cloud, p] // count for p in self.places(gpu, cloud, count, wanted)), default=0)
        return "HIGH" if machines >= 20 else "MEDIUM" if machines >= 5 else "LOW" if machines else "NONE"


def network_rate(size: int, kind: str) -> float:
    """USD a month of a network volume; the cheaper step counts for what is above it."""
    if kind == "HIGH_PERFORMANCE":
        return size * FAST_GB
    return min(size, NETWORK_STEP) * NETWORK_GB + max(0, size - NETWORK_STEP) * NETWORK_GB_ABOVE
