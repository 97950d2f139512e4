"""Hosts' machines and what of them is for rent in the simulated vast.ai: offers of GPUs, offers of disk for volumes.

An offer is a slice of a machine, of one of its sizes. Renting takes its GPUs, so every offer that no longer fits
vanishes, and what is left is offered again under new ids. Source: vast.ai's API reference, search offers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from tests.simulators.vastai import query
from tests.simulators.vastai.meter import HOURS_A_MONTH
from tests.simulators.vastai.query import Row

OFFER_CAP = 64  # whatever limit was asked for
DAY = 86400.0
SEARCH_WORDS = ("type", "order", "limit", "allocated_storage", "disable_bundling")
TYPES = ("on-demand", "ondemand", "bid", "reserved")


@dataclass
class Machine:
    """One host's machine. Prices in USD: `dph` and `min_bid` an hour and GPU, `storage_cost` a GB and month."""

    id: int
    host_id: int
    gpu_name: str = "RTX 4090"
    gpu_arch: str = "nvidia"  # or amd
    gpus: int = 1
    gpu_ram: int = 24564  # MB, of each GPU
    dph: float = 0.40
    min_bid: float = 0.20
    storage_cost: float = 0.15
    disk_space: float = 500.0
    volume_space: float = 500.0
    cpu_cores: float = 16.0
    cpu_ram: int = 64000
    cuda: float = 12.8
    compute_cap: int = 890
    reliability: float = 0.99
    geolocation: str = "Texas, US"
    verified: bool = True
    datacenter: bool = False
    direct_ports: int = 100
    inet_up_cost: float = 0.002
    inet_down_cost: float = 0.002
    duration: float = 30 * DAY
    taken: int = 0  # GPUs that strangers hold

    def sizes(self) -> list[int]:
        """How its GPUs are cut: halves, down to one."""
        sizes = [self.gpus]
        while sizes[-1] % 2 == 0:
            sizes.append(sizes[-1] // 2)
        return sizes if sizes[-1] == 1 else [*sizes, 1]

    def describe(self) -> Row:
        """What every view of the machine shows, of offers and instances alike."""
        return {
            "machine_id": self.id,
            "host_id": self.host_id,
            "hosting_type": 1 if self.datacenter else 0,
            "geolocation": self.geolocation,
            "verification": "verified" if self.verified else "unverified",
            "static_ip": True,
            "cuda_max_good": self.cuda,
            "compute_cap": self.compute_cap,
            "driver_version": "570.124.04",
            "cpu_arch": "amd64",
            "cpu_name": "AMD EPYC 7K62 48-Core Processor",
            "cpu_ram": self.cpu_ram,
            "cpu_cores": int(self.cpu_cores),
            "inet_up": 800.0,
            "inet_down": 900.0,
            "inet_up_cost": self.inet_up_cost,
            "inet_down_cost": self.inet_down_cost,
            "disk_bw": 2000.0,
            "disk_name": "nvme",
            "reliability2": self.reliability,
            "storage_cost": self.storage_cost,
        }


@dataclass(frozen=True)
class Offer:
    id: int
    machine: Machine
    gpus: int


def offer_row(offer: Offer, storage: float, now: float, volume_offer: int | None) -> Row:
    """One offer as the search shows it; `storage` GB go into `dph_total`."""
    machine, gpus = offer.machine, offer.gpus
    disk = storage * machine.storage_cost / HOURS_A_MONTH
    base = machine.dph * gpus
    return {
        **machine.describe(),
        "id": offer.id,
        "ask_contract_id": offer.id,
        "bundle_id": machine.id * 10 + gpus,
        "gpu_name": machine.gpu_name,
        "gpu_arch": machine.gpu_arch,
        "num_gpus": gpus,
        "gpu_ram": machine.gpu_ram,
        "gpu_total_ram": machine.gpu_ram * gpus,
        "gpu_frac": gpus / machine.gpus,
        "gpu_mem_bw": 1000.0,
        "gpu_lanes": 16,
        "cpu_cores_effective": machine.cpu_cores * gpus / machine.gpus,
        "disk_space": machine.disk_space,
        "dph_base": base,
        "dph_total": base + disk,
        "storage_total_cost": disk,
        "min_bid": machine.min_bid * gpus,
        "reliability": machine.reliability,
        "direct_port_count": machine.direct_ports,
        "duration": machine.duration,
        "end_date": now + machine.duration,
        "start_date": now - DAY,
        "verified": machine.verified,
        "datacenter": machine.datacenter,
        "external": False,
        "rentable": True,
        "rented": False,
        "score": machine.reliability / base,
        "dlperf": 50.0 * gpus,
        "dlperf_per_dphtotal": 50.0 * gpus / (base + disk),
        "total_flops": 80.0 * gpus,
        "flops_per_dphtotal": 80.0 * gpus / (base + disk),
        "pcie_bw": 20.0,
        "pci_gen": 4.0,
        "vms_enabled": False,
        "cluster_id": None,
        "avail_vol_ask_id": volume_offer,
        "avail_vol_size": machine.volume_space if volume_offer else None,
        "avail_vol_dph": machine.storage_cost / HOURS_A_MONTH if volume_offer else None,
    }


SAMPLE = Machine(0, 0)
OFFER_FIELDS = frozenset(offer_row(Offer(0, SAMPLE, 1), 0.0, 0.0, 0))
SDK_FIELDS = frozenset(  # its query language has these words; no machine here has a value for them
    ["bw_nvlink", "cpu_ghz", "gpu_display_active", "gpu_max_power", "gpu_max_temp", "has_avx", "mobo_name"]
)


@dataclass
class Market:
    """All machines. `free` is asked of the world, which knows who holds what."""

    machines: dict[int, Machine] = field(default_factory=dict)
    offers: dict[int, Offer] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    volume_offers: dict[int, Machine] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(7_000_001, 7))

    def add(self, machine: Machine) -> Machine:
        assert machine.id not in self.machines, f"machine {machine.id} is there already"
        self.machines[machine.id] = machine
        for size in machine.sizes():
            self._offer(machine, size)
        if machine.volume_space > 0:
            self.volume_offers[next(self._ids)] = machine
        return machine

    def _offer(self, machine: Machine, size: int) -> None:
        offer = Offer(next(self._ids), machine, size)
        self.offers[offer.id] = offer

    def consume(self, offer: Offer) -> None:
        """The offer was rented: its id is gone, and the machine's rest is offered under another."""
        del self.offers[offer.id]
        self.gone.add(offer.id)
        self._offer(offer.machine, offer.gpus)

    def volume_offer(self, machine: Machine) -> int | None:
        return next((number for number, m in self.volume_offers.items() if m is machine and m.volume_space > 0), None)

    def search(self, body: dict[str, Any], free: dict[int, int], now: float) -> list[Row]:
        """POST /bundles/. `free`: machine id → GPUs that this kind of rental could have now."""
        filters = {name: value for name, value in body.items() if name not in SEARCH_WORDS}
        query.check_names(filters, OFFER_FIELDS | SDK_FIELDS, "search of offers")
        if body.get("type", "on-demand") not in TYPES:
            raise query.bad_query(f"type is {body['type']!r}")
        storage = body.get("allocated_storage", 5.0)
        if isinstance(storage, bool) or not isinstance(storage, int | float) or storage < 0:
            raise query.bad_query("Invalid json body")
        if "id" in filters:  # seen live: nothing matches; ask_contract_id does
            return []
        rows = [
            offer_row(offer, float(storage), now, self.volume_offer(offer.machine))
            for offer in self.offers.values()
            if offer.gpus <= free.get(offer.machine.id, 0)
        ]
        rows = [row for row in rows if query.matches(row, filters)]
        rows = query.ordered(rows, body.get("order", [["score", "desc"]]))
        return rows[: query.at_most(body.get("limit"), OFFER_CAP)]

    def search_volumes(self, body: dict[str, Any], now: float) -> list[Row]:
        """POST /volumes/search/."""
        filters = {name: value for name, value in body.items() if name not in SEARCH_WORDS}
        rows = []
        for number, machine in self.volume_offers.items():
            if machine.volume_space <= 0:
                continue
            storage = float(body.get("allocated_storage", 1.0))
            row = {
                **machine.describe(),
                "id": number,
                "ask_contract_id": number,
                "bundle_id": machine.id,
                "disk_space": machine.volume_space,
                "duration": machine.duration,
                "end_date": now + machine.duration,
                "start_date": now - DAY,
                "external": False,
                "reliability": machine.reliability,
                "verified": machine.verified,
                "datacenter": machine.datacenter,
                "gpu_arch": machine.gpu_arch,
                "vms_enabled": False,
                "storage_total_cost": storage * machine.storage_cost / HOURS_A_MONTH,
                "score": machine.reliability / machine.storage_cost,
            }
            query.check_names(filters, {*row, "cluster_id", "disk_bw", "total_flops"}, "search of volumes")
            if query.matches(row, filters):
                rows.append(row)
        rows = query.ordered(rows, body.get("order", [["score", "desc"]]))
        return rows[: query.at_most(body.get("limit"), OFFER_CAP)]
