"""A mount whose volume lies where nothing fits is refused in the preview: asked of a market with data centers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.box_layout import volume_of, volume_tag
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.operations.volumes.end_check import find_kept
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.runpod.api import CATALOG_SECONDS
from sweepstack.provider.resources import market
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.resources.volume import say
from sweepstack.provider.session import Operation, Session
from tests.conformance.harness_runpod import REGION, Harness
from tests.conformance.harness_vastai import Harness as VastHarness
from tests.unit.provider.support import Said


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    market._asked.clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = Harness(tmp_path, monkeypatch, machines=False)
    yield made
    made.close()
    market._asked.clear()


def test_a_volume_where_nothing_fits(harness: Harness, tmp_path: Path) -> None:
    said = Said()
    op = Operation(Session(tmp_path, said.emit, threading.Event()), "urn:pulumi:t::p::sweepstack:index:Box::box-0")
    platform = harness.connect()
    volume = platform.ensure_volume(volume_tag("keeperxxxx", "abl"), "abl", size_gb=100, region=REGION)
    asked: dict[str, Any] = {"name": "box-0", "adapter": "runpod", "resources": {"gpu": {"name": ["A100"], "count": 1}}}
    assert market.preview(op, asked | {"volume": "abl"}) == []
    assert f"in {REGION}" in said.text()
    with harness.sim.lock:
        harness.sim.stock.empty(where=REGION)
    market._asked.clear()
    time.sleep(2 * paced(CATALOG_SECONDS))  # what all of one moment share has become too old to be shared
    (failure,) = market.preview(op, asked | {"volume": "abl"})
    assert failure.property == "mounts"
    assert f"volume abl is in {volume.region}, and nothing fits there now; elsewhere: " in failure.reason
    assert market.preview(op, asked) == []
    assert market.preview(op, asked | {"volume": "of-nobody"}) == []


def test_a_volume_that_is_too_small_is_refused_before_anything_is_rented(harness: Harness, tmp_path: Path) -> None:
    """By what the artifacts of all cells have at least; a sweep that has begun there is warned."""
    said = Said()
    op = Operation(Session(tmp_path, said.emit, threading.Event()), "urn:pulumi:t::p::sweepstack:index:Volume::abl")
    harness.connect().ensure_volume(volume_tag("keeperxxxx", "abl"), "abl", size_gb=100, region=REGION)
    mounted = {"name": "abl", "adapter": "runpod", "kept": True, "least_bytes": 100_000_000_000}
    assert say(op, mounted, new=True) == []
    (failure,) = say(op, mounted | {"least_bytes": 240_000_000_000}, new=True)
    assert "it holds 100 GB, and the artifacts of all cells have 240 GB at least" in failure.reason
    assert "holds 100 GB" not in said.text()
    assert say(op, mounted | {"least_bytes": 240_000_000_000}, new=False) == []
    assert "volume abl: it holds 100 GB, and the artifacts" in said.warnings


def test_its_price_is_the_profile_s_where_the_platform_names_none(harness: Harness, tmp_path: Path) -> None:
    said = Said()
    op = Operation(Session(tmp_path, said.emit, threading.Event()), "urn:pulumi:t::p::sweepstack:index:Volume::abl")
    harness.connect().ensure_volume(volume_tag("keeperxxxx", "abl"), "abl", size_gb=100, region=REGION)
    mounted = {"name": "abl", "adapter": "runpod", "kept": True, "price_per_gb_month": 0.07, "keep_until": "2031-01-31"}
    assert say(op, mounted, new=True) == []
    assert f"100 GB in {REGION}, $7.00/month, kept until 2031-01-31" in said.text()


def test_a_volume_is_found_by_its_whole_name(harness: Harness) -> None:
    """What only ends like it is another one; whose volumes these are is in their tags."""
    platform = harness.connect()
    for owner, name in (("keeperxxxx", "my-volume-store"), ("otherxxxxx", "store"), ("thirdxxxxx", "volume-store")):
        platform.ensure_volume(volume_tag(owner, name), name, size_gb=10, region=REGION)
    assert volume_of(find_kept(platform, "store").tag) == ("otherxxxxx", "store")
    assert volume_of(find_kept(platform, "my-volume-store").tag) == ("keeperxxxx", "my-volume-store")
    with pytest.raises(SweepstackError, match="there is no volume xstore"):
        find_kept(platform, "xstore")
    platform.ensure_volume(volume_tag("fourthxxxx", "store"), "store", size_gb=10, region=REGION)
    with pytest.raises(SweepstackError, match=r"several volumes of runpod are called store: .*Give one another name"):
        find_kept(platform, "store")
    assert [volume_of(tag) for tag in ("sweepstack-a1-box-0-g1", "sweepstack-a1-volume-", "my-a1-volume-x")] == [
        None
    ] * 3


def of_a_store(tmp_path: Path, said: Said, *, new: bool = True, **changes: Any) -> list[Failure]:
    op = Operation(Session(tmp_path, said.emit, threading.Event()), "urn:pulumi:t::p::sweepstack:index:Volume::abl")
    inputs = {"name": "abl", "adapter": "runpod", "guarded": True, "size_gb": 100, "region": REGION}
    return say(op, inputs | changes, new=new)


def test_a_new_volume_in_a_place_that_has_none_is_refused_before_it_is_made(harness: Harness, tmp_path: Path) -> None:
    said = Said()
    assert of_a_store(tmp_path, said, price_per_gb_month=0.07) == []
    assert f"volume abl: 100 GB in {REGION}, $7.00/month" in said.text()
    (failure,) = of_a_store(tmp_path, said, region="US-KS-9")
    assert failure.property == "region"
    assert "RunPod has no data center 'US-KS-9'" in failure.reason
    harness.sim.faults.add("error_before", "GET *", times=None)
    assert of_a_store(tmp_path, said, name="abl2") == []
    assert "volume abl2" in said.text()


def test_what_a_new_volume_costs_is_the_market_s_word_and_of_one_that_is_there_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vast.ai: each host has a price of its own, and the room that it has left."""
    harness = VastHarness(tmp_path, monkeypatch, machines=False)
    try:
        said = Said()
        there = {"adapter": "vastai", "size_gb": 10, "region": "machine:1"}
        price = harness.connect().quote_volume(10, "machine:1")
        assert price is not None
        assert price > 0
        assert of_a_store(tmp_path, said, **there) == []
        assert f"volume abl: 10 GB in machine:1, ${price:.2f}/month" in said.text()
        assert of_a_store(tmp_path, said, **there, new=False, live={"usd_per_month": 1.25}) == []
        assert "10 GB in machine:1, $1.25/month" in said.text()
        (failure,) = of_a_store(tmp_path, said, **there | {"region": "US-TX-3"})
        assert "machine:<number>" in failure.reason
        assert of_a_store(tmp_path, said, **there | {"size_gb": 10**6}) == []
        assert "what it would cost is not known (machine 1 of vast.ai offers no volume of 1000000 GB now" in said.text()
        made = harness.connect().ensure_volume(volume_tag("keeperxxxx", "abl"), "abl", size_gb=10, region="machine:1")
        assert made.price_per_month == pytest.approx(price)
    finally:
        harness.close()
