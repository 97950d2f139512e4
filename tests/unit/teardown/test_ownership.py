"""What a box says of its owner, on the real local platform."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sweepstack.core.journal import Journal
from sweepstack.core.this_host import also_known_as
from sweepstack.onbox.agent.channel import Channel, Listing
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.host.platform import BoxRequest, Wait
from sweepstack.platforms.local.platform import connect
from sweepstack.teardown.ownership import HELD, Owner, former_names, read_owner, renew, sign, who
from sweepstack.teardown.unclaimed import measure

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture
def channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Channel:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    platform = connect()
    record = platform.create(BoxRequest("sweepstack-abc-box-0-g1", "box-0"), wait=Wait(60))
    return platform.channel(record.native_id, record.account)


def owner(channel: Channel, until: datetime = NOW + HELD) -> Owner:
    return Owner(person="alice@laptop", identity="abc", native_id=channel.native_id, held_until=until)


def test_what_a_box_says_is_read_back_and_is_no_unclaimed_file(channel: Channel) -> None:
    assert read_owner(channel) is None
    sign(channel, owner(channel))
    assert read_owner(channel) == owner(channel)
    seen = Listing(((box_layout.OWNER, 10, 0.0), (box_layout.DECISIONS, 10, 0.0)))
    assert not measure(seen, kills=(), box="b", generation=1, journal=None, receipt=None)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"person": 1}'])
def test_what_does_not_read_is_an_unknown_owner(channel: Channel, text: bytes) -> None:
    channel.write(box_layout.OWNER, text)
    assert read_owner(channel) is None


def test_a_file_that_was_copied_from_another_box_says_nothing(channel: Channel) -> None:
    sign(channel, owner(channel).model_copy(update={"native_id": "local-another"}))
    assert read_owner(channel) is None


def test_a_newer_version_may_say_more(channel: Channel) -> None:
    sign(channel, owner(channel))
    channel.write(box_layout.OWNER, channel.read(box_layout.OWNER).replace(b"{", b'{"later": [1],', 1))
    assert read_owner(channel) == owner(channel)


def test_it_is_held_for_a_day_after_the_last_sign_of_its_owner_or_of_its_own_work(channel: Channel) -> None:
    signed = owner(channel)
    assert signed.held_at(NOW) == NOW + HELD
    assert signed.held_at(NOW + HELD) is None
    worked = NOW + timedelta(hours=20)
    journal = Journal(entries=({"time": worked.isoformat()},))
    assert signed.held_at(NOW + HELD, journal) == worked + HELD
    assert signed.held_at(worked + HELD, journal) is None


def test_a_look_renews_it_at_most_once_an_hour_and_changes_no_owner(channel: Channel) -> None:
    renew(channel, NOW)
    assert read_owner(channel) is None
    sign(channel, owner(channel))
    renew(channel, NOW + timedelta(minutes=59))
    assert read_owner(channel) == owner(channel)
    renew(channel, NOW + timedelta(minutes=61))
    assert read_owner(channel) == owner(channel, NOW + timedelta(minutes=61) + HELD)


def test_the_person_is_the_one_at_this_keyboard() -> None:
    assert who().count("@") == 1


def test_the_same_person_under_earlier_names_of_this_computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert former_names() == ()
    also_known_as("old-laptop")
    assert former_names() == (f"{who().partition('@')[0]}@old-laptop",)
