"""The keys of a stack config, as closed shapes; their docstrings become docs/stack-config.md."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from sweepstack.config.events import EventsConfig, tells
from sweepstack.config.override import AcceptedFact, FactName, Override
from sweepstack.config.rent import FittingMount, Mount, MountPath, Placement, Resources
from sweepstack.config.search import SearchConfig, needs_metric
from sweepstack.config.secrets import quotable
from sweepstack.config.tracker import Tracker
from sweepstack.config.types import (
    ArtifactPath,
    BoxKey,
    Count,
    CountOrZero,
    CurvePath,
    DurationText,
    EnvName,
    EnvNames,
    EnvValue,
    FiniteRule,
    Flag,
    Fraction,
    HostText,
    Hours,
    LeaseText,
    Names,
    PeerText,
    PlatformName,
    Price,
    ReturnsFolder,
    Shape,
    SizeText,
    Text,
    Usd,
    one_or_more,
    wrong,
)
from sweepstack.core import git_source
from sweepstack.core.bucket_address import SCHEME, S3Address
from sweepstack.core.budget import NOTIFY, Budget
from sweepstack.core.cells import CellsConfig
from sweepstack.core.loader_names import Loader
from sweepstack.core.records import Approval, ArtifactSpec
from sweepstack.onbox.common.errors import ConfigError, EvidenceError
from sweepstack.onbox.common.units import parse_size


def _not_a_url(value: Any) -> Any:
    if isinstance(value, str) and ("://" in value or value.startswith("git@")):
        raise wrong("a folder; anything else is not available yet in this version")
    if isinstance(value, str) and value.strip() and _is_no_folder_of_its_own(value.strip()):
        raise wrong("a folder of its own, such as results/mine: records and cells would lie here among other files")
    return value


def _is_no_folder_of_its_own(text: str) -> bool:
    """Whether `text` means `/`, `.`, `..`, `~` or the home folder, in any spelling."""
    plain = os.path.normpath(text).replace("//", "/")
    return plain in ("/", ".", "~", os.path.expanduser("~")) or set(plain.split("/")) == {".."}


Folder = Annotated[Text, BeforeValidator(_not_a_url)]


def _a_work_dir(value: str) -> str:
    try:
        git_source.parse(value, quotable(value))
    except ConfigError as error:
        raise wrong("a folder or a git URL; " + str(error).removeprefix("job.workdir: ")) from None
    return value


WorkDir = Annotated[Text, AfterValidator(_a_work_dir)]


def _an_address(value: Any) -> Any:
    if isinstance(value, str) and not value.isprintable():
        raise wrong("a folder, or s3://bucket/prefix, in one line and without control characters")
    if not isinstance(value, str) or "://" not in value:
        return _not_a_url(value)
    if not value.startswith(SCHEME):
        raise wrong("a folder, or s3://bucket/prefix")
    try:
        S3Address.parse(value, quotable(value))
    except EvidenceError as error:
        raise wrong(f"s3://bucket/prefix; {error}") from None
    return value


EvidencePlace = Annotated[Text, BeforeValidator(_an_address)]


class SmokeConfig(Shape):
    """A short trial run of the job, before any cell runs."""

    anchor: ClassVar[str] = "smoke"
    run: Text
    """a shell command with the placeholders of `job.run`: `python train.py --max-steps 2 --lr {lr} --out {out}`"""
    on: Literal["local", "box"] = "local"
    """`local` (default): here, before anything is rented; `box`: on each box, after its set-up and before any cell"""
    timeout: DurationText = "10m"
    """the longest that it may take: `10m` by default"""


class MinFree(Shape):
    """How much room a box must have before it starts one more cell."""

    anchor: ClassVar[str] = "min_free"
    disk: SizeText | None = None
    """a size with its unit: `10GB`"""
    inodes: Count | None = None
    """how many more files"""


class Job(Shape):
    """What a cell runs, and where its files come from."""

    anchor: ClassVar[str] = "job"
    workdir: WorkDir
    """a folder, relative to the project; its git-tracked files are shipped with their uncommitted changes (outside
    git: all files but dotfiles). Or a repository at a branch, a tag or a commit: [workdir](#workdir). Files that look
    like a key (`.env`, `id_rsa`, `*.pem`, `credentials.json`, a PRIVATE KEY inside) are refused"""
    run: Text
    """a shell command with placeholders: every parameter of the cells as `{lr}`, and `{cell}` (its name), `{out}`
    (the folder to write results to, new for each try), `{checkpoints}` (a folder that is kept between tries:
    [checkpoints.md](checkpoints.md)). Values are quoted for the shell, so write `--prompt {p}` without quotes of your
    own: [what the job is given](#what-the-job-is-given). `${NAME}` is the shell's own. `{lr` without its closing brace
    is refused; write a brace that is no placeholder with a space: `{ lr: 1}`"""
    resources: Resources = Field(default_factory=Resources)
    """what one box must have: [resources](#resources)"""
    setup: Text | None = None
    """shell commands that prepare a box, such as `pip install -r requirements.txt`: run once for each version of
    the code, in its folder, before any of its cells, in a virtual environment that sees the box's own packages.
    When it fails, no cell is started, and `pulumi up` shows the end of what it printed"""
    smoke: SmokeConfig | None = None
    """a short trial run of the job, on this machine before anything is rented, or on each box: [smoke](#smoke)"""
    env: dict[str, EnvValue] = Field(default_factory=dict)
    """environment variables of the job; placeholders work here too. No secrets: they would stand in the state"""
    secrets: EnvNames = ()
    """names of environment variables, such as `[WANDB_API_KEY]`. `pulumi up` takes their values from its own
    environment and writes them to a file on the box that only its user can read; they go into no state, log, queue or
    evidence. A variable without a value is refused before anything is rented; a changed value reaches the cells that
    start after the next `pulumi up`"""
    tracker: Tracker | None = None
    """Weights & Biases, MLflow, Trackio, Aim or TensorBoard: cells log offline, `sweepctl pull` sends it on:
    [tracker](#tracker). A
    change of it runs no cell again"""
    not_secret: Names = ()
    """texts that look like a secret and are none: names of variables in `env` and of options in `run`, or the texts
    themselves, such as `[SORT_KEY, "AC0123"]`: [secrets](#secrets). A private key is refused in any case"""
    slots: Count | None = None
    """cells at once on one box; by default one a GPU, and 1 where no GPU is asked for. Each gets its share of the
    GPUs (`CUDA_VISIBLE_DEVICES`)"""
    mixing: Literal["refuse", "allow"] = "refuse"
    """`refuse` (default): new code is refused if some cells of the sweep have run with the old code and others would
    run with the new one. `allow`: cells of both versions are wanted. See [versions](#versions)"""
    resume: Literal["same-code", "across-code"] = "same-code"
    """`same-code` (default): a cell goes on only from a checkpoint of its own code and command. `across-code`: a cell
    that failed goes on from its checkpoint with the new ones, which its seal says. See [versions](#versions)"""
    nodes: Count = 1
    """on how many machines one cell runs, by torchrun: [nodes.md](nodes.md). The box's host is the first, and
    `boxes.<name>.peers` names the others; on a cluster each worker asks for so many nodes"""
    restores: Flag = False
    """with `nodes`: `true` says that the job goes on from its checkpoint without our helper and without
    `{checkpoints}`; else a job on several nodes that is tried again and keeps no state is refused"""
    min_free: MinFree | None = None
    """how much room a box must have before it starts one more cell: [min_free](#min_free)"""
    stall: DurationText | None = None
    """a duration such as `10m` (the default): a cell that prints nothing, writes nothing and computes nothing for
    that long is shown as hung"""
    on_hang: Literal["tell", "retry", "drop"] = "tell"
    """what happens to a hung cell: [timeouts](#timeouts). `tell` (default): every screen says so, and the cell keeps
    its slot until a person acts; if other cells wait for the slot, for three times `stall`. `retry`: the cell is ended,
    which counts as a failed try. `drop`: the cell is ended and given up, until `sweepctl retry` or `sweepctl drop`"""
    timeout: DurationText | None = None
    """how long one try of a cell may take, such as `12h`; then it is ended, which counts as a failed try. None by
    default: [timeouts](#timeouts)"""
    grace: DurationText | None = None
    """how long a cell may take to save and end after a SIGTERM, before it is killed, and how long what it left running
    may go on writing its results ([when a cell has ended](evidence.md#when-a-cell-has-ended)): `20s` by default. A spot
    box has no longer than its platform gives it ([spot](renting.md#spot-boxes)), and the preview says so"""
    retries: CountOrZero | None = None
    """how often the runner tries a failed cell again: 1 by default, so two tries in all; 0: never. A failure that would
    only repeat (an exception of the code, NaN with `stop_on_nan`, exit code 0 without an artifact) is not tried again,
    and a full disk does not count: [timeouts](#timeouts)"""
    image: Text | None = None
    """a container image, on platforms that use one; elsewhere it has no effect, and the preview says so"""
    include: Names = ()
    """globs, relative to `workdir`, of files that git does not track and that are shipped too"""


class Artifact(Shape):
    """How a file that every cell writes is proved good."""

    anchor: ClassVar[str] = "artifacts"
    load: Loader
    """`torch`, `safetensors`, `npz`, `npy`, `csv`, `json`, `parquet`; one of [these formats](formats.md), such as `hf`,
    `lightning`, `jsonl`, `gguf`; or `command`: your own check"""
    keys: Names = ()
    """names that the file must hold: arrays, tensors, columns, top-level keys"""
    finite: FiniteRule = "require"
    """`require` (default): NaN or infinity fails the cell, but for a single infinity in a tensor of one number beside
    others, which is only shown: training code keeps its best loss so. `report`: it is only shown. A list such as
    `[state_dict]`: it fails the cell in tensors, columns or keys with one of these in their dotted name, and is only
    shown elsewhere"""
    infinite: Names = ()
    """parts of dotted names, such as `[causal_mask]`: tensors that are infinite by design. NaN in them fails a cell"""
    plausible: Literal["require", "report"] = "report"
    """`require`: a file that looks untrained fails the cell: every number is the same within each tensor, or within one
    of `keys`; with `finite: require` also a null, or a text such as "NaN" or "NaN%", in place of a number (npz, npy:
    in an array of texts). `report` (default): it is only shown"""
    min: SizeText | None = None
    """a size such as `50MB`; a smaller file fails. An empty one always does"""
    run: Text | None = None
    """with `load: command`: a shell command that names the file as `{file}`"""
    trust: Flag = False
    """with `load: command`: `true`, or it is refused. The command is your code and runs on your machine"""

    def spec(self, path: str) -> ArtifactSpec:
        """The same values as the box and the evidence take them."""
        least = parse_size(self.min).bytes if self.min else 1
        return ArtifactSpec(
            path=path,
            load=self.load,
            keys=self.keys,
            finite=self.finite,
            infinite=self.infinite,
            plausible=self.plausible,
            min_bytes=max(least, 1),
            run=self.run,
            trust=self.trust,
        )


class Metrics(Shape):
    """Which file of a cell holds its curve."""

    anchor: ClassVar[str] = "metrics"
    file: CurvePath
    """a file below `{out}`, or a pattern for it; placeholders work as in the names of `artifacts`. Its name tells its
    format: [formats of curves](#formats-of-curves); by default JSON lines"""
    x: Text
    """the key of the horizontal axis, such as `step`"""
    y: Names
    """one key or a list: `[loss, accuracy]`"""
    stop_on_nan: Flag = False
    """`true`: a cell is ended at the first NaN or infinity in one of `y`; it failed, and is not tried again"""


class BoxConfig(Shape):
    """One box: whether it is to run, and on what."""

    anchor: ClassVar[str] = "boxes"
    want: Literal["running", "stopped", "gone"] = "running"
    """`running` (default); `stopped`: the next `pulumi up` ends its processes and pauses its bill as far as the
    platform can, and the preview says which tiers that wipes; back to `running` starts it again; `gone`: the next
    `pulumi up` deletes it, if it may end"""
    on: PlatformName | None = None
    """one of `candidates`: this box is to be there and nowhere else, so that one sweep can have boxes on several
    platforms ([renting](renting.md#several-platforms)); by default the first candidate that fits"""
    resources: Resources | None = None
    """what this box must have, instead of `job.resources`: [resources](#resources)"""
    host: HostText | None = None
    """the address of the host, if you bring your own: `user@host:port`, and a folder after it if its files are to lie
    elsewhere than below the user's home: `root@192.0.2.7:22/data`"""
    workers: Count | None = None
    """on a cluster: how many workers run this box's cells at the same time, each a task of a job array with the
    `resources` of its own; 1 by default. No more are submitted than there are cells to do"""
    peers: Annotated[tuple[PeerText, ...], BeforeValidator(one_or_more)] = ()
    """with `job.nodes`: the other machines of its cells, one fewer than `nodes`, each as `host` itself enters it by
    ssh: `[ann@node-2, ann@node-3:2222]`"""
    returns: ReturnsFolder | None = None
    """the folder of this computer that a box comes back to which you run by hand, such as a synchronized Drive folder:
    `~/Drive/sweeps`; or, for `manual`, a bucket's: `s3://lab/sweeps` ([by hand](by-hand.md))"""


class BudgetConfig(Shape):
    """How much the sweep may cost, and where alerts go."""

    anchor: ClassVar[str] = "budget"
    usd: Usd | None = None
    """USD in all; `usd`, `hours` or both"""
    hours: Hours | None = None
    """hours of running boxes, added up: two boxes for three hours are six"""
    notify: tuple[Fraction, ...] = NOTIFY
    """parts of the budget at which an alert goes to the webhook, `[0.8, 1.0]` by default; one alert each"""
    webhook: EnvName | None = None
    """the *name* of the environment variable with the webhook's URL; the URL is a secret and stands in no file"""
    stop: Flag = False
    """`true`: once the budget is spent, `sweepctl tend` stops boxes if no unsaved data is lost by that; by default
    `false`"""

    def budget(self) -> Budget:
        """The same values as the provider and the evidence take them."""
        return Budget(**self.model_dump() | {"notify": tuple(sorted(set(self.notify)))})


def _usd_or_hours(value: BudgetConfig | None) -> BudgetConfig | None:
    if value is not None and value.usd is None and value.hours is None:
        raise wrong("usd, hours, or both, such as {usd: 60, hours: 30}")
    return value


def at_least_one(what: str) -> Callable[[Any], Any]:
    """A check that a mapping or a list is not empty."""

    def check(value: Any) -> Any:
        if not value:
            raise wrong(f"at least one {what}")
        return value

    return check


def _together(value: dict[str, Mount]) -> dict[str, Mount]:
    if sum(not mount.bucket for mount in value.values()) > 1:
        raise wrong("one volume: a box takes only one")
    if sum(mount.mode == "MOUNT_CACHED" for mount in value.values()) > 1:
        raise wrong("one MOUNT_CACHED: a box has only one durable tier")
    return value


class SweepConfig(Shape):
    """`sweepstack:sweep`."""

    anchor: ClassVar[str] = "sweep"
    job: Job
    """what a cell runs: [job](#job)"""
    cells: CellsConfig
    """which cells there are: [cells](#cells)"""
    search: Annotated[SearchConfig | None, AfterValidator(needs_metric)] = None
    """further cells, drawn from ranges while the sweep runs: [search](#search)"""
    artifacts: Annotated[dict[ArtifactPath, Artifact], AfterValidator(at_least_one("file that proves a cell"))]
    """the files that prove a cell: [artifacts](#artifacts)"""
    metrics: Metrics | None = None
    """which file holds a cell's curve: [metrics](#metrics)"""
    candidates: Annotated[tuple[PlatformName, ...], AfterValidator(at_least_one("platform"))]
    """platforms in order of preference, each with a profile (`profiles/<name>.md`); the first that fits is taken"""
    max_price: Price | None = None
    """USD per hour and box, with its disk, such as 2.10: nothing that costs more is rented"""
    bid: Price | None = None
    """USD per hour that a spot box may cost (`resources.spot: true`), on platforms that take bids; may be changed while
    it runs. By default the lowest bid that the offer accepts"""
    mounts: Annotated[dict[MountPath, FittingMount], AfterValidator(_together)] = Field(default_factory=dict)
    """storage that outlives the boxes: [mounts](#mounts)"""
    placement: Placement | None = None
    """written by `sweepctl place`: [placement](#placement)"""
    budget: Annotated[BudgetConfig | None, AfterValidator(_usd_or_hours)] = None
    """how much the sweep may cost: [budget](#budget); needed on a platform that sends a bill"""
    ignore_balance: Text | None = None
    """why boxes are rented although the account's balance does not carry them to the last cell, such as `a card is on
    file`; without it they are refused ([renting.md](renting.md#how-long-the-balance-lasts))"""
    events: Annotated[EventsConfig | None, AfterValidator(tells)] = None
    """who is told what happens to the sweep, and of what: [events](#events)"""
    when_done: Literal["stop", "keep"] | None = None
    """`keep` (default) or `stop`: whether a box with a drained queue is stopped, by [`sweepctl tend`](cli.md#tend), or
    by itself if it can ([hosts](hosts.md#a-rented-host-who-ends-its-bill)). Required for platforms that send a bill"""
    lease: LeaseText | None = None
    """how long after the last look (`status`, `tend`, `pull`, `pulumi up`) a box that has nothing left to do stops
    itself: a duration such as `2h`, `10m` at least, or `none`: [lease](renting.md#the-lease). Required for platforms
    that send a bill"""
    boxes: Annotated[dict[BoxKey, BoxConfig], AfterValidator(at_least_one("box, such as box-0: {want: running}"))]
    """the boxes and what is wanted of each: [boxes](#boxes)"""
    pull_to: EvidencePlace
    """where the evidence lies (receipts, records, pulled copies): a folder, relative to the project, or
    `s3://bucket/prefix` ([evidence.md](evidence.md))"""
    overrides: dict[PlatformName, Override] = Field(default_factory=dict)
    """facts that replace those of a profile: [overrides](#overrides)"""
    accept_facts: dict[FactName, AcceptedFact] = Field(default_factory=dict)
    """old facts of a profile that an approval may rely on, by name; written by `sweepctl give-up fact/NAME`:
    [accept_facts](#accept_facts)"""
    approval: Approval | None = None
    """written by `sweepctl approve`: [approval](#approval)"""
