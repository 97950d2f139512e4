"""What a cell runs, and how its box is prepared: one model from the plan to the box.

A key of the job is one attribute here. `profiles.resolve` fills it from the stack file; `launch.ship.settings` tells
the box of it.
"""

import json
import platform
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from sweepstack.core.choices import choice
from sweepstack.core.lease_terms import LeaseFacts
from sweepstack.core.records import CellName, Digest, Record
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.placeholders import own_file


class MetricsInput(Record):
    """Which file of a cell holds its metrics, and which columns are drawn."""

    file: str
    """its path in the folder of a cell"""
    x: str
    """the column of the x axis"""
    y: tuple[str, ...]
    """the columns that are drawn"""
    stop_on_nan: bool = False
    """true: a cell whose curve turns NaN is ended"""

    def of(self, cell: str, params: Mapping[str, Any]) -> Self:
        """With the name that the file has in this cell."""
        return self.model_copy(update={"file": own_file(self.file, cell, params)})


class NetworkInput(Record):
    """The mirrors, caches and proxy through which a box reaches the internet."""

    env: dict[str, str] = Field(default_factory=dict)
    """variables of mirrors and caches; `~/` is the login's home"""
    folders: dict[str, str] = Field(default_factory=dict)
    """variables of caches below the box's own folder: paths relative to it"""
    written: tuple[str, ...] = ()
    """variables of caches that the stack file itself sets or switches off: they alone move on a box that has begun"""
    proxy_on: str = ""
    """shell line that switches the proxy on"""
    proxy_off: str = ""
    """shell line that switches it off"""
    proxy_always: bool = False
    """true: it is on for every set-up and every cell"""
    tensorboard: str = ""
    """the folder that the platform's own TensorBoard reads: outputs of cells are linked there"""


class BucketInput(Record):
    """A bucket that is copied or mounted for cells."""

    path: str
    """its path on the box, as the job uses it"""
    source: str
    """`s3://bucket/prefix`"""
    mode: Annotated[
        Literal["COPY", "MOUNT", "MOUNT_CACHED"],
        choice(
            "MountMode",
            "How a bucket is on a box.",
            {
                "COPY": "it is copied to the box once",
                "MOUNT": "it is mounted, to be read",
                "MOUNT_CACHED": "cells write to the box's durable tier, which is copied to it",
            },
        ),
    ]
    """how it is there"""
    endpoint: str = ""
    """the server; empty: AWS"""


class BoxSmoke(Record):
    """A smoke run on the box, before any cell."""

    run: str
    """a shell command with the placeholders of a cell"""
    seconds: float = Field(gt=0)
    """seconds after which it counts as failed"""


class WhenDrained(Record):
    """How a box ends its own bill once its queue is drained."""

    native: str
    """the platform's name for it"""
    command: str
    """the command on the box"""


class ByHandInput(Record):
    """How a person runs the box, which no program reaches."""

    step: str
    """what they do with the bundle; `{bundle}` and `{id}` stand for its name and the box's id"""
    cell: str | None = None
    """a notebook cell that does it"""
    out: str | None = None
    """where results are carried to there; absent: to where the bundle lies"""
    work: str | None = None
    """the folder that cells run in there; absent: the temporary one"""
    archive: str | None = None
    """the folder there in which all results are packed into one file in the end; absent: they are not"""
    inputs: tuple[str, ...] | None = None
    """where an earlier session's results may lie"""
    hours: float | None = None
    """how long a session runs cells before it ends itself"""
    passes: tuple[str, ...] | None = None
    """variables of the session that cells need"""


class TolerationInput(Record):
    """A taint of nodes that pods bear."""

    key: str | None = None
    """the taint's key; absent: every taint"""
    operator: Literal["Exists", "Equal"] | None = None
    """whether its value counts; absent: it does"""
    value: str | None = None
    """the taint's value"""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """what it does to other pods; absent: anything"""


class PodsInput(Record):
    """What the pods of a box are like, besides what their workers ask for."""

    image: str | None = None
    """the container image; absent: the adapter's own"""
    service_account: str | None = None
    """whom they run as; absent: the namespace's default"""
    priority_class: str | None = None
    """the priority class of the workers"""
    queue: str | None = None
    """the local queue of Kueue that the workers wait in"""
    tolerations: tuple[TolerationInput, ...] | None = None
    """taints of nodes that they bear"""
    gpu_resource: str | None = None
    """what a GPU is called as a resource; absent: `nvidia.com/gpu`"""
    gpu_label: str | None = None
    """the label of nodes that has the name of their GPUs; absent: `nvidia.com/gpu.product`"""
    pod: str | None = None
    """further fields of a pod: JSON text of an object"""


class SchedulerInput(Record):
    """What each worker of a box asks of the cluster's scheduler."""

    workers: int = Field(default=1, ge=1)
    """how many workers run at the same time"""
    nodes: int | None = None
    """how many nodes each has; absent: one"""
    partition: str | None = None
    """the partition; absent: the cluster's default"""
    account: str | None = None
    """the account that their time is booked on"""
    qos: str | None = None
    """their quality of service"""
    constraint: str | None = None
    """features that their node must have"""
    gres: str | None = None
    """generic resources besides GPUs"""
    sbatch: tuple[str, ...] | None = None
    """further options of sbatch"""
    wall_seconds: float | None = None
    """seconds that a worker may run before it queues again; absent: the partition's own limit"""
    gpus: int | None = None
    """GPUs of each"""
    gpu_names: tuple[str, ...] | None = None
    """names of which one must match"""
    cpu: float | None = None
    """cores of each"""
    memory_bytes: int | None = None
    """memory of each"""
    grace_seconds: float | None = None
    """seconds that a cell gets to save before the end"""
    price_per_gpu_hour: float | None = None
    """USD for an hour of one GPU that they hold"""
    gpu_hours: float | None = None
    """how many GPU-hours of an allocation the sweep may take"""
    pods: PodsInput | None = None
    """what the workers' pods are like; absent: they are none"""


class NodesInput(Record):
    """The other nodes of a box whose cells run on several."""

    peers: tuple[str, ...] = ()
    """the other nodes, as the first one enters them: `user@host:port`"""
    allocated: bool = False
    """true: the scheduler gives each worker its nodes"""
    restores: bool = False
    """true: a cell that is started again goes on from a checkpoint of its own"""


class WandbInput(Record):
    """Weights & Biases, offline in each cell."""

    project: str
    """its project"""
    entity: str | None = None
    """the team or user that has it; absent: that of the key"""
    group: str | None = None
    """the group of all runs; absent: the sweep's identity"""
    name: str
    """the run's name, with the placeholders of a cell"""
    tags: tuple[str, ...] = ()
    """tags, with the placeholders of a cell"""


class MlflowInput(Record):
    """An MLflow server, which is sent what each cell logged."""

    uri: str
    """its address"""
    experiment: str
    """its experiment"""
    name: str = "{cell}"
    """the run's name, with the placeholders of a cell"""
    tags: dict[str, str] = Field(default_factory=dict)
    """tags, with the placeholders of a cell"""


class TrackioInput(Record):
    """A server of Trackio, which is sent what each cell logged."""

    uri: str
    """its address"""
    project: str
    """its project"""
    group: str | None = None
    """the group of a run, with the placeholders of a cell; absent: the sweep's identity"""
    name: str = "{cell}"
    """the run's name, with the placeholders of a cell"""


class AimInput(Record):
    """A repository of Aim, which is sent what each cell logged."""

    uri: str
    """its server, or its folder"""
    experiment: str
    """its experiment"""
    name: str = "{cell}"
    """the run's name, with the placeholders of a cell"""
    tags: tuple[str, ...] = ()
    """tags, with the placeholders of a cell"""


class TensorboardInput(Record):
    """TensorBoard, which reads the evidence."""

    folder: str
    """the folder of event files below a cell's outputs"""


class TrackerInput(Record):
    """The trackers of the cells. No key of any stands here."""

    wandb: WandbInput | None = None
    """Weights & Biases"""
    mlflow: MlflowInput | None = None
    """MLflow"""
    trackio: TrackioInput | None = None
    """Trackio"""
    aim: AimInput | None = None
    """Aim"""
    tensorboard: TensorboardInput | None = None
    """TensorBoard"""


Mixing = Annotated[
    Literal["refuse", "allow"],
    choice(
        "Mixing",
        "Whether a sweep may run two versions of its code.",
        {"refuse": "no new code while cells that ran keep the old", "allow": "a sweep may run both"},
    ),
]
Resume = Annotated[
    Literal["same-code", "across-code"],
    choice(
        "Resume",
        "With which code a cell that failed goes on from its checkpoint.",
        {"same-code": "with the code that wrote it", "across-code": "with new code, too"},
    ),
]
OnHang = Annotated[
    Literal["retry", "drop"],
    choice(
        "OnHang",
        "What is done with a hung cell.",
        {"retry": "it is ended, and tried again", "drop": "it is ended, and not tried again"},
    ),
]


class JobInput(Record):
    """What a cell runs."""

    run: str
    """a shell command with placeholders"""
    workdir: str
    """the folder of its code, as the person wrote it"""
    include: tuple[str, ...] = ()
    """globs, relative to `workdir`, of files that ship although git does not track them"""
    env: dict[str, str] = Field(default_factory=dict)
    """environment variables; no secrets"""
    slots: int = Field(default=1, ge=1)
    """cells at once on the box"""
    code: Digest
    """digest of the files that ship"""
    setup: str | None = None
    """shell commands that prepare the box, run once for each version of the code"""
    secrets: tuple[str, ...] | None = None
    """names of environment variables that go to the box; their values are in no input"""
    tracker: TrackerInput | None = None
    """the trackers that cells log to; absent: none"""
    gpus: int | None = None
    """the GPUs of the box; absent where none were asked for"""
    mixing: Mixing | None = None
    """whether a sweep may run new code beside results of the old; absent: it may not"""
    resume: Resume | None = None
    """with which code a cell that failed goes on from its checkpoint; absent: only with its own"""
    min_free_bytes: int | None = None
    """below so many free bytes no cell starts"""
    min_free_inodes: int | None = None
    """below so many free inodes no cell starts"""
    stall_seconds: float | None = None
    """seconds without a sign of life after which a cell is shown as hung"""
    timeout_seconds: float | None = None
    """seconds that one try of a cell may take; absent: no limit"""
    grace_seconds: float | None = None
    """seconds between SIGTERM and SIGKILL of a cell; absent: the runner's own"""
    on_hang: OnHang | None = None
    """what is done with a hung cell; absent: it is only reported"""
    retries: int | None = None
    """how many times a failed cell is tried again automatically"""
    network: NetworkInput | None = None
    """mirrors and proxy of the box"""
    keep: tuple[str, ...] | None = None
    """packages of the image that no set-up replaces"""
    mounts: tuple[BucketInput, ...] | None = None
    """buckets that cells see"""
    when_drained: WhenDrained | None = None
    """how the box ends its own bill once its queue is drained"""
    smoke: BoxSmoke | None = None
    """a smoke run on the box"""
    by_hand: ByHandInput | None = None
    """how a person runs the box; absent: a program does"""
    scheduler: SchedulerInput | None = None
    """what the workers ask of a cluster; absent: it is no cluster's box"""
    lease: LeaseFacts | None = None
    """how the box stops itself when no command looks at it for so long"""
    nodes: NodesInput | None = None
    """the other nodes of its cells; absent: a cell runs on one"""
    image: str | None = None
    """the container image, on platforms that use one"""

    @property
    def goes_across_code(self) -> bool:
        """Whether cells go on from checkpoints of other code."""
        return self.resume == "across-code"


class Smoke(Record):
    """One smoke run: all that decides what it does, and so whether it has passed already."""

    run: str
    """a shell command with the placeholders of a cell"""
    seconds: float = Field(gt=0)
    """seconds after which it counts as failed"""
    cell: CellName
    """the cell that it is like"""
    params: dict[str, str]
    """the cell's parameters, each as JSON text"""
    env: dict[str, str] = Field(default_factory=dict)
    """environment variables, with the placeholders of a cell"""
    secrets: tuple[str, ...] = ()
    """names of environment variables that it gets; their values are in no input"""
    workdir: str
    """the folder of its code, as the person wrote it"""
    include: tuple[str, ...] = ()
    """globs, relative to `workdir`, of files that ship although git does not track them"""
    code: Digest
    """digest of the files that ship"""
    artifacts: tuple[str, ...] = ()
    """what a cell must leave behind; a lack is a warning here"""

    @property
    def key(self) -> str:
        """What it is remembered by: 64 hex digits."""
        decides = self.model_dump(mode="json", include={"run", "cell", "params", "env", "code"})
        return digest_of(decides | {"python": platform.python_version()}).rpartition(":")[2]

    @property
    def values(self) -> dict[str, Any]:
        """What the placeholders stand for, but `out`."""
        return {name: json.loads(text) for name, text in self.params.items()} | {"cell": self.cell, "name": self.cell}
