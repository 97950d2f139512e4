"""What the simulated Lambda has to rent: regions, instance types with prices and stock. Figures are invented.

Names have the vendor's form. `architecture` of a type is in the vendor's answers, though not in its document 1.10.0
(seen by a customer, 2026-08). GH200 alone is arm64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.simulators.vendor import Stock

REGIONS = {
    "us-west-1": "California, USA",
    "us-east-1": "Virginia, USA",
    "us-south-1": "Texas, USA",
    "europe-central-1": "Germany",
}


def region(name: str) -> dict[str, str]:
    """As the API shows it."""
    return {"name": name, "description": REGIONS[name]}


@dataclass(frozen=True)
class InstanceType:
    """One entry of the catalogue; `cents`: for an hour of the whole instance."""

    name: str
    gpu: str
    gpus: int
    cents: int
    vcpus: int = 30
    memory: int = 200
    storage: int = 512
    architecture: str = "x86_64"

    def outline(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "name": self.name,
            "description": f"{self.gpus}x {self.gpu}",
            "gpu_description": self.gpu,
            "price_cents_per_hour": self.cents,
            "specs": {
                "vcpus": self.vcpus,
                "memory_gib": self.memory,
                "storage_gib": self.storage,
                "gpus": self.gpus,
            },
            "architecture": self.architecture,
        }


TYPES = (
    InstanceType("gpu_1x_a10", "A10 (24 GB PCIe)", 1, 75, storage=1400),
    InstanceType("gpu_1x_a100_sxm4", "A100 (40 GB SXM4)", 1, 129),
    InstanceType("gpu_1x_gh200", "GH200 (96 GB)", 1, 149, 64, 432, 4096, "arm64"),
    InstanceType("gpu_1x_h100_pcie", "H100 (80 GB PCIe)", 1, 249, 26, 200, 1024),
    InstanceType("gpu_8x_h100_sxm5", "H100 (80 GB SXM5)", 8, 2392, 208, 1800, 24780),
)


def stock() -> Stock[InstanceType]:
    """Plenty of everything, but for a type that is nowhere: 15 of 23 were on one day."""
    free = {(one.name, place): 0 if one.gpus == 8 else 100 for one in TYPES for place in REGIONS}
    return Stock({one.name: one for one in TYPES}, free)
