"""The inputs and outputs of each resource, as the state keeps them. A state extends its inputs.

The models are closed and frozen, like all that we write. `live` is what Read saw. Read returns it as an input, because
the delete step of `pulumi destroy --preview-only --diff` prints inputs only. It never causes an update. The text below
each field is its description in the schema and in docs/reference/resources.md.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError, WrapValidator

from sweepstack.core.box_end import TeardownFacts
from sweepstack.core.budget import Budget, Outlook
from sweepstack.core.choices import choice
from sweepstack.core.foreign_cells import read_elsewhere
from sweepstack.core.job import JobInput, MetricsInput, PodsInput, Smoke
from sweepstack.core.records import Again, Approval, ArtifactSpec, BoxName, CellName, CellText, Digest, Record


class Inputs(Record):
    """The inputs of a resource: what a program gives, or what Check makes of it."""


class IdentityInputs(Inputs):
    """The project and stack of a sweep, and where its evidence is kept."""

    project: str
    """the Pulumi project"""
    stack: str
    """the stack"""
    pull_to: str
    """where the evidence goes, as the person wrote it: a folder or `s3://bucket/prefix`. It is resolved once, at
    create"""
    leaving: Approval | None = None
    """the approval to end boxes that this change takes out of the program (`want: gone`): the engine updates before it
    deletes, so the update of the Identity clears them"""
    roster_digest: Digest | None = None
    """digest of all cells of the sweep"""
    artifacts_digest: Digest | None = None
    """digest of the rules by which artifacts are verified"""
    budget: Budget | None = None
    """what the sweep may cost"""
    outlook: Outlook | None = None
    """the work to come, for the preview's line about the budget"""
    search: str | None = None
    """how further cells are drawn: space, sampler, seed and bounds, as one JSON text"""
    clearances: dict[str, str] = Field(default_factory=dict)
    """box that leaves → the check's answer to its approval; written by Check, a program gives none"""
    policy: str | None = None
    """the copy of the project's policy that binds the sweep; written by Check, a program gives none"""


class IdentityState(IdentityInputs):
    """A sweep that has its name."""

    identity: str
    """the random name of the sweep, which is in the tag of each of its boxes"""
    evidence: str
    """URI of the evidence, to which every other resource refers"""


class _Seen(Record):
    """What Read saw. Names of another version pass, and what does not read counts as not seen."""

    model_config = ConfigDict(extra="ignore")


def _or_none(value: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except ValidationError:
        return None


class VolumeSeen(_Seen):
    """What the last look said of a volume's end."""

    used_by: tuple[str, ...] = ()
    """the stacks that use it"""
    cost: str = ""
    """what it costs"""
    usd_per_month: float | None = None
    """USD"""
    state: str = ""
    """`locked` or `cleared`"""
    because: str = ""
    """why"""
    survives: str = ""
    """that no destroy of this stack ends it, although the engine shows a delete; "" where its delete does end it"""


class BoxSeen(_Seen):
    """What the last look said of a box's end."""

    verified: str = ""
    """how many of its cells need no more care"""
    not_safe: tuple[str, ...] = ()
    """the others, each with its state"""
    dies: tuple[str, ...] = ()
    """what its end kills"""
    unclaimed: str = ""
    """files there that belong to no cell"""
    survives: tuple[str, ...] = ()
    """what its end keeps"""
    cost: str = ""
    """what it costs"""
    age_hours: float | None = None
    """how old it is"""
    state: str = ""
    """`locked` or `cleared`"""
    because: str = ""
    """why"""
    seen: str = ""
    """what was seen of it"""
    bill_ends_by: str | None = None
    """on a rented host: what ends the bill"""
    then: str | None = None
    """what the platform does after that"""


class VolumeInputs(Inputs):
    """A volume: storage that outlives the boxes that mount it."""

    identity: str
    """the sweep's random name: the Identity's output `identity`"""
    evidence: str
    """URI of the sweep's evidence: the Identity's output `evidence`"""
    adapter: str
    """the adapter that speaks to the platform, with the host where there is one: `ssh:lab`"""
    name: str
    """its name in this sweep, or among the volumes of the account where it is `kept`"""
    kept: bool | None = None
    """true: a stack of volumes keeps it, and here it is only looked up, by its name among the account's volumes"""
    keep_until: str | None = None
    """the day, as ISO 8601, until which it is wanted"""
    guarded: bool | None = None
    """true: this stack keeps it, and a check of its own decides whether it may be deleted"""
    size_gb: int | None = Field(default=None, ge=1)
    """how large it is to be; it can grow, and never shrinks"""
    region: str | None = None
    """where it is to be made, in the platform's terms"""
    price_per_gb_month: float | None = None
    """USD, where the platform names no price"""
    least_bytes: int | None = None
    """what the artifacts of the sweep have at least: a `kept` volume that is smaller is refused before anything is
    rented"""
    approval: Approval | None = None
    """a person's consent to its end, as `sweepctl approve` writes it into the stack file"""
    clearance: str | None = None
    """what the check says of its end; written by Check, a program gives none"""
    policy: str | None = None
    """the copy of the project's policy that binds the volume; written by Check, a program gives none"""
    live: Annotated[VolumeSeen | None, WrapValidator(_or_none)] = None
    """what Read saw last; a program gives none"""
    imported: bool | None = None
    """true: `pulumi import` found it, and no `up` has taken it yet; a program gives none"""


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
    """What a folder of a host must be. It is checked before a box is made there."""

    tier: str
    """name of the tier that is in this folder, for people"""
    mounted: bool | None = None
    """true: it must be a mount; an ordinary folder there is not the tier"""
    files: int = 0
    """how many files the sweep will leave there at least"""
    bytes: int = 0
    """what the artifacts of the sweep have at least"""
    region_locked: bool = False
    """true: hosts of another region see another folder there"""


Want = Annotated[
    Literal["running", "stopped"],
    choice(
        "Want",
        "What a person wants of a box.",
        {"running": "it runs its cells", "stopped": "it is stopped, and no cell is started"},
    ),
]
WhenDone = Annotated[
    Literal["stop", "keep"],
    choice(
        "WhenDone",
        "What becomes of a box once its queue is drained.",
        {"stop": "it stops itself", "keep": "it stays as it is, and bills on"},
    ),
]
PhaseWord = Annotated[
    str,
    choice(
        "Phase",
        "The state of a box. Only in `gone` nothing of it is left and nothing bills.",
        {
            "creating": "it is being made",
            "running": "it runs",
            "stopping": "a stop has begun and is not proved finished: it may bill as if it ran",
            "stopped": "it is stopped; its disk may bill",
            "failed": "it broke, and no start mends it: it can only be ended, and may bill in full",
            "ending": "a destroy has begun and is not proved finished",
            "gone": "it is proved gone",
            "unknown": "the platform did not say",
        },
    ),
]


class BoxInputs(Inputs):
    """A box to rent: one machine that runs cells. It costs money from its create until its delete is proved."""

    identity: str
    """the sweep's random name: the Identity's output `identity`"""
    evidence: str
    """URI of the sweep's evidence: the Identity's output `evidence`"""
    adapter: str
    """the adapter that speaks to the platform, with the host where there is one: `ssh:lab`"""
    platform: str | None = None
    """name of its rental platform, for people, if the adapter is named with a host and does not say it"""
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
    ignore_balance: str | None = None
    """why it is rented although the account's balance does not carry it; read when it is rented"""
    smoke: Smoke | None = None
    """the smoke run that must pass before it is rented"""
    bid: float | None = None
    """USD per hour of the whole box, on the spot market"""
    image: str | None = None
    """the container image, on platforms that use one"""
    pods: PodsInput | None = None
    """what the pods are like that read it, where it is a cluster's; read when it is made"""
    placed: Placed | None = None
    """the offer that a person chose for it with `sweepctl place`; used only when the box is rented"""
    dry_run: bool | None = None
    """whether this is a preview; Check takes it out"""
    no_code: str | None = None
    """why the job's files are missing here, when a teardown goes on without them; nothing is rented then"""
    mounts: dict[str, str] = Field(default_factory=dict)
    """path on the box (`mnt/durable`) → the native id of the volume that is mounted there"""
    places: dict[str, str] | None = None
    """path on the box (`mnt/durable`), or a tier's name → the folder of the host that it is"""
    claims: dict[str, PlaceFacts] | None = None
    """path on the box, or a tier's name → what that folder of the host must be"""
    links: dict[str, str] | None = None
    """path at which the job expects a mount → the mount that it links to"""
    volume: str | None = None
    """name of the kept volume that it mounts, so that a preview asks for offers within reach of it"""
    secrets: tuple[str, ...] | None = None
    """names of the environment variables that must be set when the box is rented, so that a missing one is found before
    it costs money; their values are in no input"""
    named: tuple[str, ...] | None = None
    """all boxes of the stack file, and those that are wanted gone"""
    leaving: Approval | None = None
    """the approval to end boxes that the stack file takes out; while one of them stays locked, nothing is rented"""
    roster_digest: Digest
    """digest of all cells of the sweep"""
    artifacts_digest: Digest | None = None
    """digest of the rules by which artifacts are verified"""
    teardown: TeardownFacts
    """how it ends on its platform, and what that does to each tier"""
    want: Want = "running"
    """whether it is to run, or to be stopped"""
    when_done: WhenDone = "keep"
    """what becomes of it once its queue is drained"""
    lease: str | None = None
    """how long after the last look it stops itself when nothing is left to do, such as `2h`; or `none`"""
    approval: Approval | None = None
    """a person's consent to its end, as `sweepctl approve` writes it into the stack file"""
    clearance: str = "locked"
    """`locked`, or by which receipt it may end; written by Check, a program gives none"""
    policy: str | None = None
    """the copy of the project's policy that binds the box; written by Check, a program gives none"""
    live: Annotated[BoxSeen | None, WrapValidator(_or_none)] = None
    """what Read saw last; a program gives none"""
    list_lag: float = 900.0
    """seconds for which the platform's list may lack a box that was just rented"""
    imported: bool | None = None
    """true: `pulumi import` found it, and no `up` has taken it into the sweep yet; a program gives none"""


class BoxState(BoxInputs):
    """A box that was rented. Its price is the platform's if it names one."""

    native_id: str
    """the platform's id of it"""
    account: str
    """the account that pays for it"""
    generation: int
    """which box of this name it is: 1 for the first that was made, 2 for the second"""
    tag: str
    """the name by which it is found on the platform, even if the state is lost"""
    phase: PhaseWord
    """the state in which it was when it was last looked at"""
    created_at: datetime | None = None
    """when it was made, as the platform says"""
    ssh: str | None = None
    """where its sshd listened when it was last looked at, as `host:port`, for people"""
    region: str | None = None
    """where it is"""
    offer: str | None = None
    """the offer that was rented"""
    gpu_count: int | None = None
    """the number of its GPUs, as the platform says"""
    actual_image: str | None = None
    """the container image that it has now, as the platform says"""
    host_keys: tuple[str, ...] | None = None
    """fingerprints of the keys that its sshd showed"""


class OnBoxInputs(Inputs):
    """What a Queue or a Gate must know of its box, to ask the check about the box's end."""

    identity: str
    """the sweep's random name: the Identity's output `identity`"""
    evidence: str
    """URI of the sweep's evidence: the Identity's output `evidence`"""
    adapter: str
    """the adapter that speaks to the platform, with the host where there is one: `ssh:lab`"""
    box: str
    """the platform's id of the box"""
    box_name: BoxName
    """the box's name in the sweep"""
    account: str
    """the account that pays for the box: its output `account`"""
    generation: int
    """which box of this name it is: its output `generation`"""
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
    """whether cells are started"""
    job: JobInput
    """what a cell runs"""
    cells: tuple[CellText, ...]
    """the cells of this box, in order"""
    elsewhere: tuple[str, ...] = ()
    """the cells that the program gives other boxes, each as `<name> <first digits of its config's digest>`"""
    dropped: dict[str, str] = Field(default_factory=dict)
    """cell that a person gave up → why"""
    pins: dict[CellName, str] | None = None
    """cell → digest of the code that it runs instead of the job's, for the cells of all boxes; a program gives the
    first digits, Check writes all"""
    retries: dict[CellName, Again] | None = None
    """cell → the retry that a person asked for; written by Check, from the evidence. A program gives those of the stack
    file that are not on record yet, for the cells of all boxes"""
    versions: str | None = None
    """what the last change of code meant for cells that had run; written by Check, for the diff"""
    artifacts: tuple[ArtifactSpec, ...]
    """the files that each cell must leave behind"""
    metrics: MetricsInput | None = None
    """which file of a cell holds its curve"""
    policy: str | None = None
    """the copy of the project's policy that binds the box; written by Check, a program gives none"""
    sources: dict[CellName, Digest] | None = None
    """cell that begins from another one → the manifest of the verified copy of that; written by Check, a program gives
    none. A cell that is not here waits"""
    priority: tuple[str, ...] | None = None
    """which cells start first: JSON objects of the values that they have, `cell` is their name"""

    @property
    def others(self) -> dict[str, str]:
        """The cells of `elsewhere`: name → the first digits of the digest of its config."""
        return read_elsewhere(self.elsewhere)


class QueueState(QueueInputs):
    """A queue that was launched."""

    launched_at: datetime
    """when it was first given cells"""


class GateInputs(OnBoxInputs):
    """Shows people whether a box may end, and why. A change of `box` replaces the gate."""

    artifacts_digest: Digest | None = None
    """digest of the rules by which artifacts are verified"""
    clearance: str = "locked"
    """`locked`, or by which receipt the box may end; written by Check, a program gives none"""
    policy: str | None = None
    """the copy of the project's policy that binds the box; written by Check, a program gives none"""
    live: Annotated[BoxSeen | None, WrapValidator(_or_none)] = None
    """what Read saw last; a program gives none"""


class GateState(GateInputs):
    """A gate remembers nothing besides its inputs."""


STATES: Final[Mapping[str, type[Inputs]]] = {
    "sweepstack:index:Identity": IdentityState,
    "sweepstack:index:Volume": VolumeState,
    "sweepstack:index:Box": BoxState,
    "sweepstack:index:Queue": QueueState,
    "sweepstack:index:Gate": GateState,
}
"""Type of a resource → all its properties, inputs and outputs."""
FIRST_TYPES: Final[Mapping[str, str]] = {
    "sweepstack:index:Sweep": "sweepstack:components:Sweep",
    "sweepstack:index:Store": "sweepstack:components:Store",
    "sweepstack:index:BoxGroup": "sweepstack:components:Box",
}
"""Type of a component → what it was called in the states and plans of before (docs/adr/027)."""

InputsT = TypeVar("InputsT", bound=Inputs)
StateT = TypeVar("StateT", bound=Inputs)
