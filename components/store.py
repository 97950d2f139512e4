"""Store: volumes that outlive sweeps, as resources: `Identity → Volume …`. No box is rented here."""

from __future__ import annotations

import pulumi

from components.approval import approval_for, approval_to_leave
from components.resources import Identity, Volume
from sweepstack.core.paths import docs_page
from sweepstack.profiles.volume_stack_plan import KeptVolume, StorePlan


class Store(pulumi.ComponentResource):
    """One stack of volumes. Each costs money by the month from its create until its delete is proved."""

    identity: Identity
    volumes: dict[str, Volume]

    def __init__(self, plan: StorePlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("sweepstack:components:Store", pulumi.get_stack(), None, opts)
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
        self.register_outputs({})

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

    def export(self) -> None:
        """The stack's outputs: which volumes there are, where, and what they cost a month."""
        pulumi.export("identity", self.identity.identity)
        pulumi.export("evidence", self.identity.evidence)
        pulumi.export("volumes", {name: volume.native_id for name, volume in self.volumes.items()})
        pulumi.export("where", {name: volume.location for name, volume in self.volumes.items()})
        pulumi.export("usd_per_month", {name: volume.price_per_month for name, volume in self.volumes.items()})
        pulumi.export(
            "next", f"name a volume in mounts.<path>.source of a sweep ({docs_page('stack-config.md#mounts')})"
        )
