"""The state behind the simulated vast.ai, without HTTP: prices over time, filters, pages, and who gives way to whom."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from tests.simulators.core import Refusal, RentalLedger, VirtualClock
from tests.simulators.vastai.boxes import NoBoxes
from tests.simulators.vastai.instance import Instance
from tests.simulators.vastai.market import Machine
from tests.simulators.vastai.meter import HOUR, Meter
from tests.simulators.vastai.paging import page_of
from tests.simulators.vastai.query import matches, ordered
from tests.simulators.vastai.replies import Strange
from tests.simulators.vastai.requests import Create
from tests.simulators.vastai.settings import VastAccount
from tests.simulators.vastai.world import World

START = 1_790_000_000.0


class Told(NoBoxes):
    """Keeps what happened to containers, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, int]] = []

    def start(self, instance: Instance, *, new_port: bool) -> None:
        self.log.append(("start", instance.id))

    def stop(self, instance: Instance, *, grace: bool = False) -> None:
        self.log.append(("stop", instance.id))


class Land:
    """A world of one customer that can be moved."""

    def __init__(self, *machines: Machine, credit: float = 1000.0) -> None:
        self.clock = VirtualClock(START)
        self.ledger = RentalLedger(self.clock)
        self.ann = VastAccount("1", "key", credit=credit)
        self.world = World(self.clock, self.ledger, {"1": self.ann}, Told())
        self.world.settings.boot_reads = self.world.settings.stop_reads = self.world.settings.start_reads = 0
        for machine in machines:
            self.world.market.add(machine)

    def rent(self, gpus: int, price: float | None = None, **more: Any) -> int:
        offer = next(o for o in self.world.market.offers.values() if o.gpus == gpus)
        body = Create(image="x", price=price, runtype="ssh_direct", disk=10.0, **more)
        number: int = self.world.create(self.ann, offer.id, body).body["new_contract"]
        return number

    def happened(self) -> list[tuple[str, int]]:
        """To containers, since it was last asked."""
        self.world.settle()
        assert isinstance(self.world.boxes, Told)
        log, self.world.boxes.log = self.world.boxes.log, []
        return log

    def states(self, *numbers: int) -> list[str | None]:
        self.world.settle()
        return [self.world.instances[number].actual for number in numbers]


def test_a_meter_adds_up_by_kind_over_any_span() -> None:
    meter = Meter()
    meter.set(0, {"disk": 0.01})
    meter.set(HOUR, {"disk": 0.01, "gpu": 2.0})
    meter.set(3 * HOUR, {"disk": 0.01})
    meter.set(4 * HOUR, {})
    assert meter.total(9 * HOUR) == pytest.approx(0.04 + 4.0)
    assert meter.amounts(2 * HOUR, 9 * HOUR) == {"disk": pytest.approx(0.02), "gpu": pytest.approx(2.0)}
    assert meter.began() == 0


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        ({"n": {"gte": "2"}}, True),
        ({"n": {"gt": 2}}, False),
        ({"n": {"lt": 3, "gte": 2}}, True),
        ({"n": {"in": ["1", "2"]}}, True),
        ({"flag": {"eq": "true"}}, True),
        ({"flag": {"neq": True}}, False),
        ({"none": {"lte": 5}}, False),
        ({"none": {"eq": None}}, True),
        ({"geolocation": {"eq": "US"}}, True),
        ({"geolocation": {"notin": ["US", "CA"]}}, False),
        ({"geolocation": {"eq": "Texas, US"}}, True),
    ],
)
def test_filters(filters: dict[str, Any], passes: bool) -> None:
    row = {"n": 2, "flag": True, "none": None, "geolocation": "Texas, US"}
    assert matches(row, filters) is passes


@pytest.mark.parametrize("filters", [{"n": 2}, {"n": {"like": 2}}, {"n": {"in": 2}}, {"n": {"gt": "many"}}])
def test_filters_that_are_none(filters: dict[str, Any]) -> None:
    with pytest.raises(Strange):
        matches({"n": 2}, filters)


def test_an_order_with_two_keys_and_a_missing_value() -> None:
    rows = [{"a": 1, "b": 1}, {"a": None, "b": 0}, {"a": 1, "b": 2}, {"a": 0, "b": 3}]
    assert [row["b"] for row in ordered(rows, [["a", "desc"], ["b", "desc"]])] == [2, 1, 3, 0]


@pytest.mark.parametrize("seed", range(20))
def test_pages_show_every_row_once_in_any_order(seed: int) -> None:
    dice = random.Random(seed)
    rows = [
        {"id": n, "label": dice.choice(["a", "b", None]), "n": dice.randint(0, 3)} for n in range(dice.randint(0, 70))
    ]
    order = dice.choice([[], [{"col": "id", "dir": "desc"}], [{"col": "label"}, {"col": "n", "dir": "desc"}]])
    seen: list[int] = []
    after = ""
    while True:
        page, token = page_of(rows, order=order, limit=dice.choice([0, 7, 25, 99]), cap=25, after=after)
        seen += [row["id"] for row in page]
        if token is None:
            break
        after = token
    assert sorted(seen) == list(range(len(rows)))


def test_a_row_that_goes_away_between_pages_hides_no_other() -> None:
    rows = [{"id": n} for n in range(10)]
    page, token = page_of(rows, order=[], limit=5, cap=25, after="")
    assert token is not None
    rest, _ = page_of([row for row in rows if row["id"] != 4], order=[], limit=25, cap=25, after=token)
    assert [row["id"] for row in [*page, *rest]] == list(range(10))


def test_the_lowest_bid_gives_way_first_and_the_highest_comes_back_first() -> None:
    land = Land(Machine(1, 1, gpus=4))
    low, middle, high = land.rent(1, 0.25), land.rent(1, 0.30), land.rent(2, 0.90)
    assert land.happened() == [("start", low), ("start", middle), ("start", high)]
    firm = land.rent(1)
    assert land.happened() == [("stop", low), ("start", firm)]
    land.world.market.machines[1].taken = 1
    assert land.happened() == [("stop", middle)]
    land.world.market.machines[1].taken = 0
    assert land.happened() == [("start", middle)]
    land.world.destroy(land.world.instances[firm])
    assert land.happened() == [("stop", firm), ("start", low)]
    assert land.states(low, middle, high) == ["running"] * 3


def test_gpus_are_never_given_twice() -> None:
    """Seeded: whatever customers and strangers do, no machine has more GPUs in use than it has."""
    for seed in range(60):
        dice = random.Random(seed)
        land = Land(Machine(1, 1, gpus=8, keeps_ids=bool(seed % 2)))
        host = land.world.market.machines[1]
        for _ in range(40):
            mine = [i for i in land.world.instances.values() if i.destroyed_at is None]
            match dice.randint(0, 6):
                case 0 | 1:
                    price = dice.choice([None, 0.1, 0.5, 1.9, 3.0])
                    with suppress(Refusal, StopIteration):
                        land.rent(dice.choice([1, 2, 4, 8]), price, cancel_unavail=dice.choice([True, False, None]))
                case 2 if mine:
                    land.world.stop(dice.choice(mine))
                case 3 if mine:
                    land.world.start(dice.choice(mine))
                case 4 if mine:
                    land.world.destroy(dice.choice(mine))
                case 5:
                    host.taken = dice.randint(0, land.world.free(host, None) + host.taken)
                case 6 if mine:
                    bids = [i for i in mine if i.bid is not None]
                    if bids:
                        land.world.change_bid(dice.choice(bids), dice.choice([0.1, 1.0, 4.0]))
            land.clock.advance(dice.choice([0, 10, 400]))
            land.world.settle()
            holders = [i for i in land.world.instances.values() if i.holds]
            assert host.taken + sum(i.gpus for i in holders) <= 8, seed
            assert all(i.holds for i in land.world.instances.values() if i.actual == "running"), seed
        metered = sum(i.meter.total(land.clock.now()) for i in land.world.instances.values())
        assert metered == pytest.approx(land.ledger.spent("1")), seed
        live = {rental.id for rental in land.ledger.live()}
        assert live == {str(i.id) for i in land.world.instances.values() if i.destroyed_at is None}, seed


def test_halves_of_a_machine() -> None:
    assert [Machine(1, 1, gpus=n).sizes() for n in (1, 2, 3, 6, 8)] == [[1], [2, 1], [3, 1], [6, 3, 1], [8, 4, 2, 1]]
