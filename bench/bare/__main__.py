"""One resource of one plugin: what Pulumi itself costs before any of sweepstack's code runs."""

from __future__ import annotations

import pulumi


class Thing(pulumi.CustomResource):
    """A resource of the bare plugin."""

    size: pulumi.Output[float]

    def __init__(self, name: str, size: float) -> None:
        super().__init__("bare:index:Thing", name, {"size": size})


thing = Thing("thing", size=1)
pulumi.export("size", thing.size)
