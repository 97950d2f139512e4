"""RunPod's catalog as offers: one for each kind of GPU, with its price and data centers now.

The catalog reserves nothing: RunPod may refuse what it showed a second ago. It names no price of a disk, so that is
added by what the vendor's pages say. An offer's key is the GPU's id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweepstack.onbox.common.errors import Unsupported
from sweepstack.onbox.host.offers import Constraints, Offer, cheapest_first, is_meant, maker_of
from sweepstack.platforms.common.json_values import number
from sweepstack.platforms.runpod.states import GB_MONTH, HOURS_A_MONTH, STOPPED_GB_MONTH

NOWHERE = "NONE"
_SHOWN = 3
IMAGE_DISK_GB = 20
"""The container disk of a pod whose data lie on a volume disk: room for the image and what is installed there."""
LEAST_VOLUME_DISK_GB = 10
CLOUD = "SECURE"
"""Boxes are rented from the Secure Cloud only: network volumes need it, its addresses are stable, and v2 can't ask for
a community host with a public address."""


@dataclass(frozen=True)
class Candidate:
    """An offer, and the data centers to ask for it in; empty when any will do. `gpu_id`: what a create names.
    `gpus_per_hour`: USD of its GPUs alone, which a bid is for."""

    offer: Offer
    data_centers: tuple[str, ...]
    gpu_id: str
    gpus_per_hour: float


def must_be_possible(wanted: Constraints) -> None:
    """Raises Unsupported for constraints that RunPod can never meet. Sends no request."""
    if wanted.min_reliability is not None:
        raise Unsupported(
            "RunPod publishes no reliability of its hosts (boxes are rented from its Secure Cloud only): take "
            "`reliability` out, or let another candidate have it"
        )


def candidates(gpus: list[Any], wanted: Constraints, data_center: str = "") -> list[Candidate]:
    """The offers that fit, cheapest first. `data_center`: the volume's, when only that one will do."""
    found = {}
    for gpu in gpus:
        if isinstance(gpu, dict) and (one := _candidate(gpu, wanted, data_center)) is not None:
            found[one.offer.key] = one
    return [found[offer.key] for offer in cheapest_first((one.offer for one in found.values()), wanted)]


def in_region(data_center: str, region: str) -> bool:
    """Whether the data center lies in `region`: `US-TX-3` lies in `US-TX-3`, `us-tx` and `US`."""
    asked, there = region.strip().upper(), data_center.upper()
    return there == asked or there.startswith(f"{asked}-")


def _candidate(gpu: Mapping[str, Any], wanted: Constraints, data_center: str) -> Candidate | None:
    key, name, memory = gpu.get("id"), gpu.get("name"), number(gpu.get("memory"))
    price, count = _secure(gpu, "price"), gpu_count(wanted)
    if not isinstance(key, str) or not key or gpu.get("secure") is not True or not price:
        return None
    most = _secure(gpu, "maxCount")
    if most is not None and most < count:
        return None
    maker = maker_of(gpu.get("manufacturer"), key)
    if not fits([key, name], memory, wanted, maker):
        return None
    stock = gpu.get("availability")
    if stock == NOWHERE:
        return None
    there = _data_centers(gpu)
    regions = (data_center,) if data_center else wanted.regions
    if regions:
        there = tuple(dc for dc in there if any(in_region(dc, region) for region in regions))
        if not there:
            return None
    shown = ", ".join(there[:_SHOWN]) + (f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else "")
    running, stopped = disks_per_hour(wanted)
    offer = Offer(
        key,
        name if isinstance(name, str) and name else key,
        count,
        round(price * count + running, 6),
        shown or "any",
        gpu_memory_gb=memory,
        disk_gb=wanted.disk_gb,
        stopped_per_hour=stopped,
        cuda=wanted.cuda,
        stock=stock.lower() if isinstance(stock, str) else "",
        maker=maker,
    )
    return Candidate(offer, there if regions else (), key, price * count)


def fits(names: Sequence[Any], memory: float | None, wanted: Constraints, maker: str) -> bool:
    """Whether a GPU with these names, so much memory (GB) and this maker is asked for."""
    if not is_meant(wanted, *(text for text in names if isinstance(text, str)), maker=maker):
        return False
    bound = wanted.gpu_memory_gb
    return not bound or (memory is not None and bound.admits(memory, slack=0.02))


def _data_centers(gpu: Mapping[str, Any]) -> tuple[str, ...]:
    """The ids of the data centers that have the GPU now, in RunPod's own spelling (upper case), which it requires."""
    listed = gpu.get("dataCenters")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return tuple(str(dc["id"]) for dc in entries if dc.get("id") and dc.get("availability") != NOWHERE)


def _secure(gpu: Mapping[str, Any], name: str) -> float | None:
    found = gpu.get(name)
    return number(found.get("secure")) if isinstance(found, dict) else None


def disks(wanted: Constraints) -> tuple[int, int]:
    """GB of the pod's container disk and of its volume disk, which is 0 where a network volume is mounted instead."""
    asked = wanted.disk_gb or 0
    if wanted.volume:
        return max(asked, IMAGE_DISK_GB), 0
    return IMAGE_DISK_GB, max(asked or IMAGE_DISK_GB, LEAST_VOLUME_DISK_GB)


def disks_per_hour(wanted: Constraints) -> tuple[float, float]:
    """USD per hour of both disks: while the pod runs, and while it is stopped. No answer of RunPod names it."""
    container, kept = disks(wanted)
    return (container + kept) * GB_MONTH / HOURS_A_MONTH, kept * STOPPED_GB_MONTH / HOURS_A_MONTH


def catalog_params(wanted: Constraints) -> dict[str, str]:
    """The query of GET /v2/catalog/gpus for these constraints. RunPod names availability only when `product` is
    sent."""
    params = {"include": "AVAILABILITY", "product": "POD", "count": str(gpu_count(wanted)), "cloud": CLOUD}
    if wanted.cuda:
        params["minCudaVersion" if wanted.cuda_at_least else "cudaVersions"] = wanted.cuda
    return params


def gpu_count(wanted: Constraints) -> int:
    """The number of GPUs to rent: at least one, since a pod without a GPU has no disk that survives a stop."""
    return max(wanted.gpu_count, 1)
