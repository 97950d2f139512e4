"""Spot boxes: a bid that holds, one that is refused and yet makes a contract, one that is beaten, one that is changed.

An adapter that rents none refuses before anything is rented; `test_platforms` asks that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from sweepstack.onbox.common.errors import PlatformError, StillCreating, SweepstackError
from sweepstack.onbox.host.capabilities import RentsSpot
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform, Told, Wait
from tests.conformance.suite import TAG, Renter, able

pytestmark = [pytest.mark.wire, able(RentsSpot)]
SECONDS = 120.0
Spot = Callable[..., BoxRecord]


@pytest.fixture
def spot(platform: Platform, rent: Renter) -> Spot:
    """Rents a spot box of one card."""

    def ask(**changes: Any) -> BoxRecord:
        return rent(**{"resources": {"spot": True, "gpu": {"count": 1}}, **changes})

    return ask


def phase_becomes(platform: Platform, record: BoxRecord, phase: Phase) -> BoxRecord:
    """Looks until the box is in that phase."""
    end = time.monotonic() + SECONDS
    while (seen := platform.get(record.native_id, record.account)).phase is not phase:
        assert time.monotonic() < end, f"{seen.phase} and not {phase}: {seen.note}"
        time.sleep(0.02)
    return seen


def test_a_bid_is_what_the_box_costs(platform: Platform, harness: Any, spot: Spot) -> None:
    record = spot(bid=0.50)
    assert record.phase is Phase.RUNNING
    assert record.price_per_hour is not None
    assert 0.50 <= record.price_per_hour < 0.60, "the bid, and the disk"
    assert harness.rentals() == {record.native_id}
    assert platform.find_by_tag(TAG) is not None


def test_a_spot_box_without_a_bid_gets_one_that_holds(harness: Any, spot: Spot) -> None:
    record = spot()
    assert record.phase is Phase.RUNNING
    assert harness.rentals() == {record.native_id}


@pytest.mark.parametrize("times", [1, None])
def test_a_bid_that_is_refused_leaves_no_contract(
    platform: Platform, harness: Any, spot: Spot, times: int | None
) -> None:
    """An error is answered, and yet there is a contract that bills, be it a stopped one."""
    harness.inject("refused_yet_made", "spot", times=times)
    try:
        said: BoxRecord | SweepstackError = spot(deadline=5, bid=0.50)
    except SweepstackError as error:
        said = error
    if isinstance(said, BoxRecord):
        assert harness.rentals() == {said.native_id}
    elif isinstance(said, StillCreating):
        assert harness.rentals() == {said.identifier}
    else:
        assert harness.rentals() == set(), f"it said that nothing was made: {said!r}"
    harness.repair()
    found = platform.find_by_tag(TAG)
    assert harness.rentals() == ({found.native_id} if found else set())


def test_a_box_that_is_outbid_stands_still_and_a_higher_bid_brings_it_back(
    platform: Platform, harness: Any, spot: Spot
) -> None:
    record = spot(bid=0.50)
    harness.outbid(record.native_id)
    seen = platform.get(record.native_id, record.account)
    assert (seen.phase, seen.told) == (Phase.STOPPED, Told.PREEMPTED)
    assert seen.note.startswith("preempted: ")
    assert harness.rentals() == {record.native_id}, "its disk bills"
    platform.change_bid(record.native_id, record.account, 2.0)
    seen = phase_becomes(platform, record, Phase.RUNNING)
    assert seen.price_per_hour is not None
    assert 2.0 <= seen.price_per_hour < 2.10
    platform.change_bid(record.native_id, record.account, 2.0)
    assert platform.get(record.native_id, record.account).phase is Phase.RUNNING, "the same again changes nothing"


def test_a_start_below_the_floor_does_not_wait_in_secret(platform: Platform, harness: Any, spot: Spot) -> None:
    """The platform would start it, and bill, when the floor falls again: who was told no must not pay then."""
    record = spot(bid=0.50)
    harness.outbid(record.native_id)
    platform.stop(record.native_id, record.account)
    with pytest.raises((PlatformError, StillCreating)) as caught:
        platform.start(record.native_id, record.account, wait=Wait(2))
    harness.repair()
    time.sleep(0.1)
    seen = platform.get(record.native_id, record.account)
    assert isinstance(caught.value, StillCreating) or seen.phase is Phase.STOPPED, "it was said that it can't start"


def test_a_box_at_a_fixed_price_has_no_bid_to_change(platform: Platform, spot: Spot, rent: Renter) -> None:
    record = rent()
    before = platform.get(record.native_id, record.account)
    with pytest.raises(PlatformError) as caught:
        platform.change_bid(record.native_id, record.account, 1.0)
    assert str(caught.value)
    assert platform.get(record.native_id, record.account) == before


def test_another_accounts_bid_is_not_changed(platform: Platform, harness: Any, spot: Spot) -> None:
    record = spot(bid=0.50)
    harness.make_foreign()
    with pytest.raises(PlatformError):
        platform.change_bid(record.native_id, record.account, 3.0)
    harness.repair()
    seen = platform.get(record.native_id, record.account)
    assert seen.price_per_hour is not None
    assert seen.price_per_hour < 1.0
