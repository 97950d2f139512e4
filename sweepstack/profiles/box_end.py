"""Resolves how boxes of a platform stop and end: verbs, tiers that die, clocks, prices. Pure."""

from __future__ import annotations

from sweepstack.config.stack_config import StackConfig
from sweepstack.core.box_end import ClockFact, IssueFacts, StopFacts, TeardownFacts
from sweepstack.profiles.hosts import HOME_TIER, VERB, layout_of
from sweepstack.profiles.layout import Layout, VerbFacts
from sweepstack.profiles.model import Clock, Profile

RENTED_CLUSTER = "the whole cluster, until a person ends it where it was rented"
"""What a stop leaves on the bill of a cluster that costs something by the hour."""


def teardown_facts(config: StackConfig, profile: Profile, *, own_host: bool) -> TeardownFacts:
    """How a box of this config ends there. `own_host`: it is a host that bills nothing by the hour, so that no one has
    to issue an end: its proof is ours alone."""
    layout = layout_of(config, profile)
    verb, issued = layout.verbs[VERB], layout.verbs[profile.meter_stop_verb]
    return TeardownFacts(
        verb=VERB,
        kills=verb.kills,
        keeps=verb.keeps,
        paths={name: tier.path for name, tier in layout.tiers.items() if tier.path},
        stop=_stop(config, profile, own_host=own_host),
        clocks=_clocks(config, profile),
        keeps_per_gb_month=_kept_prices(layout, verb.keeps),
        issue=None if own_host else _issue(issued),
        release=f"({verb.native}) {verb.manual}" if verb is not issued and verb.manual else "",
        moves=profile.ssh.moves if profile.ssh is not None else None,
    )


def unstoppable(layout: Layout, why: str = "") -> list[str]:
    """Why a box can't be stopped there and started again, empty where it can. `why`: the profile's own reason."""
    if not can_stop(layout):
        because = f" ({why})" if why else ""
        return [f"its boxes can't be stopped by us{because}, and one is wanted stopped: end it instead (want: gone)"]
    if HOME_TIER in layout.verbs["stop"].kills:
        native = layout.verbs["stop"].native
        return [
            f"{native} wipes {HOME_TIER}, where the queue lives: end the box instead (want: gone); what is sealed, and "
            "checkpoints, stay on the volume"
        ]
    return []


def can_stop(layout: Layout) -> bool:
    """Whether a program can stop a box there."""
    return "stop" in layout.verbs and layout.verbs["stop"].issued_by != "person"


def _stop(config: StackConfig, profile: Profile, *, own_host: bool) -> StopFacts | None:
    layout = layout_of(config, profile)
    if unstoppable(layout):
        return None
    verb, override = layout.verbs["stop"], config.overrides.get(profile.platform)
    own = override.stopped_price_per_hour if override is not None else None
    bills, price = verb.bills_after, verb.price_per_hour
    if profile.scheduled and not own_host:  # to cancel jobs ends no bill of the machines that are rented
        bills, price = (RENTED_CLUSTER,), override.price_per_hour if override is not None else None
    return StopFacts(
        kills=verb.kills,
        keeps=verb.keeps,
        bills_after=bills,
        price_per_hour=price if own is None else own,
        issue=_issue(verb),
    )


def _issue(verb: VerbFacts) -> IssueFacts | None:
    if verb.issued_by == "api":
        return None
    return IssueFacts(by=verb.issued_by, native=verb.native, command=verb.command or None, manual=verb.manual or None)


def _clocks(config: StackConfig, profile: Profile) -> tuple[ClockFact, ...]:
    """Those that can strike a box that stands still, or files that lie still."""
    volume, override = bool(config.volume_mounts), config.overrides.get(profile.platform)
    purge = override.purge_days if override is not None else None
    return tuple(
        _clock(_told(clock, purge), volume=volume) for clock in profile.danger_clocks if clock.starts != "start"
    )


def _told(clock: Clock, purge: int | None) -> Clock:
    """With the days after which a site removes files, if a person says them and the profile can't."""
    return clock if purge is None or clock.after is not None else clock.model_copy(update={"after": float(purge)})


def _clock(clock: Clock, *, volume: bool) -> ClockFact:
    kills = clock.kills if clock.with_volume is None or not volume else clock.with_volume
    if clock.starts == "arrears":  # when they began is not ours to know
        after = f" ({clock.after:g} d after they begin)" if clock.after is not None else ""
        return ClockFact(what=f"{clock.what}{after}", kills=kills)
    first, own = None if clock.in_a_row else True, {clock.starts: True}
    return ClockFact(
        what=clock.what,
        days=clock.after,
        kills=kills,
        first_stop=first,
        unused=own.get("use"),
        contract=own.get("contract"),
    )


def _kept_prices(layout: Layout, keeps: tuple[str, ...]) -> dict[str, float]:
    prices = {name: layout.tiers[name].price_per_gb_month for name in keeps}
    return {name: price for name, price in prices.items() if price}
