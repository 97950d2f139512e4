"""`sweepctl place`: shows the candidates' offers, and writes the chosen ones into the stack file.

`--wait` looks again until something fits. It rents nothing: `pulumi up` does, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from sweepstack.billing.balance import Runway, balance_refusal
from sweepstack.billing.deadlines import contract_words
from sweepstack.billing.forecast import hours_left
from sweepstack.cli.options import AsJson, Stack, one_of, parse_duration
from sweepstack.cli.output import YES, Out, aside, complain, money, span
from sweepstack.cli.progress import Progress
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.budget import Outlook
from sweepstack.core.paths import docs_page
from sweepstack.onbox.common.errors import No, NotAuthorized, Unsure
from sweepstack.onbox.common.units import count
from sweepstack.onbox.host.offers import Offer
from sweepstack.operations.balances import left_at
from sweepstack.operations.market import (
    Choice,
    Market,
    MarketChoice,
    Near,
    Records,
    as_placement,
    left_out,
    look_once,
    nearest,
    read_records,
    resources_of,
)
from sweepstack.operations.sweep.target import Target
from sweepstack.platforms.common import redact
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.words import remember_credential, told_once
from sweepstack.teardown.launched import copied_journal


def command(
    do: Annotated[
        str,
        typer.Argument(
            metavar="[next|clear]",
            help="Take the next offer after the present placement; or remove that from the stack file.",
        ),
    ] = "",
    show: Annotated[bool, typer.Option("--show", help="Show the offers; write nothing.")] = False,
    wait: Annotated[
        str | None, typer.Option(metavar="6h", help="Where nothing fits now, look again until then. Rents nothing.")
    ] = None,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Write the cheapest offer that fits into the stack file. Shows those of all candidates. Exit 1: nothing fits."""
    if do:
        one_of(do, "next", "clear")
    if wait is not None and (show or do == "clear"):
        raise Unsure(f"--wait is for an offer that is to be written: leave {'--show' if show else 'clear'} out")
    limit = parse_duration(wait) if wait is not None else None
    out = Out(as_json=json)
    return place(Target.find_sweep(stack), out, next_one=do == "next", show=show, clear=do == "clear", wait=limit)


INTERRUPTED = 130


def place(target: Target, out: Out, *, next_one: bool, show: bool, clear: bool, wait: timedelta | None = None) -> int:
    """Exit code: 0 if a choice was written (or shown), 1 if no offer fits, 2 if none fits and a candidate gave no
    answer, 130 if a person ended the wait. `wait`: for so long it looks again where nothing fits. Rents nothing."""
    if clear:
        changed = target.file.write_placement(None)
        out.document({"stack": target.stack, "placement": None, "changed": changed})
        out.line(f"{target.file.shown}: {'the placement is taken out' if changed else 'there is no placement'}")
        out.next([f"pulumi preview --stack {target.stack}"])
        return YES
    records = read_records(target)
    waiting = Waiting(wait) if wait is not None else None
    if waiting is not None:
        try:
            seen, records = _waited(target, records, waiting, next_one=next_one)
        except KeyboardInterrupt:
            left_alone = f"nothing was written and nothing is rented; {target.file.shown} was left as it is"
            complain(f"the wait was ended: {left_alone}", [f"sweepctl place --stack {target.stack} --wait 6h"])
            return INTERRUPTED
    else:
        with Progress("asking the candidates"):
            seen = look_once(target, records.rented, next_one=next_one)
    if not seen.boxes:
        return _no_box(target, seen, out)
    config, choice = seen.config, seen.choice
    if not out.as_json:
        _first_contacts(seen, out)
    document: dict[str, Any] = {
        "stack": target.stack,
        "rented": sorted(seen.rented),
        "candidates": candidates(seen.markets),
        "near": [],
        "left_out": [],
        "balance": None,
        "placement": None,
        "changed": False,
    }
    if choice is None or choice.lacking:
        with Progress("asking what is near"):
            near = waiting.last_near(seen) if waiting is not None else nearest(seen.markets, choice)
        print_offers(seen.markets, choice, config, out)
        for one in near:
            out.line(f"near     {one.words}")
        out.document(document | {"near": [one.as_json() for one in near]})
        raise _nothing(target, seen, waiting)
    with Progress("asking for the balance, and for cards that were left out"):
        lasts, passed = balance_for(seen, records), left_out(seen.markets, choice)
    document["balance"] = lasts.as_json() if lasts is not None else None
    document["left_out"] = [one.as_json() for one in passed]
    print_offers(seen.markets, choice, config, out)
    for one in passed:
        out.line(f"left out {one.words}")
    if lasts is not None:
        out.line(lasts.text(), style="yellow" if lasts.short or lasts.left.usd is None else None)
    if show:
        out.document(document)
        out.next([f"sweepctl place --stack {target.stack}"])
        return YES
    prices = {box: offer.price_per_hour for box, offer in choice.offers.items()}
    words = (
        balance_refusal(lasts, sorted(prices), sum(prices.values()), stack=target.stack) if lasts is not None else ""
    )
    if words and config.ignore_balance:
        out.line(f"placed all the same, since ignore_balance says: {config.ignore_balance}")
    elif words:
        out.document(document)
        raise No(f"{words}\n{target.file.shown} was left as it is", [f"sweepctl place --show --stack {target.stack}"])
    placement = as_placement(choice, config, seen.rented)
    changed = target.file.write_placement(placement)
    out.document(document | {"placement": placement, "changed": changed})
    out.line(f"{target.file.shown}: {'written' if changed else 'nothing changed'}")
    out.next([f"pulumi preview --stack {target.stack}"])
    return YES


def _no_box(target: Target, seen: MarketChoice, out: Out) -> int:
    """Says that every box is rented, or not to be. Returns the exit code: nothing is wrong."""
    rented = sorted(seen.rented)
    rest = sorted(name for name, box in seen.config.boxes.items() if name not in seen.rented and box.want != "running")
    why = [f"{', '.join(rented)}: rented already"] if rented else []
    why += [f"{', '.join(rest)}: not wanted to run"] if rest else []
    nothing: dict[str, Any] = {
        "candidates": [],
        "near": [],
        "left_out": [],
        "balance": None,
        "placement": None,
        "changed": False,
    }
    out.document({"stack": target.stack, "rented": rented, **nothing})
    out.line(f"nothing is to be placed: {'; '.join(why) or 'the stack file has no boxes'}")
    out.line(f"{target.file.shown} was left as it is")
    out.next([f"sweepctl status --stack {target.stack}"])
    return YES


def _first_contacts(seen: MarketChoice, out: Out) -> None:
    """What is told once of each candidate that was asked; and remembers which credential had an answer."""
    for market in seen.markets:
        profile = load_profile(market.platform)
        for line in told_once(profile):
            out.line(line)
        if market.first:
            remember_credential(market.platform, redact.place_of(profile.adapter))


def _waited(target: Target, records: Records, waiting: Waiting, *, next_one: bool) -> tuple[MarketChoice, Records]:
    """The look that ended the wait. Another command may have rented a box in these hours, so what is rented is read
    again before anything is chosen by it."""
    while True:
        known = records.rented
        seen = waiting.until(lambda: look_once(target, known, next_one=next_one))  # noqa: B023 (called before the next)
        if waiting.looks == 1 or not seen.complete:
            return seen, records
        records = read_records(target)
        if records.rented.keys() == known.keys():
            return seen, records


def _nothing(target: Target, seen: MarketChoice, waiting: Waiting | None) -> No:
    """The error when some box got no offer: Unsure while a candidate that may have one gave no answer."""
    missing = f" for {', '.join(seen.choice.lacking)}" if seen.choice is not None else ""
    left_alone, again = f"{target.file.shown} was left as it is", f"sweepctl place --stack {target.stack}"
    keyless = [market.platform for market in seen.markets if not market.out and isinstance(market.error, NotAuthorized)]
    silent = [market.platform for market in seen.markets if market.passing]
    key = f"sweepctl doctor --stack {target.stack}    (which key {', '.join(keyless)} lacks, and where it goes)"
    following = [key] if keyless else []
    why = [f"{', '.join(keyless)} took no key"] if keyless else []
    why += [f"{', '.join(silent)} gave no answer"] if silent else []
    over = waiting is None or waiting.useless
    if why and over and all(market.out for market in seen.markets if market.platform not in (*keyless, *silent)):
        following += [again] if silent else []
        return Unsure(f"no candidate could be asked: {'; '.join(why)}; {left_alone}", following)
    following.append(f"{docs_page('stack-config.md#resources')} (other constraints)")
    if waiting is not None and waiting.useless:
        when = " can be had, and no wait changes that"
    else:
        when = " can be had now" if waiting is None else f" came {waiting.words}"
        following.append(f"{again} --wait 6h (looks again until something fits)")
    if why:
        return Unsure(
            f"nothing that fits{when}{missing}, as far as is known: {'; '.join(why)}; {left_alone}", following
        )
    return No(f"nothing that fits{when}{missing}; {left_alone}", following)


def balance_for(seen: MarketChoice, records: Records) -> Runway | None:
    """How long the balance lasts with the chosen offers beside what bills there already; None where there is no
    balance, or nothing to rent. With boxes on several platforms: the one that does not carry them, else the first. The
    forecast is by the last copies of the journals. Blocks for seconds."""
    if seen.choice is None:
        return None
    each = [_balance_at(platform, seen.choice, seen, records) for platform in seen.choice.platforms]
    found = [lasts for lasts in each if lasts is not None]
    return next((lasts for lasts in found if lasts.short), found[0] if found else None)


def _balance_at(platform: str, choice: Choice, seen: MarketChoice, records: Records) -> Runway | None:
    config = seen.config
    adapter = load_profile(platform).adapter
    prices = [offer.price_per_hour for box, offer in choice.offers.items() if choice.where(box) == platform]
    left = left_at(adapter) if prices else None
    if left is None:
        return None
    there = sum(birth.price_per_hour or 0.0 for birth in seen.rented.values() if birth.platform == adapter)
    added = sum(prices)
    store = records.store
    births = records.births if store is not None else []
    journals = [copied_journal(store, birth.box, birth.generation) for birth in births] if store is not None else []
    at_work = [name for name, box in config.boxes.items() if box.want == "running"]
    counts = [gpu.count if (gpu := resources_of(config, name).gpu) is not None else 0 for name in at_work]
    slots = sum(config.job.slots or count or 1 for count in counts)
    outlook = Outlook(boxes=len(at_work), slots=slots, cells=len(config.roster.cells))
    now = datetime.now(UTC)
    hours = hours_left([journal for journal in journals if journal is not None], outlook, now)
    return Runway(left, left.rate(there) + added, now, hours)


LOOK_SECONDS = 60.0
"""Time between two looks: a platform may allow as few as 10 searches a minute, and a look can take two."""
TELL_SECONDS = 600.0
"""Time between two lines that say how long it still waits, and what is near."""


class Waiting:
    """One wait. `looks`: how many there were; `near`: what was near at last, from the last time it was asked;
    `useless`: it ended since no candidate can ever have anything."""

    def __init__(self, limit: timedelta) -> None:
        self.limit = limit.total_seconds()
        self.looks, self.useless = 0, False
        self.near: list[Near] = []
        self._end = time.monotonic() + self.limit
        self._told_at, self._troubles = 0.0, dict[str, str]()
        self._answered: set[str] = set()

    @property
    def words(self) -> str:
        """`within 6 h (312 looks)`"""
        return f"within {span(self.limit)} ({count(self.looks, 'look')})"

    def until(self, look: Callable[[], MarketChoice]) -> MarketChoice:
        """Looks until each box has an offer or is rented, no candidate can ever have one, or the time is up. Returns
        the last look.

        An outage of a platform does not end it: it is told, and so is its end. Raises what `look` raises, so a mistake
        in the stack file, which is read for each look, ends the wait; KeyboardInterrupt at any moment.
        """
        while True:
            seen = look()
            self.looks += 1
            self._tell_troubles(seen.markets)
            left = self._end - time.monotonic()
            self.useless = not seen.complete and not self._may_come(seen.markets)
            if not seen.boxes or seen.complete or self.useless or left <= 0:
                return seen
            now = time.monotonic()
            if self.looks == 1 or now - self._told_at >= TELL_SECONDS:
                self._tell(seen, left, now)
            time.sleep(max(0.0, min(paced(LOOK_SECONDS), self._end - time.monotonic())))

    def last_near(self, seen: MarketChoice) -> list[Near]:
        """What is near now; where that is asked for in vain, what was near before."""
        self.near = nearest(seen.markets, seen.choice) or self.near
        return self.near

    def _may_come(self, markets: Sequence[Market]) -> bool:
        """Whether a candidate can have something later. One that answered before, and now refuses the key, counts: a
        page in front of an API can say that, too."""
        self._answered |= {market.platform for market in markets if not market.refusals}
        return any(
            not market.out and (market.error is None or market.passing or market.platform in self._answered)
            for market in markets
        )

    def _tell(self, seen: MarketChoice, left: float, now: float) -> None:
        self._told_at = now
        near = self.last_near(seen)
        end = (datetime.now(UTC) + timedelta(seconds=left)).strftime("%Y-%m-%d %H:%M UTC")
        missing = f" for {', '.join(seen.choice.lacking)}" if seen.choice is not None else ""
        again = (
            f"looking again every {span(LOOK_SECONDS)}" if self.looks == 1 else f"{count(self.looks, 'look')} so far"
        )
        aside(f"waiting  nothing fits now{missing}; {span(left)} left, until {end}; {again}; Ctrl-C ends it")
        aside(*(f"near     {one.words}" for one in near))

    def _tell_troubles(self, markets: Sequence[Market]) -> None:
        """Says once that a candidate gives no answer, and once that it does again."""
        now = {market.platform: str(market.error) for market in markets if market.error is not None}
        for name, why in now.items():
            if name not in self._troubles:
                aside(f"trouble  {name} gives no answer, and is asked again: {why}")
        for name in self._troubles.keys() - now.keys():
            aside(f"again    {name} answers")
        self._troubles = now


SHOWN = 12
"""The most offers of one candidate in the table; `--json` has all."""


def print_offers(markets: Sequence[Market], choice: Choice | None, config: StackConfig, out: Out) -> None:
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
    return [market_as_json(market) for market in whole.values()]


def market_as_json(market: Market) -> dict[str, Any]:
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
