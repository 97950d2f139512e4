"""The keys of a stack config for renting: resources, mounts, and the chosen placement.

It may hand options to sbatch: all but those that sweepstack sets, or relies on, itself. sbatch takes each beginning of
an option's name for that option (`--part=x`), so a name that begins one of ours is refused, too.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field

from sweepstack.config.types import (
    BoundText,
    BoxKey,
    ClusterWord,
    ClusterWords,
    Cores,
    Count,
    CudaText,
    Day,
    DurationText,
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

__all__ = ["FittingMount", "Gpu", "Mount", "MountPath", "PlacedOffer", "Placement", "Resources"]


CLUSTER_KEYS = ("partition", "account", "qos", "constraint", "gres", "time", "sbatch")
"""Keys of `resources` that the scheduler of a cluster is told, and no other platform."""

_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(=[^\x00-\x1f\x7f]+)?")
_BY_NODES = "job.nodes, with one task on each node"
_ALWAYS = "sweepstack itself: its jobs are found, ended and queued again by it"
OWNED = {
    "partition": "resources.partition",
    "account": "resources.account",
    "qos": "resources.qos",
    "constraint": "resources.constraint",
    "gres": "resources.gres and resources.gpu",
    **dict.fromkeys(("time", "time-min"), "resources.time"),
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu"), "resources.memory"),
    **dict.fromkeys(("cpus-per-task", "cpus-per-gpu"), "resources.cpu"),
    **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"), "resources.gpu"),
    "tres-per-task": "resources.cpu and resources.gpu",
    **dict.fromkeys(("nodes", "ntasks", "ntasks-per-node", "ntasks-per-core", "ntasks-per-socket"), _BY_NODES),
    **dict.fromkeys(("ntasks-per-gpu", "no-kill"), _BY_NODES),
    "array": "boxes.<name>.workers",
    **dict.fromkeys(("clusters", "cluster-constraint"), "boxes.<name>.host: name a login node of that cluster"),
    "signal": "job.grace",
    **dict.fromkeys(("export", "export-file", "get-user-env"), "job.env, which cells get, and they get no other"),
    **dict.fromkeys(("job-name", "chdir", "workdir", "output", "error", "input", "open-mode"), _ALWAYS),
    **dict.fromkeys(("requeue", "no-requeue", "uid", "gid", "wrap", "script"), _ALWAYS),
    **dict.fromkeys(("parsable", "test-only", "wait", "quiet", "verbose", "help", "usage", "version"), _ALWAYS),
}
"""Option of sbatch → what sets it here."""


def _one(text: str) -> str:
    found = _OPTION.fullmatch(text)
    if found is None:
        raise wrong(f"options of sbatch, each in one text and by its long name: --exclude=n3, not {text}")
    owned = next((name for name in sorted(OWNED, key=len) if name.startswith(found[1])), None)
    if owned is not None:
        raise wrong(f"options that sweepstack leaves to you: --{owned} is set by {OWNED[owned]}; take {text} out")
    return text


def _options(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_one(text) for text in texts)


SbatchOptions = Annotated[Names, AfterValidator(_options)]


class Gpu(Shape):
    """A constraint on GPUs, never a platform's SKU."""

    anchor: ClassVar[str] = "gpu"
    name: Names = ()
    """one name, or a list of names that will do: `[A100, H100]`. A whole card is meant; a part of one (MIG, vGPU) only
    where the name says it: `H100 MIG`. A card of AMD is rented for an image whose name has `rocm` in it, or by its name
    for one that is not CUDA's"""
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
    memory: BoundText | None = None
    """RAM of the whole box, at least: `64GB` or `64GB+`"""
    disk: BoundText | None = None
    """a size with its unit: `120GB`, or `120GB+` for at least"""
    spot: Flag = False
    """`true`: boxes that cost less and that the platform may take back at any time; their queue then goes on from what
    the durable tier holds"""
    regions: Names = ()
    """data centers or countries, by the platform's own names; one must match: `[US-KS-2, EU-RO-1]`"""
    reliability: Share | None = None
    """the least share of time that the machine was up, if the platform tells it: `0.98`"""
    partition: ClusterWord | None = None
    """on a cluster: the partition of the workers; by default the cluster's own"""
    account: ClusterWord | None = None
    """on a cluster: the account that their time is booked on"""
    qos: ClusterWord | None = None
    """on a cluster: their quality of service"""
    constraint: ClusterWords | None = None
    """on a cluster: features that their node must have, as the scheduler spells them: `a100|h100`"""
    gres: ClusterWords | None = None
    """on a cluster: generic resources besides GPUs: `nvme:1`"""
    time: DurationText | None = None
    """on a cluster: how long a worker may run before it has to queue again, such as `12h`. Cells go on from their
    checkpoints; no cell starts that would not end before. By default the partition's own limit"""
    sbatch: SbatchOptions = ()
    """on a cluster: further options, handed on to sbatch as they are: `["--exclude=n3", "--reservation=course"]`. What
    sweepstack sets itself is refused, with the key that sets it"""

    @property
    def of_cluster(self) -> dict[str, Any]:
        """The keys that only a cluster has, as far as they were written."""
        asked = self.model_dump(mode="json", include=set(CLUSTER_KEYS), exclude_none=True)
        return {key: asked[key] for key in CLUSTER_KEYS if asked.get(key)}

    def as_inputs(self) -> dict[str, Any]:
        """The box's inputs: canonical spellings, and only the keys that were written."""
        late = {"spot", "regions", "reliability"}
        asked = self.model_dump(mode="json", exclude_none=True, exclude=set(CLUSTER_KEYS))
        return {key: value for key, value in asked.items() if key not in late or value}


class Mount(Shape):
    """A volume or a bucket that the boxes use."""

    anchor: ClassVar[str] = "mounts"
    source: Source
    """the name of a volume that a stack of volumes keeps ([volumes](#volumes)), or `s3://bucket/prefix`"""
    mode: Literal["MOUNT", "COPY", "MOUNT_CACHED"] = "MOUNT"
    """a volume: `MOUNT`, and sealed cells and checkpoints go there. A bucket: `COPY`, copied to the box and compared
    before any cell starts; `MOUNT`, mounted read-only by FUSE, if the box can do that; `MOUNT_CACHED`, a copy of the
    box's durable tier: a cell is sealed once its files were read back from the bucket, checkpoints are copied later"""
    endpoint: Endpoint | None = None
    """the server of a bucket outside AWS: `https://minio.lab:9000`"""
    keep_until: Day | None = None
    """the last day that it is wanted, such as `2027-01-31`; `sweepctl status` shows it, and what the volume costs"""

    @property
    def bucket(self) -> bool:
        """Whether its source is a bucket and not a volume."""
        return self.source.startswith("s3://")


def _fits(mount: Mount) -> Mount:
    if not mount.bucket and mount.mode != "MOUNT":
        raise wrong(f"mode: MOUNT for a volume; {mount.mode} is for a bucket (source: s3://bucket/prefix)")
    if not mount.bucket and mount.endpoint is not None:
        raise wrong("no endpoint for a volume; only a bucket has one")
    return mount


FittingMount = Annotated[Mount, AfterValidator(_fits)]


class PlacedOffer(Shape):
    """The offer that was chosen for one box."""

    anchor: ClassVar[str] = "placed"
    offer: Text
    """the platform's own id of the offer"""
    price_per_hour: Price
    """USD per hour of the whole box with its disk; `pulumi up` rents nothing for more"""
    gpu: str = ""
    """the GPU's name, as the platform calls it"""
    count: int = 0
    """how many GPUs"""
    region: str = ""
    """the data center or country"""
    on: PlatformName | None = None
    """the box's platform, where it is not that of the placement (`boxes.<name>.on`)"""


class Placement(Shape):
    """The chosen platform, and the chosen offer of each box: chosen once, and kept like a lock file."""

    anchor: ClassVar[str] = "placement"
    platform: PlatformName
    """one of `candidates`"""
    boxes: dict[BoxKey, PlacedOffer] = Field(default_factory=dict)
    """box → the offer that was chosen for it: [placed](#placed)"""
    at: datetime
    """when"""

    def part(self, platform: str) -> Self | None:
        """What was chosen on this platform; None where nothing was."""
        boxes = {name: placed for name, placed in self.boxes.items() if (placed.on or self.platform) == platform}
        if not boxes and platform != self.platform:
            return None
        return self.model_copy(update={"platform": platform, "boxes": boxes})
