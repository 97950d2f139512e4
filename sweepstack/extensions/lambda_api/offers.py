"""Lambda's types of instances as offers: one for each type and region with room now.

Nothing is reserved: Lambda may refuse what it showed a second ago. The price is that of the whole instance with its
disk. An offer's key is `<type>@<region>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.errors import Unsupported
from sweepstack.onbox.host.offers import GB, Constraints, Offer, cheapest_first, in_region, is_meant
from sweepstack.platforms.common.json_values import number

GIB_IN_GB = 2**30 / GB
_MEMORY = re.compile(r"\((\d+(?:\.\d+)?) ?GB")


def must_be_possible(wanted: Constraints) -> None:
    """Raises Unsupported for constraints that Lambda can never meet. Sends no request."""
    if wanted.spot:
        raise Unsupported("Lambda rents no spot boxes: take `spot` out, or let another candidate have it")
    if wanted.min_reliability is not None:
        raise Unsupported(
            "Lambda publishes no reliability of its hosts: take `reliability` out, or let another candidate have it"
        )
    if wanted.cuda:
        raise Unsupported(
            "Lambda's API does not say which CUDA a host's driver has: take `cuda` out, or let another candidate have "
            "it"
        )


def fitting(types: Mapping[str, Any], wanted: Constraints) -> list[Offer]:
    """The offers that fit, cheapest first."""
    found = [offer for entry in types.values() for offer in _offers(entry, wanted)]
    return cheapest_first(found, wanted)


def _offers(entry: Any, wanted: Constraints) -> list[Offer]:
    """The offers of one type: one for each region where there is room. None for a type that can't be read."""
    kind = entry.get("instance_type") if isinstance(entry, dict) else None
    places = entry.get("regions_with_capacity_available") if isinstance(entry, dict) else None
    if not isinstance(kind, dict) or not isinstance(places, list):
        return []
    name, text, specs = kind.get("name"), kind.get("gpu_description"), kind.get("specs")
    cents = number(kind.get("price_cents_per_hour"))
    if not isinstance(name, str) or not name or not isinstance(specs, dict) or not cents or cents <= 0:
        return []
    text = text if isinstance(text, str) else ""
    told = _MEMORY.search(text)
    memory = float(told[1]) if told else None
    gpus = number(specs.get("gpus"))
    if gpus is None or not _fits(wanted, name, text, memory, int(gpus), specs):
        return []
    regions = [str(place["name"]) for place in places if isinstance(place, dict) and place.get("name")]
    disk = number(specs.get("storage_gib"))
    return [
        Offer(
            f"{name}@{region}",
            text or name,
            int(gpus),
            cents / 100,
            region,
            gpu_memory_gb=memory,
            disk_gb=None if disk is None else round(disk * GIB_IN_GB),
        )
        for region in regions
        if not wanted.regions or any(in_region(region, asked) for asked in wanted.regions)
    ]


def _fits(wanted: Constraints, name: str, text: str, memory: float | None, gpus: int, specs: Mapping[str, Any]) -> bool:
    """Whether a type has all that is wanted. `text`: its card, as Lambda describes it; `memory`: GB of each card."""
    plain = text.replace("(", " ").replace(")", " ")
    spellings = (f"{plain} {name}", f"{plain.replace(' GB', 'GB')} {name}")
    if not is_meant(wanted, *spellings):
        return False
    if wanted.gpu_count and gpus != wanted.gpu_count:
        return False
    return (
        wanted.takes_memory(memory)
        and _enough(specs.get("vcpus"), wanted.cpu)
        and _enough(specs.get("memory_gib"), wanted.memory_gb, GIB_IN_GB)
        and _enough(specs.get("storage_gib"), wanted.disk_gb, GIB_IN_GB)
    )


def _enough(has: Any, wanted: float | None, unit: float = 1.0) -> bool:
    there = number(has)
    return wanted is None or (there is not None and there * unit >= wanted)
