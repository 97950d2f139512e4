"""The records that travel between the program, the provider, the box and the evidence.

Shapes that we write are closed and frozen (`Record`). Digests are `sha256:<hex>` where a field is called
`*_digest`, `receipt` or `manifest`; times are RFC 3339 in UTC; sizes are bytes; prices are USD per hour.
"""

import json
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)

from sweepstack.core.choices import choice
from sweepstack.core.loader_names import LOADERS, Loader
from sweepstack.core.signature import Signature
from sweepstack.core.timestamps import Moment
from sweepstack.onbox.common.box_layout import CELL_NAME
from sweepstack.onbox.common.canonical import DIGEST, digest_of
from sweepstack.onbox.common.longer import SOURCE

SCHEMA: Final = 1
LATER: Final = 2
"""The schema of a manifest with `doubts`, and of a receipt with a state of `LATER_STATES` or the copy of an `earlier`
run: a version that does not know them refuses both, and says so."""

CellName = Annotated[str, StringConstraints(pattern=f"^{CELL_NAME}$")]
BOX_NAME: Final = r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?"
BoxName = Annotated[str, StringConstraints(pattern=f"^{BOX_NAME}$")]
Digest = Annotated[str, StringConstraints(pattern=f"^{DIGEST.pattern}$")]

CellState = Literal[
    "pending",  # on the roster, not started
    "blocked_disk",  # not started: its box has too little room (bytes or inodes) to start another cell
    "running",  # started, its runner is alive
    "failed",  # started and ended badly, or its runner died
    "sealed",  # finished and sealed on its box; not verified here yet
    "missing",  # sealed or expected, and there is no copy here
    "damaged",  # there is a copy, and it is not what was sealed, or does not load
    "suspect",  # the copy is what was sealed, and the box doubts that this was all: a person has to look
    "unsupported",  # there is a copy, as it was sealed, and whether it is good this reader can't tell
    "unexpected",  # a copy of a cell that is not in the roster
    "lost",  # its box is proved gone and no verified copy exists
    "verified",
    "waived",
    "pruned",  # stopped early by the rule of a search, on record; in no receipt, and never verified
]
SETTLED: frozenset[str] = frozenset({"verified", "waived", "pruned"})
"""The only states that let a box go."""
REFUSED: frozenset[str] = frozenset({"damaged", "suspect", "unsupported"})
"""There is a copy, and it does not count. A waiver lets each go, and all but `unsupported` may be trained again."""
JUDGED: frozenset[str] = REFUSED | {"verified", "unexpected"}
"""What `verify` found in the files of a copy: it holds as long as the copy is the same."""
ENDED: frozenset[str] = JUDGED | SETTLED | {"sealed", "missing"}
"""States of a cell that has nothing left to run, by itself."""
LATER_STATES: frozenset[str] = frozenset({"suspect", "unsupported"})
"""States that receipts of schema 1 do not have."""


class Record(BaseModel):
    """A shape that sweepstack writes: closed, frozen.

    Modules of such shapes don't import `annotations`: pydantic would evaluate a text for each field at every start.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def later(default: Any, **rules: Any) -> Any:
    """A field that older records do not have. It is left out of what is written where it has its default, so that the
    same facts keep their digest. `rules`: as those of `Field`."""
    return Field(default=default, exclude_if=lambda value: value == default, **rules)


class Cell(Record):
    """One training run. `params` are resolved: base and axes merged."""

    name: CellName
    params: dict[str, Any]

    @cached_property
    def config_digest(self) -> str:
        """The identity of the cell: name and resolved parameters."""
        return digest_of({"name": self.name, "params": self.params})

    @property
    def source(self) -> str:
        """The cell whose verified artifacts it begins from; "" for none."""
        return str(self.params.get(SOURCE, ""))


def _read_cell(value: Any) -> Any:
    """A cell from `<name> <JSON object of its parameters>`; or from a mapping whose parameters are JSON texts."""
    if isinstance(value, str):
        name, _, text = value.partition(" ")
        return {"name": name, "params": json.loads(text)}
    if isinstance(value, dict) and isinstance(value.get("params"), dict):
        return {**value, "params": {key: json.loads(text) for key, text in value["params"].items()}}
    return value


def _write_cell(cell: Cell) -> str:
    return f"{cell.name} {json.dumps(cell.params, sort_keys=True, ensure_ascii=False)}"


CellText = Annotated[
    Cell, BeforeValidator(_read_cell), PlainSerializer(_write_cell), WithJsonSchema({"type": "string"})
]
"""A cell as it passes the engine: one line of text. The engine has one kind of number, we have 20 and 20.0; and what it
does with each value, for each of 10,000 cells, would take most of a preview."""


Strictness = Annotated[
    Literal["require", "report"],
    choice(
        "Strictness",
        "What becomes of a cell in whose file a number is wrong.",
        {"require": "it fails", "report": "it is only reported"},
    ),
]


class ArtifactSpec(Record):
    """A file that a cell must leave behind, or several by one name (`onbox.common.groups`), and how it is proved good.

    What came later is left out of what is written where there is none, so that digests stay what they were.
    """

    path: str
    """its path in the folder of a cell; or a folder (`model/`), or a pattern (`shards-*.tar`, `checkpoint-*/`)"""
    load: Annotated[
        Loader,
        choice("Loader", "How a file is read.", LOADERS),
    ]
    """how it is read"""
    keys: tuple[str, ...] = ()
    """names that it must hold"""
    finite: Strictness | tuple[str, ...] = "require"
    """whether NaN or infinity fails the cell; or the parts of names in which it does"""
    min_bytes: int = 1
    """a smaller file fails; an empty one always does"""
    run: str | None = later(None)
    """the user's own check"""
    trust: bool = later(False)
    """true: the user's own check may be run"""
    plausible: Strictness = later("report")
    """whether numbers that are all the same, and a null or text in place of a number, fail the cell"""
    infinite: tuple[str, ...] = later(())
    """parts of names that may be infinite, not NaN"""


class FileEntry(Record):
    """One file of a sealed cell: path relative to the cell's folder, size in bytes, SHA-256 as bare hex."""

    path: str
    size: int = Field(ge=0)
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    role: Literal["artifact", "log", "metrics", "extra"]


class BegunFrom(BaseModel):
    """The sealed copy whose artifacts a cell began from."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    cell: str
    manifest: Digest


class Manifest(BaseModel):
    """What a box says that a cell left behind when it was sealed. The runner writes it: unknown keys pass.

    `setup`: the digest of set-up and code, None where there was none. `provenance`: what was known of the code when it
    was shipped (`git: {commit, branch, dirty}`), `code_changed` during the run. `environment`: libraries, GPUs, image.
    `doubts`: sentences, each a reason why a person has to look at the files before they count. `skipped`: (path, what
    it is) of links, sockets and pipes that were left out. `sparse`: the files with holes, and the bytes of the rest.
    `left_running`: programs of the cell that were alive when its first process ended with 0.
    `retry`: which of a person's retries it was run for, 0 for none. `checkpoints_of`: earlier code, whose
    checkpoints it went on from (`job.resume: across-code`). `begun_from`: the sealed copy that it began from.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    schema_: int = Field(alias="schema")
    identity: str
    box: str
    native_id: str
    generation: int
    cell: str
    attempt: int
    config_digest: Digest
    params: dict[str, Any]
    code: Digest
    argv: list[str]
    started_at: Moment
    sealed_at: Moment
    environment: dict[str, Any]
    setup: str | None = None
    provenance: dict[str, Any] = Field(default={})
    doubts: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    sparse: dict[str, int] = Field(default={})
    left_running: tuple[str, ...] = ()
    retry: int = 0
    checkpoints_of: tuple[Digest, ...] = ()
    begun_from: BegunFrom | None = Field(default=None, alias="from", exclude_if=lambda begun: begun is None)
    files: tuple[FileEntry, ...]


class Waiver(Record):
    """A person decides that a cell need not be verified."""

    cell: str
    """its name"""
    reason: str = Field(min_length=1)
    """why"""


class Action(Record):
    """One verb on one box: what an approval allows."""

    verb: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z-]*$")]
    """the verb: `destroy`, or another one of a platform"""
    box: str
    """the box's name in the sweep"""
    native_id: str
    """the platform's id of it"""


class Abandonment(Record):
    """A person decides that whatever this verb kills on a box may be lost. For a stop, it does not allow a destroy."""

    box: str
    """the box's name in the sweep"""
    native_id: str
    """the platform's id of it"""
    reason: str = Field(min_length=1)
    """why"""
    verb: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z-]*$")] = "destroy"
    """the verb"""


class UnclaimedWaiver(Record):
    """A person decides that files on a box which belong to no cell may be lost: these and no others."""

    box: str
    """the box's name in the sweep"""
    native_id: str
    """the platform's id of it"""
    files: int = Field(ge=0)
    """how many they are"""
    bytes: int = Field(ge=0)
    """their size"""
    reason: str = Field(min_length=1)
    """why"""
    uncounted: bool = False
    """true: also what could not be counted"""
    listed: Digest | None = later(None)
    """the digest of their list; absent if an older version wrote it"""


class Approval(Record):
    """A person approves named actions on the ground of one receipt. It stands in the stack config, as `approval`.

    What came later is left out of what is written where there is none, so that approvals given before keep their
    digest.
    """

    receipt: Digest | None = None
    """the receipt; absent only where nothing was launched on any named box, or all named boxes are abandoned"""
    actions: tuple[Action, ...]
    """what is allowed"""
    waive: tuple[Waiver, ...] = ()
    """cells that need not be verified"""
    abandon: tuple[Abandonment, ...] = ()
    """boxes on which all may be lost"""
    unclaimed: tuple[UnclaimedWaiver, ...] = later(())
    """files of no cell that may be lost"""
    waivers_digest: Digest
    """digest of these three"""
    by: str
    """who approved"""
    at: Moment
    """when"""
    expires: Moment
    """when it ends"""
    signatures: tuple[Signature, ...] = later(())
    """the signatures under it"""
    until: Moment | None = later(None)
    """a clearance made from it holds no longer than this; not signed, since it only takes away"""

    @property
    def ends(self) -> datetime:
        """From when on it counts no more."""
        return self.expires if self.until is None else min(self.expires, self.until)

    @property
    def unsigned(self) -> dict[str, Any]:
        """What the person said, as JSON: all that a signature covers."""
        return self.model_dump(mode="json", exclude={"signatures", "until"})

    @staticmethod
    def digest_waivers(
        waive: tuple[Waiver, ...], abandon: tuple[Abandonment, ...], unclaimed: tuple[UnclaimedWaiver, ...] = ()
    ) -> str:
        """The digest that `waivers_digest` must equal."""
        words: dict[str, Any] = {
            "waive": [w.model_dump() for w in sorted(waive, key=lambda w: w.cell)],
            # A digest of before there were other verbs, and other waivers, stays what it was.
            "abandon": [
                a.model_dump(exclude={"verb"} if a.verb == "destroy" else None)
                for a in sorted(abandon, key=lambda a: (a.box, a.native_id, a.verb))
            ],
        }
        if unclaimed:
            words["unclaimed"] = [u.model_dump() for u in sorted(unclaimed, key=lambda u: (u.box, u.native_id))]
        return digest_of(words)


class ReceiptFile(Record):
    """A file as verifying found it. `verdict`: ok, or the reason in a few words.

    `loader`: as the config has it; for a command followed by the digest of the code it ran (`command sha256:…`)."""

    path: str
    size: int
    sha256: str
    role: str
    loader: str | None
    verdict: str


class ReceiptGroup(Record):
    """An artifact of several files as verifying found it: its name in this cell, such as `checkpoint-*/`, how many
    files and bytes, and a digest over their sorted list, (path, size, SHA-256) of each. `verdict`: as of a file."""

    path: str
    loader: str
    files: int
    size: int
    digest: Digest
    verdict: str


class ReceiptCell(Record):
    """A cell as verifying found it; the box that sealed it, and the manifest's digest where there is one.

    `earlier`: it was started once more since this copy was sealed, and has no later one. The copy was found good, and
    stays the cell's result until a later one is verified. It opens no gate: the state is that of the later run.
    `aside`: the same, of the manifest of a copy that a pull put aside since; all else here is of the later run's copy.
    """

    name: str
    config_digest: Digest
    state: CellState
    box: str | None
    generation: int | None
    attempt: int | None
    manifest: Digest | None
    files: tuple[ReceiptFile, ...]
    reasons: tuple[str, ...]
    earlier: bool = later(False)
    aside: Digest | None = later(None)
    groups: tuple[ReceiptGroup, ...] = later(())

    @property
    def has_result(self) -> bool:
        """Whether the copy of this manifest is the cell's result: as verified, or as that of an earlier run."""
        return self.state == "verified" or self.earlier

    @property
    def result(self) -> str | None:
        """The manifest of the copy that is the cell's result; None where it has none."""
        return self.manifest if self.has_result else self.aside


class ReceiptBox(Record):
    """A box whose journal was read: head as bare hex, and the cells that its queue was given."""

    box: str
    native_id: str
    generation: int
    journal_head: str
    cells: tuple[str, ...]


class Receipt(Record):
    """What verifying found. Content-addressed: neither a time nor a host is in it. `schema`: see `LATER`."""

    schema_: Literal[1, 2] = Field(alias="schema", default=1)
    identity: str
    stack: str
    roster_digest: Digest
    artifacts_digest: Digest
    boxes: tuple[ReceiptBox, ...]
    cells: tuple[ReceiptCell, ...]
    verified: int
    total: int

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)

    @cached_property
    def digest(self) -> str:
        """The name that its content gives it."""
        return digest_of(self.model_dump(mode="json", by_alias=True))


class Birth(Record):
    """Written before a box is rented (without `native_id`), and again when its id is known. `asked_at`: when a request
    went out whose answer did not come; `shown_by`: from when on a list shows what it made. `rests`: it bills on."""

    box: str
    generation: int
    tag: str
    platform: str
    account: str
    native_id: str | None
    price_per_hour: float | None
    mounts: dict[str, str] = Field(default={})  # path on the box → native id of the volume, which outlives it
    begun_at: Moment
    created_at: Moment | None
    ended_at: Moment | None = None
    ended_how: str | None = None
    asked_at: Moment | None = None
    shown_by: Moment | None = None
    rests: bool = False
    egress_per_gb: float | None = later(None)  # USD, as it was offered
    policy: str = later("")  # digest of the policy that binds it; its text is in the engine's state
    key: str = later("")  # digest of the key that asked, where the platform may not say whose key it is
    launch_by: Moment | None = later(None)
    """A lease after it was asked for: nothing on it ends its bill before a launch."""
    notes_requests: bool = later(False)
    """`asked_at` is written on hosts, too: before 2026-11-27 a create there wrote none."""
    imported: bool = later(False)
    """It was rented by hand: `pulumi import` took it in, from `begun_at` on it is this sweep's, and its tag is on no
    platform. What lay on it before can't be told from what a job left."""
    by: str = later("")
    """`user@host` of the `pulumi up` that asked for it; "" in records from before 2026-11-29."""

    @property
    def never_asked(self) -> bool:
        """Whether this record proves that nothing was asked for, so that there is no box: nothing bills by it."""
        silent = self.native_id is None and self.asked_at is None
        return silent and (self.notes_requests or self.price_per_hour == 0)


class Imported(Record):
    """What `pulumi import` found, before an `up` takes it: a reason to ask the engine's state, and no proof."""

    box: str
    platform: str
    native_id: str


LedgerPhase = Literal["running", "stopped", "ended"]


class LedgerEntry(Record):
    """From `at` on, `native_id` is in this phase at this price (USD per hour; null: unknown). Never changed."""

    box: str
    native_id: str
    platform: str
    account: str
    phase: LedgerPhase
    price_per_hour: float | None = Field(ge=0)
    at: Moment
    how: str = ""  # why it ended; of a stop: that it was only found (`sweepstack.billing.ledger.FOUND_STOPPED`)


class Launch(Record):
    """Written before a queue starts anything on a box: which cells that box's queue was given."""

    box: str
    generation: int
    native_id: str
    cells: dict[str, Digest]  # cell name → config digest
    code: Digest
    at: Moment
    dropped: dict[str, str] = Field(default={})
    """Cells that had started here and that a person dropped since → the reason."""


class Again(Record):
    """What of a `Retry` a box is told."""

    retry: int = Field(ge=1)
    """which of a person's retries of the cell it is"""
    salt: int = Field(default=0, ge=0)
    """which retry began with no checkpoint; 0: it goes on from the first run's"""
    set_of: int | None = later(None, ge=0)
    """the same of the run before, where this one begins a new set of results"""
    ends: bool = later(False)
    """true: a run that is under way is ended for it"""
    counted: int = later(0, ge=0)
    """how many of the retries the stack file asked for"""
    manifest: Digest | None = None
    """the manifest of the sealed copy before it"""


class Teardown(Record):
    """An open teardown: its boxes may finish after the approval has expired; nothing new is rented meanwhile."""

    receipt: Digest | None = None
    native_ids: tuple[str, ...]
    ended: tuple[str, ...] = ()
    begun_at: Moment


class Loss(Record):
    """Cells of a vanished or abandoned box that had no verified copy."""

    box: str
    native_id: str
    cells: tuple[str, ...]
    why: str
    at: Moment


class Lease(Record):
    """Which backend's state holds this identity now."""

    backend: str
    host: str
    taken_at: Moment
