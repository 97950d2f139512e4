"""Which offer each box gets, and the block of the stack file that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sweepstack.cli.commands.place.market import Market
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.records import Birth
from sweepstack.onbox.host.offers import Offer


@dataclass(frozen=True)
class Choice:
    """The chosen offers, by box; `lacking`: boxes for which no offer was left."""

    platform: str
    offers: Mapping[str, Offer]
    lacking: tuple[str, ...] = ()


def choose(config: StackConfig, markets: Sequence[Market], *, next_one: bool) -> Choice | None:
    """The cheapest offers of the first candidate that has one for every box; no offer is used twice.

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
        found = _assign(market.platform, left)
        if not found.lacking:
            return found
        best = best or found
    return best


def _after(offers: list[Offer], taken: Mapping[str, str]) -> list[Offer]:
    """The offers after the last one that was taken; all if none of those taken is left."""
    keys = [offer.key for offer in offers]
    places = [keys.index(key) for key in taken.values() if key in keys]
    return offers[max(places) + 1 :] if places else offers


def _assign(platform: str, offers: Mapping[str, list[Offer]]) -> Choice:
    given: dict[str, Offer] = {}
    gone: set[str] = set()
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
        name: placed.model_dump(mode="json") for name, placed in kept.items() if name in rented and name in config.boxes
    }
    for name, offer in choice.offers.items():
        if offer.price_per_hour > 0:
            boxes[name] = {
                "offer": offer.key,
                "price_per_hour": round(offer.price_per_hour, 4),
                "gpu": offer.gpu,
                "count": offer.gpu_count,
                "region": offer.region,
            }
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"platform": choice.platform, "boxes": boxes, "at": now}
