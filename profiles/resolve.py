"""From a stack config and the profiles to a plan: which platform, what its boxes are, what a teardown will kill.

Pure: no engine, no network, no files. All that a later delete needs is decided here, once, and ends up as inputs in the
state. Every choice and every refusal has its reason in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.config import StackConfig
from components.config_model import Metrics, Resources
from components.config_smoke import configured_smoke
from profiles.model import Profile, Verb
from sweep.errors import ConfigError
from sweep.model import Approval, ArtifactSpec, Cell
from sweep.money.budget import Budget
from sweep.money.clocks import ClockFact
from sweep.roster import Roster, assign
from sweep.smoke import Smoke
from sweep.suggest import did_you_mean
from sweep.units import parse_duration, parse_size

VERB: Verb = "destroy"
DURABLE_VOLUME = "durable"
"""The volume that sealed cells and checkpoints go to; one a sweep."""


@dataclass(frozen=True)
class Durable:
    """The tier that outlives the boxes: the volume's name, and where a box sees it."""

    volume: str
    mount: str
    tier: str


@dataclass(frozen=True)
class Pausing:
    """What a stop does to each tier here, what of the bill goes on, at which price (USD an hour, None unknown)."""

    kills: tuple[str, ...]
    keeps: tuple[str, ...]
    bills_after: tuple[str, ...]
    price_per_hour: float | None


@dataclass(frozen=True)
class Ending:
    """How a box ends on this platform, and what that does to each tier. `paths`: where each tier lies on a box.

    `pausing` is None where boxes can't be stopped.
    """

    verb: str
    native: str
    kills: tuple[str, ...]
    keeps: tuple[str, ...]
    irreversible: bool
    bills_after: tuple[str, ...]
    paths: Mapping[str, str]
    pausing: Pausing | None
    clocks: tuple[ClockFact, ...] = ()
    keeps_per_gb_month: Mapping[str, float] = field(default_factory=dict)

    def as_inputs(self) -> dict[str, Any]:
        """As the `teardown` input: all that a stop or a delete needs, so that neither opens a profile."""
        inputs: dict[str, Any] = {
            "verb": self.verb,
            "kills": list(self.kills),
            "keeps": list(self.keeps),
            "paths": dict(self.paths),
        }
        if self.clocks:
            inputs["clocks"] = [clock.model_dump(mode="json", exclude_none=True) for clock in self.clocks]
        if self.keeps_per_gb_month:
            inputs["keeps_per_gb_month"] = dict(self.keeps_per_gb_month)
        if self.pausing is not None:
            inputs["stop"] = {
                "kills": list(self.pausing.kills),
                "keeps": list(self.pausing.keeps),
                "bills_after": list(self.pausing.bills_after),
            }
            if self.pausing.price_per_hour is not None:
                inputs["stop"]["price_per_hour"] = self.pausing.price_per_hour
        return inputs


@dataclass(frozen=True)
class JobPlan:
    """What a cell runs. `workdir` as written; `slots`: cells at once on one box; `gpus`: of one box; `secrets`: names.

    `min_free_bytes` and `min_free_inodes` (None: the runner's own): below, no cell starts. `stall_seconds` likewise.
    """

    workdir: str
    run: str
    env: Mapping[str, str]
    include: tuple[str, ...]
    slots: int
    setup: str = ""
    secrets: tuple[str, ...] = ()
    gpus: int = 0
    mixing: str = "refuse"
    min_free_bytes: int | None = None
    min_free_inodes: int | None = None
    stall_seconds: float | None = None


@dataclass(frozen=True)
class BoxPlan:
    """One box that is wanted, and its share of the cells, in roster order. `want`: running or stopped.

    `resources`: what it must have; `slots`: cells at once on it; `gpus`: of it; each its own, or the job's.
    """

    name: str
    cells: tuple[Cell, ...]
    want: str
    resources: Mapping[str, Any]
    slots: int
    gpus: int


@dataclass(frozen=True)
class Plan:
    """All that the components need. `reasons`: why this platform and not others; `notes`: what is not used here."""

    platform: str
    adapter: str
    boxes: tuple[BoxPlan, ...]
    gone: tuple[str, ...]
    roster: Roster
    job: JobPlan
    artifacts: tuple[ArtifactSpec, ...]
    metrics: Metrics | None
    resources: Mapping[str, Any]
    ending: Ending
    durable: Durable
    price_per_hour: float | None
    max_price: float | None
    budget: Budget | None
    when_done: str
    smoke: Smoke | None
    pull_to: str
    approval: Approval | None
    reasons: tuple[str, ...]
    notes: tuple[str, ...]


def resolve(config: StackConfig, profiles: Mapping[str, Profile]) -> Plan:
    """The plan for the first candidate that fits. Raises ConfigError, with each refusal, when none does."""
    reasons: list[str] = []
    for name in config.candidates:
        profile = profiles.get(name)
        if profile is None:
            reasons.append(f"{name}: there is no such profile{did_you_mean(name, profiles)}")
            continue
        refusals = unfit(config, profile)
        if not refusals:
            return _plan(config, profile, reasons)
        reasons += [f"{name}: {refusal}" for refusal in refusals]
    lines = "\n".join(f"  {reason}" for reason in reasons)
    raise ConfigError(f"{config.file}: no candidate fits; nothing was rented\n\n{lines}", reasons)


def unfit(config: StackConfig, profile: Profile) -> list[str]:
    """Why this platform can't run the sweep; empty when it can."""
    refusals = []
    if VERB not in profile.verbs:
        refusals.append(f"its profile describes no {VERB}, so a box could not be ended")
        return refusals
    verb = profile.verbs[VERB]
    if verb.issued_by == "person":
        refusals.append(
            f"only a person can end a box there ({verb.native}); not available yet in this version (issue D)"
        )
    if profile.durable_tier(VERB) is None:
        refusals.append(
            f"no tier survives {verb.native} ({', '.join(profile.tiers)}): sealed cells would die with the box"
        )
    if profile.meter.rents and config.budget is None:
        refusals.append("it sends a bill, so the sweep needs a budget, such as budget: {usd: 60}")
    if any(box.want == "stopped" for box in config.boxes.values()) and not _stops(profile):
        refusals.append("its boxes can't be stopped by us, and one is wanted stopped: end it instead (want: gone)")
    if profile.meter.rents and config.when_done is None:
        refusals.append("it sends a bill, so the config must say when_done: stop or keep")
    for where, resources in _asked(config):
        if resources.gpu is not None and profile.gpus.offered is False:
            refusals.append(f"has no GPUs, and {where}.gpu asks for {resources.gpu.count}")
    price = _price(config, profile)
    if price is not None and config.max_price is not None and price > config.max_price:
        refusals.append(f"costs ${price:g}/h a box, above max_price ${config.max_price:g}/h")
    disk_cap = max((tier.size_cap_bytes or 0 for tier in profile.tiers.values()), default=0)
    for where, resources in _asked(config):
        refusals += _too_big(where, resources.disk, disk_cap)
    return refusals


def _stops(profile: Profile) -> bool:
    return "stop" in profile.verbs and profile.verbs["stop"].issued_by != "person"


def _pausing(config: StackConfig, profile: Profile) -> Pausing | None:
    if not _stops(profile):
        return None
    verb, override = profile.verbs["stop"], config.overrides.get(profile.platform)
    own = override.stopped_price_per_hour if override is not None else None
    return Pausing(verb.kills, verb.keeps, verb.bills_after, verb.price_per_hour if own is None else own)


def _clocks(profile: Profile) -> tuple[ClockFact, ...]:
    return tuple(ClockFact(what=clock.what, days=clock.after, kills=clock.kills) for clock in profile.danger_clocks)


def _kept_prices(profile: Profile, keeps: tuple[str, ...]) -> dict[str, float]:
    prices = {name: profile.tiers[name].price_per_gb_month for name in keeps}
    return {name: price for name, price in prices.items() if price}


def _asked(config: StackConfig) -> list[tuple[str, Resources]]:
    """What is asked of boxes, and where: the job's, where a box has none of its own."""
    asked = {f"boxes.{name}.resources": box.resources for name, box in config.boxes.items() if box.want != "gone"}
    own = [(where, resources) for where, resources in asked.items() if resources is not None]
    return own if len(own) == len(asked) and own else [("job.resources", config.job.resources), *own]


def _too_big(where: str, wanted: str | None, cap: int) -> list[str]:
    if not wanted or not cap or parse_size(wanted).bytes <= cap:
        return []
    return [f"its largest tier holds {cap / 1e9:g} GB, and {where}.disk asks for {wanted}"]


def _price(config: StackConfig, profile: Profile) -> float | None:
    override = config.overrides.get(profile.platform)
    if override is not None and override.price_per_hour is not None:
        return override.price_per_hour
    return profile.meter.price_per_hour


def _plan(config: StackConfig, profile: Profile, refused: list[str]) -> Plan:
    verb = profile.verbs[VERB]
    durable = profile.durable_tier(VERB)
    assert durable is not None
    tier_name, tier = durable
    assert tier.mount is not None
    wanted = [name for name, box in config.boxes.items() if box.want != "gone"]
    position = "the first candidate" if not refused else "the next candidate"
    chosen = f"{profile.platform}: chosen, {position} that fits; {tier_name} survives {VERB}, {_and(verb.kills)} don't"
    return Plan(
        platform=profile.platform,
        adapter=profile.adapter,
        boxes=_boxes(config, wanted),
        gone=tuple(name for name in config.boxes if name not in wanted),
        roster=config.roster,
        job=_job(config),
        artifacts=config.artifact_specs(),
        metrics=config.metrics,
        resources=config.job.resources.as_inputs(),
        ending=Ending(
            verb=VERB,
            native=verb.native,
            kills=verb.kills,
            keeps=verb.keeps,
            irreversible=verb.irreversible,
            bills_after=verb.bills_after,
            paths={name: tier.path for name, tier in profile.tiers.items()},
            pausing=_pausing(config, profile),
            clocks=_clocks(profile),
            keeps_per_gb_month=_kept_prices(profile, verb.keeps),
        ),
        durable=Durable(DURABLE_VOLUME, tier.mount, tier_name),
        price_per_hour=_price(config, profile),
        max_price=config.max_price,
        budget=config.budget.budget() if config.budget is not None else None,
        when_done=config.when_done or "keep",
        smoke=configured_smoke(config),
        pull_to=config.pull_to,
        approval=config.approval,
        reasons=(*refused, chosen),
        notes=_notes(config, profile),
    )


def _job(config: StackConfig) -> JobPlan:
    job = config.job
    gpus = job.resources.gpu.count if job.resources.gpu is not None else 0
    room = job.min_free
    return JobPlan(
        workdir=job.workdir,
        run=job.run,
        env=job.env,
        include=job.include,
        slots=job.slots or gpus or 1,
        setup=job.setup or "",
        secrets=job.secrets,
        gpus=gpus,
        mixing=job.mixing,
        min_free_bytes=parse_size(room.disk).bytes if room and room.disk else None,
        min_free_inodes=room.inodes if room else None,
        stall_seconds=parse_duration(job.stall) if job.stall else None,
    )


def _boxes(config: StackConfig, wanted: list[str]) -> tuple[BoxPlan, ...]:
    """Cells go to boxes that run; only where none does, they wait with those that are stopped."""
    shares: dict[str, list[Cell]] = {name: [] for name in wanted}
    at_work = [name for name in wanted if config.boxes[name].want == "running"] or wanted
    owner = assign(config.roster.names, at_work) if at_work else {}
    for cell in config.roster.cells:
        if cell.name in owner:
            shares[owner[cell.name]].append(cell)
    return tuple(_box(config, name, tuple(cells)) for name, cells in shares.items())


def _box(config: StackConfig, name: str, cells: tuple[Cell, ...]) -> BoxPlan:
    box = config.boxes[name]
    resources = box.resources or config.job.resources
    gpus = resources.gpu.count if resources.gpu is not None else 0
    return BoxPlan(name, cells, box.want, resources.as_inputs(), config.job.slots or gpus or 1, gpus)


def _notes(config: StackConfig, profile: Profile) -> tuple[str, ...]:
    """What the config says and this platform does not do, so that nothing is dropped in silence."""
    notes = []
    if config.job.image and not profile.uses_image:
        notes.append(f"{profile.platform} uses no container image: job.image ({config.job.image}) has no effect there")
    resources = config.job.resources
    if resources.gpu is not None and not profile.gpus.checked:
        notes.append(
            f"{profile.platform} does not check GPUs before a box is made; each slot gets its share of "
            f"{resources.gpu.count}"
        )
    return tuple(notes)


def _and(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "no tiers"
