"""What goes wrong between an adapter and its platform × create, read, delete.

After each: what the adapter says is compared with the platform's own books. It may say that it does not know; it may
not say "gone" of what bills, nor "nothing was made" of what was, nor rent twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    NotYetGone,
    OutcomeUnknown,
    StillCreating,
    SweepstackError,
    Unreachable,
    WrongAccount,
)
from sweepstack.onbox.host.capabilities import CanStop
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform, Wait
from sweepstack.platforms.common.tag_lock import Unanswered
from tests.conformance.harness import FAULTS
from tests.conformance.suite import TAG, Renter, able

pytestmark = pytest.mark.wire

Tried = Callable[[Callable[[], Any]], Any]
NEVER_MADE = {
    "out_of_capacity": NoCapacity,
    "low_balance": InsufficientFunds,
    "no_key": NotAuthorized,
}
ENDS_IT = ("vanished", "preempted")
ROUNDS = (1, None)
"""A fault happens once, then each time."""
UNSURE = (Unreachable, OutcomeUnknown, NotYetGone, StillCreating)


@pytest.fixture
def tried(harness: Any) -> Tried:
    """Asks, and gives what is answered, or the error, which has words in it and no key."""

    def ask(question: Callable[[], Any]) -> Any:
        try:
            said = question()
        except SweepstackError as error:
            said = error
        if isinstance(said, BaseException):
            assert str(said), repr(said)
            assert not any(secret in str(said) for secret in harness.secrets), "a key in an error text"
        return said

    return ask


def create(tried: Tried, rent: Renter, deadline: float = 1.5) -> Any:
    """The id, or the error, of a create that does not wait for long."""
    said = tried(lambda: rent(deadline=deadline))
    return said if isinstance(said, BaseException) else said.native_id


def look_at_create(platform: Platform, harness: Any, said: BaseException | str) -> None:
    """What the create said holds by the platform's books."""
    rentals = harness.rentals()
    assert harness.doubled() == {}, f"rented twice; it said {said!r}"
    if isinstance(said, str):
        assert rentals == {said}
    elif isinstance(said, StillCreating):
        assert rentals <= {said.identifier}
    elif not isinstance(said, UNSURE):
        assert rentals == set(), f"it said that nothing was made: {said!r}"


@pytest.mark.verbs("create")
def test_a_create_that_goes_wrong_once(
    platform: Platform, harness: Any, rent: Renter, fault: str, verb: str, tried: Tried
) -> None:
    harness.inject(fault, verb)
    said = create(tried, rent)
    look_at_create(platform, harness, said)
    harness.repair()
    found = platform.find_by_tag(TAG)
    assert {found.native_id} == harness.rentals() if found else harness.rentals() == set()
    if fault in ("never_ready", "dies_while_starting"):
        assert isinstance(said, StillCreating), f"it exists and bills, so its id travels: {said!r}"
        assert said.reasons
        return
    again = tried(rent)
    assert harness.doubled() == {}
    if isinstance(again, Unanswered):  # no list proves that nothing was made: it is for a person to say
        assert isinstance(said, OutcomeUnknown)
        assert harness.rentals() == set()
        return
    assert {again.native_id} == harness.rentals()


@pytest.mark.verbs("create")
def test_a_create_that_goes_wrong_every_time(
    platform: Platform, harness: Any, rent: Renter, fault: str, verb: str, tried: Tried
) -> None:
    harness.inject(fault, verb, times=None)
    for _ in range(2):
        # What is never made ends by its refusals, however long this machine takes to hear of them.
        said = create(tried, rent, 60.0) if fault in NEVER_MADE else create(tried, rent)
        look_at_create(platform, harness, said)
        if expected := NEVER_MADE.get(fault):
            assert isinstance(said, expected), repr(said)
    assert len(harness.rentals()) <= 1
    harness.repair()
    found = platform.find_by_tag(TAG)
    assert {found.native_id} == harness.rentals() if found else harness.rentals() == set()


@pytest.mark.verbs("read")
def test_a_read_that_goes_wrong_never_says_gone_of_what_bills(
    platform: Platform, harness: Any, rent: Renter, fault: str, verb: str, tried: Tried
) -> None:
    """Once, and then, where the box is still there, each time."""
    record = rent()
    for times in ROUNDS:
        harness.inject(fault, verb, times=times)
        look_at_reads(platform, harness, record, fault, tried)
        if fault in ENDS_IT:
            break


def look_at_reads(platform: Platform, harness: Any, record: BoxRecord, fault: str, tried: Tried) -> None:
    """What is read while it goes wrong, and afterwards."""
    asks: dict[str, Callable[[], Any]] = {
        "by number": lambda: platform.get(record.native_id, record.account),
        "by tag": lambda: platform.find_by_tag(TAG, record.account),
        "all": lambda: platform.list_tagged(TAG),
    }
    for what, ask in asks.items():
        seen = tried(ask)
        if isinstance(seen, BaseException):
            assert isinstance(seen, (Unreachable, NotAuthorized, WrongAccount)), repr(seen)
            continue
        if fault in ENDS_IT:
            continue
        if fault == "stale_list" and what != "by number":  # a list that lies can't be told from one that is true
            continue
        if fault == "foreign_account" and isinstance(seen, list):  # the other account's list, and true
            continue
        states = seen if isinstance(seen, list) else [seen]
        assert [one.native_id for one in states if one] == [record.native_id]
        assert all(one.phase is not Phase.GONE for one in states if one)
    harness.repair()
    now = platform.get(record.native_id, record.account)
    assert (now.phase is Phase.GONE) == (record.native_id not in harness.rentals())
    if fault == "preempted":
        assert now.phase is getattr(harness, "preempted", Phase.STOPPED)
    elif fault != "vanished":
        assert now.phase is Phase.RUNNING


@pytest.mark.verbs("delete")
def test_a_delete_that_goes_wrong_is_proved_or_not_said(
    platform: Platform, harness: Any, rent: Renter, fault: str, verb: str, tried: Tried
) -> None:
    for times in ROUNDS:
        record = rent()
        harness.inject(fault, verb, times=times)
        look_at_delete(platform, harness, record, tried)


def look_at_delete(platform: Platform, harness: Any, record: BoxRecord, tried: Tried) -> None:
    """What is said of an end while it goes wrong, and afterwards."""
    if tried(lambda: platform.destroy(record.native_id, record.account)) is None:
        assert harness.rentals() == set(), "it said that the box is gone"
    seen = tried(lambda: platform.get(record.native_id, record.account))
    assert not (isinstance(seen, BoxRecord) and seen.phase is Phase.GONE and harness.rentals())
    harness.repair()
    end = time.monotonic() + 120
    while platform.get(record.native_id, record.account).phase is not Phase.GONE:
        assert time.monotonic() < end, "never gone"
        try:
            platform.destroy(record.native_id, record.account)
        except NotYetGone:
            time.sleep(0.02)
    assert harness.rentals() == set()


@pytest.mark.fault_of("preempted")
def test_a_box_that_was_preempted_is_stopped_or_gone_and_never_running(
    platform: Platform, harness: Any, rent: Renter
) -> None:
    record = rent()
    harness.inject("preempted", "read")
    seen = platform.get(record.native_id, record.account).phase
    assert seen in (Phase.STOPPED, Phase.GONE, getattr(harness, "preempted", Phase.GONE))


@able(CanStop)
@pytest.mark.verbs("start")
def test_a_start_that_goes_wrong_is_told_and_the_box_is_kept(
    platform: Platform, harness: Any, rent: Renter, fault: str, verb: str, tried: Tried
) -> None:
    """One without cards bills and can run nothing: the record says 0, or the start says that it is not ready."""
    record = rent()
    platform.stop(record.native_id, record.account)
    harness.inject(fault, verb)
    said = tried(lambda: platform.start(record.native_id, record.account, wait=Wait(3)))
    if isinstance(said, StillCreating):
        assert said.identifier == record.native_id
    elif isinstance(said, BoxRecord):
        assert (fault, said.gpu_count) == ("zero_gpus", 0)
    else:
        assert fault == "no_room", repr(said)
        assert platform.get(record.native_id, record.account).phase is Phase.STOPPED
        harness.repair()  # there is room again: a start that was called off must not happen after all
        assert platform.get(record.native_id, record.account).phase is Phase.STOPPED
    assert harness.rentals() == {record.native_id}


def test_each_fault_is_played_somewhere(harness: Any) -> None:
    """A harness that forgets a fault would make its tests vanish, and no test would say so."""
    assert {fault for fault, _ in harness.plays} | harness.impossible == set(FAULTS)


# Two processes, and a list that lies


@pytest.mark.fault_of("stale_list")
def test_a_list_that_lies_does_not_rent_what_another_process_has(
    platform: Platform, harness: Any, rent: Renter
) -> None:
    """The list is from before the other's create, and stays so: its number is all that tells of the box."""
    (made,) = harness.create_at_once(harness.request(TAG), 1)
    harness.inject("stale_list", "read", times=None)
    assert rent().native_id == made
    assert harness.rentals() == {made}


@pytest.mark.fault_of("stale_list")
def test_four_processes_and_a_list_that_lies_get_one_box(platform: Platform, harness: Any) -> None:
    harness.create_at_once(harness.request(f"{TAG}0"), 1)  # a list that lies is from before this
    harness.inject("stale_list", "read", times=None)
    found = harness.create_at_once(harness.request(TAG), 4)
    assert len(found) == 1
    assert found <= harness.rentals()
    assert harness.doubled() == {}
