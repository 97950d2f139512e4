"""The types of the market: what a box must have (constraints), and what can be rented (offers).

Prices come from the platform at the moment of asking; we keep no price table. All prices are USD.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import NoCapacity
from sweepstack.onbox.common.units import parse_size

GB = 10**9
NVIDIA, AMD = "nvidia", "amd"
_SLICE = re.compile(r"MIG|\d+G\.\d+GB|\d+[ABCQ]")
"""A word that only a part of a card has in its name: `MIG`, `1g.24gb`, a vGPU's `10C`."""
_ROCM, _CUDA = re.compile(r"rocm", re.I), re.compile(r"cuda|nvidia|cu\d{2,3}(?!\d)", re.I)
_AMD_WORDS = re.compile(r"AMD|RADEON|INSTINCT|MI\d{2,3}[AX]?")


@dataclass(frozen=True)
class Bound:
    """A requested quantity: exactly `value`, or at least `value`."""

    value: float
    at_least: bool = True

    def admits(self, amount: float, *, slack: float = 0.0) -> bool:
        """Whether `amount` is enough; `slack`: the fraction that may be missing (an 80 GB GPU reports 79.2)."""
        least = self.value * (1 - slack)
        return amount >= least if self.at_least else least <= amount <= self.value * (1 + slack)


@dataclass(frozen=True)
class Constraints:
    """What one box must have. An empty field means no requirement.

    `gpu_memory_gb`: of each GPU. `memory_gb`: RAM of the whole box, at least. `disk_gb`: of the container disk.
    `regions`: the platform's own names (data centers, countries), one of which must match. `max_price`: USD per hour of
    the whole box with its disk. `volume`: the native id of a volume that the box must be able to mount. `bid`: USD per
    hour of the whole spot box; None: the least that is accepted. `maker`: whose cards the image is for. `parts`: parts
    of cards (MIG) will do, too.
    """

    gpu_names: tuple[str, ...] = ()
    gpu_count: int = 0
    gpu_memory_gb: Bound | None = None
    cuda: str = ""
    cuda_at_least: bool = True
    cpu: float | None = None
    memory_gb: float | None = None
    disk_gb: int | None = None
    regions: tuple[str, ...] = ()
    spot: bool = False
    max_price: float | None = None
    min_reliability: float | None = None
    volume: str = ""
    bid: float | None = None
    maker: str = ""
    parts: bool = False

    @classmethod
    def of(
        cls,
        resources: Mapping[str, Any],
        *,
        max_price: float | None = None,
        volume: str = "",
        bid: float | None = None,
        image: str = "",
    ) -> Constraints:
        """The constraints in a box's `resources` input (`sweepstack.config.model.Resources.as_inputs`), with those of
        its container `image`."""
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
            memory_gb=parse_size(resources["memory"]).bytes / GB if resources.get("memory") else None,
            disk_gb=-(-parse_size(disk).bytes // GB) if disk else None,
            regions=tuple(resources.get("regions") or ()),
            spot=bool(resources.get("spot", False)),
            max_price=max_price,
            min_reliability=resources.get("reliability"),
            volume=volume,
            bid=bid if resources.get("spot") else None,
            maker=_maker_for(image, gpu),
        )

    def takes_memory(self, gb: float | None, *, slack: float = 0.02) -> bool:
        """Whether a card with so much memory is asked for; one whose memory is not known is not, where some is."""
        return self.gpu_memory_gb is None or (gb is not None and self.gpu_memory_gb.admits(gb, slack=slack))


def in_region(there: str, asked: str) -> bool:
    """Whether the region `there` is the one that was asked for: `US-TX-3` lies in `us-tx-3`, `us-tx` and `US`."""
    here, wanted = there.lower(), asked.strip().lower()
    return here == wanted or here.startswith(f"{wanted}-")


@dataclass(frozen=True)
class Offer:
    """A box that could be rented now. It is not reserved.

    `key`: the platform's own handle, opaque to other code, and short enough for a stack config. `price_per_hour`: USD
    of the whole running box with the requested disk; `stopped_per_hour`: the same while it is stopped (None: unknown,
    or it can't be stopped). `stock`: a text for people. `single`: it can be rented only once. `maker`: of its cards;
    "" where the platform does not say. `ends_at`: when the contract with its host ends at the latest; None where there
    is no such end. `stopped_at_least`: `stopped_per_hour` is what is known of it, and it may be more.
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
    maker: str = ""
    ends_at: datetime | None = None
    stopped_at_least: bool = False

    @property
    def price_per_gpu_hour(self) -> float:
        """USD per hour and GPU; the whole price for a box without a GPU."""
        return self.price_per_hour / max(self.gpu_count, 1)


@dataclass(frozen=True)
class Balance:
    """An account's balance in USD. `prepaid`: boxes end when it is used up; None when the platform does not say.

    `per_hour`: USD per hour of everything that bills on the account now, other people's boxes too; None when the
    platform does not say. `volumes`: volumes are in it. `said`: the platform's own words for `usd`, where it counts in
    other money.
    """

    usd: float
    prepaid: bool | None = None
    spend_limit_per_hour: float | None = None
    per_hour: float | None = None
    volumes: bool = False
    said: str = ""


def cheapest_first(offers: Iterable[Offer], constraints: Constraints) -> list[Offer]:
    """The offers up to the highest price, in the order in which they are tried: price, then reliability."""
    ceiling = constraints.max_price
    inside = [offer for offer in offers if ceiling is None or offer.price_per_hour <= ceiling]
    return sorted(inside, key=lambda offer: (offer.price_per_hour, -(offer.reliability or 0.0), offer.key))


def same_gpu(asked: str, offered: str) -> bool:
    """Whether the platform's GPU name `offered` matches the name `asked`: it has all words of it, and is a part of a
    card (MIG, vGPU) only where `asked` says so.

    `A100` admits `NVIDIA A100 80GB PCIe` and not `NVIDIA A10`; `RTX 4090` admits `NVIDIA GeForce RTX 4090`; `L4` does
    not admit `L40S`; `H100` does not admit `NVIDIA H100 80GB HBM3 MIG 1g.20gb`, and `H100 MIG` does.
    """
    return _named(asked, offered) and (is_part(asked) or not is_part(offered))


def is_part(name: str) -> bool:
    """Whether the name is that of a part of a card."""
    return any(_SLICE.fullmatch(word) for word in _words(name))


def maker_of(told: Any, *names: str) -> str:
    """The maker of a card: as its platform says (`told`), else as its names do; "" where neither does. A maker that the
    platform itself does not know is one of its own, which no image is for."""
    said = told.strip().lower() if isinstance(told, str) else ""
    if said not in (NVIDIA, AMD) and any(_AMD_WORDS.fullmatch(word) for name in names for word in _words(name)):
        return AMD
    return said


def is_meant(wanted: Constraints, *names: str, maker: str = "") -> bool:
    """Whether a card that its platform calls by these `names` is asked for: its name, or any whole card where none is
    asked for; and of the maker that the image is for, where the platform says whose it is."""
    if wanted.maker and maker not in ("", wanted.maker):
        return False
    part = any(map(is_part, names)) and not wanted.parts
    if not wanted.gpu_names:
        return not part
    asked = [name for name in wanted.gpu_names if not part or is_part(name)]
    return any(_named(one, name) for one in asked for name in names)


def _maker_for(image: str, gpu: Mapping[str, Any]) -> str:
    """Whose cards an image is for, by its name. One that does not say it gets the cards that most are for, unless a
    card is asked for by its name."""
    if _ROCM.search(image):
        return AMD
    return NVIDIA if _CUDA.search(image) or gpu.get("cuda") or not gpu.get("name") else ""


def _named(asked: str, offered: str) -> bool:
    words, asked_words = _words(offered), _words(asked)
    return bool(asked_words) and all(word in words for word in asked_words)


def _words(name: str) -> list[str]:
    return name.upper().replace("_", " ").replace("-", " ").split()


def no_offer_left(refusals: Iterable[str], what: str) -> NoCapacity:
    """The error when no offer could be rented. It lists all refusals, in the order of the attempts."""
    tried = [f"  {refusal}" for refusal in refusals]
    return NoCapacity("\n".join([f"{what}: none of {len(tried)} offers could be had; nothing was rented", *tried]))
