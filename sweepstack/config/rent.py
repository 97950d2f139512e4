"""What a box must have, where it was found, and what outlives it: the words of a stack config for renting."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from sweepstack.config.types import (
    BoundText,
    BoxKey,
    Cores,
    Count,
    CudaText,
    Day,
    Endpoint,
    Flag,
    MountPath,
    Names,
    PlatformName,
    Price,
    Shape,
    Share,
    Source,
    Text,
    wrong,
)

__all__ = ["LATER", "FittingMount", "Gpu", "Mount", "MountPath", "Placed", "Placement", "Resources"]

LATER: dict[tuple[str, str], str] = {}
"""(object, key) → the issue that brings it. Known words, so that nothing of them is dropped in silence."""


class Gpu(Shape):
    """A constraint on GPUs, never a platform's SKU."""

    anchor: ClassVar[str] = "gpu"
    name: Names = ()
    """one name, or a list of names that will do: `[A100, H100]`"""
    count: Count = 1
    """how many, 1 by default"""
    memory: BoundText | None = None
    """of each: `80GB`, or `40GB+` for at least"""
    cuda: CudaText | None = None
    """a version in quotes: `"12.4"`, or `"12.4+"`"""


class Resources(Shape):
    """What one box must have."""

    anchor: ClassVar[str] = "resources"
    cpu: Cores | None = None
    """cores"""
    gpu: Gpu | None = None
    """[gpu](#gpu); as many cells run at once as there are GPUs, unless `job.slots` says otherwise"""
    disk: BoundText | None = None
    """a size with its unit: `120GB`, or `120GB+` for at least"""
    spot: Flag = False
    """`true`: boxes that the platform may take back at any time, for less; their queue goes on where the durable tier
    left it"""
    regions: Names = ()
    """the platform's own names of data centers or countries, one of which must match: `[US-KS-2, EU-RO-1]`"""
    reliability: Share | None = None
    """least share of the time that a machine was up, where the platform says so: `0.98`"""

    def as_inputs(self) -> dict[str, Any]:
        """As the box's input: canonical spellings, nothing that was not asked for."""
        late = {"spot", "regions", "reliability"}
        asked = self.model_dump(mode="json", exclude_none=True)
        return {key: value for key, value in asked.items() if key not in late or value}


class Mount(Shape):
    """A volume or a bucket, as the boxes see it."""

    anchor: ClassVar[str] = "mounts"
    source: Source
    """the name of a volume that a stack of volumes keeps ([volumes](#volumes)), or `s3://bucket/prefix`"""
    mode: Literal["MOUNT", "COPY", "MOUNT_CACHED"] = "MOUNT"
    """a volume: `MOUNT`, and sealed cells and checkpoints go there. A bucket: `COPY`, copied to the box and compared
    before any cell starts; `MOUNT`, mounted by FUSE to be read, where the box can do that; `MOUNT_CACHED`, behind the
    box's durable tier: cells are sealed when they were read back from the bucket, checkpoints follow"""
    endpoint: Endpoint | None = None
    """the server of a bucket that is none of AWS: `https://minio.lab:9000`"""
    keep_until: Day | None = None
    """a day such as `2027-01-31`: until when it is wanted; `sweepctl status` shows it, and what the volume costs"""

    @property
    def bucket(self) -> bool:
        """Whether its source is a bucket, and no volume."""
        return self.source.startswith("s3://")


def _fits(mount: Mount) -> Mount:
    if not mount.bucket and mount.mode != "MOUNT":
        raise wrong(f"mode: MOUNT for a volume; {mount.mode} is for a bucket (source: s3://bucket/prefix)")
    if not mount.bucket and mount.endpoint is not None:
        raise wrong("no endpoint for a volume; it is the server of a bucket")
    return mount


FittingMount = Annotated[Mount, AfterValidator(_fits)]


class Placed(Shape):
    """The offer that was chosen for one box."""

    anchor: ClassVar[str] = "placed"
    offer: Text
    """the platform's own handle of the offer"""
    price_per_hour: Price
    """USD per hour of the whole box with its disk; `pulumi up` rents nothing above it"""
    gpu: str = ""
    """the card, as the platform calls it"""
    count: int = 0
    """how many of them"""
    region: str = ""
    """where it is"""


class Placement(Shape):
    """Which platform, and which offer for which box: chosen once, and kept like a lock file."""

    anchor: ClassVar[str] = "placement"
    platform: PlatformName
    """one of `candidates`"""
    boxes: dict[BoxKey, Placed] = Field(default_factory=dict)
    """box → the offer that was chosen for it: [placed](#placed)"""
    at: datetime
    """when"""
