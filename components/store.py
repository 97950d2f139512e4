"""Store: volumes that outlive sweeps, as resources: `Identity → Volume …`. No box is rented here."""

from __future__ import annotations

import pulumi

from components.approval import approval_for, approval_to_leave
from components.resources import Component, Identity, Volume
from sweepstack.config.find import STORE
from sweepstack.core.paths import docs_page
from sweepstack.profiles.volume_stack_plan import KeptVolume, StorePlan


class Store(Component):
    """One stack of volumes. Each costs money by the month from its create until its delete is proved."""

    key = STORE
    identity: Identity
    volumes: dict[str, Volume]

    def __init__(self, plan: StorePlan, name: str = "", opts: pulumi.ResourceOptions | None = None) -> None:
        """`name`: in the engine's list; the stack's where it is empty."""
        super().__init__(name or pulumi.get_stack(), opts, called=pulumi.get_stack())
        child = pulumi.ResourceOptions(parent=self)
        self.identity = Identity(
            "identity",
            child,
            project=pulumi.get_project(),
            stack=pulumi.get_stack(),
            pull_to=plan.pull_to,
            leaving=approval_to_leave(plan.approval, {volume.name for volume in plan.volumes}),
        )
        self.volumes = {volume.name: self._volume(plan, volume, child) for volume in plan.volumes}
        self.declared(
            identity=self.identity.identity,
            evidence=self.identity.evidence,
            volumes={name: volume.native_id for name, volume in self.volumes.items()},
            where={name: volume.location for name, volume in self.volumes.items()},
            usd_per_month={name: volume.price_per_month for name, volume in self.volumes.items()},
            next=f"name a volume in mounts.<path>.source of a sweep ({docs_page('stack-config.md#mounts')})",
        )

    def _volume(self, plan: StorePlan, volume: KeptVolume, opts: pulumi.ResourceOptions) -> Volume:
        return Volume(
            volume.name,
            opts,
            identity=self.identity.identity,
            evidence=self.identity.evidence,
            adapter=plan.adapter,
            name=volume.name,
            guarded=True,
            size_gb=volume.size_gb,
            region=volume.region or None,
            keep_until=volume.keep_until or None,
            price_per_gb_month=volume.price_per_gb_month,
            approval=approval_for(plan, volume.name),
        )
