"""Platforms whose boxes are processes of this host: a verb can be cut in its middle, what lies there can be read."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.errors import NotYetGone, PlatformError, Unreachable
from sweepstack.onbox.host.platform import Phase, Platform, Wait
from tests.conformance.suite import TAG, VOLUME, Renter, spawn_sleeper, start_stubborn_family

pytestmark = pytest.mark.host_boxes


def test_destroy_leaves_no_process_behind(platform: Platform, rent: Renter) -> None:
    record = rent()
    channel = platform.channel(record.native_id, record.account)
    start_stubborn_family(channel)
    platform.destroy(record.native_id, record.account)
    assert channel.processes() == []


def test_a_box_without_folder_whose_processes_run_is_not_gone(platform: Platform, harness: Any, rent: Renter) -> None:
    record = rent()
    channel = platform.channel(record.native_id, record.account)
    start_stubborn_family(channel)
    harness.remove_by_hand(record.native_id)
    seen = platform.get(record.native_id, record.account)
    assert seen.phase is Phase.UNKNOWN
    assert all(str(process.pid) in seen.note for process in channel.processes())
    platform.destroy(record.native_id, record.account)
    assert platform.get(record.native_id, record.account).phase is Phase.GONE


def test_a_platform_that_cannot_be_read_has_no_account(platform: Platform, harness: Any, rent: Renter) -> None:
    rent()
    harness.cut_off()
    with pytest.raises(Unreachable):
        platform.account()


def test_a_destroy_that_was_killed_leaves_a_listed_box_and_is_finished_later(
    platform: Platform, harness: Any, rent: Renter
) -> None:
    record = rent()
    channel = platform.channel(record.native_id, record.account)
    for number in range(20):
        channel.write(f"data/sweep/cells/{number}/out/weights", os.urandom(100))
    channel.write("data/sweep/journal.jsonl", b"{}\n")
    harness.cut_destroy(record.native_id, record.account)
    seen = platform.get(record.native_id, record.account)
    assert (seen.phase, seen.tag, seen.price_per_hour) == (Phase.ENDING, TAG, 0.25)
    assert [r.native_id for r in platform.list_tagged(TAG)] == [record.native_id]
    with pytest.raises(NotYetGone):
        rent()
    half = platform.channel(record.native_id, record.account)
    assert half.read("data/sweep/journal.jsonl") == b"{}\n"
    with pytest.raises(PlatformError):
        half.spawn(["true"], cwd="data", env={}, log="data/log.txt")
    platform.destroy(record.native_id, record.account)
    assert platform.get(record.native_id, record.account).phase is Phase.GONE


def test_what_a_stop_kept_can_be_read_while_the_box_stands_still(
    platform: Platform, harness: Any, rent: Renter
) -> None:
    volume = harness.volume(platform, VOLUME)
    record = rent(mounts={"mnt/durable": volume.native_id})
    channel = platform.channel(record.native_id, record.account)
    spawn_sleeper(channel)
    for tier in (*harness.killed_by_stop, *harness.kept_by_stop):
        channel.write(f"{tier}/deep/down/weights", b"weights")
    platform.stop(record.native_id, record.account)
    at_rest = platform.channel(record.native_id, record.account)
    assert at_rest.processes() == []
    for tier in harness.killed_by_stop:
        assert at_rest.listdir(tier) == []
    for tier in harness.kept_by_stop:
        assert at_rest.read(f"{tier}/deep/down/weights") == b"weights"
    for way in (channel, at_rest):
        with pytest.raises(PlatformError, match="stopped"):
            way.spawn(["true"], cwd="data", env={}, log="data/log.txt")
        with pytest.raises(PlatformError, match="stopped"):
            way.run(["true"], timeout=5)
    platform.start(record.native_id, record.account, wait=Wait(120))
    assert channel.run(["true"], timeout=120).returncode == 0


def test_a_box_that_is_going_is_not_stopped_or_started(platform: Platform, harness: Any, rent: Renter) -> None:
    record = rent()
    channel = platform.channel(record.native_id, record.account)
    for number in range(20):
        channel.write(f"data/sweep/cells/{number}/out/weights", os.urandom(100))
    harness.cut_destroy(record.native_id, record.account)
    with pytest.raises(PlatformError) as caught:
        platform.stop(record.native_id, record.account)
    assert not isinstance(caught.value, Unreachable)
    with pytest.raises(PlatformError):
        platform.start(record.native_id, record.account, wait=Wait(120))
    assert platform.get(record.native_id, record.account).phase is Phase.ENDING


@pytest.mark.parametrize("then", ["stop", "start"])
def test_a_stop_that_was_killed_says_so_and_is_finished_later(
    platform: Platform, harness: Any, rent: Renter, then: str
) -> None:
    record = rent()
    channel = platform.channel(record.native_id, record.account)
    channel.write(f"{harness.killed_by_stop[0]}/half", b"half of it is worse than nothing")
    harness.cut_stop(record.native_id, record.account)
    assert platform.get(record.native_id, record.account).phase is Phase.STOPPING
    with pytest.raises(PlatformError):
        channel.spawn(["true"], cwd="data", env={}, log="data/log.txt")
    if then == "stop":
        platform.stop(record.native_id, record.account)
        assert platform.get(record.native_id, record.account).phase is Phase.STOPPED
    else:
        assert platform.start(record.native_id, record.account, wait=Wait(120)) == record
    assert channel.listdir(harness.killed_by_stop[0]) == []


def test_stops_and_starts_at_once_leave_one_of_both(platform: Platform, harness: Any, rent: Renter) -> None:
    """The last one wins; a box that says it is stopped has nothing running and nothing on its scratch."""
    record = rent()
    both = [harness.turn(record.native_id, record.account, what, 8) for what in ("stop", "start")]
    channel = platform.channel(record.native_id, record.account)
    while any(process.poll() is None for process in both):
        try:
            channel.spawn(["sleep", "300"], cwd="data", env={}, log="data/log.txt")
        except PlatformError:
            time.sleep(0.01)
    assert [(process.returncode, process.communicate()[1]) for process in both] == [(0, b"")] * 2
    assert platform.get(record.native_id, record.account).phase in (Phase.STOPPED, Phase.RUNNING)
    platform.stop(record.native_id, record.account)
    assert channel.processes() == []


def test_a_volume_is_read_when_its_box_is_gone(platform: Platform, harness: Any, rent: Renter, tmp_path: Path) -> None:
    volume = harness.volume(platform, VOLUME)
    record = rent(mounts={"mnt/durable": volume.native_id})
    platform.channel(record.native_id, record.account).write("mnt/durable/a1b2c3/best.pt", b"weights")
    platform.destroy(record.native_id, record.account)
    as_on_a_box = platform.volume_channel(volume.native_id, "mnt/durable")
    for channel, folder in (
        (platform.volume_channel(volume.native_id), "a1b2c3"),
        (as_on_a_box, "mnt/durable/a1b2c3"),
    ):
        assert channel.read(f"{folder}/best.pt") == b"weights"
        assert [(e.name, e.kind) for e in channel.listdir(folder)] == [("best.pt", "file")]
        channel.fetch(f"{folder}/best.pt", tmp_path / "best.pt")
        assert (tmp_path / "best.pt").read_bytes() == b"weights"
        with pytest.raises(PlatformError):
            channel.run(["true"], timeout=5)
    with pytest.raises(PlatformError):
        as_on_a_box.size("a1b2c3/best.pt")
