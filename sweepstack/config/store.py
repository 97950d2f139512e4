"""Volumes that outlive sweeps: the words of a stack config that keeps them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from sweepstack.config.model import EvidencePlace, at_least_one
from sweepstack.config.types import Day, PlatformName, Shape, SizeText, Text, VolumeName
from sweepstack.core.records import Approval

__all__ = ["StoreShape", "StoreVolume"]


class StoreVolume(Shape):
    """One volume, and how long it is wanted."""

    anchor: ClassVar[str] = "volumes"
    size: SizeText | None = None
    """a size with its unit: `100GB`; needed where the platform sends a bill. More: it grows in place, where the
    platform can do that. Less is refused"""
    region: Text | None = None
    """the platform's own name of where it lies, such as `US-KS-2`: boxes that mount it run there and nowhere else.
    Needed where volumes are bound to a place; may not change"""
    keep_until: Day | None = None
    """a day such as `2027-01-31`: until when it is wanted. Nothing ends by itself: afterwards previews and
    `sweepctl status` warn"""
    want: Literal["kept", "gone"] = "kept"
    """`kept` (default); `gone`: taken out of the graph, so that the next `pulumi up` deletes it, if it may end"""


class StoreShape(Shape):
    """`sweepstack:store`."""

    anchor: ClassVar[str] = "store"
    platform: PlatformName
    """where the volumes lie: a platform with a profile; may not change"""
    volumes: Annotated[dict[VolumeName, StoreVolume], AfterValidator(at_least_one("volume"))]
    """volume → what it is: [volumes](#volumes). The name is what `mounts.<path>.source` of a sweep says"""
    pull_to: EvidencePlace
    """where the records of these volumes lie (who used them, what was approved): a folder, relative to the project, or
    `s3://bucket/prefix`; one of its own"""
    approval: Approval | None = None
    """written by `sweepctl approve`: [approval](#approval)"""
