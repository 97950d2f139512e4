"""What the candidates have now for the boxes that are to be rented."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sweepstack.config.rent import Resources
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.records import Birth
from sweepstack.onbox.common.errors import (
    ConfigError,
    EvidenceError,
    NotAuthorized,
    RequestRefused,
    SweepstackError,
    Unsupported,
    WrongAccount,
)
from sweepstack.onbox.host.capabilities import HasMarket
from sweepstack.onbox.host.offers import Constraints, Offer
from sweepstack.operations.observe_volume import find_kept
from sweepstack.platforms.registry import load_platform
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.resolve import unfit

LASTING = (ConfigError, EvidenceError, NotAuthorized, RequestRefused, Unsupported, WrongAccount)
"""Errors that stay until a person changes something."""


@dataclass
class Market:
    """The offers of one candidate for these boxes. `refusals`: why it can't be used; `offers`: box → its offers.

    `error`: what the platform, or the way to it, said instead of an answer; its text is the last of `refusals`.
    `asked`: box → what was asked for; empty where there is no market to ask.
    """

    platform: str
    refusals: list[str] = field(default_factory=list)
    offers: dict[str, list[Offer]] = field(default_factory=dict)
    fixed_price: bool = False
    error: SweepstackError | None = None
    asked: dict[str, Constraints] = field(default_factory=dict)

    @property
    def first(self) -> list[Offer]:
        """The offers for the first box; the table shows only these."""
        return next(iter(self.offers.values()), [])

    @property
    def out(self) -> bool:
        """Whether the stack config, the profile or the boxes that are there rule it out: no wait changes that."""
        return len(self.refusals) > (self.error is not None)

    @property
    def passing(self) -> bool:
        """Whether it gave no answer, and may give one later: an outage, too many requests."""
        return not self.out and self.error is not None and not isinstance(self.error, LASTING)


def ask_market(config: StackConfig, name: str, rented: Mapping[str, Birth]) -> Market:
    """The offers of platform `name` for the boxes to rent. Reads only; never raises."""
    market = Market(name)
    try:
        profile = load_profile(name)
        market.refusals += unfit(config.model_copy(update={"placement": None}), profile)
        elsewhere = sorted({birth.platform for birth in rented.values() if birth.platform != profile.adapter})
        if elsewhere:
            market.refusals.append(f"boxes are rented on {', '.join(elsewhere)}: end them first, or keep to it")
        if profile.unavailable:  # the refusals say why
            return market
        platform = load_platform(profile.adapter)
        if not isinstance(platform, HasMarket):
            price = _own_price(config, name, profile.meter.price_per_hour)
            market.fixed_price = True
            market.offers = {box: [Offer(name, "", 0, price, "")] for box in to_place(config, rented)}
            return market
        if market.refusals:
            return market
        volume = next((find_kept(platform, mount.source).native_id for mount in config.volume_mounts.values()), "")
        known: dict[Constraints, list[Offer]] = {}
        for box in to_place(config, rented):
            resources = resources_of(config, box).as_inputs()
            wanted = market.asked[box] = Constraints.of(
                resources,
                max_price=config.max_price,
                volume=volume,
                bid=config.bid,
                image=(config.job.image or "") if profile.uses_image else "",
            )
            if wanted not in known:
                known[wanted] = platform.offers(wanted)
            market.offers[box] = known[wanted]
    except SweepstackError as error:
        market.refusals.append(str(error))
        market.error = error
    return market


def _own_price(config: StackConfig, name: str, price: float | None) -> float:
    override = config.overrides.get(name)
    own = override.price_per_hour if override is not None else None
    return (price or 0.0) if own is None else own


def to_place(config: StackConfig, rented: Mapping[str, Birth]) -> list[str]:
    """The boxes that are to be rented."""
    return [name for name, box in config.boxes.items() if box.want == "running" and name not in rented]


def resources_of(config: StackConfig, box: str) -> Resources:
    """What this box must have: its own, or the job's."""
    return config.boxes[box].resources or config.job.resources
