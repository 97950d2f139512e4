"""The resources as the program sees them: typed arguments in, typed outputs out, no logic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pulumi


@dataclass(frozen=True, kw_only=True)
class Args:
    """Inputs of a resource, named as the provider names them. None is not sent."""

    def properties(self) -> dict[str, Any]:
        """The inputs that were given."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class IdentityArgs(Args):
    """`pull_to` as the person wrote it."""

    project: pulumi.Input[str]
    stack: pulumi.Input[str]
    pull_to: pulumi.Input[str]
    leaving: pulumi.Input[Mapping[str, Any]] | None = None
    roster_digest: pulumi.Input[str] | None = None
    artifacts_digest: pulumi.Input[str] | None = None
    budget: pulumi.Input[Mapping[str, Any]] | None = None
    outlook: pulumi.Input[Mapping[str, Any]] | None = None


@dataclass(frozen=True, kw_only=True)
class VolumeArgs(Args):
    """A tier that outlives the boxes that mount it. `kept`: a stack of volumes has it; here it is only looked up.
    `guarded`: this stack is the one that keeps it, and ends it by a check; prices in USD."""

    identity: pulumi.Input[str]
    evidence: pulumi.Input[str]
    adapter: pulumi.Input[str]
    name: pulumi.Input[str]
    kept: pulumi.Input[bool] | None = None
    keep_until: pulumi.Input[str] | None = None
    guarded: pulumi.Input[bool] | None = None
    size_gb: pulumi.Input[int] | None = None
    region: pulumi.Input[str] | None = None
    price_per_gb_month: pulumi.Input[float] | None = None
    least_bytes: pulumi.Input[int] | None = None
    approval: pulumi.Input[Mapping[str, Any]] | None = None


@dataclass(frozen=True, kw_only=True)
class BoxArgs(Args):
    """A box to rent. `mounts`: box-relative path → native id of a volume; prices in USD per hour."""

    identity: pulumi.Input[str]
    evidence: pulumi.Input[str]
    adapter: pulumi.Input[str]
    platform: pulumi.Input[str] | None = None
    name: pulumi.Input[str]
    roster_digest: pulumi.Input[str]
    artifacts_digest: pulumi.Input[str] | None = None
    teardown: pulumi.Input[Mapping[str, Any]]
    resources: pulumi.Input[Mapping[str, Any]] | None = None
    price_per_hour: pulumi.Input[float] | None = None
    max_price: pulumi.Input[float] | None = None
    budget: pulumi.Input[Mapping[str, Any]] | None = None
    ignore_balance: pulumi.Input[str] | None = None
    smoke: pulumi.Input[Mapping[str, Any]] | None = None
    bid: pulumi.Input[float] | None = None
    image: pulumi.Input[str] | None = None
    placed: pulumi.Input[Mapping[str, Any]] | None = None
    dry_run: pulumi.Input[bool] | None = None
    no_code: pulumi.Input[str] | None = None
    mounts: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    places: pulumi.Input[Mapping[str, str]] | None = None
    claims: pulumi.Input[Mapping[str, Any]] | None = None
    links: pulumi.Input[Mapping[str, str]] | None = None
    volume: pulumi.Input[str] | None = None
    secrets: pulumi.Input[Sequence[str]] | None = None
    named: pulumi.Input[Sequence[str]] | None = None
    leaving: pulumi.Input[Mapping[str, Any]] | None = None
    want: pulumi.Input[str] | None = None
    when_done: pulumi.Input[str] | None = None
    lease: pulumi.Input[str] | None = None
    list_lag: pulumi.Input[float] | None = None
    approval: pulumi.Input[Mapping[str, Any]] | None = None


@dataclass(frozen=True, kw_only=True)
class OnBoxArgs(Args):
    """What a resource of a box must know of it. `box` is the box's native id."""

    identity: pulumi.Input[str]
    evidence: pulumi.Input[str]
    adapter: pulumi.Input[str]
    box: pulumi.Input[str]
    box_name: pulumi.Input[str]
    account: pulumi.Input[str]
    generation: pulumi.Input[int]
    roster_digest: pulumi.Input[str]
    teardown: pulumi.Input[Mapping[str, Any]]
    approval: pulumi.Input[Mapping[str, Any]] | None = None


@dataclass(frozen=True, kw_only=True)
class QueueArgs(OnBoxArgs):
    """The cells of one box, and the job that runs them."""

    stack: pulumi.Input[str]
    want: pulumi.Input[str] | None = None
    job: pulumi.Input[Mapping[str, Any]]
    cells: pulumi.Input[Sequence[Mapping[str, Any]]]
    artifacts: pulumi.Input[Sequence[Mapping[str, Any]]]
    elsewhere: pulumi.Input[Sequence[str]] | None = None
    dropped: pulumi.Input[Mapping[str, str]] | None = None
    pins: pulumi.Input[Mapping[str, str]] | None = None
    retries: pulumi.Input[Mapping[str, Any]] | None = None
    metrics: pulumi.Input[Mapping[str, Any]] | None = None


@dataclass(frozen=True, kw_only=True)
class GateArgs(OnBoxArgs):
    """What stands between a box and its end. A changed `box` replaces the gate."""

    artifacts_digest: pulumi.Input[str] | None = None


class _Resource(pulumi.CustomResource):
    """A resource of the sweepstack provider."""

    token: str
    outputs: tuple[str, ...] = ()
    ended_before_replaced = False
    """Forced, since the engine's `--target-replace` asks the option and not the provider."""

    def __init__(self, name: str, args: Args, opts: pulumi.ResourceOptions | None = None) -> None:
        if self.ended_before_replaced:
            opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(delete_before_replace=True))
        # What the SDK shall hand out has to be among the properties, or it is dropped.
        super().__init__(self.token, name, {**dict.fromkeys(self.outputs), **args.properties()}, opts)


class Identity(_Resource):
    """The random name of a sweep, made once, and the place of its evidence."""

    token = "sweepstack:index:Identity"
    outputs = ("identity", "evidence")
    identity: pulumi.Output[str]
    evidence: pulumi.Output[str]


class Volume(_Resource):
    """A volume: found by its tag, or made. Removed only by the stack that keeps it, by its own check."""

    token = "sweepstack:index:Volume"
    outputs = ("native_id", "location", "price_per_month", "clearance")
    native_id: pulumi.Output[str]
    location: pulumi.Output[str]
    price_per_month: pulumi.Output[float | None]
    clearance: pulumi.Output[str | None]


class Box(_Resource):
    """One rented machine. Ended before it is replaced: a refusal comes before a second one is rented."""

    token = "sweepstack:index:Box"
    outputs = (
        *("native_id", "account", "generation", "tag", "phase", "price_per_hour", "created_at", "clearance"),
        "host_keys",
    )
    ended_before_replaced = True
    native_id: pulumi.Output[str]
    account: pulumi.Output[str]
    generation: pulumi.Output[int]
    tag: pulumi.Output[str]
    phase: pulumi.Output[str]
    host_keys: pulumi.Output[Sequence[str] | None]
    price_per_hour: pulumi.Output[float | None]
    created_at: pulumi.Output[str | None]
    clearance: pulumi.Output[str]


class Queue(_Resource):
    """The cells of one box."""

    token = "sweepstack:index:Queue"
    outputs = ("launched_at",)
    ended_before_replaced = True
    launched_at: pulumi.Output[str]


class Gate(_Resource):
    """What stands between a box and its end, for order and for people."""

    token = "sweepstack:index:Gate"
    outputs = ("box", "clearance")
    ended_before_replaced = True
    box: pulumi.Output[str]
    clearance: pulumi.Output[str]
