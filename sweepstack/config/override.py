"""The facts of a platform that a stack config replaces."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from sweepstack.config.network import NetworkOverride
from sweepstack.config.types import Count, HostPath, HostProgram, Hours, Names, PriceOrZero, Shape


class Override(Shape):
    """Facts that replace those of the platform's profile."""

    anchor: ClassVar[str] = "overrides"
    price_per_hour: PriceOrZero | None = None
    """USD per hour and box, for a platform that quotes no price (`local`), so that costs are shown; needed if boxes
    cost money without a quoted price, such as hosts that are entered by SSH"""
    stopped_price_per_hour: PriceOrZero | None = None
    """the same while the box is stopped"""
    egress_per_gb: PriceOrZero | None = None
    """USD per GB that leaves its boxes, where its traffic costs and the platform names no price: what a pull costs is
    then shown. 0: nothing"""
    purge_days: Count | None = None
    """after how many days the site of a cluster removes files that were not used"""
    price_per_gpu_hour: PriceOrZero | None = None
    """on a cluster: USD for an hour of one GPU that its jobs hold: the preview and `status` show what that comes to"""
    gpu_hours: Hours | None = None
    """on a cluster: how many GPU-hours of your allocation the sweep may take. `status` counts them; it stops nothing"""
    network: NetworkOverride | None = None
    """proxy, mirrors and caches of its boxes: [network](#network)"""
    places: dict[Literal["scratch", "data", "durable"], HostPath] = Field(default_factory=dict)
    """tier → its path on the hosts of this platform, if it is not the one in the profile: `{durable: /data/keep}`. It
    is checked when a box is made"""
    python: HostProgram | None = None
    """the Python that runs on its hosts before the queue starts: `/opt/conda/bin/python`; else the profile's"""
    keep: Names | None = None
    """packages of the image that `job.setup` can't replace, if they are not those in the profile (`torch`,
    `torchvision`, `torchaudio`): `[]` for none"""
