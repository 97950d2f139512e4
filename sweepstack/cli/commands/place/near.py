"""The offers nearest to what is asked for, each with the one constraint that it fails.

For each constraint the market is asked once more without it: what comes then fails that one alone. No adapter has to
say why it left an offer out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweepstack.cli.commands.place.choice import Choice
from sweepstack.cli.commands.place.market import Market
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.capabilities import HasMarket
from sweepstack.onbox.host.offers import Constraints, Offer, is_part
from sweepstack.platforms.registry import load_platform, need
from sweepstack.profiles.load import load_profile

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
