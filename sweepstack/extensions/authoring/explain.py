"""Which facts of a profile a plan leans on: what each says, how old it is, and what it decided. Pure.

A fact is a key that `stamps` dates, or one of the few that have no date. `DECIDES` has one line for each; a fact whose
line says nothing for a plan decided nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date

from sweepstack.config.stack_config import StackConfig
from sweepstack.core.box_end import IssueFacts
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.profiles import words
from sweepstack.profiles.access import OwnKey
from sweepstack.profiles.dated_facts import DatedFact, facts_of
from sweepstack.profiles.dates import UNVERIFIED, age_in_months, source_of
from sweepstack.profiles.hosts import VERB, kept_of, layout_of
from sweepstack.profiles.layout import Layout
from sweepstack.profiles.model import Profile
from sweepstack.profiles.network import switched
from sweepstack.profiles.notes import image_cuda
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.spot import asked_resources

UNDATED = ("uses_image", "gpus", "own_key", "list_lag", "by_hand", "scheduled")
"""Facts that decide and have no stamp of their own; `own_key` has its month in itself."""


@dataclass(frozen=True)
class ExplainedPlan:
    """A plan, what was asked, and the profile that both are about."""

    config: StackConfig
    profile: Profile
    plan: Plan
    layout: Layout

    @property
    def bills(self) -> bool:
        """Whether its boxes send a bill: a host of one's own does not."""
        return bool(self.plan.lease_text)

    @property
    def spot(self) -> bool:
        """Whether a box is to be a spot box."""
        return any(resources.spot for _, resources in asked_resources(self.config))


@dataclass(frozen=True)
class Leaned:
    """One fact. `decides`: what it decided in this plan, "" for nothing; `fact` is None where it has no stamp."""

    key: str
    says: str
    decides: str
    fact: DatedFact | None

    @property
    def age(self) -> str:
        """How old it is, in a word or two."""
        if self.fact is None:
            return "-"
        return "never checked" if self.fact.age is None else f"{self.fact.age} mo"


def explained(config: StackConfig, profile: Profile, plan: Plan, day: date) -> list[Leaned]:
    """Every fact of the profile, in its order, with what it decided in this plan."""
    subject = ExplainedPlan(config, profile, plan, layout_of(config, profile))
    dated = {fact.key: fact for fact in facts_of(profile, day)}
    if profile.own_key is not None:
        dated["own_key"] = _own_key(profile, day)
    keys = [*profile.stamps, *(key for key in UNDATED if key not in profile.stamps and _there(profile, key))]
    return [Leaned(key, _says(profile, key), decides(subject, key), dated.get(key)) for key in keys]


def decides(subject: ExplainedPlan, key: str) -> str:
    """What one fact decided; "" for nothing."""
    found = DECIDES.get(key)
    return "; ".join(found(subject)) if found is not None else ""


def overridden(config: StackConfig, platform: str) -> dict[str, object]:
    """What the stack config says in place of the profile: key → value."""
    override = config.overrides.get(platform)
    if override is None:
        return {}
    said = override.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    network = said.pop("network", {})
    places = said.pop("places", {})
    return (
        said
        | {f"places.{tier}": place for tier, place in places.items()}
        | {
            f"network.{key}.{name}" if isinstance(value, Mapping) else f"network.{key}": one
            for key, value in network.items()
            for name, one in (value.items() if isinstance(value, Mapping) else [("", value)])
        }
    )


def _there(profile: Profile, key: str) -> bool:
    return getattr(profile, key) is not None


def _own_key(profile: Profile, day: date) -> DatedFact:
    assert profile.own_key is not None
    stamp = profile.own_key.proved or UNVERIFIED
    source = source_of("own_key", {"own_key": stamp}, profile.sources)
    return DatedFact(profile.platform, "own_key", stamp, source, profile.proved_live, (), age_in_months(stamp, day))


def _says(profile: Profile, key: str) -> str:
    """The value of a fact, as short as it can be told."""
    value = getattr(profile, key, None)
    if key in profile.unknown:
        return "unknown"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    short: dict[str, Callable[[], str]] = {
        "verbs": lambda: ", ".join(f"{name}: {verb.native}" for name, verb in profile.verbs.items()),
        "tiers": lambda: ", ".join(profile.tiers),
        "meter": lambda: words.price(profile),
        "gpus": lambda: {True: "yes", False: "none", None: "depends"}[profile.gpus.offered],
        "ssh": lambda: f"user {profile.ssh.user or 'yours'}" if profile.ssh else "none",
        "network": lambda: ", ".join(profile.network.mirrors) or "no mirrors" if profile.network else "none",
        "environment": lambda: profile.environment.python if profile.environment else "none",
        "own_key": lambda: _key_words(profile.own_key) if profile.own_key else "none",
        "danger_clocks": lambda: f"{len(profile.danger_clocks)} of them",
        "spot_grace": lambda: f"{value:g} s",
        "list_lag": lambda: f"{value:g} s",
        "by_hand": lambda: "a bundle",
    }
    return short[key]() if key in short else str(value)


def _key_words(key: OwnKey) -> str:
    return f"{key.variable}, {'used' if key.from_start else 'not used'} before a launch"


def _issue(issue: IssueFacts | None, *, bills: bool) -> str:
    if issue is None:
        return "over the platform's API" if bills else "by our own hand: no bill has to be ended"
    return f"by `{issue.command}` on the box" if issue.command else "by a person"


def _platform(at: ExplainedPlan) -> Iterator[str]:
    yield at.plan.reasons[-1]


def _kind(at: ExplainedPlan) -> Iterator[str]:
    own = at.profile.kind in ("ssh", "workstation")
    yield "no fact has to be accepted by name before a box ends" if own else "an old fact has to be accepted by name"


def _verbs(at: ExplainedPlan) -> Iterator[str]:
    made = at.plan.teardown
    native = at.layout.verbs[VERB].native
    yield f"a delete ends a box: {native} kills {_and(made.kills)}, keeps {_and(made.keeps)}"
    if made.stop is not None:
        yield f"a stop ({at.layout.verbs['stop'].native}) kills {_and(made.stop.kills)}"
    else:
        yield "no box can be wanted stopped"
    if made.stop is not None and made.stop.bills_after:
        yield f"what a stop leaves on the bill: {', '.join(made.stop.bills_after)}"


def _meter_stop_verb(at: ExplainedPlan) -> Iterator[str]:
    verb = at.layout.verbs[at.profile.meter_stop_verb]
    yield f"a delete issues {verb.native}, {_issue(at.plan.teardown.issue, bills=at.bills)}"


def _irreversible(at: ExplainedPlan) -> Iterator[str]:
    if at.profile.meter_stop_irreversible:
        yield "verify and an approval come before a delete"


def _tiers(at: ExplainedPlan) -> Iterator[str]:
    durable = at.plan.durable
    if durable is None:
        yield "nothing outlives a box: what is not pulled is lost with it"
        return
    where = durable.place or durable.mount
    yield f"sealed cells go to {durable.tier} ({where}), the first tier that survives {VERB} and can be mounted"
    if at.config.volume_mounts and durable.price_per_gb_month:
        yield f"it costs {durable.price_per_gb_month:g} USD per GB and month"


def _meter(at: ExplainedPlan) -> Iterator[str]:
    if not at.bills:
        yield "no bill: neither budget, when_done nor lease has to be written"
        return
    yield f"it bills: budget, when_done ({at.plan.when_done}) and lease ({at.plan.lease_text or 'none'}) are asked for"
    yield from at.plan.lease_words[1:]
    if at.plan.price_per_hour is not None:
        yield f"{at.plan.price_per_hour:g} USD an hour a box"


def _clocks(at: ExplainedPlan) -> Iterator[str]:
    for clock in at.plan.teardown.clocks:
        days = f"after {clock.days:g} d" if clock.days is not None else "at a time not known"
        when = "counted from the contract of its host" if clock.contract else "warned of while a box rests"
        yield f"{when}: {clock.what}, {days}"
    for starting in at.profile.danger_clocks:
        if starting.starts == "start":
            yield f"told in the preview: {starting.words}"


def _spot(at: ExplainedPlan) -> Iterator[str]:
    if at.spot:
        yield "spot boxes may be asked for"


def _grace(at: ExplainedPlan) -> Iterator[str]:
    if at.spot:
        given = {box.grace_seconds for box in at.plan.boxes}
        said = ", ".join("the runner's own time" if one is None else f"{one:g} s" for one in sorted(given, key=str))
        yield f"cells have {said} to save before a box is taken"


def _ssh(at: ExplainedPlan) -> Iterator[str]:
    yield "boxes are hosts that you name (boxes.<name>.host)"
    if at.profile.ssh is not None and at.profile.ssh.for_files is not None:
        yield f"files pass by the {at.profile.ssh.for_files.kind} way"


def _network(at: ExplainedPlan) -> Iterator[str]:
    given = switched(at.config, at.profile)
    env = {**given.env, **given.folders}
    if env:
        yield f"set on the box: {', '.join(f'{name}={value}' for name, value in sorted(env.items()))}"
    if given.tensorboard:
        yield f"outputs of cells are linked into {given.tensorboard}"
    if given.proxy[0]:
        yield f"the proxy is on {'for all that runs' if given.always else 'for single calls only'}"


def _egress(at: ExplainedPlan) -> Iterator[str]:
    if at.bills and at.profile.free_egress is False:
        yield "each byte of a pull bills: the preview says how many there are at least"
    elif at.bills and "free_egress" in at.profile.unknown:
        yield "the preview says that the price of a pull is not known"


def _abroad(at: ExplainedPlan) -> Iterator[str]:
    if at.profile.china_mirror_needed:
        yield "the preview names each route that has no mirror"


def _driver(at: ExplainedPlan) -> Iterator[str]:
    if at.profile.host_driver_cuda_max is not None:
        yield f"a newer CUDA than {at.profile.host_driver_cuda_max} is refused"
    elif image_cuda(at.config, at.profile):
        yield "not known, so the preview asks for gpu.cuda where the image needs one"


def _environment(at: ExplainedPlan) -> Iterator[str]:
    if at.plan.site is not None:
        yield f"the box's Python is {at.plan.site.python}"
    if kept := kept_of(at.config, at.profile):
        yield f"no set-up replaces the image's {', '.join(kept)}"


def _inside(at: ExplainedPlan) -> Iterator[str]:
    if at.plan.job.when_drained is not None:
        yield f"a drained box stops itself by {at.plan.job.when_drained.native}"
    elif at.profile.stop_from_inside != "proved":
        yield "when_done: stop and budget.stop are refused"


def _own(at: ExplainedPlan) -> Iterator[str]:
    if at.plan.job.lease is not None:
        yield at.plan.job.lease.words


def _image(at: ExplainedPlan) -> Iterator[str]:
    if at.plan.job.image:
        yield f"boxes run {at.plan.job.image}"
    elif at.config.job.image:
        yield "job.image has no effect there"


def _gpus(at: ExplainedPlan) -> Iterator[str]:
    asked = max((box.gpus for box in at.plan.boxes), default=0)
    if asked:
        how = "checked before a box is made" if at.profile.gpus.checked else "not checked before a box is made"
        yield f"{asked} a box, {how}"


def _lag(at: ExplainedPlan) -> Iterator[str]:
    yield f"after a create whose answer was lost nothing is rented for {at.plan.list_lag:g} s"


def _by_hand(at: ExplainedPlan) -> Iterator[str]:
    if at.profile.by_hand is not None:
        hours = at.profile.by_hand.hours
        yield "a person carries a bundle there and the results back"
        if hours is not None:
            yield f"a session ends itself after {hours:g} h"


def _scheduled(at: ExplainedPlan) -> Iterator[str]:
    if at.profile.scheduled:
        workers = ", ".join(f"{box.name}: {box.scheduler.get('workers', 1)}" for box in at.plan.boxes)
        yield f"the cluster's scheduler starts the workers of a box ({workers or 'none'})"


def _and(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "nothing"


DECIDES: Mapping[str, Callable[[ExplainedPlan], Iterator[str]]] = {
    "platform": _platform,
    "kind": _kind,
    "meter_stop_verb": _meter_stop_verb,
    "meter_stop_irreversible": _irreversible,
    "spot_available": _spot,
    "spot_grace": _grace,
    "free_egress": _egress,
    "china_mirror_needed": _abroad,
    "host_driver_cuda_max": _driver,
    "tiers": _tiers,
    "verbs": _verbs,
    "meter": _meter,
    "danger_clocks": _clocks,
    "ssh": _ssh,
    "network": _network,
    "environment": _environment,
    "stop_from_inside": _inside,
    "own_key": _own,
    "uses_image": _image,
    "gpus": _gpus,
    "list_lag": _lag,
    "by_hand": _by_hand,
    "scheduled": _scheduled,
}
"""What a fact decided. A key that is not here acts nowhere in a plan."""
