"""A profile: one platform's slow-changing facts, typed. Each key has an effect on a plan or a price.

A fact that is a number is a number with its unit in the model, or null. Null alone means *there is none* (no cap, no
grace because there is no spot); null and listed under `unknown` means *unknown*. `stamps` dates each fact, and
`sources` says where it comes from: a line for each month, and one of its own for a fact that comes from elsewhere.
"""

import re
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from sweepstack.core.suggest import did_you_mean
from sweepstack.profiles.access import ByHand, Environment, Network, OwnKey, Ssh
from sweepstack.profiles.dates import Proved, Stamp, source_problems
from sweepstack.profiles.layout import Fact, Layout, Tier, Verb, VerbFacts

SECTIONS = (
    "Launch",
    "Storage",
    "Network",
    "Interruption and resume",
    "Teardown and billing",
    "Detach",
    "Gotchas",
    "Overrides",
)
"""Headings of the prose, in this order: `## 1. Launch` … `## 8. Overrides`."""
OVERRIDE_NAMES = ("DATA_DIR", "DURABLE_DIR", "PROXY_HOOK", "HF_HOME")
"""What every profile must answer in `overrides`, besides any other variable of its network and the login and Python of
its hosts (`SSH_USER`, `PY`): each repeats a fact, for people, and nothing else may stand there."""
KEYS = (
    "platform",
    "kind",
    "meter_stop_verb",
    "meter_stop_irreversible",
    "spot_available",
    "spot_grace",
    "free_egress",
    "china_mirror_needed",
    "host_driver_cuda_max",
)
"""The facts of the platform as a whole, each dated by itself."""
ACCESS = ("ssh", "network", "environment", "stop_from_inside")
"""What a profile states besides, where no API of ours ends its boxes."""
LIST_LAG_SECONDS = 900.0
_SECONDS = re.compile(r"(\d+(?:\.\d+)?) s")
_DAYS = re.compile(r"(\d+) d")


def _quantity(pattern: re.Pattern[str], unit: str) -> BeforeValidator:
    def read(value: Any) -> float | None:
        if value is None:
            return None
        match = pattern.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise PydanticCustomError(
                "quantity", "{text}", {"text": f"expected a number of {unit}, or null where there is none"}
            )
        return float(match[1])

    return BeforeValidator(read)


Seconds = Annotated[float | None, _quantity(_SECONDS, "seconds, such as 5 s")]
Days = Annotated[float | None, _quantity(_DAYS, "days, such as 15 d")]


def _of_the_two(value: Any) -> Any:
    """Another word than these two: mostly the vendor's own (`terminate`, Chinese), which `native` of the verb holds."""
    if isinstance(value, str) and value not in get_args(Verb):
        raise PydanticCustomError(
            "verb",
            "{text}",
            {
                "text": 'expected "stop" or "destroy": stop where meter_stop_irreversible is false, destroy where '
                "it is true. The vendor's own word belongs in verbs.stop.native or verbs.destroy.native"
            },
        )
    return value


class Clock(Fact):
    """A deadline that the platform sets: what it does, after how long (null: unknown), and the tiers that it kills
    (`with_volume`: on a box that mounts one; null: the same).

    `starts` it: a stop of the box, arrears of the account, the box's own start, the last use of a file, whether the box
    runs or not, or the end of the contract with its host. `in_a_row`: whether a start in between takes a clock of
    stopped boxes back; where it doesn't, or that is unknown, it counts from the first stop.
    `cuts`: whether it ends what runs; else it is about the bill alone.
    """

    what: str
    after: Days
    kills: tuple[str, ...] = ()
    with_volume: tuple[str, ...] | None = None
    starts: Literal["stop", "arrears", "start", "use", "contract"] = "stop"
    in_a_row: StrictBool | None = True
    cuts: StrictBool = True

    @property
    def words(self) -> str:
        """What it does to a box that runs, in one line."""
        after = f" after {self.after:g} d" if self.after is not None else ""
        return f"{self.what}{after}{'; a cell that runs then is cut off' if self.cuts else ''}"


class Meter(Fact):
    """What a box costs. `price_per_hour` in USD where the platform has one price; null where each offer has its own.

    `rents`: whether the platform sends a bill, in `currency`. `billed_by`: null where unknown. `quoted`: whether an
    offer or the profile names the price; where neither does, a person has to.
    """

    price_per_hour: float | None
    billed_by: Literal["nobody", "second", "minute", "hour"] | None
    rents: StrictBool
    currency: Literal["USD", "CNY"] | None = "USD"
    quoted: StrictBool = True


class Gpus(Fact):
    """Whether boxes have GPUs: true, false, or null where it depends on the machine and is not looked up."""

    offered: StrictBool | None
    checked: StrictBool
    """Whether a request for one is checked before the box is made."""


class Section(BaseModel):
    """One of the eight sections: its heading and its prose."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    title: str
    text: str


class Gotcha(BaseModel):
    """A trap of this platform alone, with an id that stays."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    text: str


class Profile(Fact):
    """One platform. `adapter` is the folder in sweepstack/platforms that speaks to it.

    `stop_from_inside`: whether a command on the box ends its bill, as far as it was seen; null where an API stops it.
    Unless it is proved, `stop_refused` says why a box is not stopped so, and what does work.
    """

    platform: str = Field(pattern=r"^[a-z][a-z0-9_-]*$")
    kind: Literal["ssh-rental", "cloud-api", "kubernetes", "slurm", "ssh", "notebook", "workstation"]
    meter_stop_verb: Annotated[Verb, BeforeValidator(_of_the_two)]
    meter_stop_irreversible: StrictBool
    spot_available: StrictBool | None
    spot_grace: Seconds
    spot_note: str = ""
    """What a person must know before spot boxes are rented there; each preview that has some says it."""
    free_egress: StrictBool | None
    china_mirror_needed: StrictBool | None
    host_driver_cuda_max: Annotated[str | None, Field(pattern=r"^\d+\.\d+$")]
    """The newest CUDA that the drivers of its hosts do, such as `12.4`."""

    adapter: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    uses_image: StrictBool
    meter: Meter
    gpus: Gpus
    tiers: dict[str, Tier]
    verbs: dict[Verb, VerbFacts]
    with_volume: Layout | None = None
    """How a box is laid out that mounts a volume, where that is another way; null: as `tiers` and `verbs` say."""
    ssh: Ssh | None = None
    network: Network | None = None
    environment: Environment | None = None
    stop_from_inside: Literal["proved", "unproved", "refuted"] | None = None
    stop_refused: str = ""
    own_key: OwnKey | None = None
    by_hand: ByHand | None = None
    """How a person runs a box there; null: a program reaches it."""
    scheduled: StrictBool = False
    """Whether it is a cluster: its scheduler starts the workers of a box, which is entered through a login node, or
    through the cluster's API."""
    list_lag: Seconds = None
    """The longest that a list is believed to lack what was rented: before that nothing is rented after a create whose
    answer was lost. Null: not known, which counts as 15 minutes."""
    danger_clocks: tuple[Clock, ...] = ()
    conveniences: tuple[str, ...] = ()
    overrides: dict[str, str]
    unknown: tuple[str, ...] = ()
    stamps: dict[str, Stamp]
    sources: dict[str, str]
    proved_live: Proved
    """The month in which a live run with an account last saw its boxes rented, stopped and ended; or never."""

    sections: tuple[Section, ...] = ()
    gotchas: tuple[Gotcha, ...] = ()
    unavailable: str = ""
    """Why nothing can be had there with this version, filled in by the loader; empty where its adapter is installed."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Raises ValueError with everything that doesn't fit together."""
        problems = [*self._tier_problems(), *self._unknown_problems(), *self._access_problems()]
        problems += self._override_problems()
        missing = [name for name in OVERRIDE_NAMES if name not in self.overrides]
        if missing:
            near = "".join(did_you_mean(name, set(self.overrides) - set(OVERRIDE_NAMES)) for name in missing)
            said = f"overrides lacks {', '.join(missing)}{near.replace('did you mean', 'is it').replace(';', ',')}"
            problems.append(f'{said}; add {missing[0]}: "" if there is none')
        dated = [*KEYS, "tiers", "verbs", "meter", *(name for name in ACCESS if getattr(self, name) is not None)]
        dated += ["danger_clocks"] if self.danger_clocks else []
        undated = [name for name in dated if name not in self.stamps]
        if undated:
            said = f"write {undated[0]}: with the month of its last check (YYYY-MM), or unverified"
            problems.append(f"stamps lacks {', '.join(undated)}; {said}")
        problems += source_problems(self.stamps, self.sources)
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _tier_problems(self) -> list[str]:
        problems = []
        if self.meter_stop_verb not in self.verbs:
            said = f"describe it there, or write {' or '.join(self.verbs) or 'one that is'}"
            problems.append(f"meter_stop_verb is {self.meter_stop_verb}, which verbs does not describe; {said}")
        elif self.verbs[self.meter_stop_verb].irreversible != self.meter_stop_irreversible:
            said = f"contradicts verbs.{self.meter_stop_verb}.irreversible; write the same in both"
            problems.append(f"meter_stop_irreversible {said}")
        problems += self.layout(volume=False).problems()
        if self.with_volume is not None:
            problems += self.with_volume.problems("with_volume.")
            if set(self.with_volume.tiers) != set(self.tiers):
                more = sorted(set(self.with_volume.tiers) ^ set(self.tiers))
                said = f"has other tiers than tiers ({', '.join(more)}); name the same in both"
                problems.append(f"with_volume.tiers {said}")
            if self.meter_stop_verb not in self.with_volume.verbs:
                said = f"lacks {self.meter_stop_verb}, which is meter_stop_verb; describe it there, too"
                problems.append(f"with_volume.verbs {said}")
            elif self.with_volume.durable_tier(self.meter_stop_verb) is None:
                said = f"no tier that is mounted survives {self.meter_stop_verb}"
                problems.append(f"with_volume: {said}; give the one that does its mount, or take with_volume out")
        for index, clock in enumerate(self.danger_clocks):
            wrong = [tier for tier in (*clock.kills, *(clock.with_volume or ())) if tier not in self.tiers]
            known = ", ".join(self.tiers)
            problems += [
                f"danger_clocks.{index}: {clock.what} kills {tier}, which is no tier; name some of {known}"
                for tier in wrong
            ]
        return problems

    def _access_problems(self) -> list[str]:
        layouts = [self.layout(volume=False), self.layout(volume=True)]
        verbs = [verb for layout in layouts for verb in layout.verbs.values()]
        problems = []
        if any(verb.issued_by != "api" for verb in verbs):
            needed = ACCESS if self.by_hand is None else ("stop_from_inside",)
            missing = [name for name in needed if getattr(self, name) is None]
            if missing:
                said = f"no API ends its boxes; add {', '.join(missing)} to the profile"
                problems.append(f"verbs: {said}")
        for layout in layouts[: 2 if self.with_volume is not None else 1]:
            commanded = "stop" in layout.verbs and layout.verbs["stop"].issued_by == "ssh"
            if commanded != (self.stop_from_inside == "proved"):
                said = "write proved, or another issued_by" if commanded else "give verbs.stop its command by ssh, or "
                said += "" if commanded else "write unproved"
                problems.append(
                    f"stop_from_inside is proved where verbs.stop is issued by ssh, and nowhere else; {said}"
                )
        if (self.stop_from_inside in ("unproved", "refuted")) != bool(self.stop_refused):
            said = "add it" if not self.stop_refused else "take it out, or write stop_from_inside: unproved"
            problems.append(
                f"stop_refused says why no box is stopped from inside, and what works, where that is not proved; {said}"
            )
        if not self.meter.quoted and self.meter.price_per_hour is not None:
            problems.append("meter.quoted: it has a price_per_hour, so it is quoted; write quoted: true")
        if self.by_hand is not None and self.ssh is not None:
            problems.append("by_hand: it is for boxes that no program reaches, and ssh says how one does; take one out")
        problems += self.ssh.problems() if self.ssh is not None else []
        return problems + (self.network.problems(entered=self.ssh is not None) if self.network is not None else [])

    def _override_problems(self) -> list[str]:
        """Overrides that say something else than the facts that they repeat."""
        tiers = [*self.tiers.items(), *(self.with_volume.tiers.items() if self.with_volume is not None else ())]
        facts: dict[str, set[str]] = {}
        for name, tier_name in (("DATA_DIR", "data"), ("DURABLE_DIR", "durable")):
            facts[name] = {at for known, tier in tiers if known == tier_name for at in (tier.path, tier.place) if at}
        proxy = self.network.proxy if self.network is not None else None
        env = self.network.env if self.network is not None else {}
        facts |= {name: {value} for name, value in ({"HF_HOME": ""} | env).items()}
        facts["PROXY_HOOK"] = {proxy.hook if proxy is not None else ""}
        if self.environment is not None:
            facts["PY"] = {self.environment.python}
        if self.ssh is not None and self.ssh.user is not None:
            facts["SSH_USER"] = {self.ssh.user}
        empty = '""'
        return [
            f"overrides.{name} repeats no fact; take it out, known are: {', '.join(sorted(facts))}"
            for name in self.overrides
            if name not in facts
        ] + [
            f"overrides.{name} is {self.overrides[name]!r}, and the facts say {' or '.join(sorted(said)) or empty}; "
            "write what they say, or mend the facts"
            for name, said in facts.items()
            if name in self.overrides and self.overrides[name] not in said
        ]

    def _unknown_problems(self) -> list[str]:
        wrong = [name for name in self.unknown if name not in KEYS]
        known = [name for name in self.unknown if name in KEYS and getattr(self, name) is not None]
        problems = [
            f"unknown lists {name}, which is no key that may be unknown{did_you_mean(name, KEYS) or '; take it out'}"
            for name in wrong
        ]
        return problems + [
            f"{name} is listed as unknown and has a value; write null, or take it out of unknown" for name in known
        ]

    @property
    def believed_lag(self) -> float:
        """`list_lag` in seconds, with the default where it is not known."""
        return LIST_LAG_SECONDS if self.list_lag is None else self.list_lag

    def layout(self, *, volume: bool) -> Layout:
        """How a box is laid out; `volume`: one that mounts a volume."""
        if volume and self.with_volume is not None:
            return self.with_volume
        return Layout(tiers=self.tiers, verbs=self.verbs)
