"""What every platform's adapter must do, told by its API alone. Parametrised over all that are installed."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweepstack.onbox.common.errors import (
    ConfigError,
    OutcomeUnknown,
    PlatformError,
    StillCreating,
    Unreachable,
    Unsupported,
    WrongAccount,
)
from sweepstack.onbox.host.capabilities import CanStop, HasBalance, HasMarket, HasVolumes, ReadsVolumes, RentsSpot
from sweepstack.onbox.host.offers import Constraints
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform, Wait
from sweepstack.platforms.registry import load_platform, need, volume_channel
from tests.conformance.suite import PREFIX, TAG, VOLUME, Renter, able
from tests.short_wait import out_of_time

KINDS = (CanStop, HasMarket, HasBalance, RentsSpot, HasVolumes, ReadsVolumes)


def test_a_rented_box_is_what_was_asked_for(platform: Platform, harness: Any, rent: Renter) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    record = rent()
    assert (record.tag, record.phase) == (TAG, Phase.RUNNING)
    assert record.price_per_hour == harness.price or (harness.price is None and record.price_per_hour)
    assert record.account == platform.account()
    assert record.created_at is not None
    assert before < record.created_at < datetime.now(UTC) + timedelta(seconds=5)
    assert platform.get(record.native_id, record.account) == record
    assert harness.rentals() == {record.native_id}


def test_a_box_is_found_by_its_whole_tag_only(platform: Platform, rent: Renter) -> None:
    assert platform.find_by_tag(TAG) is None
    record = rent()
    other = rent(tag=f"{TAG}0")
    assert platform.find_by_tag(TAG) == record
    assert platform.find_by_tag(TAG[:-1]) is None
    assert platform.list_tagged(PREFIX) == sorted([record, other], key=lambda r: r.native_id)
    assert platform.list_tagged("sweepstack-other-") == []


def test_a_box_of_another_sweep_is_not_ours_by_its_name(platform: Platform, harness: Any, rent: Renter) -> None:
    """Two sweeps may call their boxes the same."""
    theirs = rent(tag=TAG.replace(PREFIX, f"{PREFIX}other-"))
    assert platform.find_by_tag(TAG) is None
    ours = rent()
    assert ours.native_id != theirs.native_id
    assert harness.rentals() == {ours.native_id, theirs.native_id}


def test_the_same_request_is_adopted_and_not_doubled(platform: Platform, harness: Any, rent: Renter) -> None:
    first = rent()
    assert rent(harness.connect()).native_id == first.native_id
    assert len(platform.list_tagged("")) == 1
    assert harness.rentals() == {first.native_id}


def test_eight_processes_with_one_tag_get_one_box(platform: Platform, harness: Any) -> None:
    found = harness.create_at_once(harness.request(TAG), 8)
    assert len(found) == 1
    assert harness.rentals() == found
    assert harness.doubled() == {}


def test_eight_threads_with_one_tag_get_one_box(platform: Platform, harness: Any, rent: Renter) -> None:
    found: list[BoxRecord] = []
    threads = [threading.Thread(target=lambda: found.append(rent())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert {record.native_id for record in found} == harness.rentals()
    assert harness.doubled() == {}


def test_already_gone_is_a_success(platform: Platform, harness: Any, rent: Renter) -> None:
    record = rent()
    platform.destroy(record.native_id, record.account)
    assert platform.get(record.native_id, record.account).phase is Phase.GONE
    assert harness.rentals() == set()
    platform.destroy(record.native_id, record.account)
    assert platform.find_by_tag(TAG) is None
    with pytest.raises(Unreachable):
        platform.channel(record.native_id, record.account)


def test_after_the_end_the_same_tag_is_a_new_box(platform: Platform, rent: Renter) -> None:
    first = rent()
    platform.destroy(first.native_id, first.account)
    assert rent().native_id != first.native_id


def test_a_box_removed_by_hand_is_gone(platform: Platform, harness: Any, rent: Renter) -> None:
    record = rent()
    harness.remove_by_hand(record.native_id)
    assert platform.get(record.native_id, record.account).phase is getattr(harness, "removed", Phase.GONE)
    assert platform.find_by_tag(TAG) is None


def test_what_cannot_be_read_is_unknown_and_not_gone(platform: Platform, harness: Any, rent: Renter) -> None:
    record = rent()
    harness.make_unreadable(record.native_id)
    seen = platform.get(record.native_id, record.account)
    assert seen.phase is Phase.UNKNOWN
    assert seen.note
    found = platform.find_by_tag(TAG)
    assert found is not None
    assert [r.native_id for r in platform.list_tagged(TAG)] == [record.native_id]
    with pytest.raises(StillCreating) as caught:
        rent(deadline=2)
    assert caught.value.identifier == record.native_id


def test_a_platform_that_does_not_answer_is_never_gone(platform: Platform, harness: Any, rent: Renter) -> None:
    record = rent()
    harness.cut_off()
    stops = (
        lambda: platform.stop(record.native_id, record.account),
        lambda: platform.start(record.native_id, record.account, wait=Wait(30)),
    )
    for ask in (
        lambda: platform.get(record.native_id, record.account),
        lambda: platform.destroy(record.native_id, record.account),
        lambda: platform.channel(record.native_id, record.account),
        lambda: platform.find_by_tag(TAG),
        lambda: platform.list_tagged(""),
        lambda: rent(),
        *(stops if isinstance(platform, CanStop) else ()),
    ):
        with pytest.raises(Unreachable):
            ask()
    harness.repair()
    assert platform.get(record.native_id, record.account) == record


def test_another_accounts_box_is_not_touched(platform: Platform, harness: Any, rent: Renter) -> None:
    record = rent()
    harness.make_foreign()
    at_hand = platform.account()
    stops = (
        lambda native_id, account: platform.stop(native_id, account),
        lambda native_id, account: platform.start(native_id, account, wait=Wait(30)),
    )
    for ask in (
        platform.get,
        platform.destroy,
        platform.channel,
        *(stops if isinstance(platform, CanStop) else ()),
    ):
        with pytest.raises(WrongAccount) as caught:
            ask(record.native_id, record.account)
        assert record.account in str(caught.value)
        assert at_hand in str(caught.value)
    assert harness.rentals() == {record.native_id}
    harness.repair()
    assert platform.get(record.native_id, record.account) == record


def test_a_cancelled_create_keeps_the_id(platform: Platform, harness: Any) -> None:
    harness.slow_boot(3000)
    wait = Wait(3000)  # longer than a test may take: only the cancel ends it
    threading.Timer(0.3, wait.cancelled.set).start()
    with pytest.raises((StillCreating, PlatformError)) as caught:
        platform.create(harness.request(TAG), wait=wait)
    found = platform.find_by_tag(TAG)
    if not isinstance(caught.value, StillCreating):  # cancelled before the request was sent: then nothing was made
        assert (found, harness.rentals()) == (None, set())
        return
    assert found is not None
    assert (caught.value.identifier, caught.value.outputs) == (found.native_id, found.outputs())
    assert "cancelled" in (why := caught.value.reasons[0])
    # Where a box is made off and then started, a cancel between the two leaves it off, and says so.
    assert found.phase is (Phase.STOPPED if "stays off" in why else Phase.CREATING)


def test_a_create_that_is_too_slow_keeps_the_id_and_is_adopted_later(
    platform: Platform, harness: Any, rent: Renter
) -> None:
    def slow(wait: Wait) -> None:
        harness.slow_boot(3 + wait.deadline)
        rent(deadline=wait.deadline)

    error = out_of_time(slow)
    record = rent()
    assert (record.native_id, record.phase) == (error.identifier, Phase.RUNNING)


def test_cancelled_before_anything_was_made_makes_nothing(platform: Platform, harness: Any) -> None:
    wait = Wait(30)
    wait.cancelled.set()
    with pytest.raises(PlatformError):
        platform.create(harness.request(TAG), wait=wait)
    assert platform.list_tagged("") == []
    assert harness.rentals() == set()


def test_a_lost_answer_is_looked_up_and_adopted(platform: Platform, harness: Any, rent: Renter) -> None:
    """By the create itself, or by the caller that is told that the outcome is unknown; the box is one and the same."""
    harness.lose_answers()
    try:
        native_id = rent().native_id
    except OutcomeUnknown:
        found = platform.find_by_tag(TAG)
        assert found is not None
        native_id = found.native_id
    assert rent().native_id == native_id
    assert harness.rentals() == {native_id}


def test_a_late_failure_keeps_the_id(platform: Platform, harness: Any, rent: Renter) -> None:
    harness.fail_late()
    try:
        native_id = rent().native_id
    except StillCreating as error:
        native_id = error.identifier
    except OutcomeUnknown:
        (native_id,) = harness.rentals()
    assert rent().native_id == native_id
    assert harness.rentals() == {native_id}


def test_an_id_that_cannot_be_ours_is_refused(platform: Platform, harness: Any, rent: Renter) -> None:
    record = rent()
    account = platform.account()
    stops = (platform.stop,) if isinstance(platform, CanStop) else ()
    for native_id in ("", ".", "../volumes", "local-../../..", "/etc", "local-AAAAAAAAAA", "x\0y"):
        for ask in (platform.get, platform.destroy, *stops, platform.channel):
            try:
                ask(native_id, account)
            except PlatformError:
                continue
            pytest.fail(f"{ask.__name__} took {native_id!r} for an id")
        assert harness.rentals() == {record.native_id}, native_id


def test_outputs_are_plain_json(rent: Renter) -> None:
    outputs = rent().outputs()
    assert set(outputs) >= {"native_id", "tag", "account", "phase", "price_per_hour", "created_at"}
    assert type(outputs["phase"]) is str
    assert outputs["created_at"].endswith("Z")


# Stop and start


@able(CanStop)
def test_a_stopped_box_is_listed_adopted_as_it_is_and_can_be_destroyed(
    platform: Platform, harness: Any, rent: Renter
) -> None:
    record = rent()
    for _ in range(2):
        platform.stop(record.native_id, record.account)
        seen = platform.get(record.native_id, record.account)
        assert (seen.phase, seen.tag, seen.created_at) == (Phase.STOPPED, TAG, record.created_at)
        assert seen.price_per_hour == record.price_per_hour, "what it costs when it runs"
    assert [r.native_id for r in platform.list_tagged(TAG)] == [record.native_id]
    adopted = rent(harness.connect())
    assert (adopted.native_id, adopted.phase) == (record.native_id, Phase.STOPPED)
    platform.destroy(record.native_id, record.account)
    assert platform.get(record.native_id, record.account).phase is Phase.GONE


@able(CanStop)
def test_a_box_that_is_gone_is_not_stopped_or_started(platform: Platform, rent: Renter) -> None:
    record = rent()
    platform.destroy(record.native_id, record.account)
    with pytest.raises(PlatformError) as caught:
        platform.stop(record.native_id, record.account)
    assert not isinstance(caught.value, Unreachable)
    with pytest.raises(PlatformError):
        platform.start(record.native_id, record.account, wait=Wait(30))
    assert platform.get(record.native_id, record.account).phase is Phase.GONE


@able(CanStop)
def test_a_start_that_is_too_slow_keeps_the_id(platform: Platform, harness: Any, rent: Renter) -> None:
    record = rent()
    platform.stop(record.native_id, record.account)
    harness.slow_boot(60)
    error = out_of_time(lambda wait: platform.start(record.native_id, record.account, wait=wait))
    assert error.identifier == record.native_id
    assert platform.get(record.native_id, record.account).phase is Phase.CREATING


# Volumes


@able(HasVolumes)
def test_a_volume_is_made_once_listed_and_deleted_once(platform: Platform, harness: Any) -> None:
    volume = harness.volume(platform, VOLUME)
    again = harness.volume(harness.connect(), VOLUME)
    assert (again.native_id, volume.created, again.created) == (volume.native_id, True, False)
    looked = platform.get_volume(volume.native_id)
    assert looked is not None
    assert looked.mounted_by == ()
    assert replace(looked, mounted_by=None) == replace(again, mounted_by=None)
    other = harness.volume(platform, f"{VOLUME}2")
    assert [v.native_id for v in platform.list_volumes(VOLUME)] == sorted([volume.native_id, other.native_id])
    assert platform.list_volumes("sweepstack-other-") == []
    for _ in range(2):
        platform.delete_volume(volume.native_id, platform.account())
        assert platform.get_volume(volume.native_id) is None
    assert [v.native_id for v in platform.list_volumes("")] == [other.native_id]
    assert harness.volume(platform, VOLUME).native_id != volume.native_id


@able(HasVolumes)
def test_a_box_is_not_made_without_its_volume(platform: Platform, harness: Any, rent: Renter) -> None:
    volume = harness.volume(platform, VOLUME).native_id
    missing = volume[:-1] + ("a" if volume[-1] != "a" else "b")
    with pytest.raises(PlatformError):
        rent(mounts={"mnt/durable": missing})
    assert platform.list_tagged("") == []
    assert harness.rentals() == set()


@able(HasVolumes)
def test_another_accounts_volume_is_not_taken_for_gone(platform: Platform, harness: Any) -> None:
    volume = harness.volume(platform, VOLUME)
    account = platform.account()
    harness.make_foreign()
    with pytest.raises(WrongAccount):
        platform.get_volume(volume.native_id)
    with pytest.raises(WrongAccount):
        volume_channel(platform, volume.native_id)
    with pytest.raises(WrongAccount):
        platform.delete_volume(volume.native_id, account)
    harness.repair()
    assert platform.get_volume(volume.native_id) is not None


# The market, or the refusal of one


@able(HasMarket)
def test_offers_are_what_is_asked_for_cheapest_first(platform: Platform, harness: Any, rent: Renter) -> None:
    found = platform.offers(Constraints(gpu_count=1))
    assert found
    assert [offer.price_per_hour for offer in found] == sorted(offer.price_per_hour for offer in found)
    assert all(offer.key and offer.price_per_hour > 0 for offer in found)
    ceiling = found[0].price_per_hour
    inside = platform.offers(Constraints(gpu_count=1, max_price=ceiling))
    assert inside
    assert all(offer.price_per_hour <= ceiling for offer in inside)
    assert platform.offers(Constraints(gpu_count=1, gpu_names=("No Such Card",))) == []
    assert harness.rentals() == set()


@able(HasMarket)
def test_a_part_of_a_card_and_another_maker_s_card_are_offered_by_name_alone(platform: Platform, harness: Any) -> None:
    """Found on 6f8d950f: `RTX PRO 6000` was a MIG slice, and 140 GB for a CUDA image a card of AMD."""
    if not (odd := harness.odd_cards()):
        return
    spot = isinstance(platform, RentsSpot) and RentsSpot not in getattr(harness, "lacks", ())
    for kind in (False, True)[: 1 + spot]:
        look_at_odd_cards(platform, odd, kind)


def look_at_odd_cards(platform: Platform, odd: tuple[str, ...], spot: bool) -> None:
    """They are there, and only who names one is shown it."""

    def shown(gpu: dict[str, Any], image: str = "") -> set[str]:
        resources = {"gpu": gpu, "spot": spot}
        return {offer.gpu for offer in platform.offers(Constraints.of(resources, image=image))}

    for gpu in ({}, {"memory": "9GB+"}, {"cuda": "12.4+"}, {"name": ["H100", "PRO 6000", "RTX 4090"]}):
        for image in ("", "me/train:1", "pytorch/pytorch:2.8.0-cuda12.8"):
            assert shown({"count": 1, **gpu}, image).isdisjoint(odd), (gpu, image)
    for name in odd:
        assert shown({"count": 1, "name": [name]}) == {name}
    amd = next(name for name in odd if "MIG" not in name)
    assert shown({"count": 1, "name": [amd]}, "nvcr.io/nvidia/pytorch:24.10-py3") == set()
    assert shown({"count": 1}, "rocm/pytorch:latest") == {amd}


@able(HasMarket)
def test_a_box_is_offered_and_shown_at_what_it_bills_with_its_disk(
    platform: Platform, harness: Any, rent: Renter
) -> None:
    """Found on 6f8d950f: RunPod bills a disk of 1000 GB with half of the price of the card, and no price had it."""
    resources = {"gpu": {"count": 1}, "disk": "400GB"}
    offer = platform.offers(Constraints.of(resources))[0]
    record = rent(resources=resources, max_price=offer.price_per_hour + 1e-6)
    bills = harness.rate(record.native_id)
    assert (offer.price_per_hour, record.price_per_hour) == (pytest.approx(bills, abs=1e-4),) * 2
    assert platform.offers(Constraints.of(resources, max_price=bills - 1e-3))[:1] != [offer]


@able(HasMarket)
def test_a_price_ceiling_holds_at_create(platform: Platform, harness: Any, rent: Renter) -> None:
    with pytest.raises(PlatformError):
        rent(max_price=0.0001)
    assert harness.rentals() == set()


@able(HasBalance)
def test_the_balance_is_known(platform: Platform) -> None:
    balance = platform.balance()
    assert balance is not None
    assert balance.usd > 0


@able(HasMarket)
def test_spot_is_rented_or_refused_before_anything_is(platform: Platform, harness: Any, rent: Renter) -> None:
    if not isinstance(platform, RentsSpot):
        with pytest.raises(Unsupported):
            rent(resources={"spot": True})
        assert harness.rentals() == set()


def test_what_a_platform_can_not_do_is_refused_in_words(platform: Platform) -> None:
    """It carries no verb that would raise: who needs one asks what kind of platform it is."""
    for kind in KINDS:
        has_all_or_none(platform, kind)


def has_all_or_none(platform: Platform, kind: type[Platform]) -> None:
    """It has all verbs of this kind, or none, and says so."""
    verbs = [name for name, what in vars(kind).items() if callable(what) and not name.startswith("_")]
    if isinstance(platform, kind):
        own = [name for name in verbs if getattr(type(platform), name) is not getattr(kind, name)]
        assert own == verbs
        assert need(platform, kind) is platform
        return
    assert [name for name in verbs if hasattr(platform, name)] == []
    with pytest.raises(Unsupported) as caught:
        need(platform, kind, native_id="a1b2c3", region="there")
    assert str(caught.value)
    assert "{" not in str(caught.value)


@pytest.mark.parametrize("name", ["nope", "base", "_local_store", "../local", "Local", ""])
def test_an_unknown_adapter_is_named_with_those_that_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match="local"):
        load_platform(name)
