"""Where bytes lie on a box of a platform, and what each verb does to them. Parts of a profile.

Every fact of a profile is closed, frozen, and checked against the facts beside it. Each problem is `KEY: what is wrong;
what to write`.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

Verb = Literal["stop", "destroy"]


class Fact(BaseModel):
    """Closed and frozen, like all that we write."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Tier(Fact):
    """One place where bytes lie. `survives`: what is left of them after each verb; null where unknown.

    `path` is box-relative; empty where nothing of ours lies there, such as a system disk. `place`: where it lies on a
    host that has places of its own (`/root/data`, `~/proj`; `{volume}` is the mount's source), which tiers may share:
    ours is a folder below it; null: below our root.
    `mounted`: whether that place is a mount point, so that an empty folder there is not the tier; null: unknown.
    """

    path: Annotated[str, Field(pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*)?$")]
    survives: dict[Verb, StrictBool | None]
    mount: str | None = None
    """Box-relative path under which a volume of this tier is mounted."""
    place: Annotated[str | None, Field(pattern=r"^(/|~/)[^{}]*(\{volume\}[^{}]*)?$")] = None
    mounted: StrictBool | None = None
    shared_between_boxes: StrictBool = False
    region_locked: StrictBool = False
    size_cap_bytes: int | None = None
    inode_cap: int | None = None
    price_per_gb_month: float | None = None


class VerbFacts(Fact):
    """What one verb does. `native` is the platform's own word; `bills_after` what it leaves on the bill.

    `issued_by`: our adapter over an API, a `command` on the box over SSH (never one that can't be undone), or a person,
    for whom `manual` says what to do and what it costs them.
    """

    native: str
    stops_meter: StrictBool
    irreversible: StrictBool
    kills: tuple[str, ...]
    keeps: tuple[str, ...]
    bills_after: tuple[str, ...] = ()
    price_per_hour: float | None = None
    """USD that a box still costs per hour after it, where that is one figure; null: each offer has its own."""
    issued_by: Literal["api", "ssh", "person"]
    command: str = ""
    manual: str = ""

    def problems(self, where: str) -> list[str]:
        """What doesn't fit together."""
        problems = []
        if (self.issued_by == "ssh") != bool(self.command):
            problems.append(
                f"{where}.command: it is for a verb issued by ssh, which needs one; "
                f"{'add command, the line that ends the bill' if not self.command else 'take command out'}"
            )
        if self.issued_by == "ssh" and self.irreversible:
            problems.append(f"{where}.issued_by: no command on a box may issue what can't be undone; write person")
        if (self.issued_by == "person") != bool(self.manual):
            said = "take manual out" if self.manual else "add manual, the step and what is lost by it"
            problems.append(f"{where}.manual: it is for a verb issued by a person, who needs it; {said}")
        return problems


class Layout(Fact):
    """Where bytes lie on a box, and what each verb does to them. A box with a volume may be laid out otherwise."""

    tiers: dict[str, Tier]
    verbs: dict[Verb, VerbFacts]

    def durable_tier(self, verb: Verb) -> tuple[str, Tier] | None:
        """The first tier that survives `verb` and can be mounted, with its name."""
        for name, tier in self.tiers.items():
            if tier.survives.get(verb) is True and tier.mount is not None:
                return name, tier
        return None

    def problems(self, where: str = "") -> list[str]:
        """What doesn't fit together. `where`: the key that it stands below, with its dot."""
        problems = self._path_problems(where)
        for tier_name, tier in self.tiers.items():
            if tier.survives.get("destroy") is True and tier.survives.get("stop") is False:
                said = "what survives destroy survives a stop, too; write stop: true, or destroy: false"
                problems.append(f"{where}tiers.{tier_name}.survives: {said}")
            if not tier.path and (tier.mount is not None or tier.place is None):
                said = "without a path it needs a place, and can't be mounted"
                problems.append(f"{where}tiers.{tier_name}.path: {said}; write one, such as {tier_name}, or a place")
        for name, verb in self.verbs.items():
            problems += verb.problems(f"{where}verbs.{name}")
            spoken = {*verb.kills, *verb.keeps}
            if spoken != set(self.tiers) or len(verb.kills) + len(verb.keeps) != len(spoken):
                listed = [*verb.kills, *verb.keeps]
                missing, odd = sorted(set(self.tiers) - spoken), sorted(spoken - set(self.tiers))
                twice = sorted({tier for tier in listed if listed.count(tier) > 1})
                steps = [f"add {', '.join(missing)} to one of them"] if missing else []
                steps += [f"take {', '.join(odd)} out, which is no tier"] if odd else []
                steps += [f"name {', '.join(twice)} only once"] if twice else []
                problems.append(
                    f"{where}verbs.{name}: each tier stands in kills or in keeps, once; {' and '.join(steps)}"
                )
            for tier_name, tier in self.tiers.items():
                survives = tier.survives.get(name)
                # Unknown counts as killed: the safer reading.
                if tier_name in spoken and (tier_name in verb.keeps) != (survives is True):
                    right, wrong = ("keeps", "kills") if survives is True else ("kills", "keeps")
                    problems.append(
                        f"{where}verbs.{name}.{wrong}: names {tier_name}, and {where}tiers.{tier_name}.survives.{name} "
                        f"says otherwise; put {tier_name} into {right}, or mend the tier"
                    )
        return problems

    def _path_problems(self, where: str) -> list[str]:
        """Tiers that lie in each other: what may be pruned in one would be pruned in the other."""
        paths = [(name, tier.path) for name, tier in self.tiers.items() if tier.path]
        return [
            f"{where}tiers.{name}.path: {path} lies in that of {other} ({above}); write a path of its own"
            for index, (name, path) in enumerate(paths)
            for position, (other, above) in enumerate(paths)
            if index != position and f"{path}/".startswith(f"{above}/") and (path != above or index > position)
        ]
