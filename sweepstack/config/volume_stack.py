"""The keys of the stack config of a stack of volumes, which outlive sweeps."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from sweepstack.config.model import EvidencePlace, at_least_one
from sweepstack.config.override import AcceptedFact, FactName
from sweepstack.config.types import Day, PlatformName, Shape, SizeText, Text, VolumeName
from sweepstack.core.records import Approval

__all__ = ["StoreShape", "StoreVolume"]


class StoreVolume(Shape):
    """One volume, and how long it is wanted."""

    anchor: ClassVar[str] = "volumes"
    size: SizeText | None = None
    """a size with its unit: `100GB`; needed on a platform that sends a bill. A larger size makes the volume grow, on
    platforms that can do that; a smaller one is refused"""
    region: Text | None = None
    """the data center, by the platform's own name, such as `US-KS-2`: boxes that mount the volume run only there.
    Needed on platforms that bind volumes to a data center; may not change"""
    keep_until: Day | None = None
    """the last day that it is wanted, such as `2027-01-31`. After it, previews and `sweepctl status` warn; nothing is
    deleted"""
    want: Literal["kept", "gone"] = "kept"
    """`kept` (default); `gone`: the next `pulumi up` deletes it, if it may end"""


class StoreShape(Shape):
    """`sweepstack:store`."""

    anchor: ClassVar[str] = "store"
    platform: PlatformName
    """the platform of the volumes, one with a profile; may not change"""
    volumes: Annotated[dict[VolumeName, StoreVolume], AfterValidator(at_least_one("volume"))]
    """the volumes by name: [volumes](#volumes). A sweep gives this name in `mounts.<path>.source`"""
    pull_to: EvidencePlace
    """where the records of these volumes lie (which sweeps used them, what was approved): a folder, relative to the
    project, or `s3://bucket/prefix`; not the one of a sweep"""
    accept_facts: dict[FactName, AcceptedFact] = Field(default_factory=dict)
    """old facts of a profile that an approval may rely on, by name; written by `sweepctl give-up fact/NAME`:
    [accept_facts](#accept_facts)"""
    approval: Approval | None = None
    """written by `sweepctl approve`: [approval](#approval)"""
