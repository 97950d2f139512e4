"""What a stack config may hold: closed shapes. docs/stack-config.md documents every key; a test compares the two."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from components.config_types import (
    BoundText,
    BoxKey,
    Cores,
    Count,
    CudaText,
    DurationText,
    EnvName,
    EnvNames,
    EnvValue,
    FilePath,
    Flag,
    Fraction,
    Hours,
    Names,
    PlatformName,
    Price,
    PriceOrZero,
    SizeText,
    Text,
    Usd,
    wrong,
)
from sweep.cells import CellsConfig
from sweep.errors import EvidenceError
from sweep.evidence.s3_address import SCHEME, S3Address
from sweep.loaders.base import Loader
from sweep.model import Approval, ArtifactSpec
from sweep.money.budget import NOTIFY, Budget
from sweep.units import parse_size

LATER: dict[tuple[str, str], str] = {
    ("resources", "spot"): "C",
    ("resources", "regions"): "C",
    ("sweep", "mounts"): "C",
    ("sweep", "placement"): "C",
}
"""(object, key) → the issue that brings it. Known words, so that nothing of them is dropped in silence."""


class Shape(BaseModel):
    """An object of the stack config: closed, frozen. `anchor` is its heading in docs/stack-config.md."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    anchor: ClassVar[str]


def _not_a_url(value: Any) -> Any:
    if isinstance(value, str) and ("://" in value or value.startswith("git@")):
        raise wrong("a folder; anything else is not available yet in this version (issue B)")
    return value


Folder = Annotated[Text, BeforeValidator(_not_a_url)]


def _an_address(value: Any) -> Any:
    if not isinstance(value, str) or "://" not in value:
        return _not_a_url(value)
    if not value.startswith(SCHEME):
        raise wrong("a folder, or s3://bucket/prefix")
    try:
        S3Address.parse(value)
    except EvidenceError as error:
        raise wrong(f"s3://bucket/prefix; {error}") from None
    return value


EvidencePlace = Annotated[Text, BeforeValidator(_an_address)]


class Gpu(Shape):
    """A constraint on GPUs, never a platform's SKU."""

    anchor: ClassVar[str] = "gpu"
    name: Names = ()
    count: Count = 1
    memory: BoundText | None = None
    cuda: CudaText | None = None


class Resources(Shape):
    """What one box must have."""

    anchor: ClassVar[str] = "resources"
    cpu: Cores | None = None
    gpu: Gpu | None = None
    disk: BoundText | None = None

    def as_inputs(self) -> dict[str, Any]:
        """As the box's input: canonical spellings, nothing that was not asked for."""
        return self.model_dump(mode="json", exclude_none=True)


def _not_on_a_box(value: str) -> str:
    if value == "box":
        raise wrong("local; a smoke run on a box is not available yet in this version (issue C)")
    return value


class SmokeConfig(Shape):
    """A batch or two of the job, before anything is rented."""

    anchor: ClassVar[str] = "smoke"
    run: Text
    on: Annotated[Literal["local", "box"], AfterValidator(_not_on_a_box)] = "local"
    timeout: DurationText = "10m"


class MinFree(Shape):
    """How much room a box must have before it starts one more cell."""

    anchor: ClassVar[str] = "min_free"
    disk: SizeText | None = None
    inodes: Count | None = None


class Job(Shape):
    """What a cell runs, and where its files come from."""

    anchor: ClassVar[str] = "job"
    workdir: Folder
    run: Text
    resources: Resources = Field(default_factory=Resources)
    setup: Text | None = None
    smoke: SmokeConfig | None = None
    env: dict[str, EnvValue] = Field(default_factory=dict)
    secrets: EnvNames = ()
    slots: Count | None = None
    mixing: Literal["refuse", "allow"] = "refuse"
    min_free: MinFree | None = None
    stall: DurationText | None = None
    image: Text | None = None
    include: Names = ()


class Artifact(Shape):
    """How a file that every cell leaves behind is proved good."""

    anchor: ClassVar[str] = "artifacts"
    load: Loader
    keys: Names = ()
    finite: Literal["require", "report"] = "require"
    min: SizeText | None = None
    run: Text | None = None
    trust: Flag = False

    def spec(self, path: str) -> ArtifactSpec:
        """The same for the box and the evidence."""
        least = parse_size(self.min).bytes if self.min else 1
        return ArtifactSpec(
            path=path,
            load=self.load,
            keys=self.keys,
            finite=self.finite,
            min_bytes=max(least, 1),
            run=self.run,
            trust=self.trust,
        )


class Metrics(Shape):
    """Which file of a cell holds its curve."""

    anchor: ClassVar[str] = "metrics"
    file: FilePath
    x: Text
    y: Names
    stop_on_nan: Flag = False


class BoxConfig(Shape):
    """What a person wants of one box."""

    anchor: ClassVar[str] = "boxes"
    want: Literal["running", "stopped", "gone"] = "running"
    resources: Resources | None = None


class BudgetConfig(Shape):
    """What may be spent in all, and who is told on the way."""

    anchor: ClassVar[str] = "budget"
    usd: Usd | None = None
    hours: Hours | None = None
    notify: tuple[Fraction, ...] = NOTIFY
    webhook: EnvName | None = None
    stop: Flag = False

    def budget(self) -> Budget:
        """The same for the provider and the evidence."""
        return Budget(**self.model_dump() | {"notify": tuple(sorted(set(self.notify)))})


def _usd_or_hours(value: BudgetConfig | None) -> BudgetConfig | None:
    if value is not None and value.usd is None and value.hours is None:
        raise wrong("usd, hours, or both, such as {usd: 60, hours: 30}")
    return value


class Override(Shape):
    """What a person knows better than the platform's profile."""

    anchor: ClassVar[str] = "overrides"
    price_per_hour: PriceOrZero | None = None
    stopped_price_per_hour: PriceOrZero | None = None


def _at_least_one(what: str) -> AfterValidator:
    def check(value: Any) -> Any:
        if not value:
            raise wrong(f"at least one {what}")
        return value

    return AfterValidator(check)


class SweepConfig(Shape):
    """`sweepstack:sweep`."""

    anchor: ClassVar[str] = "sweep"
    job: Job
    cells: CellsConfig
    artifacts: Annotated[dict[FilePath, Artifact], _at_least_one("file that proves a cell")]
    metrics: Metrics | None = None
    candidates: Annotated[tuple[PlatformName, ...], _at_least_one("platform")]
    max_price: Price | None = None
    budget: Annotated[BudgetConfig | None, AfterValidator(_usd_or_hours)] = None
    when_done: Literal["stop", "keep"] | None = None
    boxes: Annotated[dict[BoxKey, BoxConfig], _at_least_one("box, such as box-0: {want: running}")]
    pull_to: EvidencePlace
    overrides: dict[PlatformName, Override] = Field(default_factory=dict)
    approval: Approval | None = None


ANCHORS: dict[type[BaseModel], str] = {CellsConfig: "cells", Approval: "approval"}
"""Headings of the shapes that are not ours."""


def anchor_of(shape: type[BaseModel]) -> str:
    """The heading of docs/stack-config.md that lists the keys of `shape`."""
    found = ANCHORS.get(shape) or getattr(shape, "anchor", "")
    return found or "approval"


def keys_of(shape: type[BaseModel]) -> list[str]:
    """The keys of `shape` as they are written."""
    return [field.alias or name for name, field in shape.model_fields.items()]
