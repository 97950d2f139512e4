"""Resolves a sweep whose boxes may be on several platforms: one plan for each of them.

Pure, as `resolve`. A sweep without `boxes.<name>.on` has one plan, the one that `resolve` gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweepstack.config.stack_config import StackConfig
from sweepstack.core.records import Again, Cell
from sweepstack.launch.cell_shares import by_count
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.model import Profile
from sweepstack.profiles.plan import BoxPlan, Plan
from sweepstack.profiles.resolve import resolve


@dataclass(frozen=True)
class Fleet:
    """The plans of one sweep, never empty: what is said of the whole sweep (roster, job, budget, approval) is the same
    in each. `main`: the first; its volume has the name that the volume of a sweep on one platform has.

    `order`: the boxes of all plans, as the stack file lists them.
    """

    plans: tuple[Plan, ...]
    order: tuple[str, ...]

    @property
    def main(self) -> Plan:
        """The plan of the boxes without `on`; where each has one, of the first candidate that is in use."""
        return self.plans[0]

    @property
    def boxes(self) -> tuple[BoxPlan, ...]:
        """Every box that is to be there, in the order of the stack file."""
        found = {box.name: box for plan in self.plans for box in plan.boxes}
        return tuple(found[name] for name in self.order if name in found)

    @property
    def names(self) -> tuple[str, ...]:
        """Every box of the stack file, also those that are to go, sorted."""
        return tuple(sorted(self.order))

    @property
    def staying(self) -> tuple[str, ...]:
        """The boxes that are to be there."""
        return tuple(box.name for box in self.boxes)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms, each once."""
        return tuple(plan.platform for plan in self.plans)

    def plan_of(self, box: str) -> Plan:
        """The plan that a box is in. Raises KeyError for a box that is in none."""
        for plan in self.plans:
            if any(one.name == box for one in plan.boxes):
                return plan
        raise KeyError(box)

    def with_cells(self, shares: Mapping[str, Sequence[Cell]]) -> Fleet:
        """The same with these cells on each box, none on a box that is not named."""
        plans = (
            replace(plan, boxes=tuple(replace(box, cells=tuple(shares.get(box.name, ()))) for box in plan.boxes))
            for plan in self.plans
        )
        return replace(self, plans=tuple(plans))

    def with_retries(self, retries: Mapping[str, Again]) -> Fleet:
        """The same with these retries of the stack file, which are not on record yet."""
        return replace(self, plans=tuple(replace(plan, retries=retries) for plan in self.plans))

    def each(self, attribute: str) -> tuple[str, ...]:
        """The lines that this attribute of each plan holds, every line once."""
        return tuple(dict.fromkeys(line for plan in self.plans for line in getattr(plan, attribute)))


def resolve_fleet(config: StackConfig, profiles: Mapping[str, Profile]) -> Fleet:
    """The plans of a stack config. Boxes without `on` go to the first candidate that fits, the others to theirs. Raises
    ConfigError, with each refusal, when a platform can't have its boxes, or when they are to share one volume."""
    chosen = {name: box.on for name, box in config.boxes.items() if box.on is not None}
    order = tuple(config.boxes)
    if not chosen:
        return Fleet((resolve(config, profiles),), order)
    main = _main(config, profiles, chosen)
    used = [main, *(name for name in config.candidates if name != main and name in chosen.values())]
    groups = {on: {box for box in order if chosen.get(box, main) == on} for on in used}
    if len(groups) > 1 and config.volume_mounts:
        path, mount = next(iter(config.volume_mounts.items()))
        problem = (
            f"mounts.{path}: the volume {mount.source} lies on one platform, and the boxes are on {', '.join(groups)}: "
            "leave it out, or mount a bucket (source: s3://…), which boxes on all of them reach"
        )
        raise ConfigError(f"{config.file}: {problem}", [problem])
    plans, problems, text = [], [], []
    for name, boxes in groups.items():
        try:
            plans.append(_part(config, profiles, name, boxes, first=name == main))
        except ConfigError as error:
            text.append(str(error))
            problems += error.problems or [str(error)]
    if problems:
        raise ConfigError("\n".join(text), problems)
    fleet = Fleet(tuple(plans), order)
    at_work = [box.name for box in fleet.boxes if box.want == "running"] or [box.name for box in fleet.boxes]
    owner = by_count(config.roster.names, at_work)
    shares: dict[str, list[Cell]] = {}
    for cell in config.roster.cells:
        if cell.name in owner:
            shares.setdefault(owner[cell.name], []).append(cell)
    return fleet.with_cells(shares)


def parts_of(config: StackConfig) -> list[StackConfig]:
    """The config as one for the boxes without `on`, with all candidates, and one for each platform that boxes name."""
    named = {name: {box for box, asked in config.boxes.items() if asked.on == name} for name in config.candidates}
    free = {box for box, asked in config.boxes.items() if asked.on is None}
    return [
        *([_only(config, free)] if free else []),
        *(_only(config, boxes, name) for name, boxes in named.items() if boxes),
    ]


def _main(config: StackConfig, profiles: Mapping[str, Profile], chosen: Mapping[str, str]) -> str:
    """The platform of the boxes without `on`: by themselves, so that a box beside them changes nothing for them."""
    free = set(config.boxes) - set(chosen)
    if free:
        return resolve(_only(config, free), profiles).platform
    return next(name for name in config.candidates if name in chosen.values())


def _part(config: StackConfig, profiles: Mapping[str, Profile], platform: str, boxes: set[str], *, first: bool) -> Plan:
    """One platform's plan. Its volume has a name of its own, unless it is the first."""
    part = _only(config, boxes, platform)
    plan = resolve(part, profiles)
    if plan.durable is not None and not first and not plan.durable.kept:
        plan = replace(plan, durable=replace(plan.durable, volume=f"{plan.durable.volume}-{platform}"))
    return plan


def _only(config: StackConfig, boxes: set[str], platform: str = "") -> StackConfig:
    """The config as if it had these boxes alone, on `platform` if it is given."""
    kept = {name: box for name, box in config.boxes.items() if name in boxes}
    changed: dict[str, object] = {"boxes": kept}
    if platform:
        changed["candidates"] = (platform,)
        if config.placement is not None:
            changed["placement"] = config.placement.part(platform)
    return config.model_copy(update=changed)
