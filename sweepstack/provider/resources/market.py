"""What a box would cost now: shown in every preview, and the ceiling when the box is rented.

A preview shows an offer and its price. `up` takes that or a cheaper one; otherwise it stops before it rents, and says
what could be had instead. What was shown is remembered only on this machine: a convenience, not a record.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweepstack.billing.deadlines import contract_words
from sweepstack.core.budget import Budget
from sweepstack.core.paths import docs_page
from sweepstack.core.resources import BoxInputs, Placed
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.errors import ConfigError, NoCapacity, PlatformError, RequestRefused, SweepstackError
from sweepstack.onbox.common.xdg import cache_folder
from sweepstack.onbox.host.capabilities import HasMarket, TellsAhead
from sweepstack.onbox.host.offers import Constraints, Offer
from sweepstack.onbox.host.platform import Platform, VolumeRecord
from sweepstack.operations.volumes.end_check import find_kept
from sweepstack.platforms.registry import load_platform, need
from sweepstack.provider.resources import before_renting
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.session import Operation

ASKED_FOR_SECONDS = 20.0
"""For so long the boxes of one preview, which all ask the same, share an answer of the market."""
SHOWN_SECONDS = 24 * 3600.0
"""For so long a price that a preview showed is the ceiling of an `up`."""
_MONTH_HOURS = 730.0
_lock = threading.Lock()
_asked: dict[tuple[str, Constraints], tuple[float, list[Offer]]] = {}
_promised: dict[tuple[str, str], str] = {}
"""Adapter and key of an offer that can be rented only once → the box that this process showed it to."""
_remembered: dict[Path, dict[str, dict[str, Any]]] = {}
"""What this process has shown: the file that remembers it → box → price and time."""


def offers_for(adapter: str, constraints: Constraints) -> list[Offer] | None:
    """The offers of the market, cheapest first; None if the platform has no market. Asks once for all boxes that want
    the same. Raises PlatformError."""
    platform = load_platform(adapter)
    if not isinstance(platform, HasMarket):
        return None
    key = (adapter, constraints)
    with _lock:
        known = _asked.get(key)
        if known is None or time.monotonic() - known[0] > ASKED_FOR_SECONDS:
            known = (time.monotonic(), platform.offers(constraints))
            _asked[key] = known
    return known[1]


def bills(adapter: object) -> bool:
    """Whether a box there costs money that only a quote or a ceiling names: its platform has a market, or what it is
    can't be known here."""
    if not isinstance(adapter, str):
        return False
    try:
        return isinstance(load_platform(adapter), HasMarket)
    except SweepstackError:
        return True


def preview(op: Operation, inputs: Mapping[str, Any], evidence: Evidence | None = None) -> list[Failure]:
    """Says what a box that does not exist yet would be and cost, and remembers what was shown. Never raises.

    Refuses what can't work: a volume in a region where no offer fits, while there are offers elsewhere.

    `inputs`: as the program gave them; some may not be known yet. `evidence`: of the sweep, where it is known.
    """
    name, adapter = inputs.get("name"), inputs.get("adapter")
    resources = inputs.get("resources") or {}
    if not isinstance(name, str) or not isinstance(adapter, str) or not isinstance(resources, dict):
        return []
    raw = inputs.get("placed")
    placed = Placed.model_validate(raw) if isinstance(raw, dict) else None
    image = inputs.get("image")
    constraints = Constraints.of(
        resources,
        max_price=inputs.get("max_price"),
        bid=inputs.get("bid"),
        image=image if isinstance(image, str) else "",
    )
    volume = _mounted(adapter, inputs)
    try:
        found = offers_for(adapter, replace(constraints, volume=volume.native_id) if volume else constraints)
        elsewhere = offers_for(adapter, constraints) if volume and found == [] else None
    except PlatformError as error:
        op.warn(f"box {name}: what {adapter} has now is not known ({error})")
        return []
    if found is None:
        failures = _say_ahead(op, name, adapter, resources)
        if isinstance(price := inputs.get("price_per_hour"), int | float):
            before_renting.foresee(op, inputs, float(price), evidence)
        return failures
    if volume and elsewhere:
        where = volume.region or volume.location
        words = (
            f"volume {inputs['volume']} is in {where}, and nothing fits there now; elsewhere: {_words(elsewhere[:3])}"
        )
        return [Failure("mounts", f"{words}. A box must be where its volume is. {NEXT}, or another volume")]
    if not found:
        op.warn(f"box {name}: {adapter} has nothing now that fits; `pulumi up` would stop before it rents. {NEXT}")
        return []
    chosen = next((offer for offer in found if placed is not None and offer.key == placed.offer), None)
    if placed is not None and chosen is None:
        op.warn(
            f"box {name}: the offer {placed.offer} that was placed is not to be had now; what is: "
            f"{_words(found[:3])}. Next: sweepctl place next --stack {op.stack}"
        )
        return []
    offer = chosen or _for_box(adapter, found, name)
    if offer is None:
        op.warn(
            f"box {name}: all {len(found)} offers that {adapter} shows go to other boxes of this stack; what this one "
            "costs is known when it is rented, and max_price is the ceiling for all of them"
        )
        if inputs.get("dry_run"):
            _remember(op, name, constraints, None)
        return []
    if placed is not None and offer.price_per_hour > placed.price_per_hour:
        op.warn(
            f"box {name}: {describe(offer)}; it was placed at ${placed.price_per_hour:.3f}/h, and nothing dearer is "
            f"rented. Next: sweepctl place --stack {op.stack}"
        )
        return []
    until, short = _contract(inputs, offer)
    op.info(f"box {name}: {describe(offer)}{_ends(offer)}{f'; {until}' if until and not short else ''}")
    if short:
        op.warn(f"box {name}: {until}. Next: sweepctl place next --stack {op.stack}")
    if placed is None and inputs.get("dry_run"):
        _remember(op, name, constraints, offer)
    before_renting.foresee(op, inputs, offer.price_per_hour, evidence)
    return []


def _say_ahead(op: Operation, name: str, adapter: str, resources: Mapping[str, Any]) -> list[Failure]:
    try:
        platform = load_platform(adapter)
        for words in platform.ahead(resources) if isinstance(platform, TellsAhead) else ():
            op.info(f"box {name}: {words}")
    except ConfigError as error:
        return [Failure("adapter", str(error))]
    except RequestRefused as error:  # a box that is there already, and to be adopted, may be in its own way
        op.warn(f"box {name}: it would not be made now: {error}")
    except PlatformError as error:
        op.warn(f"box {name}: what is to know of it before it is made can't be asked ({error})")
    return []


def _contract(inputs: Mapping[str, Any], offer: Offer) -> tuple[str, bool]:
    """When the contract with the offer's host ends, and whether that is too early for the budget's hours; "" where
    there is no such end."""
    if offer.ends_at is None:
        return "", False
    raw = inputs.get("budget")
    budget = Budget.model_validate(raw) if isinstance(raw, dict) else None
    hours = budget.hours_each(len(inputs.get("named") or ())) if budget is not None else None
    return contract_words(offer.ends_at, hours, datetime.now(UTC))


def _mounted(adapter: str, inputs: Mapping[str, Any]) -> VolumeRecord | None:
    """The volume that the box is to mount, if it exists already. The volume's own check says what is wrong with it."""
    name = inputs.get("volume")
    if not isinstance(name, str):
        return None
    try:
        return find_kept(load_platform(adapter), name)
    except SweepstackError:
        return None


_PAGE = docs_page("stack-config.md#resources")
NEXT = f"Next: other constraints ({_PAGE}), or sweepctl place, which asks the other candidates"


def constraints_of(inputs: BoxInputs) -> Constraints:
    """What is asked of the market for this box, but for its volume."""
    return Constraints.of(inputs.resources, max_price=inputs.max_price, bid=inputs.bid, image=inputs.image or "")


def ceiling(op: Operation, inputs: BoxInputs) -> float | None:
    """USD per hour that this box may cost: the least of `max_price`, the placed offer's price, and what a preview
    showed. None: no limit."""
    limits = [inputs.max_price]
    if inputs.placed is not None:
        limits.append(inputs.placed.price_per_hour)
    else:
        limits.append(_shown(op, constraints_of(inputs)))
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def not_to_be_had(op: Operation, platform: Platform, inputs: BoxInputs, error: NoCapacity, most: float | None) -> str:
    """The message when nothing could be rented: what was tried, what could be had instead, and the next command. Asks
    the market once more."""
    try:
        found = need(platform, HasMarket).offers(constraints_of(inputs))
    except PlatformError:
        found = []
    dearer = [offer for offer in found if most is not None and offer.price_per_hour > most + 1e-9]
    limit = f" at ${most:.3f}/h or less, which is what was shown" if most is not None and dearer else ""
    instead = f"\n\n  the next offers: {_words(dearer[:3])}" if dearer else ""
    again = NEXT[6:]
    if dearer and len(dearer) == len(found):
        again = f"pulumi preview --stack {op.stack} shows the new price and `up` then takes it"
    elif dearer:  # it lists offers that it does not rent: a preview would show them again
        first = "" if inputs.placed is not None else f"sweepctl place --stack {op.stack} && "
        up = f"pulumi up --stack {op.stack}    ({inputs.adapter} lists what it refused)"
        again = f"{first}sweepctl place next --stack {op.stack} && {up}"
    return f"box {inputs.name} was not rented{limit}: {error}{instead}\n  next   {again}"


def describe(offer: Offer) -> str:
    """`2 x A100 80GB in US-KS-2 at $3.780/h with 120 GB (stock high)`."""
    cards = f"{offer.gpu_count} x {offer.gpu}" if offer.gpu_count > 1 else offer.gpu
    disk = f" with {offer.disk_gb:g} GB" if offer.disk_gb else ""
    spot = " (spot)" if offer.spot else ""
    stock = f", stock {offer.stock}" if offer.stock else ""
    where = f" in {offer.region}" if offer.region else ""
    return f"{cards}{where} at ${offer.price_per_hour:.3f}/h{disk}{spot}{stock}"


def _for_box(adapter: str, found: list[Offer], box: str) -> Offer | None:
    """The cheapest offer that this process showed to no other box, if an offer can be rented only once."""
    with _lock:
        for offer in found:
            if not offer.single or _promised.setdefault((adapter, offer.key), box) == box:
                return offer
    return None


def _ends(offer: Offer) -> str:
    least = " at least" if offer.stopped_at_least else ""
    stopped = f"; stopped ${offer.stopped_per_hour * _MONTH_HOURS:.2f}/month{least}" if offer.stopped_per_hour else ""
    network = f"; traffic ${offer.network_per_gb:.3f}/GB" if offer.network_per_gb else ""
    return f"{stopped}{network}"


def _words(offers: list[Offer]) -> str:
    return "; ".join(describe(offer) for offer in offers) or "nothing"


def _file(op: Operation, constraints: Constraints) -> Path:
    asked = repr((str(op.session.project_root), op.stack, constraints))
    digest = hashlib.sha256(asked.encode()).hexdigest()[:24]
    return cache_folder() / "shown" / f"{digest}.json"


def _remember(op: Operation, box: str, constraints: Constraints, offer: Offer | None) -> None:
    try:
        file = _file(op, constraints)
        file.parent.mkdir(parents=True, exist_ok=True)
        with _lock:
            boxes = _remembered.setdefault(file, {})
            boxes[box] = {"price_per_hour": offer.price_per_hour if offer else None, "at": time.time()}
            write_atomically(file, json.dumps(boxes).encode())
    except OSError:
        op.progress("what was shown could not be remembered; the ceiling is max_price")


def _shown(op: Operation, constraints: Constraints) -> float | None:
    """The highest price that the last preview showed to boxes with these constraints: which box gets which offer is not
    settled before they are rented. None if nothing was shown, or one of them got no price."""
    try:
        boxes = json.loads(_file(op, constraints).read_bytes())
        recent = [one for one in boxes.values() if time.time() - float(one["at"]) < SHOWN_SECONDS]
        prices = [one["price_per_hour"] for one in recent]
        return None if None in prices else max(map(float, prices), default=None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
