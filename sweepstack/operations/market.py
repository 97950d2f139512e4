"""Which offer each box gets, and the block of the stack file that says so.

The markets of all candidates are looked at once. Where nothing fits, the nearest offers are told, each with the one
constraint that it fails: for each constraint the market is asked once more without it: what comes then fails that one
alone. No adapter has to say why it left an offer out.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sweepstack.config.extras import refuse_missing
from sweepstack.config.rent import Resources
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.records import Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.errors import (
    ConfigError,
    EvidenceError,
    NotAuthorized,
    RequestRefused,
    SweepstackError,
    Unsupported,
    Unsure,
    WrongAccount,
)
from sweepstack.onbox.host.capabilities import HasMarket
from sweepstack.onbox.host.offers import Constraints, Offer, is_part
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.operations.volumes.end_check import find_kept
from sweepstack.platforms.registry import load_platform, need
from sweepstack.profiles.fleet import parts_of
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.resolve import unfit


@dataclass(frozen=True)
class Choice:
    """The chosen offers, by box; `lacking`: boxes for which no offer was left. `elsewhere`: boxes whose offer is on
    another platform than `platform` → that platform."""

    platform: str
    offers: Mapping[str, Offer]
    lacking: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def where(self, box: str) -> str:
        """The platform of a box's offer."""
        return self.elsewhere.get(box, self.platform)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms of the offers, each once; the first is `platform`."""
        return tuple(dict.fromkeys((self.platform, *self.elsewhere.values())))

    def beside(self, other: Choice) -> Choice:
        """Both choices as one: a sweep may have boxes on several platforms."""
        elsewhere = {**self.elsewhere, **{box: other.where(box) for box in (*other.offers, *other.lacking)}}
        return Choice(self.platform, {**self.offers, **other.offers}, (*self.lacking, *other.lacking), elsewhere)


def choose(
    config: StackConfig, markets: Sequence[Market], *, next_one: bool, beside: Choice | None = None
) -> Choice | None:
    """The cheapest offers of the first candidate that has one for every box; no offer is used twice, nor one of
    `beside`.

    With `next_one`: the offers after the present placement, first on its platform, then on the next candidates.
    """
    present = config.placement if next_one else None
    past = present is None
    best: Choice | None = None
    for market in markets:
        if market.refusals or not market.offers:
            continue
        left = market.offers
        if present is not None and market.platform == present.platform:
            past = True
            taken = {box: placed.offer for box, placed in present.boxes.items()}
            left = {box: _after(offers, taken) for box, offers in market.offers.items()}
        if not past:
            continue
        found = _assign(market.platform, left, beside)
        if not found.lacking:
            return found
        best = best or found
    return best


def _after(offers: list[Offer], taken: Mapping[str, str]) -> list[Offer]:
    """The offers after the last one that was taken; all if none of those taken is left."""
    keys = [offer.key for offer in offers]
    places = [keys.index(key) for key in taken.values() if key in keys]
    return offers[max(places) + 1 :] if places else offers


def _assign(platform: str, offers: Mapping[str, list[Offer]], beside: Choice | None) -> Choice:
    given: dict[str, Offer] = {}
    taken = beside.offers if beside is not None else {}
    gone = {offer.key for box, offer in taken.items() if offer.single and beside and beside.where(box) == platform}
    lacking = []
    for box, candidates in offers.items():
        offer = next((offer for offer in candidates if offer.key not in gone), None)
        if offer is None:
            lacking.append(box)
            continue
        given[box] = offer
        if offer.single:
            gone.add(offer.key)
    return Choice(platform, given, tuple(lacking))


def as_placement(choice: Choice, config: StackConfig, rented: Mapping[str, Birth]) -> dict[str, Any]:
    """The block for the stack file. The placement of rented boxes stays."""
    kept = config.placement.boxes if config.placement is not None else {}
    boxes: dict[str, Any] = {
        name: placed.model_dump(mode="json", exclude_none=True)
        for name, placed in kept.items()
        if name in rented and name in config.boxes
    }
    for name, offer in choice.offers.items():
        if offer.price_per_hour > 0:
            boxes[name] = {
                "offer": offer.key,
                "price_per_hour": _ceiling(offer.price_per_hour),
                "gpu": offer.gpu,
                "count": offer.gpu_count,
                "region": offer.region,
                **({"on": choice.elsewhere[name]} if name in choice.elsewhere else {}),
            }
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"platform": choice.platform, "boxes": boxes, "at": now}


def _ceiling(price: float) -> float:
    """The price as the stack file keeps it, with four decimals: never below `price`, since it is the most that `up`
    pays, and a price that was rounded down would refuse the very offer that was chosen."""
    return math.ceil(round(price * 10_000, 3)) / 10_000


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


@dataclass(frozen=True)
class Records:
    """The evidence, and what was ever rented by it."""

    store: EvidenceStore | None
    births: Sequence[Birth]

    @property
    def rented(self) -> dict[str, Birth]:
        """The boxes that are there: they stay where they are."""
        return {birth.box: birth for birth in self.births if birth.native_id is not None and birth.ended_at is None}


@dataclass(frozen=True)
class MarketChoice:
    """The stack config, what was rented, what each candidate has now, and the choice among it."""

    config: StackConfig
    rented: Mapping[str, Birth]
    markets: Sequence[Market]
    choice: Choice | None

    @property
    def boxes(self) -> list[str]:
        """Those that are to be rented. Where there is none, nothing is to be placed, and no candidate was asked."""
        return to_place(self.config, self.rented)

    @property
    def complete(self) -> bool:
        """Whether each box that is to be rented has an offer."""
        return self.choice is not None and not self.choice.lacking


def read_records(target: Target) -> Records:
    """What was rented so far. Raises when the evidence can't be opened."""
    try:
        store = open_sources(target).store
    except Unsure:  # the backend has no such stack yet: nothing was ever brought up
        store = None
    return Records(store, store.births() if store is not None else [])


def look_once(target: Target, rented: Mapping[str, Birth], *, next_one: bool) -> MarketChoice:
    """Reads the stack file and asks every candidate. Reads only. Raises ConfigError."""
    config = StackConfig.load(target.root, target.stack)
    refuse_missing(config)
    parts = parts_of(config)
    if not to_place(config, rented):
        return MarketChoice(config, rented, [], None)
    if len(parts) == 1:
        markets = [ask_market(config, name, rented) for name in config.candidates]
        return MarketChoice(config, rented, markets, choose(config, markets, next_one=next_one))
    every: list[Market] = []
    choice: Choice | None = None
    for part in parts:
        there = {box: birth for box, birth in rented.items() if box in part.boxes}
        markets = [ask_market(part, name, there) for name in part.candidates]
        every += markets
        found = choose(part, markets, next_one=next_one, beside=choice)
        if found is None:
            found = Choice(part.candidates[0], {}, tuple(to_place(part, there)))
        choice = found if choice is None else choice.beside(found)
    return MarketChoice(config, rented, every, choice)


SECONDS = 30.0
"""For so long the markets are asked for what is near, each request in progress included; then what is known is told."""
SHOWN = 2
"""The most offers for each constraint."""


@dataclass(frozen=True)
class Near:
    """An offer that would do, but for the constraints `fails` (keys of the stack config), as `why` says."""

    platform: str
    box: str
    offer: Offer
    fails: tuple[str, ...]
    why: str

    @property
    def words(self) -> str:
        """`some-cloud: RTX 4090 in Texas at $0.690/h; max_price is $0.500`"""
        offer = self.offer
        cards = f"{offer.gpu_count} x {offer.gpu}" if offer.gpu_count > 1 else offer.gpu or "a box without a GPU"
        where = f" in {offer.region}" if offer.region else ""
        return f"{self.platform}: {cards}{where} at ${offer.price_per_hour:.3f}/h; {self.why}"

    def as_json(self) -> dict[str, Any]:
        """The same values for programs."""
        offer = self.offer
        return {
            "platform": self.platform,
            "box": self.box,
            "key": offer.key,
            "gpu": offer.gpu,
            "gpu_count": offer.gpu_count,
            "region": offer.region,
            "price_per_hour": offer.price_per_hour,
            "spot": offer.spot,
            "fails": list(self.fails),
        }


def nearest(markets: Sequence[Market], choice: Choice | None) -> list[Near]:
    """What is near for the boxes that got no offer, candidate by candidate, the cheapest first for each constraint.
    Reads only; never raises. Blocks for `SECONDS` and one more request at most."""
    end = time.monotonic() + SECONDS
    found: list[Near] = []
    for market in markets:
        if market.refusals:
            continue
        tried = choice is not None and market.platform in choice.platforms
        lacking = choice.lacking if choice is not None and tried else tuple(market.asked)
        boxes = {wanted: box for box, wanted in reversed(market.asked.items()) if box in lacking}
        for wanted, box in boxes.items():
            fits = {offer.key for offer in market.offers.get(box, ())}  # all of these go to other boxes
            found += [one for one in _near(market.platform, box, wanted, end) if one.offer.key not in fits]
    return found


def left_out(markets: Sequence[Market], choice: Choice) -> list[Near]:
    """The offers that are cheaper than the chosen ones and were left out for their cards: parts of cards, and those of
    a maker that the image is not for. Reads only; never raises. Blocks for `SECONDS` and one more request at most."""
    end = time.monotonic() + SECONDS
    found: list[Near] = []
    for market in markets:
        if market.refusals or time.monotonic() > end:
            continue
        with contextlib.suppress(SweepstackError):
            platform = need(load_platform(load_profile(market.platform).adapter), HasMarket)
            for wanted, box in {wanted: box for box, wanted in reversed(market.asked.items())}.items():
                if box in choice.offers:
                    known = {offer.key for offer in market.offers.get(box, ())}
                    most = choice.offers[box].price_per_hour
                    cards = [one for one in _cards(platform, wanted) if one.key not in known]
                    cheaper = [one for one in cards if one.price_per_hour < most]
                    found += [_of_card(market.platform, box, wanted, one) for one in cheaper[:SHOWN]]
    return found


def _cards(platform: HasMarket, wanted: Constraints) -> list[Offer]:
    """The offers that have all that is asked for, but parts of cards, or cards that the image is not for."""
    found = platform.offers(replace(wanted, parts=True, maker=""))
    return [offer for offer in found if is_part(offer.gpu) or _of_another(wanted, offer)]


def _of_another(wanted: Constraints, offer: Offer) -> bool:
    return bool(offer.maker and wanted.maker) and offer.maker != wanted.maker


def _of_card(name: str, box: str, wanted: Constraints, offer: Offer) -> Near:
    if _of_another(wanted, offer):
        why = f"it is a card of {offer.maker.upper()}, and job.image is taken to be for those of {wanted.maker.upper()}"
        return Near(name, box, offer, ("job.image",), why)
    why = "it is a part of a card (MIG or vGPU), which is taken only if gpu.name says so"
    return Near(name, box, offer, ("gpu.name",), why)


def _near(name: str, box: str, wanted: Constraints, end: float) -> list[Near]:
    """Without one constraint; where that brings nothing, without the price and one more. What was found before an
    error, or before `end`: the next look says what is wrong with the platform."""
    found: list[Near] = []
    one = list(_without(wanted))
    both = [(f"max_price {key}", replace(loose, max_price=None)) for key, loose in one if key != "max_price"]
    with contextlib.suppress(SweepstackError):
        platform = need(load_platform(load_profile(name).adapter), HasMarket)
        found += [_of_card(name, box, wanted, offer) for offer in _cards(platform, wanted)[:SHOWN]]
        for steps in (one, both if wanted.max_price is not None else []):
            for keys, loose in steps:
                if time.monotonic() > end:
                    return found
                fails = tuple(keys.split())
                for offer in platform.offers(loose)[:SHOWN]:
                    why = "; ".join(_why(key, wanted, offer) for key in fails)
                    found.append(Near(name, box, offer, fails, why))
            if found:
                break
    return found


def _without(wanted: Constraints) -> Iterator[tuple[str, Constraints]]:
    """The key of each constraint, and what is asked for without it; those that fail most often come first."""
    if wanted.max_price is not None:
        yield "max_price", replace(wanted, max_price=None)
    if wanted.bid is not None:
        yield "bid", replace(wanted, bid=None)
    if wanted.regions:
        yield "regions", replace(wanted, regions=())
    if wanted.gpu_names:
        yield "gpu.name", replace(wanted, gpu_names=())
    if wanted.gpu_memory_gb is not None:
        yield "gpu.memory", replace(wanted, gpu_memory_gb=None)
    if wanted.min_reliability is not None:
        yield "reliability", replace(wanted, min_reliability=None)
    if wanted.cuda:
        yield "gpu.cuda", replace(wanted, cuda="")
    if wanted.volume:
        yield "mounts", replace(wanted, volume="")
    if wanted.spot:
        yield "spot", replace(wanted, spot=False)
    if wanted.disk_gb:
        yield "disk", replace(wanted, disk_gb=None)
    if wanted.memory_gb:
        yield "memory", replace(wanted, memory_gb=None)
    if wanted.cpu:
        yield "cpu", replace(wanted, cpu=None)


def _why(key: str, wanted: Constraints, offer: Offer) -> str:
    """The constraint, and what the offer has instead where the platform says it."""
    memory = wanted.gpu_memory_gb
    has = f", it has {offer.gpu_memory_gb:.0f} GB" if offer.gpu_memory_gb else ""
    words = {
        "max_price": f"max_price is ${wanted.max_price or 0:.3f}",
        "bid": f"bid is ${wanted.bid or 0:.3f}",
        "regions": f"regions asks for {', '.join(wanted.regions)}",
        "gpu.name": f"gpu.name asks for {' or '.join(wanted.gpu_names)}",
        "gpu.memory": f"gpu.memory asks for {memory.value if memory else 0:g} GB{has}",
        "reliability": f"reliability asks for {wanted.min_reliability or 0:g}"
        + (f", it has {offer.reliability:.3f}" if offer.reliability is not None else ""),
        "gpu.cuda": f"gpu.cuda asks for {wanted.cuda}" + (f", it has {offer.cuda}" if offer.cuda else ""),
        "mounts": "it can't mount the volume",
        "spot": "it is no spot box",
        "disk": f"disk asks for {wanted.disk_gb or 0} GB",
        "memory": f"memory asks for {wanted.memory_gb or 0:g} GB",
        "cpu": f"cpu asks for {wanted.cpu or 0:g}",
    }
    return words[key]
