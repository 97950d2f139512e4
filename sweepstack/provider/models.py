"""Inputs and outputs of each resource: what the state remembers. A state extends its inputs.

Closed and frozen, like all that we write. `live` is what Read saw; it comes back as an input, because the delete
step of `pulumi destroy --preview-only --diff` prints inputs only, and it is never a reason for an update. The words
below each field are its description in the schema and in docs/reference/resources.md.
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
from sweepstack.provider.job_input import JobInput, MetricsInput


class Inputs(Record):
    """What a program gives, or what Check makes of it."""


class IdentityInputs(Inputs):
    """What a sweep is known by, and where its evidence lies."""

    project: str
    """the Pulumi project"""
    stack: str
    """the stack"""
    pull_to: str
    """where the evidence goes, as the person wrote it: a folder or `s3://bucket/prefix`. The place is resolved once, at
    create"""
    leaving: Approval | None = None
    """the approval of boxes that the config takes out of the program (`want: gone`) in the same change: the engine
    updates before it deletes, so they are cleared here"""
    roster_digest: Digest | None = None
    """digest of all cells of the sweep"""
    artifacts_digest: Digest | None = None
    """digest of the rules by which artifacts are verified"""
    budget: Budget | None = None
    """what the sweep may cost"""
    outlook: Outlook | None = None
    """the work to come, for the preview's line about the budget"""
    clearances: dict[str, str] = Field(default_factory=dict)
    """box that leaves → what its approval amounts to; written by Check, a program gives none"""


class IdentityState(IdentityInputs):
    """The name of a sweep, once it is made."""

    identity: str
    """the random name of the sweep, which is in the tag of each of its boxes"""
    evidence: str
    """URI of the evidence, to which every other resource refers"""


class VolumeInputs(Inputs):
    """A tier that outlives the boxes that mount it."""

    identity: str
    """the sweep's random name: the Identity's output `identity`"""
    evidence: str
    """URI of the sweep's evidence: the Identity's output `evidence`"""
    adapter: str
    """the adapter that speaks to the platform, with the host where there is one: `ssh:lab`"""
    name: str
    """its name in this sweep, or among the volumes of the account where it is `kept`"""
    kept: bool | None = None
    """true: a stack of volumes has it, and it is only looked up here, by its name among the account's volumes"""
    keep_until: str | None = None
    """the day, as ISO 8601, until which it is wanted"""
    guarded: bool | None = None
    """true: this stack is the one that keeps it, and ends it by a check of its own"""
    size_gb: int | None = Field(default=None, ge=1)
    """how large it is to be; it can grow, and never shrinks"""
    region: str | None = None
    """where it is to be made, in the words of the platform"""
    price_per_gb_month: float | None = None
    """USD, where the platform names no price"""
    approval: Approval | None = None
    """a person's consent to its end, as `sweepctl approve` writes it into the stack file"""
    clearance: str | None = None
    """what the check says of its end; written by Check, a program gives none"""
    live: dict[str, Any] | None = None
    """what Read saw last; a program gives none"""


class VolumeState(VolumeInputs):
    """What the platform says of a volume."""

    native_id: str
    """the platform's id of it"""
    location: str
    """where it is, for people; nothing is computed from it"""
    account: str | None = None
    """the account that pays for it"""
    actual_region: str | None = None
    """where a box must be to mount it"""
    actual_size_gb: int | None = None
    """its size, as the platform says"""
    price_per_month: float | None = None
    """USD, for all of it"""


class Placed(Record):
    """The offer that a person chose for a box with `sweepctl place`."""

    offer: str
    """the offer's key"""
    price_per_hour: float
    """its price when it was chosen, in USD"""
    gpu: str = ""
    """its kind of GPU"""
    count: int = 0
    """its number of GPUs"""
    region: str = ""
    """its region"""


class PlaceFacts(Record):
    """What a place of a host must be, for a look at it before a box is made there."""

    tier: str
    """name of the tier that lies there, for people"""
    mounted: bool | None = None
    """true: it must be a mount; an ordinary folder there is not the tier"""
    files: int = 0
    """how many files the sweep leaves behind at least"""
    region_locked: bool = False
    """true: hosts of another region see another one"""


Want = Literal["running", "stopped"]


class BoxInputs(Inputs):
    """A box to rent: one machine that runs cells. It costs money from its create until its delete is proved."""

    identity: str
    """the sweep's random name: the Identity's output `identity`"""
    evidence: str
    """URI of the sweep's evidence: the Identity's output `evidence`"""
    adapter: str
    """the adapter that speaks to the platform, with the host where there is one: `ssh:lab`"""
    platform: str | None = None
    """whose machine it is, for people, where the adapter is named with a host and so does not say"""
    name: BoxName
    """its name in the sweep: `box-0`"""
    resources: dict[str, Any] = Field(default_factory=dict)
    """what it must have, as `job.resources` of the stack file: GPUs, disk, region"""
    price_per_hour: float | None = None
    """USD, where the platform names no price"""
    max_price: float | None = None
    """USD per hour of the whole box with its disk; nothing above it is rented"""
    budget: Budget | None = None
    """what the sweep may cost: past it, no box is rented"""
    smoke: Smoke | None = None
    """the smoke run that must pass before it is rented"""
    bid: float | None = None
    """USD per hour of the whole box, on the spot market"""
    image: str | None = None
    """the container image, on platforms that use one"""
    placed: Placed | None = None
    """the offer that a person chose for it with `sweepctl place`; counts when a box is made"""
    dry_run: bool | None = None
    """whether a preview asks; Check takes it out"""
    no_code: str | None = None
    """why the job's files can't be had, where a teardown goes on without them; nothing is rented then"""
    mounts: dict[str, str] = Field(default_factory=dict)
    """path on the box (`mnt/durable`) → the native id of the volume that is mounted there"""
    places: dict[str, str] | None = None
    """path on the box (`mnt/durable`), or a tier's name → the folder of the host that it is"""
    claims: dict[str, PlaceFacts] | None = None
    """path on the box, or a tier's name → what that place of the host must be"""
    links: dict[str, str] | None = None
    """path at which the job expects a mount → the mount"""
    volume: str | None = None
    """name of the kept volume that it mounts, so that a preview asks for offers within reach of it"""
    secrets: tuple[str, ...] | None = None
    """names of the environment variables that must be set where the box is rented, so that its cells don't find out
    later; their values are in no input"""
    named: tuple[str, ...] | None = None
    """all boxes of the stack file, and those that are wanted gone"""
    leaving: Approval | None = None
    """the approval of boxes that the stack file takes out: beside one that stays locked nothing is rented"""
    roster_digest: Digest
    """digest of all cells of the sweep"""
    artifacts_digest: Digest | None = None
    """digest of the rules by which artifacts are verified"""
    teardown: TeardownFacts
    """how it ends on its platform, and what that does to each tier"""
    want: Want = "running"
    """`running` or `stopped`"""
    when_done: Literal["stop", "keep"] = "keep"
    """what becomes of it once its queue is drained: `stop` or `keep`"""
    approval: Approval | None = None
    """a person's consent to its end, as `sweepctl approve` writes it into the stack file"""
    clearance: str = "locked"
    """`locked`, or by which receipt it may end; written by Check, a program gives none"""
    live: dict[str, Any] | None = None
    """what Read saw last; a program gives none"""
    list_lag: float = 900.0
    """seconds for which the platform's list is believed to lack what was rented"""


class BoxState(BoxInputs):
    """What is known of the rented box. `price_per_hour` is the platform's where it names one."""

    native_id: str
    """the platform's id of it"""
    account: str
    """the account that pays for it"""
    generation: int
    """how often a box of this name was made"""
    tag: str
    """by which it is found on the platform, whatever became of the state"""
    phase: str
    """`creating`, `running`, `stopping`, `stopped`, `ending`, `gone` or `unknown`"""
    created_at: datetime | None = None
    """when it was made, as the platform says"""
    ssh: str | None = None
    """where its sshd listened when it was last looked at, as `host:port`, for people"""
    region: str | None = None
    """where it is"""
    offer: str | None = None
    """the offer that was rented"""
    gpu_count: int | None = None
    """the cards that it has, as the platform says"""
    host_keys: tuple[str, ...] | None = None
    """fingerprints of the keys that its sshd showed"""


class OnBoxInputs(Inputs):
    """What a resource of a box must know of it, to ask about its end."""

    identity: str
    """the sweep's random name: the Identity's output `identity`"""
    evidence: str
    """URI of the sweep's evidence: the Identity's output `evidence`"""
    adapter: str
    """the adapter that speaks to the platform, with the host where there is one: `ssh:lab`"""
    box: str
    """the box's native id: its output `native_id`"""
    box_name: BoxName
    """the box's name in the sweep"""
    account: str
    """the account that pays for the box: its output `account`"""
    generation: int
    """how often a box of this name was made: its output `generation`"""
    roster_digest: Digest
    """digest of all cells of the sweep"""
    teardown: TeardownFacts
    """how the box ends on its platform, and what that does to each tier"""
    approval: Approval | None = None
    """a person's consent to the box's end, as `sweepctl approve` writes it into the stack file"""


class QueueInputs(OnBoxInputs):
    """The cells of one box, and the job that runs them."""

    stack: str
    """the stack"""
    want: Want = "running"
    """`running`, or `stopped`: no cell is started then"""
    job: JobInput
    """what a cell runs"""
    cells: tuple[CellText, ...]
    """the cells of this box, in order"""
    elsewhere: tuple[str, ...] = ()
    """the cells that the program gives other boxes, each as `<name> <first digits of its config's digest>`"""
    dropped: dict[str, str] = Field(default_factory=dict)
    """cell that a person gave up → why"""
    pins: dict[CellName, str] | None = None
    """cell → the code that it runs instead of the job's, of all cells; a program gives the first digits of its digest,
    Check writes them all"""
    retries: dict[CellName, Again] | None = None
    """cell → the retry that a person asked for; written by Check, out of the evidence"""
    versions: str | None = None
    """what the last change of code meant for cells that had run; written by Check, for the diff"""
    artifacts: tuple[ArtifactSpec, ...]
    """the files that each cell must leave behind"""
    metrics: MetricsInput | None = None
    """which file of a cell holds its curve"""

    @property
    def others(self) -> dict[str, str]:
        """The cells of `elsewhere` → the first digits of their config's digest."""
        return read_elsewhere(self.elsewhere)


class QueueState(QueueInputs):
    """What is known of a queue that was launched."""

    launched_at: datetime
    """when it was first given cells"""


class GateInputs(OnBoxInputs):
    """What stands between a box and its end, for people to read. Another `box` replaces it."""

    artifacts_digest: Digest | None = None
    """digest of the rules by which artifacts are verified"""
    clearance: str = "locked"
    """`locked`, or by which receipt the box may end; written by Check, a program gives none"""
    live: dict[str, Any] | None = None
    """what Read saw last; a program gives none"""


class GateState(GateInputs):
    """A gate has nothing of its own to remember."""


InputsT = TypeVar("InputsT", bound=Inputs)
StateT = TypeVar("StateT", bound=Inputs)
