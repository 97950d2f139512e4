"""What fills a disk, and when it will be full: real folders, made-up times."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sweepstack.onbox.runner import disk, patrol
from sweepstack.onbox.runner.disk import LEAST_SECONDS, DiskUse, Lack, Room, Trend, hogs

HOUR = 3600.0


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A box's home; the user's own caches are elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setattr(disk, "ELSEWHERE", ())
    home = tmp_path / "box" / "data" / "sweep"
    home.mkdir(parents=True)
    return home


def fill(folder: Path, size: int, files: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        (folder / f"{number}.bin").write_bytes(os.urandom(size))
    return folder


def test_ad5_the_cache_that_fills_the_disk_is_named_with_its_size(box: Path, tmp_path: Path) -> None:
    cache = fill(tmp_path / "hub" / "models", 3_000_000)
    fill(box / "cells" / "a", 1_000_000)
    said = DiskUse(box).words("disk", os.stat(box).st_dev, {"network": {"env": {"HF_HOME": str(cache.parent)}}})
    assert said == f": {cache.parent} 0.0 GB, {box}/cells 0.0 GB"
    (first, second) = hogs([box / "cells", cache.parent], os.stat(box).st_dev, 10)
    assert (first.path, second.path) == (str(cache.parent), str(box / "cells"))
    assert 3_000_000 <= first.bytes < 3_100_000


def test_u7_inodes_are_counted_where_they_are_short(box: Path, tmp_path: Path) -> None:
    fill(box / "cells", 10, files=30)
    fill(tmp_path / "user" / "wandb", 2_000_000)
    device = os.stat(box).st_dev
    assert DiskUse(box).words("inodes", device, {}).startswith(f": {box}/cells 30 files, ")
    assert DiskUse(box).words("disk", device, {}).startswith(f": {tmp_path}/user/wandb 0.0 GB, ")


def test_a_folder_by_two_names_counts_once_and_another_disk_does_not(box: Path, tmp_path: Path) -> None:
    cache = fill(tmp_path / "user" / ".cache" / "huggingface", 1_000_000)
    (tmp_path / "link").symlink_to(cache)
    device = os.stat(box).st_dev
    found = hogs([cache, tmp_path / "link", cache.parent, tmp_path / "absent"], device, 10)
    assert [use.path for use in found] == [str(cache), str(cache.parent)]
    assert sum(use.bytes for use in found) < 1_100_000
    assert hogs([cache], device + 1, 10) == []


def test_the_time_is_bounded_and_it_says_so(box: Path) -> None:
    fill(box / "cells", 1000)
    (use,) = hogs([box / "cells"], os.stat(box).st_dev, 3600)
    assert use.whole
    assert hogs([box / "cells"], os.stat(box).st_dev, -1) == []  # not one folder was seen
    assert "more than 2 files" in disk._said("inodes", [disk.FolderUse("x", 1, 2, False)])


def test_a_mount_that_hangs_is_named_and_holds_no_line_back(
    box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a `stat` below a network mount whose server is gone. What was seen before it is told."""
    monkeypatch.setattr(disk, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(disk, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(disk, "AGAIN_SECONDS", -1.0)
    fill(box / "cells", 1_000_000)
    gone, back, stat = box / "checkpoints", threading.Event(), os.stat
    device = stat(box).st_dev
    asked: list[Path] = []

    def hangs(path: Path) -> os.stat_result:
        if path == gone:
            asked.append(path)
            back.wait(300)
        return stat(path)

    monkeypatch.setattr(disk.os, "stat", hangs)
    use = DiskUse(box)
    for _ in range(3):
        assert use.words("disk", device, {}) == f": {box}/cells 0.0 GB, {gone} does not answer"
    assert asked == [gone], "no thread more for each line"
    back.set()
    use._looking.join(300)
    assert use.words("disk", device, {}) == f": {box}/cells 0.0 GB"


def test_the_folders_are_not_read_again_for_each_line(box: Path) -> None:
    use, device = DiskUse(box), os.stat(box).st_dev
    fill(box / "cells", 1000)
    first = use.words("disk", device, {})
    fill(box / "code", 1000)
    assert use.words("disk", device, {}) == first != ""
    assert "/code" in use.words("inodes", device, {}), "another question"


def test_inodes_that_will_be_used_up_soon_are_told_before(box: Path) -> None:
    """100,000 of 1,000,000 left, 60,000 fewer each hour: they last 100 minutes."""
    trend = Trend()
    assert trend.seconds_left(0, 160_000, 1_000_000) is None
    left = trend.seconds_left(HOUR, 100_000, 1_000_000)
    assert left == pytest.approx(100 * 60)
    looks = patrol.Patrol(box)
    room = Room(str(box), os.stat(box).st_dev, 9 << 30, 10 << 30, 160_000, 1_000_000)
    assert looks._disk(room, None, {}, 0) == []
    room = room._replace(inodes_free=100_000)
    assert looks._disk(room, None, {}, HOUR) == ["no inodes left in about 1.7 h, at the rate of the last hour"]


@pytest.mark.parametrize(
    ("seconds", "before", "now"),
    [
        (LEAST_SECONDS - 1, 200_000, 100_000),  # one burst is no rate
        (HOUR, 100_000, 100_000),
        (HOUR, 100_000, 110_000),
        (HOUR, 100_500, 100_000),  # days away
        (HOUR, 900_000, 600_000),  # not half used
        (HOUR, -1, -1),  # a file system that does not count them
    ],
)
def test_what_is_not_soon_or_not_known_is_not_told(seconds: float, before: int, now: int) -> None:
    trend = Trend()
    trend.seconds_left(0, before, 1_000_000)
    assert trend.seconds_left(seconds, now, 1_000_000) is None


def test_only_the_last_hour_counts() -> None:
    trend = Trend()
    trend.seconds_left(0, 400_000, 1_000_000)
    trend.seconds_left(HOUR, 100_000, 1_000_000)
    assert trend.seconds_left(2 * HOUR, 100_000, 1_000_000) is None


def test_a_full_disk_s_alarm_says_which_folders_hold_it(box: Path) -> None:
    fill(box / "cells", 1_000_000)
    looks, device = patrol.Patrol(box), os.stat(box).st_dev
    (said,) = looks._disk(Room(str(box), device, 1 << 30, 100 << 30, -1, 0), None, {}, 0)
    assert said == f"disk 99% full: {box}/cells 0.0 GB"
    roomy = Room(str(box), device, 50 << 30, 100 << 30, -1, 0)
    lack = Lack("disk", str(box), device, 50 << 30, 60 << 30)
    assert looks._disk(roomy, lack, {}, 0) == [f"disk of {box} too full for one more cell: {box}/cells 0.0 GB"]
