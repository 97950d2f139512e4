"""The offers as a table for people and as values for programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sweepstack.billing.deadlines import contract_words
from sweepstack.cli.commands.place.choice import Choice
from sweepstack.cli.commands.place.market import Market
from sweepstack.cli.output import Out, money
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.host.offers import Offer

SHOWN = 12
"""The most offers of one candidate in the table; `--json` has all."""


def render(markets: Sequence[Market], choice: Choice | None, config: StackConfig, out: Out) -> None:
    """Prints every candidate's offers, the cheapest first, with the chosen ones marked, and the refusals."""
    hours = config.budget.hours if config.budget is not None else None
    chosen = {(choice.where(box), offer.key) for box, offer in choice.offers.items()} if choice is not None else set()
    rows = []
    for market in markets:
        for offer in market.first[:SHOWN]:
            mark = "*" if (market.platform, offer.key) in chosen else ""
            rows.append((mark, market.platform, *_row(offer, hours)))
        if len(market.first) > SHOWN:
            rows.append(("", market.platform, f"… {len(market.first) - SHOWN} more (--json)", *[""] * 7))
    if rows:
        out.table(("", "WHERE", "GPU", "REGION", "$/H", "$/GPU·H", "DISK", "$/GB NET", "SWEEP", "STOCK"), rows)
    _tell_contracts(choice, config, out)
    for market in markets:
        for why in market.refusals:
            out.line(f"refused  {market.platform}: {why}")
        if not market.refusals and not market.first:
            out.line(f"nothing  {market.platform}: no offer fits now")
    if rows and hours is None:
        out.line("note     SWEEP is $/H times budget.hours, and the stack file has none")


def _tell_contracts(choice: Choice | None, config: StackConfig, out: Out) -> None:
    """When the contracts with the hosts of the chosen offers end; in colour where that is too early."""
    boxes = sum(box.want == "running" for box in config.boxes.values())
    hours = config.budget.budget().hours_each(boxes) if config.budget is not None else None
    for box, offer in choice.offers.items() if choice is not None else ():
        if offer.ends_at is not None:
            words, short = contract_words(offer.ends_at, hours, datetime.now(UTC))
            out.line(f"ends     {box}: {words}", style="yellow" if short else None)


def _row(offer: Offer, hours: float | None) -> tuple[str, ...]:
    cards = f"{offer.gpu_count} x {offer.gpu}" if offer.gpu_count > 1 else offer.gpu or "-"
    disk = f"{offer.disk_gb:g} GB" if offer.disk_gb else "-"
    if offer.disk_per_gb_month:
        disk += f" (${offer.disk_per_gb_month:.2f}/GB·month)"
    network = f"{offer.network_per_gb:.3f}" if offer.network_per_gb else "-"
    whole = money(offer.price_per_hour * hours) if hours is not None else "-"
    stock = offer.stock or (f"{offer.reliability:.3f}" if offer.reliability is not None else "-")
    price, each = f"{offer.price_per_hour:.3f}", f"{offer.price_per_gpu_hour:.3f}"
    return (cards, offer.region or "-", price, each, disk, network, whole, stock)


def candidates(markets: Sequence[Market]) -> list[dict[str, Any]]:
    """Every platform once, with the offers of all its boxes: where boxes say `on`, it is asked for each group of
    boxes."""
    whole: dict[str, Market] = {}
    for market in markets:
        known = whole.setdefault(market.platform, Market(market.platform))
        known.refusals += [why for why in market.refusals if why not in known.refusals]
        known.offers |= market.offers
    return [as_json(market) for market in whole.values()]


def as_json(market: Market) -> dict[str, Any]:
    return {
        "platform": market.platform,
        "refusals": market.refusals,
        "offers": {
            box: [
                {
                    "key": offer.key,
                    "gpu": offer.gpu,
                    "gpu_count": offer.gpu_count,
                    "gpu_memory_gb": offer.gpu_memory_gb,
                    "region": offer.region,
                    "price_per_hour": offer.price_per_hour,
                    "price_per_gpu_hour": offer.price_per_gpu_hour,
                    "stopped_per_hour": offer.stopped_per_hour,
                    "disk_gb": offer.disk_gb,
                    "network_per_gb": offer.network_per_gb,
                    "spot": offer.spot,
                    "reliability": offer.reliability,
                    "stock": offer.stock,
                    "ends_at": offer.ends_at.isoformat() if offer.ends_at is not None else None,
                }
                for offer in offers
            ]
            for box, offers in market.offers.items()
        },
    }
