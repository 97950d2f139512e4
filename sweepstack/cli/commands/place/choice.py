"""Which offer each box gets, and the block of the stack file that says so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sweepstack.cli.commands.place.market import Market
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.records import Birth
from sweepstack.onbox.host.offers import Offer


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
