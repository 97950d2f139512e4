"""What is asked of vast.ai's market, and how its offers read."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.onbox.host.offers import Bound, Constraints
from sweepstack.platforms.vastai.offers import Market, disk_for, in_region, query_for, read_ask, up_to_step
from tests.unit.platforms.vastai_world import offer

NOW = time.time()


def test_a_search_asks_for_all_that_a_box_must_have() -> None:
    asked = Constraints(
        gpu_names=("RTX_4090",),
        gpu_count=2,
        gpu_memory_gb=Bound(24),
        cuda="12.4",
        cpu=8,
        memory_gb=64,
        disk_gb=100,
        regions=("us", "CA"),
        min_reliability=0.98,
    )
    query = query_for(asked, machine=99)
    assert "RTX 4090" in query["gpu_name"].pop("in")
    assert query == {
        "gpu_name": {},
        "num_gpus": {"eq": 2},
        "gpu_ram": {"gte": 22800},
        "cuda_max_good": {"gte": 12.4},
        "cpu_cores_effective": {"gte": 8},
        "cpu_ram": {"gte": 64000},
        "disk_space": {"gte": 100},
        "reliability": {"gte": 0.98},
        "geolocation": {"in": ["US", "CA"]},
        "direct_port_count": {"gte": 1},
        "machine_id": {"eq": 99},
    }


def test_a_search_without_names_is_broad_and_still_asks_for_the_rest() -> None:
    asked = Constraints(gpu_names=("A100",), gpu_count=1, regions=("US",), disk_gb=50)
    broad = query_for(asked, broad=True)
    assert "gpu_name" not in broad
    assert "geolocation" not in broad
    assert broad["disk_space"] == {"gte": 50}
    assert "geolocation" not in query_for(Constraints(regions=("Texas",)))


def test_exact_memory_is_a_range_and_no_gpu_is_any() -> None:
    exact = query_for(Constraints(gpu_memory_gb=Bound(80, at_least=False)))
    assert exact["gpu_ram"] == {"gte": 76000, "lte": 84000}
    assert exact["num_gpus"] == {"gte": 1}


def test_a_disk_is_always_asked_for() -> None:
    assert disk_for(Constraints()) == 20
    assert disk_for(Constraints(disk_gb=4)) == 10
    assert disk_for(Constraints(disk_gb=250)) == 250


@pytest.mark.parametrize(
    ("machine", "part", "asked", "fits"),
    [
        (64000, 1.0, 64, True),
        (64000, 0.5, 64, False),
        (64000, 0.5, 32, True),
        (None, 1.0, 1, False),
        (64000, 0.5, None, True),
    ],
)
def test_a_box_has_the_part_of_the_memory_that_it_has_of_the_cards(
    machine: int | None, part: float, asked: float | None, fits: bool
) -> None:
    row = offer(7, cpu_ram=machine, gpu_frac=part)
    assert (read_ask(row, Constraints(gpu_count=1, memory_gb=asked)) is not None) is fits


def test_an_offer_reads_with_its_disk_and_its_network() -> None:
    ask = read_ask(offer(7), Constraints(gpu_count=1, disk_gb=50))
    assert ask is not None
    assert (ask.ask_id, ask.machine_id) == (7, 70)
    found = ask.offer
    assert (found.key, found.gpu, found.gpu_count, found.price_per_hour) == ("7", "RTX 4090", 1, 0.41)
    assert (found.gpu_memory_gb, found.disk_gb, found.disk_per_gb_month) == (24.6, 50.0, 0.2)
    assert (found.stopped_per_hour, found.network_per_gb, found.spot) == (0.005, 0.02, False)
    assert (found.reliability, found.cuda, found.stock) == (0.99, "12.8", "1 of 1")


@pytest.mark.parametrize(
    ("told", "hours"),
    [
        ({"end_in": 7200}, 2),
        ({"duration": 5400.0}, 1.5),
        ({"end_in": 7200, "duration": 86400.0 * 30}, 2),
        ({"end_in": 86400, "duration": 3600}, 1),
    ],
)
def test_an_offer_says_when_the_contract_with_its_host_ends(told: dict[str, Any], hours: float) -> None:
    """Found on 6f8d950f: contracts that ended in 90 minutes were rented for 600 hours without a word."""
    now = time.time()
    ends = {"end_date": now + told["end_in"]} if "end_in" in told else {}
    ask = read_ask(offer(7, **{name: value for name, value in told.items() if name != "end_in"} | ends), Constraints())
    assert ask is not None
    assert ask.offer.ends_at is not None
    assert ask.offer.ends_at.timestamp() == pytest.approx(now + 3600 * hours, abs=600)
    assert ask.offer.stopped_at_least


@pytest.mark.parametrize("told", [{}, {"end_date": None}, {"end_date": "soon", "duration": -1}, {"end_date": 1e300}])
def test_an_offer_without_an_end_has_none(told: dict[str, Any]) -> None:
    ask = read_ask(offer(7, **told), Constraints())
    assert ask is not None
    assert ask.offer.ends_at is None


def test_a_disk_s_price_is_made_from_the_month_where_the_hour_is_not_told() -> None:
    ask = read_ask(offer(7, storage_total_cost=None), Constraints(disk_gb=73))
    assert ask is not None
    assert ask.storage_per_hour == pytest.approx(0.02)


def test_a_spot_offer_costs_its_bid_and_its_disk() -> None:
    spot = Constraints(spot=True)
    ask = read_ask(offer(7, min_bid=0.10001), spot)
    assert ask is not None
    assert ask.offer.spot
    assert ask.offer.price_per_hour == pytest.approx(0.1001 + 0.005)
    named = read_ask(offer(7, min_bid=0.1), spot, bid=0.3)
    assert named is not None
    assert named.offer.price_per_hour == pytest.approx(0.305)
    assert read_ask(offer(7, min_bid=0.4), spot, bid=0.3) is None


@pytest.mark.parametrize(
    ("row", "asked"),
    [
        (offer(7, rentable=False), Constraints()),
        (offer(7, ask_contract_id="7"), Constraints()),
        (offer(7, machine_id=None), Constraints()),
        (offer(7, dph_total=0), Constraints()),
        (offer(7, dph_total=None), Constraints()),
        (offer(7, min_bid=None), Constraints(spot=True)),
        (offer(7), Constraints(gpu_names=("RTX 3090",))),
        (offer(7), Constraints(gpu_count=2)),
        (offer(7), Constraints(gpu_memory_gb=Bound(40))),
        (offer(7, gpu_ram=None), Constraints(gpu_memory_gb=Bound(10))),
        (offer(7), Constraints(cuda="12.9")),
        (offer(7), Constraints(min_reliability=0.995)),
        (offer(7, disk_space=10), Constraints(disk_gb=11)),
        (offer(7), Constraints(regions=("CA",))),
    ],
)
def test_what_does_not_fit_or_read_is_left_out(row: dict[str, Any], asked: Constraints) -> None:
    assert read_ask(row, asked) is None


def test_a_name_stands_for_all_makes_of_a_card() -> None:
    asked = Constraints(gpu_names=("A100",))
    assert read_ask(offer(7, gpu_name="A100 SXM4"), asked)
    assert read_ask(offer(7, gpu_name="A100X"), asked) is None
    assert "A100 SXM4" in query_for(asked)["gpu_name"]["in"]


@pytest.mark.parametrize(
    ("place", "asked", "inside"),
    [("Texas, US", "US", True), ("Texas, US", "texas", True), ("US", "US", True), ("Texas, US", "SA", False)],
)
def test_a_region_is_a_country_or_a_word_of_the_place(place: str, asked: str, inside: bool) -> None:
    assert in_region(place, asked) is inside


@given(st.floats(0.001, 100))
def test_a_bid_is_never_below_the_least(price: float) -> None:
    bid = up_to_step(price)
    assert bid >= price - 1e-9
    assert bid < price + 0.00011


def test_an_offer_is_tried_by_one_box_of_a_process() -> None:
    market = Market()
    assert market.take(7)
    assert not market.take(7)
    assert market.take(8)
    market.give_back(7)
    assert market.take(7)


@given(
    st.dictionaries(
        st.sampled_from(sorted(offer(7))),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.lists(st.none(), max_size=1),
    ),
    st.booleans(),
)
def test_no_offer_breaks_the_search(changes: dict[str, Any], spot: bool) -> None:
    ask = read_ask({**offer(7), **changes}, Constraints(spot=spot, gpu_count=1))
    assert ask is None or ask.offer.price_per_hour >= 0
