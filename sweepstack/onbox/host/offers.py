"""What can be rented, and what a box must have: the words in which every platform's market is asked and answered.

Prices come from the platform at the moment of asking; no table of ours knows one. All are USD.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sweepstack.onbox.common.errors import NoCapacity
from sweepstack.onbox.common.units import parse_size

GB = 10**9


@dataclass(frozen=True)
class Bound:
    """A quantity that was asked for: exactly `value`, or `value` and more."""

    value: float
    at_least: bool = True

    def admits(self, amount: float, *, slack: float = 0.0) -> bool:
        """Whether `amount` is enough; `slack` is the fraction that may be missing (a card of 80 GB reports 79.2)."""
        least = self.value * (1 - slack)
        return amount >= least if self.at_least else least <= amount <= self.value * (1 + slack)


@dataclass(frozen=True)
class Constraints:
    """What one box must have. An empty field asks for nothing.

    `gpu_memory_gb` is of each card; `disk_gb` is asked for on the container disk; `regions` are the platform's own
    names (data centers, countries), one of which must match; `max_price` is USD per hour of the whole box with its
    disk; `volume` is the native id of a volume that must be within reach.
    """

    gpu_names: tuple[str, ...] = ()
    gpu_count: int = 0
    gpu_memory_gb: Bound | None = None
    cuda: str = ""
    cuda_at_least: bool = True
    cpu: float | None = None
    disk_gb: int | None = None
    regions: tuple[str, ...] = ()
    spot: bool = False
    max_price: float | None = None
    min_reliability: float | None = None
    volume: str = ""

    @classmethod
    def of(cls, resources: Mapping[str, Any], *, max_price: float | None = None, volume: str = "") -> Constraints:
        """From a box's `resources` input (`sweepstack.config.model.Resources.as_inputs`)."""
        gpu = resources.get("gpu") or {}
        memory = parse_size(gpu["memory"]) if gpu.get("memory") else None
        cuda = str(gpu.get("cuda") or "")
        disk = resources.get("disk")
        return cls(
            gpu_names=tuple(gpu.get("name") or ()),
            gpu_count=int(gpu.get("count", 1)) if gpu else 0,
            gpu_memory_gb=Bound(memory.bytes / GB, memory.at_least) if memory else None,
            cuda=cuda.rstrip("+"),
            cuda_at_least=cuda.endswith("+") or not cuda,
            cpu=resources.get("cpu"),
            disk_gb=-(-parse_size(disk).bytes // GB) if disk else None,
            regions=tuple(resources.get("regions") or ()),
            spot=bool(resources.get("spot", False)),
            max_price=max_price,
            min_reliability=resources.get("reliability"),
            volume=volume,
        )


@dataclass(frozen=True)
class Offer:
    """One thing that could be rented now. Free to look at, reserved for nobody.

    `key` is the platform's own handle, opaque to all others and short enough for a stack config. `price_per_hour` is
    USD of the whole running box with the disk that was asked for; `stopped_per_hour` the same while it is stopped
    (None: unknown, or it can't be stopped). `stock` is a word for people. `single`: it can be rented once.
    """

    key: str
    gpu: str
    gpu_count: int
    price_per_hour: float
    region: str
    gpu_memory_gb: float | None = None
    disk_gb: float | None = None
    disk_per_gb_month: float | None = None
    stopped_per_hour: float | None = None
    network_per_gb: float | None = None
    spot: bool = False
    reliability: float | None = None
    cuda: str = ""
    stock: str = ""
    single: bool = False

    @property
    def price_per_gpu_hour(self) -> float:
        """USD per hour and card; the whole price where there is none."""
        return self.price_per_hour / max(self.gpu_count, 1)


@dataclass(frozen=True)
class Balance:
    """What the account has, USD. `prepaid`: boxes end when it runs out; None where the platform does not say."""

    usd: float
    prepaid: bool | None = None
    spend_limit_per_hour: float | None = None


def cheapest_first(offers: Iterable[Offer], constraints: Constraints) -> list[Offer]:
    """The offers inside the price ceiling, in the order in which they are tried."""
    ceiling = constraints.max_price
    inside = [offer for offer in offers if ceiling is None or offer.price_per_hour <= ceiling]
    return sorted(inside, key=lambda offer: (offer.price_per_hour, -(offer.reliability or 0.0), offer.key))


def same_gpu(asked: str, offered: str) -> bool:
    """Whether the platform's name of a card is one of those that a person means by `asked`: all words of it occur.

    `A100` admits `NVIDIA A100 80GB PCIe` and not `NVIDIA A10`; `RTX 4090` admits `NVIDIA GeForce RTX 4090`; `L4` does
    not admit `L40S`.
    """
    words = _words(offered)
    asked_words = _words(asked)
    return bool(asked_words) and all(word in words for word in asked_words)


def _words(name: str) -> list[str]:
    return name.upper().replace("_", " ").replace("-", " ").split()


def no_offer_left(refusals: Iterable[str], what: str) -> NoCapacity:
    """The error for a market where nothing could be had: each refusal is kept, in the order of the tries."""
    tried = [f"  {refusal}" for refusal in refusals]
    return NoCapacity("\n".join([f"{what}: none of {len(tried)} offers could be had; nothing was rented", *tried]))
