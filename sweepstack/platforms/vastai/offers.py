"""vast.ai's market: the search, reading offers, and which box of this process tries which offer.

A search returns 64 offers at most (2026-11), so each asks as narrowly as possible, cheapest first. Only 10 searches a
minute are allowed, so boxes that ask for the same share one search, and no two of them try the same offer.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from datetime import datetime

from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.host.offers import Constraints, Offer, cheapest_first, is_meant, maker_of
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.json_values import instant, number
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.single_flight import SingleFlight
from sweepstack.platforms.vastai.api import Client, Row, Source

MIN_DISK_GB, DEFAULT_DISK_GB = 10, 20
HOURS_PER_MONTH = 730
BID_STEP = 0.0001
_FRESH_SECONDS = 20.0
_TAKEN_SECONDS = 900.0
"""For so long an offer stays reserved for the box that tries it: with 100 boxes, the last one tries after 450 s."""
_GPU_SLACK = 0.05
"""GPU memory may differ by this part: a 24 GB GPU reports 24,564 MB, an 80 GB one 79 to 82 thousand."""
_MAKES = ("", "PCIE", "PCIe", "SXM", "SXM2", "SXM3", "SXM4", "SXM5", "NVL", "80GB", "SXM4 80GB", "PCIE 80GB")
"""What vast.ai appends to a GPU's name. A search can ask for whole names only."""


@dataclass(frozen=True)
class Ask:
    """One offer, with the fields that only a create on vast.ai needs. Prices: USD per hour of the whole machine."""

    offer: Offer
    ask_id: int
    machine_id: int
    min_bid: float | None
    storage_per_hour: float


def disk_for(constraints: Constraints) -> int:
    """GB of container disk. It is always sent: the API's documentation names different defaults, and a disk can't
    grow."""
    return max(constraints.disk_gb or DEFAULT_DISK_GB, MIN_DISK_GB)


def query_for(constraints: Constraints, *, machine: int | None = None, broad: bool = False) -> Row:
    """The search for `constraints`. `machine`: only this machine's offers. `broad`: without GPU names and regions,
    which hosts spell in different ways."""
    query: Row = {
        "disk_space": {"gte": disk_for(constraints)},
        "num_gpus": {"eq": constraints.gpu_count} if constraints.gpu_count else {"gte": 1},
        "direct_port_count": {"gte": 1},
    }
    if constraints.maker:
        query["gpu_arch"] = {"eq": constraints.maker}
    if constraints.gpu_names and not broad:
        query["gpu_name"] = {"in": _spellings(constraints.gpu_names)}
    if memory := constraints.gpu_memory_gb:
        bounds = {"gte": round(memory.value * 1000 * (1 - _GPU_SLACK))}
        if not memory.at_least:
            bounds["lte"] = round(memory.value * 1000 * (1 + _GPU_SLACK))
        query["gpu_ram"] = bounds
    if constraints.cuda:
        # The host's figure is the newest that its driver can run: 12.8 runs an image of 12.4.
        query["cuda_max_good"] = {"gte": float(constraints.cuda)}
    if constraints.cpu:
        query["cpu_cores_effective"] = {"gte": constraints.cpu}
    if constraints.memory_gb:
        query["cpu_ram"] = {"gte": round(constraints.memory_gb * 1000)}
    if constraints.min_reliability is not None:
        query["reliability"] = {"gte": constraints.min_reliability}
    if constraints.regions and not broad and all(len(region) == 2 for region in constraints.regions):
        query["geolocation"] = {"in": [region.upper() for region in constraints.regions]}
    if machine is not None:
        query["machine_id"] = {"eq": machine}
    return query


def read_ask(row: Row, constraints: Constraints, bid: float | None = None) -> Ask | None:
    """The offer in a row of a search; None when it can't be rented, priced or read, or does not fit `constraints`.
    `bid`: USD per hour for a spot offer (None: the least that the machine accepts)."""
    ask_id, machine = row.get("ask_contract_id", row.get("id")), row.get("machine_id")
    if not isinstance(ask_id, int) or not isinstance(machine, int) or row.get("rentable") is False:
        return None
    disk = disk_for(constraints)
    month = number(row.get("storage_cost"))
    storage = number(row.get("storage_total_cost"))
    if storage is None:
        storage = disk * (month or 0.0) / HOURS_PER_MONTH
    min_bid = number(row.get("min_bid"))
    if constraints.spot:
        if min_bid is None or (bid is not None and bid < min_bid):
            return None
        price = (bid if bid is not None else up_to_step(min_bid)) + storage
    else:
        total = number(row.get("dph_total"))
        if not total:
            return None
        price = total
    ram, cuda = number(row.get("gpu_ram")), number(row.get("cuda_max_good"))
    network = [cost for name in ("inet_up_cost", "inet_down_cost") if (cost := number(row.get(name))) is not None]
    name = str(row.get("gpu_name") or "")
    offer = Offer(
        key=str(ask_id),
        gpu=name,
        gpu_count=int(number(row.get("num_gpus")) or 0),
        price_per_hour=price,
        region=str(row.get("geolocation") or ""),
        gpu_memory_gb=None if ram is None else round(ram / 1000, 1),
        disk_gb=float(disk),
        disk_per_gb_month=month,
        stopped_per_hour=storage,
        stopped_at_least=True,
        network_per_gb=max(network) if network else None,
        spot=constraints.spot,
        reliability=number(row.get("reliability", row.get("reliability2"))),
        cuda="" if cuda is None else f"{cuda:g}",
        stock="1 of 1",
        single=True,
        maker=maker_of(row.get("gpu_arch"), name),
        ends_at=_ends(row),
    )
    if constraints.memory_gb is not None and _memory_of(row) < constraints.memory_gb:
        return None
    if (number(row.get("disk_space")) or 0.0) < disk or not _fits(offer, constraints):
        return None
    return Ask(offer, ask_id, machine, min_bid, storage)


def _ends(row: Row) -> datetime | None:
    """When a box of this offer ends at the latest: as the host set it, or after the longest rental that it takes."""
    longest = number(row.get("duration"))
    told = [instant(row.get("end_date")), None if longest is None else instant(time.time() + longest)]
    return min((one for one in told if one is not None), default=None)


def _memory_of(row: Row) -> float:
    """RAM of the offer in GB: `cpu_ram` is the whole machine's, of which it has the part of the GPUs; 0 if unknown."""
    share = number(row.get("gpu_frac"))
    return (number(row.get("cpu_ram")) or 0.0) / 1000 * (1.0 if share is None else min(share, 1.0))


def _fits(offer: Offer, constraints: Constraints) -> bool:
    """Whether the offer fits, also in what the search did not ask for or may have understood in another way."""
    if not is_meant(constraints, offer.gpu, maker=offer.maker):
        return False
    if constraints.gpu_count and offer.gpu_count != constraints.gpu_count:
        return False
    if not constraints.takes_memory(offer.gpu_memory_gb, slack=_GPU_SLACK):
        return False
    if constraints.min_reliability is not None and (offer.reliability or 0.0) < constraints.min_reliability:
        return False
    if constraints.cuda and (not offer.cuda or float(offer.cuda) < float(constraints.cuda)):
        return False
    return not constraints.regions or any(in_region(offer.region, region) for region in constraints.regions)


def in_region(place: str, asked: str) -> bool:
    """Whether a place such as "Texas, US" lies in `asked`: the whole text, or any part between commas."""
    return asked.strip().casefold() in [part.strip().casefold() for part in (place, *place.split(","))]


def up_to_step(price: float) -> float:
    """The least possible bid that is not below `price` (USD per hour)."""
    steps = round(price / BID_STEP, 6)
    return round((int(steps) + (steps > int(steps))) * BID_STEP, 4)


@dataclass
class Market:
    """The offers for one key, and which of them boxes of this process have reserved or tried. Safe to share between
    threads."""

    searches: dict[str, SingleFlight[list[Row]]] = field(default_factory=dict)
    taken: dict[int, float] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    """Those of `taken` whose attempt has ended."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, ask_id: int) -> bool:
        """Reserves the offer for this caller. False when another box of this process has it."""
        with self.lock:
            now = time.monotonic()
            for old in [key for key, moment in self.taken.items() if now - moment > paced(_TAKEN_SECONDS)]:
                del self.taken[old]
                self.settled.discard(old)
            if ask_id in self.taken:
                return False
            self.taken[ask_id] = now
            self.settled.discard(ask_id)
            return True

    def settle(self, ask_id: int) -> None:
        """Notes that the attempt to rent the offer has ended: other boxes need not wait for it."""
        with self.lock:
            self.settled.add(ask_id)

    def give_back(self, ask_id: int) -> None:
        """Ends the reservation: the offer was not tried, or may be tried again."""
        with self.lock:
            self.taken.pop(ask_id, None)

    def rows(self, client: Client, query: Row, constraints: Constraints, deadline: Deadline, age: float) -> list[Row]:
        """The rows of one search, shared by all callers that ask for the same. `age`: seconds that it may be old."""
        storage = float(disk_for(constraints))
        key = json.dumps([query, storage, constraints.spot], sort_keys=True)
        with self.lock:
            shared = self.searches.setdefault(key, SingleFlight())
        kind, order = ("bid", "min_bid") if constraints.spot else ("on-demand", "dph_total")
        return shared.get(
            lambda: client.search(query, deadline, kind=kind, order=order, storage=storage), deadline, max_age=age
        )

    def asks(
        self,
        client: Client,
        constraints: Constraints,
        deadline: Deadline,
        *,
        bid: float | None = None,
        machine: int | None = None,
        fresh: bool = True,
    ) -> list[Ask]:
        """Every offer that fits the constraints and the highest price, cheapest first. `fresh`: make a new search.

        The first search is by GPU names; when it finds nothing, a second one is without, since hosts spell names in
        different ways.
        """
        age = 0.0 if fresh else paced(_FRESH_SECONDS)
        found: list[Ask] = []
        asked: list[Row] = []
        for broad in (False, True):
            query = query_for(constraints, machine=machine, broad=broad)
            if query not in asked and not found:
                asked.append(query)
                found = _sorted(self.rows(client, query, constraints, deadline, age), constraints, bid)
        return found

    def chosen(
        self,
        client: Client,
        key: str,
        constraints: Constraints,
        deadline: Deadline,
        *,
        bid: float | None = None,
        machine: int | None = None,
    ) -> Ask | None:
        """The offer with this key, if it is still in the market and still fits; else None.

        It is looked up in the search that boxes with the same constraints share, which shows 64 offers; if it is not
        there, by a search for its key.
        """
        shown = self.asks(client, constraints, deadline, bid=bid, machine=machine, fresh=False)
        if (ask := next((ask for ask in shown if ask.offer.key == key), None)) is not None:
            return ask
        if not key.isdecimal():
            return None
        query = {"ask_contract_id": {"eq": int(key)}}  # `id` matches nothing
        found = _sorted(self.rows(client, query, constraints, deadline, 0.0), constraints, bid)
        return next((ask for ask in found if ask.offer.key == key), None)


def _sorted(rows: Iterable[Row], constraints: Constraints, bid: float | None) -> list[Ask]:
    asks = {ask.offer.key: ask for row in rows if (ask := read_ask(row, constraints, bid)) is not None}
    return [asks[offer.key] for offer in cheapest_first((ask.offer for ask in asks.values()), constraints)]


def _spellings(names: Iterable[str]) -> list[str]:
    plain = [" ".join(name.replace("_", " ").split()) for name in names]
    return list(dict.fromkeys(f"{name} {make}".strip() for name in plain for make in _MAKES))


_markets: dict[Source, Market] = {}
_markets_lock = threading.Lock()


def market_at(source: Source) -> Market:
    """The market of this key in this process; made at the first call."""
    with _markets_lock:
        return _markets.setdefault(source, Market())
