"""Which machine fits a request: its type, its template, its region and its disk.

Paperspace's API has no list of machine types and no prices. It names the types on which each of its templates runs,
and a type is called by its card and how many it has: `A4000`, `A100-80G`, `H100x8`; `C5` has none. So a request names
the card, and how much memory, how many CPUs or what price a type has is not known before a machine of it is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import RequestRefused, Unsupported
from sweepstack.onbox.host.offers import Constraints, same_gpu
from sweepstack.platforms.common.json_values import number, text

REGIONS = ("ny2", "ca1", "ams1")
"""Paperspace's regions, in the order in which they are asked: ny2 has every card, the others fewer (2026-11)."""
DISKS_GB = (50, 100, 250, 500, 1000, 2000)
"""The sizes of disks that are sold (2026-11)."""
DISK_GB = 100
"""The disk of a machine whose request names none."""
_LABEL = re.compile(r"(?P<card>.+?)(?:x(?P<count>\d+))?")
_CPU = re.compile(r"C\d+")
_MEMORY = re.compile(r"-(\d+)GB?$")
_VERSION = re.compile(r"(\d+\.\d+)")
_READY_MADE = re.compile(r"ml-in-a-box|mliab", re.IGNORECASE)


@dataclass(frozen=True)
class Kind:
    """A machine that may be asked for: Paperspace's label of its type, its cards, and the template that it gets."""

    label: str
    card: str
    count: int
    template: str
    template_name: str
    least_disk_gb: int


def must_be_possible(wanted: Constraints) -> None:
    """Raises Unsupported or RequestRefused for what can't be asked of Paperspace. Sends no request."""
    if wanted.spot:
        raise Unsupported("Paperspace rents no spot boxes: take `spot` out, or let another candidate have it")
    if not wanted.gpu_count or not wanted.gpu_names:
        raise RequestRefused(
            "Paperspace's API has no list of machine types with prices, so none can be chosen for you: name the card "
            "of the type, such as resources.gpu: {name: A4000, count: 1}"
        )
    unknown = {
        "reliability": wanted.min_reliability is not None,
        "gpu.cuda": bool(wanted.cuda),
        "cpu": wanted.cpu is not None,
        "memory": wanted.memory_gb is not None,
    }
    if asked := [f"resources.{name}" for name, there in unknown.items() if there]:
        raise Unsupported(
            f"Paperspace's API does not say what a machine type has of {' and '.join(asked)}: take that out, and name "
            "the type by its card in resources.gpu.name; or let another candidate have it"
        )
    if wanted.disk_gb and wanted.disk_gb > DISKS_GB[-1]:
        raise Unsupported(f"a disk of Paperspace has at most {DISKS_GB[-1]} GB, and {wanted.disk_gb} GB is asked for")
    if wrong := [region for region in wanted.regions if region.lower() not in REGIONS]:
        raise RequestRefused(f"resources.regions: {wrong[0]} is no region of Paperspace, which has {_listed(REGIONS)}")


def regions(wanted: Constraints) -> list[str]:
    """The regions to ask, in this order."""
    return [region.lower() for region in wanted.regions] or list(REGIONS)


def disk_gb(kind: Kind, wanted: Constraints) -> int:
    """The smallest disk that is sold, and that holds the template and what was asked for."""
    least = max(wanted.disk_gb or DISK_GB, kind.least_disk_gb)
    return next((size for size in DISKS_GB if size >= least), DISKS_GB[-1])


def fitting(templates: Sequence[Mapping[str, Any]], wanted: Constraints) -> list[Kind]:
    """The types with the cards that were asked for, in the order of the names in the request. Raises RequestRefused,
    with the types that there are, when none fits."""
    best = _best_templates(templates)
    kinds = [_kind(label, template) for label, template in sorted(best.items())]
    found: dict[str, Kind] = {}
    for name in wanted.gpu_names:
        for kind in kinds:
            if kind.count == wanted.gpu_count and _called(kind, name) and _memory_fits(kind, wanted):
                found.setdefault(kind.label, kind)
    if not found:
        raise RequestRefused(_none_fits(kinds, wanted))
    return list(found.values())


def _best_templates(templates: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Type → the template that a machine of it gets: with drivers and torch if there is one, of the newest Ubuntu."""
    best: dict[str, Mapping[str, Any]] = {}
    for template in templates:
        if "ubuntu" not in _told(template).lower() or not text(template, "id"):
            continue
        types = template.get("availableMachineTypes")
        for one in types if isinstance(types, list) else ():
            label = text(one, "machineTypeLabel") if isinstance(one, dict) and one.get("isAvailable") is True else ""
            if label and not _CPU.fullmatch(label) and (label not in best or _rank(template) > _rank(best[label])):
                best[label] = template
    return best


def _rank(template: Mapping[str, Any]) -> tuple[bool, float, str]:
    """The higher, the better: with drivers and torch or not, the version of its Ubuntu, its id."""
    version = _VERSION.search(_told(template))
    return bool(_READY_MADE.search(_told(template))), float(version[1]) if version else 0.0, text(template, "id")


def _kind(label: str, template: Mapping[str, Any]) -> Kind:
    read = _LABEL.fullmatch(label)
    assert read is not None  # a label has at least one sign
    least = number(template.get("defaultSizeGb")) or 0.0
    name = text(template, "name") or text(template, "id")
    return Kind(label, read["card"], int(read["count"] or 1), text(template, "id"), name, int(least))


def _called(kind: Kind, name: str) -> bool:
    """Whether the request's name means this type: its own label, or words of its card (`RTX A4000`, `A100 80GB`)."""
    if name.strip().lower() == kind.label.lower():
        return True
    sized = _MEMORY.sub(r" \1GB", kind.card)
    return same_gpu(name, f"{sized} {sized.replace('RTX', 'RTX ')} NVIDIA RTX")


def _memory_fits(kind: Kind, wanted: Constraints) -> bool:
    told = _MEMORY.search(kind.card)
    return wanted.takes_memory(float(told[1]) if told else None)


def _none_fits(kinds: Sequence[Kind], wanted: Constraints) -> str:
    """The refusal where no type fits: what is missing, and what there is."""
    asked = f"{wanted.gpu_count}× {' or '.join(wanted.gpu_names)}"
    named = [kind for kind in kinds if any(_called(kind, name) for name in wanted.gpu_names)]
    if named and wanted.gpu_memory_gb is not None and any(kind.count == wanted.gpu_count for kind in named):
        return (
            f"nothing was rented: Paperspace's API does not say how much memory a card has ({asked}), unless its type "
            f"is called so, as A100-80G is: take gpu.memory out, or name such a type"
        )
    return (
        f"nothing was rented: Paperspace names no machine type with {asked}. The types that it names: "
        f"{_listed([kind.label for kind in kinds]) or 'none'}; write one as resources.gpu.name, and its cards as count"
    )


def _told(template: Mapping[str, Any]) -> str:
    """How Paperspace calls a template: its name and its system."""
    return f"{text(template, 'name')} {text(template, 'operatingSystemLabel')}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
