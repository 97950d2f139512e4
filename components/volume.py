"""Volume: the tier that outlives every box of the sweep. One a sweep, mounted by all of its boxes."""

from __future__ import annotations

import pulumi

from components.resources import Identity, Volume
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.profiles.plan import Plan


@dataclass(frozen=True)
class DurableMount:
    """`path`: box-relative, `mnt/<name>`; `volume`: what shows there, on every box that mounts it. No resource of its
    own: it is an input of the box, so it costs the engine nothing."""

    path: str
    volume: Volume


def durable_mount(plan: Plan, identity: Identity, opts: pulumi.ResourceOptions) -> DurableMount | None:
    """The volume that sealed cells and checkpoints go to, and where a box sees it; None: nothing outlives a
    box, or what does is a place of its host."""
    durable = plan.durable
    if durable is None or durable.place:
        return None
    volume = Volume(
        durable.volume,
        opts,
        identity=identity.identity,
        evidence=identity.evidence,
        adapter=plan.adapter,
        name=durable.volume,
        kept=durable.kept or None,
        keep_until=durable.keep_until or None,
        price_per_gb_month=durable.price_per_gb_month,
        least_bytes=durable.least or None,
    )
    return DurableMount(durable.mount, volume)
