"""Whether what a sweep leaves behind fits where it is sealed, by the `min` of its artifacts. Pure.

Where a box alone is the place, that is its share of the cells; else it is one place for all. What is really there is
looked at later: a volume's size in the preview (`provider.resources.volume_lifecycle`), a host's when its box is made.
"""

from __future__ import annotations

from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.units import parse_size
from sweepstack.profiles.layout import Layout
from sweepstack.profiles.model import Profile
from sweepstack.profiles.plan import Durable
from sweepstack.profiles.spot import asked_resources
from sweepstack.profiles.tiers import VERB, least_bytes

SEALED = "durable"
"""The tier on which cells are sealed, where none survives the box."""
WORTH_SAYING = 10**9
"""Bytes. Less has room anywhere."""
GB = 1e9


def size_problems(layout: Layout, config: StackConfig) -> list[str]:
    """More bytes than the tier on which cells are sealed can have there."""
    found = layout.durable_tier(VERB)
    name, tier = found or (SEALED, layout.tiers.get(SEALED))
    least = least_bytes(config, of_a_box=found is None)
    if tier is None or tier.size_cap_bytes is None or least <= tier.size_cap_bytes:
        return []
    whose = "the artifacts" if found else "the artifacts of one box's cells"
    return [
        f"its {name} tier holds {tier.size_cap_bytes / GB:g} GB, and {whose} have {least / GB:g} GB at least: let the "
        "job keep less, or split the sweep"
    ]


def disk_notes(config: StackConfig, profile: Profile, layout: Layout) -> list[str]:
    """That the disk that is asked for is too small for what stays on it until the box ends. Not where a volume takes
    that, and not for hosts: they say what is free."""
    least = least_bytes(config, of_a_box=True)
    if layout.durable_tier(VERB) is not None or profile.ssh is not None or profile.by_hand is not None:
        return []
    return [
        f"{where}.disk asks for {resources.disk}, and the artifacts of one box's cells have {least / GB:.3g} GB at "
        "least: its queue waits once it is full. Ask for more, add boxes, or let the job keep less"
        for where, resources in asked_resources(config)
        if resources.disk and parse_size(resources.disk).bytes < least
    ]


def room_words(config: StackConfig, durable: Durable | None) -> tuple[str, ...]:
    """How much the place of sealed cells has to hold, where the config says how large artifacts are."""
    least, cells = least_bytes(config, of_a_box=durable is None), len(config.roster.cells)
    if least < WORTH_SAYING:
        return ()
    where = "the disk of each box" if durable is None else f"the {durable.tier} tier"
    if durable is not None and durable.kept_volume:
        where = f"volume {durable.volume}"
    each = sum(artifact.min_bytes for artifact in config.artifact_specs())
    of = f"{cells:,} cells" if durable is not None else f"its share of {cells:,} cells"
    return (
        f"room: {where} has to hold {least / GB:.1f} GB at least ({of} of {each / GB:.2g} GB, by min of their "
        "artifacts), and two checkpoints of each cell that has begun",
    )
