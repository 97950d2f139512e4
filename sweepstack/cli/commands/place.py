"""`sweepctl place`: shows the candidates' offers, and writes the chosen ones into the stack file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from sweepstack.billing.balance import Runway, refusal
from sweepstack.billing.forecast import Outlook, hours_left
from sweepstack.cli.options import AsJson, Stack
from sweepstack.cli.output import YES, No, Out, Unsure, money
from sweepstack.cli.progress import Progress
from sweepstack.cli.sources import open_sources
from sweepstack.cli.target import Target
from sweepstack.config.rent import Resources
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.records import Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.capabilities import HasMarket
from sweepstack.onbox.host.offers import Constraints, Offer
from sweepstack.operations.balances import left_at
from sweepstack.operations.observe_volume import find_kept
from sweepstack.platforms.registry import load_platform
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.resolve import unfit
from sweepstack.teardown.launched import copied_journal

SHOWN = 12
"""The most offers of one candidate in the table; `--json` has all."""


@dataclass
class Market:
    """The offers of one candidate for these boxes. `refusals`: why it can't be used; `offers`: box → its offers."""

    platform: str
    refusals: list[str] = field(default_factory=list)
    offers: dict[str, list[Offer]] = field(default_factory=dict)
    fixed_price: bool = False

    @property
    def first(self) -> list[Offer]:
        """The offers for the first box; the table shows only these."""
        return next(iter(self.offers.values()), [])


@dataclass(frozen=True)
class Choice:
    """The chosen offers, by box; `lacking`: boxes for which no offer was left."""

    platform: str
    offers: Mapping[str, Offer]
    lacking: tuple[str, ...] = ()


def command(
    next_one: Annotated[bool, typer.Option("--next", help="Take the next offer after the present placement.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show the offers; write nothing.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the placement from the stack file.")] = False,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Show the candidates' offers, and write the cheapest that fits into the stack file. Exit 1: nothing fits."""
    return place(Target.find_sweep(stack), Out(as_json=json), next_one=next_one, show=show, clear=clear)


def place(target: Target, out: Out, *, next_one: bool, show: bool, clear: bool) -> int:
    """Exit code: 0 if a choice was written (or shown), 1 if no offer fits."""
    if clear:
        changed = target.file.write_placement(None)
        out.document({"stack": target.stack, "placement": None, "changed": changed})
        out.line(f"{target.file.shown}: {'the placement is taken out' if changed else 'there is no placement'}")
        out.next([f"pulumi preview --stack {target.stack}"])
        return YES
    config = StackConfig.load(target.root, target.stack)
    store, births = _records(target)
    rented = {birth.box: birth for birth in births if birth.native_id is not None and birth.ended_at is None}
    with Progress("asking the candidates"):
        markets = [ask_market(config, name, rented) for name in config.candidates]
        choice = choose(config, markets, next_one=next_one)
        lasts = balance_for(config, choice, rented, store, births) if choice is not None else None
    document = {
        "stack": target.stack,
        "rented": sorted(rented),
        "candidates": [_as_json(market) for market in markets],
        "balance": lasts.as_json() if lasts is not None else None,
        "placement": None,
        "changed": False,
    }
    render(markets, choice, config, out)
    if choice is None or choice.lacking:
        out.document(document)
        missing = f" for {', '.join(choice.lacking)}" if choice is not None else ""
        raise No(
            f"nothing that fits can be had now{missing}; {target.file.shown} was left as it is",
            ["docs/stack-config.md#resources (other constraints)", f"sweepctl place --stack {target.stack} (later)"],
        )
    if lasts is not None:
        out.line(lasts.text(), style="yellow" if lasts.short or lasts.left.usd is None else None)
    if show:
        out.document(document)
        out.next([f"sweepctl place --stack {target.stack}"])
        return YES
    prices = {box: offer.price_per_hour for box, offer in choice.offers.items()}
    words = refusal(lasts, sorted(prices), sum(prices.values()), stack=target.stack) if lasts is not None else ""
    if words and config.ignore_balance:
        out.line(f"placed all the same, since ignore_balance says: {config.ignore_balance}")
    elif words:
        out.document(document)
        raise No(f"{words}\n{target.file.shown} was left as it is", [f"sweepctl place --show --stack {target.stack}"])
    placement = as_placement(choice, config, rented)
    changed = target.file.write_placement(placement)
    out.document(document | {"placement": placement, "changed": changed})
    out.line(f"{target.file.shown}: {'written' if changed else 'nothing changed'}")
    out.next([f"pulumi preview --stack {target.stack}"])
    return YES


def _records(target: Target) -> tuple[EvidenceStore | None, list[Birth]]:
    """The evidence, and what was ever rented: boxes that are there stay where they are."""
    try:
        store = open_sources(target).store
    except Unsure:  # the backend has no such stack yet: nothing was ever brought up
        store = None
    return store, store.births() if store is not None else []


def balance_for(
    config: StackConfig,
    choice: Choice,
    rented: Mapping[str, Birth],
    store: EvidenceStore | None,
    births: Sequence[Birth],
) -> Runway | None:
    """How long the balance lasts with these offers beside what bills there already; None where there is no balance, or
    nothing to rent. The forecast is by the last copies of the journals. Blocks for seconds."""
    adapter = load_profile(choice.platform).adapter
    left = left_at(adapter) if choice.offers else None
    if left is None:
        return None
    there = sum(birth.price_per_hour or 0.0 for birth in rented.values() if birth.platform == adapter)
    added = sum(offer.price_per_hour for offer in choice.offers.values())
    journals = [copied_journal(store, birth.box, birth.generation) for birth in births] if store is not None else []
    at_work = [name for name, box in config.boxes.items() if box.want == "running"]
    counts = [gpu.count if (gpu := _resources(config, name).gpu) is not None else 0 for name in at_work]
    slots = sum(config.job.slots or count or 1 for count in counts)
    outlook = Outlook(boxes=len(at_work), slots=slots, cells=len(config.roster.cells))
    now = datetime.now(UTC)
    hours = hours_left([journal for journal in journals if journal is not None], outlook, now)
    return Runway(left, left.rate(there) + added, now, hours)


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
            market.offers = {box: [Offer(name, "", 0, price, "")] for box in _to_place(config, rented)}
            return market
        if market.refusals:
            return market
        volume = next((find_kept(platform, mount.source).native_id for mount in config.volume_mounts.values()), "")
        known: dict[Constraints, list[Offer]] = {}
        for box in _to_place(config, rented):
            resources = _resources(config, box).as_inputs()
            wanted = Constraints.of(resources, max_price=config.max_price, volume=volume)
            if wanted not in known:
                known[wanted] = platform.offers(wanted)
            market.offers[box] = known[wanted]
    except SweepstackError as error:
        market.refusals.append(str(error))
    return market


def _own_price(config: StackConfig, name: str, price: float | None) -> float:
    override = config.overrides.get(name)
    own = override.price_per_hour if override is not None else None
    return (price or 0.0) if own is None else own


def _to_place(config: StackConfig, rented: Mapping[str, Birth]) -> list[str]:
    return [name for name, box in config.boxes.items() if box.want == "running" and name not in rented]


def _resources(config: StackConfig, box: str) -> Resources:
    return config.boxes[box].resources or config.job.resources


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


def render(markets: Sequence[Market], choice: Choice | None, config: StackConfig, out: Out) -> None:
    """Prints every candidate's offers, the cheapest first, with the chosen ones marked, and the refusals."""
    hours = config.budget.hours if config.budget is not None else None
    chosen = {offer.key for offer in choice.offers.values()} if choice is not None else set()
    rows = []
    for market in markets:
        for offer in market.first[:SHOWN]:
            mark = "*" if choice is not None and market.platform == choice.platform and offer.key in chosen else ""
            rows.append((mark, market.platform, *_row(offer, hours)))
        if len(market.first) > SHOWN:
            rows.append(("", market.platform, f"… {len(market.first) - SHOWN} more (--json)", *[""] * 7))
    if rows:
        out.table(("", "WHERE", "GPU", "REGION", "$/H", "$/GPU·H", "DISK", "$/GB NET", "SWEEP", "STOCK"), rows)
    for market in markets:
        for why in market.refusals:
            out.line(f"refused  {market.platform}: {why}")
        if not market.refusals and not market.first:
            out.line(f"nothing  {market.platform}: no offer fits now")
    if rows and hours is None:
        out.line("note     SWEEP is $/H times budget.hours, and the stack file has none")


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


def _as_json(market: Market) -> dict[str, Any]:
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
                }
                for offer in offers
            ]
            for box, offers in market.offers.items()
        },
    }
