"""What every platform's adapter must do. Parametrised over all that are installed (see `conftest.harness`)."""

from __future__ import annotations

import os
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from provider.platforms.base import BoxRecord, BoxRequest, Phase, Platform, Wait
from provider.platforms.registry import load_platform
from sweep.channel.base import Channel
from sweep.errors import (
    ConfigError,
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    StillCreating,
    Unreachable,
    WrongAccount,
)

TAG = "sweepstack-a1b2c3-box-0-g1"

STUBBORN_FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited by forks, and ignored signals by exec too
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        program = "import time; print('up', flush=True); time.sleep(300)"
        os.execve(sys.executable, [sys.executable, "-c", program], dict(os.environ))
    time.sleep(300)
time.sleep(300)
"""


def request(tag: str = TAG, **changes: Any) -> BoxRequest:
    return BoxRequest(**{"tag": tag, "name": "box-0", "price_per_hour": 0.25, **changes})


def rent(platform: Platform, **changes: Any) -> BoxRecord:
    return platform.create(request(**changes), wait=Wait(30))


def start_stubborn_family(channel: Channel) -> None:
    channel.write("data/here", b"")
    channel.spawn([sys.executable, "-c", STUBBORN_FAMILY], cwd="data", env={}, log="data/log.txt")
    begin = time.monotonic()
    while b"up" not in channel.read("data/log.txt") or len(channel.processes()) < 3:
        assert time.monotonic() - begin < 20, "the family did not start"
        time.sleep(0.02)


class PlatformSuite:
    """One instance a test; `harness` is the adapter's world."""

    @pytest.fixture
    def platform(self, harness: Any) -> Platform:
        platform: Platform = harness.connect()
        return platform

    def test_a_rented_box_is_what_was_asked_for(self, platform: Platform) -> None:
        before = datetime.now(UTC) - timedelta(seconds=5)
        record = rent(platform)
        assert (record.tag, record.phase, record.price_per_hour) == (TAG, Phase.RUNNING, 0.25)
        assert record.account == platform.account()
        assert record.created_at is not None
        assert before < record.created_at < datetime.now(UTC) + timedelta(seconds=5)
        assert platform.get(record.native_id, record.account) == record

    def test_a_box_is_found_by_its_whole_tag_only(self, platform: Platform) -> None:
        assert platform.find_by_tag(TAG) is None
        record = rent(platform)
        other = rent(platform, tag=f"{TAG}0")
        assert platform.find_by_tag(TAG) == record
        assert platform.find_by_tag(TAG[:-1]) is None
        assert platform.list_tagged("sweepstack-a1b2c3-") == sorted([record, other], key=lambda r: r.native_id)
        assert platform.list_tagged("sweepstack-other-") == []

    def test_the_same_request_is_adopted_and_not_doubled(self, platform: Platform, harness: Any) -> None:
        first = rent(platform)
        assert rent(harness.connect()).native_id == first.native_id
        assert len(platform.list_tagged("")) == 1

    def test_eight_processes_with_one_tag_get_one_box(self, platform: Platform, harness: Any) -> None:
        assert len(harness.create_at_once(request(), 8)) == 1
        assert len(platform.list_tagged("")) == 1

    def test_already_gone_is_a_success(self, platform: Platform) -> None:
        record = rent(platform)
        platform.destroy(record.native_id, record.account)
        assert platform.get(record.native_id, record.account).phase is Phase.GONE
        platform.destroy(record.native_id, record.account)
        assert platform.find_by_tag(TAG) is None
        with pytest.raises(Unreachable):
            platform.channel(record.native_id, record.account)

    def test_after_the_end_the_same_tag_is_a_new_box(self, platform: Platform) -> None:
        first = rent(platform)
        platform.destroy(first.native_id, first.account)
        assert rent(platform).native_id != first.native_id

    def test_a_box_removed_by_hand_is_gone(self, platform: Platform, harness: Any) -> None:
        record = rent(platform)
        harness.remove_by_hand(record.native_id)
        assert platform.get(record.native_id, record.account).phase is Phase.GONE

    def test_what_cannot_be_read_is_unknown_and_not_gone(self, platform: Platform, harness: Any) -> None:
        record = rent(platform)
        harness.make_unreadable(record.native_id)
        seen = platform.get(record.native_id, record.account)
        assert seen.phase is Phase.UNKNOWN
        assert seen.note
        found = platform.find_by_tag(TAG)
        assert found is not None
        assert [r.native_id for r in platform.list_tagged(TAG)] == [record.native_id]
        with pytest.raises(StillCreating) as caught:
            rent(platform)
        assert caught.value.identifier == record.native_id

    def test_a_platform_that_does_not_answer_is_never_gone(self, platform: Platform, harness: Any) -> None:
        record = rent(platform)
        harness.cut_off()
        for ask in (
            lambda: platform.get(record.native_id, record.account),
            lambda: platform.destroy(record.native_id, record.account),
            lambda: platform.channel(record.native_id, record.account),
            lambda: platform.find_by_tag(TAG),
            lambda: platform.list_tagged(""),
            platform.account,
            lambda: rent(platform),
        ):
            with pytest.raises(Unreachable):
                ask()
        harness.repair()
        assert platform.get(record.native_id, record.account) == record

    def test_another_accounts_box_is_not_touched(self, platform: Platform, harness: Any) -> None:
        record = rent(platform)
        harness.make_foreign()
        at_hand = platform.account()
        for ask in (platform.get, platform.destroy, platform.channel):
            with pytest.raises(WrongAccount) as caught:
                ask(record.native_id, record.account)
            assert record.account in str(caught.value)
            assert at_hand in str(caught.value)
        harness.repair()
        assert platform.get(record.native_id, record.account) == record

    def test_a_cancelled_create_keeps_the_id(self, platform: Platform, harness: Any) -> None:
        harness.slow_boot(60)
        wait = Wait(60)
        threading.Timer(0.3, wait.cancelled.set).start()
        begin = time.monotonic()
        with pytest.raises(StillCreating) as caught:
            platform.create(request(), wait=wait)
        assert time.monotonic() - begin < 5
        found = platform.find_by_tag(TAG)
        assert found is not None
        assert (caught.value.identifier, caught.value.outputs) == (found.native_id, found.outputs())
        assert found.phase is Phase.CREATING
        assert "cancelled" in caught.value.reasons[0]

    def test_a_create_that_is_too_slow_keeps_the_id_and_is_adopted_later(
        self, platform: Platform, harness: Any
    ) -> None:
        harness.slow_boot(1.5)
        with pytest.raises(StillCreating) as caught:
            platform.create(request(), wait=Wait(0.2))
        record = rent(platform)
        assert (record.native_id, record.phase) == (caught.value.identifier, Phase.RUNNING)

    def test_cancelled_before_anything_was_made_makes_nothing(self, platform: Platform) -> None:
        wait = Wait(30)
        wait.cancelled.set()
        with pytest.raises(PlatformError):
            platform.create(request(), wait=wait)
        assert platform.list_tagged("") == []

    def test_a_lost_answer_is_looked_up_and_adopted(self, platform: Platform, harness: Any) -> None:
        harness.lose_answers()
        with pytest.raises(OutcomeUnknown):
            rent(platform)
        found = platform.find_by_tag(TAG)
        assert found is not None
        assert rent(platform).native_id == found.native_id

    def test_a_late_failure_keeps_the_id(self, platform: Platform, harness: Any) -> None:
        harness.fail_late()
        with pytest.raises(StillCreating) as caught:
            rent(platform)
        assert rent(platform).native_id == caught.value.identifier

    def test_destroy_ends_every_process_of_the_box_and_no_other(self, platform: Platform) -> None:
        record, other = rent(platform), rent(platform, tag=f"{TAG}0")
        channel, others = (platform.channel(r.native_id, r.account) for r in (record, other))
        start_stubborn_family(channel)
        others.spawn([sys.executable, "-c", "import time; time.sleep(300)"], cwd="data", env={}, log="data/log.txt")
        assert len(channel.processes()) == 3
        platform.destroy(record.native_id, record.account)
        assert channel.processes() == []
        assert len(others.processes()) == 1

    def test_a_box_without_folder_whose_processes_run_is_not_gone(self, platform: Platform, harness: Any) -> None:
        record = rent(platform)
        channel = platform.channel(record.native_id, record.account)
        start_stubborn_family(channel)
        harness.remove_by_hand(record.native_id)
        seen = platform.get(record.native_id, record.account)
        assert seen.phase is Phase.UNKNOWN
        assert all(str(process.pid) in seen.note for process in channel.processes())
        platform.destroy(record.native_id, record.account)
        assert platform.get(record.native_id, record.account).phase is Phase.GONE

    def test_a_destroy_that_was_killed_leaves_a_listed_box_and_is_finished_later(
        self, platform: Platform, harness: Any
    ) -> None:
        record = rent(platform)
        channel = platform.channel(record.native_id, record.account)
        for number in range(20):
            channel.write(f"data/sweep/cells/{number}/out/weights", os.urandom(100))
        channel.write("data/sweep/journal.jsonl", b"{}\n")
        harness.cut_destroy(record.native_id, record.account)
        seen = platform.get(record.native_id, record.account)
        assert (seen.phase, seen.tag, seen.price_per_hour) == (Phase.ENDING, TAG, 0.25)
        assert [r.native_id for r in platform.list_tagged(TAG)] == [record.native_id]
        with pytest.raises(NotYetGone):
            rent(platform)
        half = platform.channel(record.native_id, record.account)
        assert half.read("data/sweep/journal.jsonl") == b"{}\n"
        with pytest.raises(PlatformError):
            half.spawn(["true"], cwd="data", env={}, log="data/log.txt")
        platform.destroy(record.native_id, record.account)
        assert platform.get(record.native_id, record.account).phase is Phase.GONE

    def test_a_stop_ends_processes_and_wipes_what_it_kills_and_nothing_else(
        self, platform: Platform, harness: Any
    ) -> None:
        volume = platform.ensure_volume("sweepstack-a1b2c3-volume-durable", "durable")
        record = rent(platform, mounts={"mnt/durable": volume.native_id})
        other = rent(platform, tag=f"{TAG}0")
        channel, others = (platform.channel(r.native_id, r.account) for r in (record, other))
        start_stubborn_family(channel)
        others.spawn([sys.executable, "-c", "import time; time.sleep(300)"], cwd="data", env={}, log="data/log.txt")
        for tier in (*harness.killed_by_stop, *harness.kept_by_stop):
            channel.write(f"{tier}/deep/down/weights", b"weights")
        platform.stop(record.native_id, record.account)
        seen = platform.get(record.native_id, record.account)
        assert (seen.phase, seen.tag, seen.created_at) == (Phase.STOPPED, TAG, record.created_at)
        at_rest = platform.channel(record.native_id, record.account)
        assert at_rest.processes() == []
        assert len(others.processes()) == 1
        for tier in harness.killed_by_stop:
            assert at_rest.listdir(tier) == []
        for tier in harness.kept_by_stop:
            assert at_rest.read(f"{tier}/deep/down/weights") == b"weights"

    def test_nothing_runs_on_a_stopped_box_until_it_is_started(self, platform: Platform) -> None:
        record = rent(platform)
        channel = platform.channel(record.native_id, record.account)  # opened before: it must notice, too
        platform.stop(record.native_id, record.account)
        for way in (channel, platform.channel(record.native_id, record.account)):
            with pytest.raises(PlatformError, match="stopped"):
                way.spawn(["true"], cwd="data", env={}, log="data/log.txt")
            with pytest.raises(PlatformError, match="stopped"):
                way.run(["true"], timeout=5)
        started = platform.start(record.native_id, record.account, wait=Wait(30))
        assert started == record
        assert channel.run(["true"], timeout=5).returncode == 0

    def test_stop_and_start_are_idempotent(self, platform: Platform, harness: Any) -> None:
        record = rent(platform)
        assert platform.start(record.native_id, record.account, wait=Wait(30)) == record
        channel = platform.channel(record.native_id, record.account)
        channel.write(f"{harness.killed_by_stop[0]}/kept", b"a start of a box that runs wipes nothing")
        platform.start(record.native_id, record.account, wait=Wait(30))
        assert channel.size(f"{harness.killed_by_stop[0]}/kept")
        for _ in range(2):
            platform.stop(record.native_id, record.account)
            assert platform.get(record.native_id, record.account).phase is Phase.STOPPED

    def test_a_stopped_box_is_listed_adopted_as_it_is_and_can_be_destroyed(
        self, platform: Platform, harness: Any
    ) -> None:
        record = rent(platform)
        platform.stop(record.native_id, record.account)
        assert [r.native_id for r in platform.list_tagged(TAG)] == [record.native_id]
        adopted = rent(harness.connect())
        assert (adopted.native_id, adopted.phase) == (record.native_id, Phase.STOPPED)
        platform.destroy(record.native_id, record.account)
        assert platform.get(record.native_id, record.account).phase is Phase.GONE

    def test_a_box_that_is_gone_or_going_is_not_stopped_or_started(self, platform: Platform, harness: Any) -> None:
        record, half = rent(platform), rent(platform, tag=f"{TAG}0")
        channel = platform.channel(half.native_id, half.account)
        for number in range(20):
            channel.write(f"data/sweep/cells/{number}/out/weights", os.urandom(100))
        platform.destroy(record.native_id, record.account)
        harness.cut_destroy(half.native_id, half.account)
        for box, phase in ((record, Phase.GONE), (half, Phase.ENDING)):
            with pytest.raises(PlatformError) as caught:
                platform.stop(box.native_id, box.account)
            assert not isinstance(caught.value, Unreachable)
            with pytest.raises(PlatformError):
                platform.start(box.native_id, box.account, wait=Wait(30))
            assert platform.get(box.native_id, box.account).phase is phase

    def test_another_accounts_box_is_not_stopped_or_started(self, platform: Platform, harness: Any) -> None:
        record = rent(platform)
        harness.make_foreign()
        with pytest.raises(WrongAccount):
            platform.stop(record.native_id, record.account)
        with pytest.raises(WrongAccount):
            platform.start(record.native_id, record.account, wait=Wait(30))
        harness.repair()
        assert platform.get(record.native_id, record.account) == record

    def test_a_platform_that_does_not_answer_stops_and_starts_nothing(self, platform: Platform, harness: Any) -> None:
        record = rent(platform)
        harness.cut_off()
        with pytest.raises(Unreachable):
            platform.stop(record.native_id, record.account)
        with pytest.raises(Unreachable):
            platform.start(record.native_id, record.account, wait=Wait(30))

    @pytest.mark.parametrize("then", ["stop", "start"])
    def test_a_stop_that_was_killed_says_so_and_is_finished_later(
        self, platform: Platform, harness: Any, then: str
    ) -> None:
        record = rent(platform)
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
            assert platform.start(record.native_id, record.account, wait=Wait(30)) == record
        assert channel.listdir(harness.killed_by_stop[0]) == []

    def test_stops_and_starts_at_once_leave_one_of_both(self, platform: Platform, harness: Any) -> None:
        """Whoever is last wins; a box that says it is stopped has nothing running and nothing on its scratch."""
        record = rent(platform)
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

    def test_a_start_that_is_too_slow_keeps_the_id(self, platform: Platform, harness: Any) -> None:
        record = rent(platform)
        platform.stop(record.native_id, record.account)
        harness.slow_boot(60)
        with pytest.raises(StillCreating) as caught:
            platform.start(record.native_id, record.account, wait=Wait(0.2))
        assert caught.value.identifier == record.native_id
        assert platform.get(record.native_id, record.account).phase is Phase.CREATING

    def test_a_volume_outlives_its_box(self, platform: Platform, tmp_path: Path) -> None:
        volume = platform.ensure_volume("sweepstack-a1b2c3-volume-durable", "durable")
        again = platform.ensure_volume("sweepstack-a1b2c3-volume-durable", "durable")
        assert (again.native_id, volume.created, again.created) == (volume.native_id, True, False)
        record = rent(platform, mounts={"mnt/durable": volume.native_id})
        platform.channel(record.native_id, record.account).write("mnt/durable/a1b2c3/best.pt", b"weights")
        platform.destroy(record.native_id, record.account)
        assert platform.get_volume(volume.native_id) == again
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

    def test_a_box_is_not_made_without_its_volume(self, platform: Platform) -> None:
        volume = platform.ensure_volume("sweepstack-a1b2c3-volume-durable", "durable").native_id
        missing = volume[:-1] + ("a" if volume[-1] != "a" else "b")
        assert platform.get_volume(missing) is None
        with pytest.raises(PlatformError):
            rent(platform, mounts={"mnt/durable": missing})
        assert platform.list_tagged("") == []

    def test_another_accounts_volume_is_not_taken_for_gone(self, platform: Platform, harness: Any) -> None:
        volume = platform.ensure_volume("sweepstack-a1b2c3-volume-durable", "durable")
        harness.make_foreign()
        with pytest.raises(WrongAccount):
            platform.get_volume(volume.native_id)
        with pytest.raises(WrongAccount):
            platform.volume_channel(volume.native_id)

    @pytest.mark.parametrize("native_id", ["", ".", "../volumes", "local-../../..", "/etc", "local-AAAAAAAAAA", "x\0y"])
    def test_an_id_that_cannot_be_ours_is_refused(self, platform: Platform, native_id: str) -> None:
        rent(platform)
        account = platform.account()
        for ask in (platform.get, platform.destroy, platform.stop, platform.channel):
            with pytest.raises(PlatformError):
                ask(native_id, account)

    def test_outputs_are_plain_json(self, platform: Platform) -> None:
        outputs = rent(platform).outputs()
        assert set(outputs) == {"native_id", "tag", "account", "phase", "price_per_hour", "created_at"}
        assert type(outputs["phase"]) is str
        assert outputs["created_at"].endswith("Z")


class TestPlatforms(PlatformSuite):
    """Collected by pytest; the base class can be reused elsewhere."""


@pytest.mark.parametrize("name", ["nope", "base", "_local_store", "../local", "Local", ""])
def test_an_unknown_adapter_is_named_with_those_that_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match="local"):
        load_platform(name)
