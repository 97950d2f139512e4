"""Resolves a stack config and the profiles to a plan: platform, boxes, what a teardown kills.

Pure: no engine, no network, no files. All that a later delete needs is decided here, once, and ends up as inputs in the
state. Every choice and every refusal has its reason in words. Decided here, too, is how a box stops itself once its
lease is over, what it is told of buckets, and how an image that is named by a tag can be pinned.

Whether what a sweep leaves behind fits where it is sealed is judged by the `min` of its artifacts. Where a box alone is
the place, that is its share of the cells; else it is one place for all. What is really there is looked at later: a
volume's size in the preview (`provider.resources.volume`), a host's when its box is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sweepstack.config.model import BoxConfig, Job
from sweepstack.config.smoke import configured_smoke, smoke_on_box
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.box_end import TeardownFacts
from sweepstack.core.budget import Budget
from sweepstack.core.job import JobInput
from sweepstack.core.lease_terms import LeaseFacts, lease_seconds
from sweepstack.core.paths import docs_page
from sweepstack.core.records import Cell
from sweepstack.core.suggest import did_you_mean
from sweepstack.core.workdir import NO_CODE
from sweepstack.launch.cell_shares import by_count
from sweepstack.onbox.common.canonical import DIGEST_PREFIX
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.onbox.common.nodes import NODES
from sweepstack.onbox.common.units import parse_duration, parse_size
from sweepstack.profiles import clusters, dated_facts, dates
from sweepstack.profiles.box_end import teardown_facts, unstoppable
from sweepstack.profiles.clusters import node_problems, slots_of
from sweepstack.profiles.hosts import (
    HOME_TIER,
    VERB,
    claims,
    host_problems,
    kept_of,
    layout_of,
    least_bytes,
    place_of,
    python_of,
    region_notes,
    tier_problems,
)
from sweepstack.profiles.layout import Layout
from sweepstack.profiles.model import Profile
from sweepstack.profiles.network import network_problems, switched
from sweepstack.profiles.notes import cuda_problems, fact_notes
from sweepstack.profiles.plan import BoxPlan, Durable, Plan, Site
from sweepstack.profiles.spot import asked_resources, grace_seconds, spot_notes, spot_problems

_WITHOUT = {"when_done: stop": "when_done: keep", "budget.stop: true": "budget.stop: false"}
DURABLE_VOLUME = "durable"
"""The volume that sealed cells and checkpoints go to; one a sweep."""


def resolve(config: StackConfig, profiles: Mapping[str, Profile]) -> Plan:
    """The plan for the first candidate that fits. Raises ConfigError, with each refusal, when none does."""
    if wrong := dated_facts.problems(config.accept_facts, profiles, dates.today()):
        raise ConfigError("\n".join(f"{config.own_file}: {problem}" for problem in wrong), wrong)
    reasons: list[str] = []
    for name in _in_order(config):
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


def _in_order(config: StackConfig) -> tuple[str, ...]:
    """The candidates in the order in which they are tried: one that `sweepctl place` chose is the only one."""
    return config.candidates if config.placement is None else (config.placement.platform,)


def unfit(config: StackConfig, profile: Profile) -> list[str]:
    """Why this platform can't run the sweep; empty when it can."""
    refusals = []
    if VERB not in profile.verbs:
        refusals.append(f"its profile describes no {VERB}, so a box could not be ended")
        return refusals
    if profile.unavailable:
        refusals.append(profile.unavailable)
    verb = profile.verbs[VERB]
    layout = layout_of(config, profile)
    if config.volume_mounts and layout.durable_tier(VERB) is None:
        refusals.append(f"no volume can be mounted there that survives {verb.native}: leave mounts out")
    refusals += _one_box_each(config, layout)
    refusals += spot_problems(config, profile)
    price = _price(config, profile)
    bills = profile.meter.rents and not _own_host(config, profile)
    if bills and config.budget is None:
        refusals.append("it sends a bill, so the sweep needs a budget, such as budget: {usd: 60}")
    if any(box.want == "stopped" for box in config.boxes.values()):
        refusals += unstoppable(layout, profile.stop_refused)
    refusals += _auto_stop(config, profile, layout)
    refusals += _files_pass(profile)
    refusals += network_problems(config, profile)
    refusals += [*tier_problems(config, profile, layout), *size_problems(layout, config), *bucket_problems(config)]
    refusals += [*host_problems(config, profile), *node_problems(config, profile), *cuda_problems(config, profile)]
    refusals += clusters.problems(config, profile)
    if bills and config.when_done is None:
        refusals.append("it sends a bill, so the config must say when_done: stop or keep")
    if bills and config.lease is None:
        refusals.append(
            "it sends a bill, so the config must say lease: 2h (a box that no command has looked at for so long, and "
            "that has nothing left to do, stops itself), or lease: none"
        )
    for where, resources in asked_resources(config):
        if resources.gpu is not None and profile.gpus.offered is False:
            refusals.append(f"has no GPUs, and {where}.gpu asks for {resources.gpu.count}")
    if price is None and not profile.meter.quoted:
        money = f" (it bills in {profile.meter.currency})" if profile.meter.currency not in ("USD", None) else ""
        refusals.append(
            f"the platform quotes no price{money}: write what a box costs, in USD an hour, as "
            f"overrides: {{{profile.platform}: {{price_per_hour: 0.5}}}}"
        )
    if price is not None and config.max_price is not None and price > config.max_price:
        refusals.append(f"costs ${price:g}/h a box, above max_price ${config.max_price:g}/h")
    for where, resources in asked_resources(config):
        refusals += _too_big(where, resources.disk, layout)
    return refusals


def _one_box_each(config: StackConfig, layout: Layout) -> list[str]:
    """Several boxes on a volume that one box at a time can mount."""
    found = layout.durable_tier(VERB)
    wanted = [name for name, box in config.boxes.items() if box.want != "gone"]
    if not config.volume_mounts or found is None or found[1].shared_between_boxes or len(wanted) < 2:
        return []
    return [
        f"a volume there is mounted by one box at a time, and {len(wanted)} are wanted ({', '.join(wanted)}): keep one "
        "of them (boxes.<name>.want: gone), or leave mounts out"
    ]


def _auto_stop(config: StackConfig, profile: Profile, layout: Layout) -> list[str]:
    """Stops that a box would have to make by itself: only where that is proved, and nothing of a cell dies."""
    asked = {
        "when_done: stop": config.when_done == "stop",
        "budget.stop: true": bool(config.budget and config.budget.stop),
    }
    wanted = " and ".join(words for words, said in asked.items() if said)
    if not wanted or profile.stop_from_inside is None:
        return []
    instead = "Write " + " and ".join(_WITHOUT[words] for words, said in asked.items() if said)
    if profile.stop_from_inside != "proved":
        return [f"{wanted} can't be kept there: {profile.stop_refused}. {instead}"]
    dying = [tier for tier in layout.verbs["stop"].kills if layout.tiers[tier].path]
    if not dying:
        return []
    native = layout.verbs["stop"].native
    return [f"{wanted} can't be kept there: {native} wipes {_and(tuple(dying))}. {instead}"]


def _files_pass(profile: Profile) -> list[str]:
    """A box that is entered by SSH and takes no files can run no cells."""
    if profile.ssh is None or profile.ssh.for_files is not None:
        return []
    flavour = profile.ssh.flavours[0]
    return [f"its SSH ({flavour.kind}, {flavour.address}) passes no files: {flavour.why_not}"]


def _too_big(where: str, wanted: str | None, layout: Layout) -> list[str]:
    """A disk larger than the tier that cells work on can be; that another tier holds more is no help to them."""
    cap = layout.tiers[HOME_TIER].size_cap_bytes if HOME_TIER in layout.tiers else None
    if not wanted or not cap or parse_size(wanted).bytes <= cap:
        return []
    return [f"its {HOME_TIER} tier holds {cap / 1e9:g} GB, and {where}.disk asks for {wanted}"]


def _own_host(config: StackConfig, profile: Profile) -> bool:
    """Whether its boxes are hosts that send no bill by the hour: then their end is ours alone to prove."""
    own = profile.ssh is not None or profile.by_hand is not None or profile.scheduled
    return own and _price(config, profile) == 0


def _price(config: StackConfig, profile: Profile) -> float | None:
    override = config.overrides.get(profile.platform)
    if override is not None and override.price_per_hour is not None:
        return override.price_per_hour
    return profile.meter.price_per_hour


def _plan(config: StackConfig, profile: Profile, refused: list[str]) -> Plan:
    layout = layout_of(config, profile)
    bills = profile.meter.rents and not _own_host(config, profile)
    verb = layout.verbs[VERB]
    durable = _durable(config, profile, layout)
    survives = f"{durable.tier} survives {VERB}, {_and(verb.kills)} don't" if durable else f"nothing survives {VERB}"
    if profile.by_hand is not None:
        survives = "what came back stays where you put it"
    wanted = [name for name, box in config.boxes.items() if box.want != "gone"]
    how = f"the {'next' if refused else 'first'} candidate that fits" if config.placement is None else "as placed"
    boxes = _boxes(config, profile, wanted)
    teardown = teardown_facts(config, profile, own_host=_own_host(config, profile))
    chosen = f"{profile.platform}: chosen, {how}; {survives}"
    return Plan(
        platform=profile.platform,
        adapter=profile.adapter,
        boxes=boxes,
        gone=tuple(name for name in config.boxes if name not in wanted),
        roster=config.roster,
        job=_job(config, profile, teardown, lease_facts(config, profile, layout) if bills else None),
        artifacts=config.artifact_specs(),
        metrics=config.metrics,
        teardown=teardown,
        durable=durable,
        price_per_hour=_price(config, profile),
        max_price=config.max_price,
        bid=config.bid,
        budget=_budget(config),
        ignore_balance=config.ignore_balance or "",
        when_done=config.when_done or "keep",
        lease_text=config.lease or "" if bills else "",
        lease_from_start=profile.own_key is not None and profile.own_key.from_start,
        smoke=configured_smoke(config),
        pull_to=config.pull_to,
        approval=config.approval,
        reasons=(*refused, chosen),
        notes=_notes(config, profile),
        checked=(
            *dated_facts.notes(profile, config.accept_facts, dates.today()),
            *image_words(config, profile),
            *room_words(config, durable),
            *clusters.gpu_hour_words(config, profile, [box.scheduler for box in boxes if box.want == "running"]),
        ),
        refused_new=config.refused_new,
        search=config.search.text if config.search is not None else "",
        site=_site(config, profile, layout, durable),
        list_lag=profile.believed_lag,
        cluster=own.address(config) if (own := clusters.of_pods(profile)) is not None else "",
    )


def _budget(config: StackConfig) -> Budget | None:
    """The budget, with the webhook of `events` where it has none of its own: `pulumi up` tells that one."""
    if config.budget is None:
        return None
    budget, events = config.budget.budget(), config.events
    hook = events.webhook if events is not None and "budget" in events.kinds else None
    return budget if budget.webhook or not hook else budget.model_copy(update={"webhook": hook})


def _site(config: StackConfig, profile: Profile, layout: Layout, durable: Durable | None) -> Site | None:
    if profile.ssh is None or profile.network is None or profile.environment is None:
        return None
    volume = durable.volume if durable is not None else ""
    return Site(
        python=python_of(config, profile.platform, profile.environment.python),
        places={name: place for name in layout.tiers if (place := place_of(config, profile, layout, name, volume))},
        claims=claims(config, profile, layout, durable),
    )


def _durable(config: StackConfig, profile: Profile, layout: Layout) -> Durable | None:
    found = layout.durable_tier(VERB)
    if found is None:
        return None
    name, tier = found
    assert tier.mount is not None
    for path, mount in config.volume_mounts.items():
        until = mount.keep_until.isoformat() if mount.keep_until is not None else ""
        price = tier.price_per_gb_month
        place = place_of(config, profile, layout, name, mount.source)
        return Durable(mount.source, tier.mount, name, True, path, until, price, place, least_bytes(config))
    return Durable(DURABLE_VOLUME, tier.mount, name, place=place_of(config, profile, layout, name, ""))


OF_A_BOX: Final = frozenset({"slots", "grace_seconds", "gpus", "scheduler", "nodes"})
"""Keys of the job that differ between boxes: `BoxPlan` has them."""


def _job(config: StackConfig, profile: Profile, teardown: TeardownFacts, lease: LeaseFacts | None) -> JobInput:
    """What is the same on each box. What was not asked for is left out, so that a new key changes no old state."""
    job, room = config.job, config.job.min_free
    asked = {
        "min_free_bytes": parse_size(room.disk).bytes if room and room.disk else None,
        "min_free_inodes": room.inodes if room else None,
        "network": switched(config, profile).as_input(),
        "keep": kept_of(config, profile),
        "mounts": buckets(config),
        "when_drained": _when_drained(config, teardown),
        "smoke": smoke_on_box(config),
        "by_hand": profile.by_hand.as_input() if profile.by_hand is not None else None,
        "lease": lease.model_dump(exclude_defaults=True) if lease is not None else None,
        "image": job.image if profile.uses_image else None,
        "tracker": job.tracker.model_dump(mode="json", exclude_none=True) if job.tracker is not None else None,
    }
    nodes = {NODES: str(job.nodes)} if job.nodes > 1 else {}
    return JobInput.model_validate(
        {
            **{key: value for key, value in asked.items() if value},
            **_as_written(job, JobInput.model_fields.keys() - asked.keys() - OF_A_BOX),
            "include": job.include,
            "env": dict(sorted({**job.env, **nodes}.items())),
            "code": NO_CODE,
        }
    )


def _as_written(job: Job, keys: Iterable[str]) -> dict[str, Any]:
    """Those of these keys that the stack file gives in so many words, durations in seconds. A default is left out."""
    found = {}
    for key in keys:
        name = key.removesuffix("_seconds")
        field = Job.model_fields.get(name)
        if field is not None and (value := getattr(job, name)) != field.default:
            found[key] = value if name == key else parse_duration(value)
    return found


def _when_drained(config: StackConfig, teardown: TeardownFacts) -> dict[str, str]:
    """How a box ends its own bill once its queue is drained; empty where it is not asked to, or an API does it."""
    stop = teardown.stop.issue if teardown.stop is not None else None
    if config.when_done != "stop" or stop is None or stop.by != "ssh":
        return {}
    return {"native": stop.native, "command": stop.command or ""}


def _boxes(config: StackConfig, profile: Profile, wanted: list[str]) -> tuple[BoxPlan, ...]:
    """Cells go to boxes that run; only where none does, they wait with those that are stopped."""
    shares: dict[str, list[Cell]] = {name: [] for name in wanted}
    at_work = [name for name in wanted if config.boxes[name].want == "running"] or wanted
    owner = by_count(config.roster.names, at_work)
    for cell in config.roster.cells:
        if cell.name in owner:
            shares[owner[cell.name]].append(cell)
    return tuple(_box(config, profile, name, tuple(cells)) for name, cells in shares.items())


def _box(config: StackConfig, profile: Profile, name: str, cells: tuple[Cell, ...]) -> BoxPlan:
    box = config.boxes[name]
    resources = box.resources or config.job.resources
    gpus = resources.gpu.count if resources.gpu is not None else 0
    placed = config.placement.boxes.get(name) if config.placement is not None else None
    return BoxPlan(
        name,
        cells,
        box.want,
        clusters.storage_input(config, profile, resources) if profile.scheduled else resources.as_inputs(),
        slots_of(config, gpus),
        gpus,
        placed.model_dump(mode="json", exclude={"on"}) if placed is not None else None,
        box.host or "",
        grace_seconds(config, profile, resources),
        box.returns or "",
        clusters.scheduler_input(config, profile, box, resources),
        _nodes(config, profile, box),
    )


def _nodes(config: StackConfig, profile: Profile, box: BoxConfig) -> dict[str, Any]:
    """Where the other nodes of its cells are; empty where a cell has one."""
    if config.job.nodes < 2:
        return {}
    where: dict[str, Any] = {"allocated": True} if profile.scheduled else {"peers": list(box.peers)}
    return {**where, **({"restores": True} if config.job.restores else {})}


def _notes(config: StackConfig, profile: Profile) -> tuple[str, ...]:
    """What the config says and this platform does not do, so that nothing is dropped in silence."""
    layout = layout_of(config, profile)
    notes = spot_notes(config, profile, _or_mount(profile))
    if profile.by_hand is not None:
        notes.append(
            f"{profile.platform}: you run these boxes by hand ({docs_page('by-hand.md')}). What did not come back to "
            "boxes.<name>.returns counts as not done"
        )
    elif layout.durable_tier(VERB) is None:
        notes.append(
            f"{profile.platform}: nothing on a box outlives it here. What was not pulled is lost when the platform "
            f"takes it away: let `sweepctl tend` pull sealed cells as they come{_or_mount(profile)}"
        )
    notes += [*region_notes(config, profile, layout), *disk_notes(config, profile, layout)]
    notes += clusters.notes(config, profile)
    ending = layout.verbs[profile.meter_stop_verb]
    if ending.issued_by == "person" and not _own_host(config, profile):
        notes.append(f"{profile.platform}: only a person can end a box there ({ending.native}): {ending.manual}")
    notes += fact_notes(config, profile, own_host=_own_host(config, profile))
    notes += [f"{profile.platform}: {clock.words}" for clock in profile.danger_clocks if clock.starts == "start"]
    if config.job.image and not profile.uses_image:
        notes.append(f"{profile.platform} uses no container image: job.image ({config.job.image}) has no effect there")
    resources = config.job.resources
    if resources.gpu is not None and not profile.gpus.checked:
        notes.append(
            f"{profile.platform} does not check GPUs before a box is made; each slot gets its share of "
            f"{resources.gpu.count}"
        )
    return tuple(notes)


def _or_mount(profile: Profile) -> str:
    can = profile.with_volume is not None
    return (
        f", or mount a volume (mounts: {{/ckpt: {{source: NAME}}}}, {docs_page('stack-config.md#mounts')})"
        if can
        else ""
    )


def _and(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "no tiers"


KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
"""What rclone on the box takes its keys from."""
RESERVED = "durable"


def buckets(config: StackConfig) -> tuple[dict[str, str], ...]:
    """The buckets of the config, by path."""
    found = []
    for path, mount in sorted(config.bucket_mounts.items()):
        server = {"endpoint": mount.endpoint} if mount.endpoint else {}
        found.append({"path": path, "source": mount.source, "mode": mount.mode, **server})
    return tuple(found)


def bucket_problems(config: StackConfig) -> list[str]:
    """What keeps a box from using them. Platform keys never reach a box, so its own are the job's to name."""
    if not config.bucket_mounts:
        return []
    problems = []
    missing = [key for key in KEYS if key not in config.job.secrets]
    if missing:
        named = ", ".join([*config.job.secrets, *missing])
        problems.append(
            f"mounts: a bucket needs keys on the box, and yours don't go there: write job.secrets: [{named}], and "
            "export keys that reach that prefix alone where you run pulumi"
        )
    slugs = [path.strip("/").replace("/", "-") for path in config.mounts]
    if len(set(slugs)) != len(slugs) or RESERVED in slugs:
        problems.append("mounts: these paths lie in each other's way on a box (mnt/<path>, and mnt/durable is ours)")
    return problems


DIGEST = f"@{DIGEST_PREFIX}"


def image_words(config: StackConfig, profile: Profile) -> tuple[str, ...]:
    """That the image is not pinned, and how to pin it; empty where it is, or is not used."""
    image = config.job.image
    if not image or not profile.uses_image or DIGEST in image:
        return ()
    name = image if ":" in image.rpartition("/")[2] else f"{image}:latest"
    return (
        f"job.image: {image} is a tag, which may be another image for a box that is rented later. Pin it: "
        f"docker buildx imagetools inspect {name} shows the digest, and job.image is {name}{DIGEST}…",
    )


def lease_facts(config: StackConfig, profile: Profile, layout: Layout) -> LeaseFacts | None:
    """The lease of this config there; None without one."""
    seconds = lease_seconds(config.lease)
    if config.lease is None or seconds is None:
        return None
    facts = LeaseFacts(text=config.lease, seconds=seconds)
    verb = layout.verbs.get("stop")
    if verb is None:
        return facts
    kills = tuple(tier for tier in verb.kills if layout.tiers[tier].path)
    if verb.issued_by == "ssh":
        return facts.model_copy(update={"kills": kills, "by": "ssh", "native": verb.native, "command": verb.command})
    if verb.issued_by == "api" and profile.own_key is not None:
        known = {"key": profile.own_key.variable, "proved": profile.own_key.proved}
        return facts.model_copy(update={"kills": kills, "by": "key", "native": verb.native, **known})
    return facts


SEALED = "durable"
"""The tier on which cells are sealed, where none survives the box."""
WORTH_SAYING = 10**9
"""Bytes. Less has room anywhere."""
GB = 1e9


def size_problems(layout: Layout, config: StackConfig) -> list[str]:
    """More bytes than the tier on which cells are sealed can have there."""
    found = layout.durable_tier(VERB)
    name, tier = found or (SEALED, layout.tiers.get(SEALED))
    least = least_bytes(config, of_a_box=found is None)
    if tier is None or tier.size_cap_bytes is None or least <= tier.size_cap_bytes:
        return []
    whose = "the artifacts" if found else "the artifacts of one box's cells"
    return [
        f"its {name} tier holds {tier.size_cap_bytes / GB:g} GB, and {whose} have {least / GB:g} GB at least: let the "
        "job keep less, or split the sweep"
    ]


def disk_notes(config: StackConfig, profile: Profile, layout: Layout) -> list[str]:
    """That the disk that is asked for is too small for what stays on it until the box ends. Not where a volume takes
    that, and not for hosts: they say what is free."""
    least = least_bytes(config, of_a_box=True)
    if layout.durable_tier(VERB) is not None or profile.ssh is not None or profile.by_hand is not None:
        return []
    return [
        f"{where}.disk asks for {resources.disk}, and the artifacts of one box's cells have {least / GB:.3g} GB at "
        "least: its queue waits once it is full. Ask for more, add boxes, or let the job keep less"
        for where, resources in asked_resources(config)
        if resources.disk and parse_size(resources.disk).bytes < least
    ]


def room_words(config: StackConfig, durable: Durable | None) -> tuple[str, ...]:
    """How much the place of sealed cells has to hold, where the config says how large artifacts are."""
    least, cells = least_bytes(config, of_a_box=durable is None), len(config.roster.cells)
    if least < WORTH_SAYING:
        return ()
    where = "the disk of each box" if durable is None else f"the {durable.tier} tier"
    if durable is not None and durable.kept_volume:
        where = f"volume {durable.volume}"
    each = sum(artifact.min_bytes for artifact in config.artifact_specs())
    of = f"{cells:,} cells" if durable is not None else f"its share of {cells:,} cells"
    return (
        f"room: {where} has to hold {least / GB:.1f} GB at least ({of} of {each / GB:.2g} GB, by min of their "
        "artifacts), and two checkpoints of each cell that has begun",
    )
