"""Resolves the config of a volume stack and a profile to the volumes to keep. Pure."""

from __future__ import annotations

from sweepstack.config.stack_config import StoreConfig
from sweepstack.config.volume_stack import StoreVolume
from sweepstack.core.paths import docs_page
from sweepstack.core.records import Approval
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.onbox.common.units import parse_size
from sweepstack.profiles import dated_facts, dates
from sweepstack.profiles.hosts import VERB
from sweepstack.profiles.layout import Tier
from sweepstack.profiles.model import Profile

GB = 10**9


@dataclass(frozen=True)
class KeptVolume:
    """One volume that is wanted. `keep_until`: a day, as ISO 8601, or ""; prices in USD, None where unknown."""

    name: str
    size_gb: int | None
    region: str
    keep_until: str
    price_per_gb_month: float | None


@dataclass(frozen=True)
class StorePlan:
    """All that the component needs. `gone`: volumes that the config takes out."""

    platform: str
    adapter: str
    volumes: tuple[KeptVolume, ...]
    gone: tuple[str, ...]
    pull_to: str
    approval: Approval | None


def plan_store(config: StoreConfig, profile: Profile) -> StorePlan:
    """The plan. Raises ConfigError, with every reason, where the platform can't keep these volumes."""
    if wrong := dated_facts.problems(config.accept_facts, {profile.platform: profile}, dates.today()):
        raise ConfigError("\n".join(f"{config.own_file}: {problem}" for problem in wrong), wrong)
    found = profile.layout(volume=True).durable_tier(VERB)
    if found is None:
        native = profile.verbs[VERB].native if VERB in profile.verbs else VERB
        raise _refused(config, [f"{profile.platform} has no volume that survives {native}: keep them elsewhere"])
    tier = found[1]
    wanted = {name: volume for name, volume in config.volumes.items() if volume.want == "kept"}
    problems = [f"{profile.platform}: {profile.unavailable}"] if profile.unavailable else []
    problems += [problem for name, volume in wanted.items() for problem in _problems(name, volume, profile, tier)]
    if problems:
        raise _refused(config, problems)
    return StorePlan(
        platform=profile.platform,
        adapter=profile.adapter,
        volumes=tuple(_kept(name, volume, profile, tier) for name, volume in wanted.items()),
        gone=tuple(name for name in config.volumes if name not in wanted),
        pull_to=config.pull_to,
        approval=config.approval,
    )


def _problems(name: str, volume: StoreVolume, profile: Profile, tier: Tier) -> list[str]:
    problems = []
    if volume.size is None and profile.meter.rents:
        problems.append(
            f"volumes.{name}.size is missing: {profile.platform} sells volumes by the GB, such as size: 100GB"
        )
    if volume.region is None and tier.region_locked:
        problems.append(
            f"volumes.{name}.region is missing: a volume of {profile.platform} is bound to the place where it is made, "
            "and so are the boxes that mount it"
        )
    cap = tier.size_cap_bytes
    if volume.size is not None and cap and parse_size(volume.size).bytes > cap:
        problems.append(f"volumes.{name}.size: {profile.platform} has volumes of {cap / GB:g} GB at most")
    return problems


def _kept(name: str, volume: StoreVolume, profile: Profile, tier: Tier) -> KeptVolume:
    return KeptVolume(
        name=name,
        size_gb=-(-parse_size(volume.size).bytes // GB) if volume.size is not None else None,
        region=volume.region or "",
        keep_until=volume.keep_until.isoformat() if volume.keep_until is not None else "",
        price_per_gb_month=tier.price_per_gb_month if profile.meter.rents else 0.0,
    )


def _refused(config: StoreConfig, problems: list[str]) -> ConfigError:
    lines = "\n".join(f"  {problem}" for problem in problems)
    page = docs_page("stack-config.md#volumes")
    text = f"{config.file}: these volumes can't be kept; nothing was made\n\n{lines}\n\n  {page}"
    return ConfigError(text, problems)
