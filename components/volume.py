"""Volume: the tier that outlives every box of the sweep. One a sweep, mounted by all of its boxes."""

from __future__ import annotations

import pulumi

from components.durable_mount import DurableMount
from components.resources import Identity, Volume, VolumeArgs
from sweepstack.profiles.plan import Plan


def durable_mount(plan: Plan, identity: Identity, opts: pulumi.ResourceOptions) -> DurableMount | None:
    """The volume that sealed cells and checkpoints go to, and where a box sees it; None: nothing outlives a
    box, or what does is a place of its host."""
    if plan.durable is None or plan.durable.place:
        return None
    volume = Volume(
        plan.durable.volume,
        VolumeArgs(
            identity=identity.identity,
            evidence=identity.evidence,
            adapter=plan.adapter,
            name=plan.durable.volume,
            kept=plan.durable.kept or None,
            keep_until=plan.durable.keep_until or None,
            price_per_gb_month=plan.durable.price_per_gb_month,
            least_bytes=plan.durable.least or None,
        ),
        opts,
    )
    return DurableMount(plan.durable.mount, volume)
