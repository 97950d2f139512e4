"""What every platform's adapter must do to what runs and lies on a box. The boxes are real."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.host.capabilities import CanStop, HasVolumes
from sweepstack.onbox.host.platform import Phase, Platform, Wait
from tests.conformance.suite import TAG, VOLUME, Renter, able, all_ended, same_box, spawn_sleeper, start_stubborn_family

pytestmark = pytest.mark.machines


def test_destroy_ends_every_process_of_the_box_and_no_other(platform: Platform, rent: Renter) -> None:
    record, other = rent(), rent(tag=f"{TAG}0")
    channel, others = (platform.channel(r.native_id, r.account) for r in (record, other))
    start_stubborn_family(channel)
    spawn_sleeper(others)
    assert len(channel.processes()) == 3
    platform.destroy(record.native_id, record.account)
    assert all_ended(channel)
    assert len(others.processes()) == 1


@able(CanStop, HasVolumes)
def test_a_stop_ends_processes_wipes_what_it_kills_and_keeps_the_rest(
    platform: Platform, harness: Any, rent: Renter
) -> None:
    volume = harness.volume(platform, VOLUME)
    record = rent(mounts={"mnt/durable": volume.native_id})
    other = rent(tag=f"{TAG}0")
    channel, others = (platform.channel(r.native_id, r.account) for r in (record, other))
    start_stubborn_family(channel)
    spawn_sleeper(others)
    for tier in (*harness.killed_by_stop, *harness.kept_by_stop):
        channel.write(f"{tier}/deep/down/weights", b"weights")
    platform.stop(record.native_id, record.account)
    assert platform.get(record.native_id, record.account).phase is Phase.STOPPED
    assert all_ended(channel)
    assert len(others.processes()) == 1
    platform.start(record.native_id, record.account, wait=Wait(60))
    again = platform.channel(record.native_id, record.account)
    assert again.processes() == []
    for tier in harness.killed_by_stop:
        assert again.size(f"{tier}/deep/down/weights") is None
    for tier in harness.kept_by_stop:
        assert again.read(f"{tier}/deep/down/weights") == b"weights"


@able(CanStop)
def test_nothing_runs_on_a_stopped_box_until_it_is_started(platform: Platform, rent: Renter) -> None:
    record = rent()
    before = platform.channel(record.native_id, record.account)  # opened before: it must notice, too
    platform.stop(record.native_id, record.account)
    for way in (lambda: before, lambda: platform.channel(record.native_id, record.account)):
        with pytest.raises(PlatformError):
            way().spawn(["true"], cwd="data", env={}, log="data/log.txt")
        with pytest.raises(PlatformError):
            way().run(["true"], timeout=5)
    assert same_box(platform.start(record.native_id, record.account, wait=Wait(60)), record)
    assert platform.channel(record.native_id, record.account).run(["true"], timeout=120).returncode == 0


@able(CanStop)
def test_a_start_of_a_box_that_runs_wipes_nothing(platform: Platform, harness: Any, rent: Renter) -> None:
    record = rent()
    assert platform.start(record.native_id, record.account, wait=Wait(60)) == record
    channel = platform.channel(record.native_id, record.account)
    tier = (*harness.killed_by_stop, *harness.kept_by_stop)[0]
    channel.write(f"{tier}/kept", b"a start of a box that runs wipes nothing")
    platform.start(record.native_id, record.account, wait=Wait(60))
    assert channel.size(f"{tier}/kept")


@able(HasVolumes)
def test_a_volume_outlives_its_box(platform: Platform, harness: Any, rent: Renter, tmp_path: Path) -> None:
    volume = harness.volume(platform, VOLUME)
    record = rent(mounts={"mnt/durable": volume.native_id})
    platform.channel(record.native_id, record.account).write("mnt/durable/a1b2c3/best.pt", b"weights")
    used = platform.get_volume(volume.native_id)
    assert used is not None
    assert used.mounted_by == (record.native_id,)
    platform.destroy(record.native_id, record.account)
    end = time.monotonic() + 120
    while (left := platform.get_volume(volume.native_id)) is not None and left.mounted_by and time.monotonic() < end:
        time.sleep(0.1)  # some platforms let go of it a while after the box is gone
    assert left is not None
    assert (left.native_id, left.tag, left.mounted_by) == (volume.native_id, volume.tag, ())
    record = rent(mounts={"mnt/durable": volume.native_id})
    channel = platform.channel(record.native_id, record.account)
    assert channel.read("mnt/durable/a1b2c3/best.pt") == b"weights"
    channel.fetch("mnt/durable/a1b2c3/best.pt", tmp_path / "best.pt")
    assert (tmp_path / "best.pt").read_bytes() == b"weights"
