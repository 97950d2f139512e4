"""Looks at the offers, waits for one if asked to, and writes the choice into the stack file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sweepstack.billing.balance import Runway, refusal
from sweepstack.billing.forecast import Outlook, hours_left
from sweepstack.cli.commands.place.choice import Choice, as_placement
from sweepstack.cli.commands.place.looks import Look, Records, look_once, read_records
from sweepstack.cli.commands.place.market import resources_of
from sweepstack.cli.commands.place.near import left_out, nearest
from sweepstack.cli.commands.place.screen import candidates, render
from sweepstack.cli.commands.place.waiting import Waiting
from sweepstack.cli.output import YES, No, Out, complain
from sweepstack.cli.progress import Progress
from sweepstack.cli.target import Target
from sweepstack.core.paths import docs_page
from sweepstack.onbox.common.errors import NotAuthorized
from sweepstack.operations.balances import left_at
from sweepstack.platforms.common import redact
from sweepstack.profiles import first_contact
from sweepstack.profiles.load import load_profile
from sweepstack.teardown.launched import copied_journal

INTERRUPTED = 130


def place(target: Target, out: Out, *, next_one: bool, show: bool, clear: bool, wait: timedelta | None = None) -> int:
    """Exit code: 0 if a choice was written (or shown), 1 if no offer fits, 130 if a person ended the wait. `wait`: for
    so long it looks again where nothing fits. Rents nothing."""
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
        render(seen.markets, choice, config, out)
        for one in near:
            out.line(f"near     {one.words}")
        out.document(document | {"near": [one.as_json() for one in near]})
        raise _nothing(target, seen, waiting)
    with Progress("asking for the balance, and for cards that were left out"):
        lasts, passed = balance_for(seen, records), left_out(seen.markets, choice)
    document["balance"] = lasts.as_json() if lasts is not None else None
    document["left_out"] = [one.as_json() for one in passed]
    render(seen.markets, choice, config, out)
    for one in passed:
        out.line(f"left out {one.words}")
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
    placement = as_placement(choice, config, seen.rented)
    changed = target.file.write_placement(placement)
    out.document(document | {"placement": placement, "changed": changed})
    out.line(f"{target.file.shown}: {'written' if changed else 'nothing changed'}")
    out.next([f"pulumi preview --stack {target.stack}"])
    return YES


def _no_box(target: Target, seen: Look, out: Out) -> int:
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


def _first_contacts(seen: Look, out: Out) -> None:
    """What is told once of each candidate that was asked; and remembers which credential had an answer."""
    for market in seen.markets:
        profile = load_profile(market.platform)
        for line in first_contact.once(profile):
            out.line(line)
        if market.first:
            first_contact.remember_credential(market.platform, redact.place_of(profile.adapter))


def _waited(target: Target, records: Records, waiting: Waiting, *, next_one: bool) -> tuple[Look, Records]:
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


def _nothing(target: Target, seen: Look, waiting: Waiting | None) -> No:
    """The error when some box got no offer."""
    missing = f" for {', '.join(seen.choice.lacking)}" if seen.choice is not None else ""
    when = " can be had now" if waiting is None else f" came {waiting.words}"
    following = [f"{docs_page('stack-config.md#resources')} (other constraints)"]
    if keyless := [market.platform for market in seen.markets if isinstance(market.error, NotAuthorized)]:
        doctor = f"sweepctl doctor --stack {target.stack}    (which key {', '.join(keyless)} lacks, and where it goes)"
        if len(keyless) == len(seen.markets):
            why = f"no candidate could be asked: {', '.join(keyless)} took no key"
            return No(f"{why}; {target.file.shown} was left as it is", [doctor])
        following.insert(0, doctor)
    if waiting is not None and waiting.useless:
        when = " can be had, and no wait changes that"
    else:
        following.append(f"sweepctl place --stack {target.stack} --wait 6h (looks again until something fits)")
    return No(f"nothing that fits{when}{missing}; {target.file.shown} was left as it is", following)


def balance_for(seen: Look, records: Records) -> Runway | None:
    """How long the balance lasts with the chosen offers beside what bills there already; None where there is no
    balance, or nothing to rent. With boxes on several platforms: the one that does not carry them, else the first. The
    forecast is by the last copies of the journals. Blocks for seconds."""
    if seen.choice is None:
        return None
    each = [_balance_at(platform, seen.choice, seen, records) for platform in seen.choice.platforms]
    found = [lasts for lasts in each if lasts is not None]
    return next((lasts for lasts in found if lasts.short), found[0] if found else None)


def _balance_at(platform: str, choice: Choice, seen: Look, records: Records) -> Runway | None:
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
