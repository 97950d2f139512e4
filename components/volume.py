"""Volume: the tier that outlives every box of the sweep. One a sweep, mounted by all of its boxes."""

from __future__ import annotations

import pulumi

from components.durable_mount import DurableMount
from components.resources import Identity, Volume, VolumeArgs
from profiles.resolve import Plan


def durable_mount(plan: Plan, identity: Identity, opts: pulumi.ResourceOptions) -> DurableMount:
    """The volume that sealed cells and checkpoints go to, and where a box sees it."""
    volume = Volume(
        plan.durable.volume,
        VolumeArgs(
            identity=identity.identity,
            evidence=identity.evidence,
            adapter=plan.adapter,
            name=plan.durable.volume,
        ),
        opts,
    )
    return DurableMount(plan.durable.mount, volume)
