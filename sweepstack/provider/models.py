"""Inputs and outputs of each resource: what the state remembers. A state extends its inputs.

Closed and frozen, like all that we write. `live` is what Read saw; it comes back as an input, because the delete
step of `pulumi destroy --preview-only --diff` prints inputs only, and it is never a reason for an update.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeVar

from pydantic import Field

from sweepstack.billing.budget import Budget
from sweepstack.billing.forecast import Outlook
from sweepstack.core.box_end import TeardownFacts
from sweepstack.core.foreign_cells import read_elsewhere
from sweepstack.core.records import Again, Approval, ArtifactSpec, BoxName, CellName, CellText, Digest, Record
from sweepstack.launch.smoke import Smoke


class Inputs(Record):
    """What a program gives, or what Check makes of it."""


class IdentityInputs(Inputs):
    """`pull_to` as the person wrote it: the place is resolved once, at create.

    `leaving` is the approval of boxes that the config takes out of the program (`want: gone`) in the same change: the
    engine updates before it deletes, so they are cleared here. Check writes what that amounts to into `clearances`.
    `outlook` is for the preview's line about the budget, and no reason for an update.
    """

    project: str
    stack: str
    pull_to: str
    leaving: Approval | None = None
    roster_digest: Digest | None = None
    artifacts_digest: Digest | None = None
    budget: Budget | None = None
    outlook: Outlook | None = None
    clearances: dict[str, str] = Field(default_factory=dict)


class IdentityState(IdentityInputs):
    """`identity` is the random name; `evidence` the URI that every other resource refers to."""

    identity: str
    evidence: str


class VolumeInputs(Inputs):
    """A tier that outlives the boxes that mount it.

    `kept`: a stack of volumes has it, and it is only looked up here, by its name among the account's volumes.
    `guarded`: this stack is the one that keeps it, and ends it by the check in `volumes.end_check`. `keep_until`: a
    day, as ISO 8601, until which it is wanted; `price_per_gb_month` in USD, where the platform names no price.
    `clearance` is written by Check, `live` by Read; a program gives neither.
    """

    identity: str
    evidence: str
    adapter: str
    name: str
    kept: bool | None = None
    keep_until: str | None = None
    guarded: bool | None = None
    size_gb: int | None = Field(default=None, ge=1)
    region: str | None = None
    price_per_gb_month: float | None = None
    approval: Approval | None = None
    clearance: str | None = None
    live: dict[str, Any] | None = None


class VolumeState(VolumeInputs):
    """`location` is for people; nothing is computed from it. `actual_region`: where a box must be to mount it;
    `actual_size_gb`: what the platform says that it holds; `price_per_month`: USD, for all of it."""

    native_id: str
    location: str
    account: str | None = None
    actual_region: str | None = None
    actual_size_gb: int | None = None
    price_per_month: float | None = None


class Placed(Record):
    """The offer that a person chose for a box (`sweepctl place`): its key, and its price then, USD per hour."""

    offer: str
    price_per_hour: float
    gpu: str = ""
    count: int = 0
    region: str = ""


class PlaceFacts(Record):
    """What a place of a host must be, for a look at it before a box is made there.

    `tier`: its name, for people; `mounted`: whether an ordinary folder there is not the tier; `files`: how many the
    sweep leaves behind at least; `region_locked`: whether hosts of another region see another one.
    """

    tier: str
    mounted: bool | None = None
    files: int = 0
    region_locked: bool = False


Want = Literal["running", "stopped"]


class BoxInputs(Inputs):
    """A box to rent. `clearance` is written by Check, `live` by Read; a program gives neither.

    `secrets`: names that must be set where a box is rented, so that its cells don't find out later. `placed`: the offer
    that was chosen; `bid`: USD per hour of the whole spot box; `links`: where the job expects a mount → the mount.
    `platform`: whose machine it is, for people, where the adapter is named with a host and so does not say.
    `volume`: the name of the kept volume that it mounts, so that a preview asks for offers within reach of it.
    `places`: path on the box (`mnt/durable`), or a tier's name → the folder of the host that it is; `claims`: what each
    of them must be.
    `no_code`: why the job's files can't be had, where a teardown goes on without them; nothing is rented then.
    `list_lag`: seconds for which the platform's list is believed to lack what was rented.
    `dry_run`: whether a preview asks; Check takes it out. `named`: all boxes of the stack file, those that are wanted
    gone among them; `leaving`: the approval of boxes that it takes out: beside one that stays locked nothing is rented.
    """

    identity: str
    evidence: str
    adapter: str
    platform: str | None = None
    name: BoxName
    resources: dict[str, Any] = Field(default_factory=dict)
    price_per_hour: float | None = None
    max_price: float | None = None
    budget: Budget | None = None
    smoke: Smoke | None = None
    bid: float | None = None
    image: str | None = None
    placed: Placed | None = None
    dry_run: bool | None = None
    no_code: str | None = None
    mounts: dict[str, str] = Field(default_factory=dict)
    places: dict[str, str] | None = None
    claims: dict[str, PlaceFacts] | None = None
    links: dict[str, str] | None = None
    volume: str | None = None
    secrets: tuple[str, ...] | None = None
    named: tuple[str, ...] | None = None
    leaving: Approval | None = None
    roster_digest: Digest
    artifacts_digest: Digest | None = None
    teardown: TeardownFacts
    want: Want = "running"
    when_done: Literal["stop", "keep"] = "keep"
    approval: Approval | None = None
    clearance: str = "locked"
    live: dict[str, Any] | None = None
    list_lag: float = 900.0


class BoxState(BoxInputs):
    """What is known of the rented thing. `price_per_hour` is the platform's where it names one.

    `ssh`: where its sshd listened when it was last looked at (`host:port`), for people; `region` and `offer`: what was
    rented; `gpu_count`: the cards that the platform says it has; `host_keys`: fingerprints of what its sshd showed.
    """

    native_id: str
    account: str
    generation: int
    tag: str
    phase: str
    created_at: datetime | None = None
    ssh: str | None = None
    region: str | None = None
    offer: str | None = None
    gpu_count: int | None = None
    host_keys: tuple[str, ...] | None = None


class MetricsInput(Record):
    """Which file of a cell holds its curve."""

    file: str
    x: str
    y: tuple[str, ...]
    stop_on_nan: bool = False


class NetworkInput(Record):
    """What stands between a box and the world: `env`, variables of mirrors and caches (`~/` is the login's home);
    `proxy_on` and `proxy_off`, shell lines; `proxy_always`: whether every set-up and cell has it on."""

    env: dict[str, str] = Field(default_factory=dict)
    proxy_on: str = ""
    proxy_off: str = ""
    proxy_always: bool = False


class BucketInput(Record):
    """A bucket that cells see: `path` as the job names it, `source` s3://bucket/prefix, `endpoint` the server."""

    path: str
    source: str
    mode: Literal["COPY", "MOUNT", "MOUNT_CACHED"]
    endpoint: str = ""


class BoxSmoke(Record):
    """A smoke run on the box: `run` with the placeholders of a cell, and after how many `seconds` it has failed."""

    run: str
    seconds: float = Field(gt=0)


class WhenDrained(Record):
    """How a box ends its own bill once its queue is drained: the platform's word for it, and the command there."""

    native: str
    command: str


class JobInput(Record):
    """What a cell runs. `workdir` as the person wrote it; `code` the digest of the files that ship.

    `secrets`: names of environment variables; their values are in no input. `gpus`: of the box. None: not asked for.
    """

    run: str
    workdir: str
    include: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    slots: int = Field(default=1, ge=1)
    code: Digest
    setup: str | None = None
    secrets: tuple[str, ...] | None = None
    gpus: int | None = None
    mixing: Literal["refuse", "allow"] | None = None
    min_free_bytes: int | None = None
    min_free_inodes: int | None = None
    stall_seconds: float | None = None
    timeout_seconds: float | None = None
    on_hang: Literal["retry", "drop"] | None = None
    retries: int | None = None
    network: NetworkInput | None = None
    mounts: tuple[BucketInput, ...] | None = None
    when_drained: WhenDrained | None = None
    smoke: BoxSmoke | None = None
    image: str | None = None


class OnBoxInputs(Inputs):
    """What a resource of a box must know of it, to ask about its end. `box` is the box's native id."""

    identity: str
    evidence: str
    adapter: str
    box: str
    box_name: BoxName
    account: str
    generation: int
    roster_digest: Digest
    teardown: TeardownFacts
    approval: Approval | None = None


class QueueInputs(OnBoxInputs):
    """The cells of one box, and the job that runs them.

    `elsewhere`: the cells that the program gives other boxes (`core.records.elsewhere_text`). `pins`: cell → code that
    it runs instead of the job's, of all cells; a program gives the first digits, Check writes them all.
    Written by Check alone: `retries`, those that a person asked for, out of the evidence; `versions`, for the diff:
    what the last change of code meant for cells that had run.
    """

    stack: str
    want: Want = "running"
    job: JobInput
    cells: tuple[CellText, ...]
    elsewhere: tuple[str, ...] = ()
    dropped: dict[str, str] = Field(default_factory=dict)
    pins: dict[CellName, str] | None = None
    retries: dict[CellName, Again] | None = None
    versions: str | None = None
    artifacts: tuple[ArtifactSpec, ...]
    metrics: MetricsInput | None = None

    @property
    def others(self) -> dict[str, str]:
        """The cells of `elsewhere` → the first digits of their config's digest."""
        return read_elsewhere(self.elsewhere)


class QueueState(QueueInputs):
    """`launched_at`: when this queue was first given cells."""

    launched_at: datetime


class GateInputs(OnBoxInputs):
    """What stands between a box and its end, for people to read. `box` is a replace key."""

    artifacts_digest: Digest | None = None
    clearance: str = "locked"
    live: dict[str, Any] | None = None


class GateState(GateInputs):
    """A gate has nothing of its own to remember."""


InputsT = TypeVar("InputsT", bound=Inputs)
StateT = TypeVar("StateT", bound=Inputs)
