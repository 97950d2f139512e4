"""Which boxes have their bytes billed, and at what price: the stack file's, else the offer's."""

from __future__ import annotations

from collections.abc import Iterable

from sweepstack.core.records import Birth
from sweepstack.onbox.common.errors import ConfigError, SweepstackError
from sweepstack.operations.sweep.accepted_facts import profiles_of
from sweepstack.operations.sweep.target import Target


def prices(
    target: Target, whose: Iterable[tuple[str, str | None, str]], births: Iterable[Birth]
) -> dict[str, float | None]:
    """Native id → USD per GB that leaves the box, None where that is billed at a price that is not known. Boxes whose
    platform bills none are left out, and those whose profile can't be read: a figure stands in no one's way, least of
    all of an abandonment. `whose`: native id, platform and adapter of each."""
    offered = {birth.native_id: birth.egress_per_gb for birth in births}
    found: dict[str, float | None] = {}
    for native_id, platform, adapter in whose:
        try:
            profiles = profiles_of(target, [(platform, adapter)])
        except (SweepstackError, OSError):
            continue
        for profile in profiles.values():
            said = _said(target, profile.platform)
            if said != 0 and (said is not None or profile.free_egress is False):
                found[native_id] = offered.get(native_id) if said is None else said
    return found


def _said(target: Target, platform: str) -> float | None:
    """`overrides.<platform>.egress_per_gb` of the stack file; None where it says nothing, or does not read."""
    try:
        overrides = target.file.sweep().get("overrides")
        return float(overrides[platform]["egress_per_gb"]) if overrides else None
    except (ConfigError, KeyError, TypeError, ValueError):
        return None
