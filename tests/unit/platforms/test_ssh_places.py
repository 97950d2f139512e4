"""The surviving tier of a host: looked at before a box is made, claimed once, found again when the box is gone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import RequestRefused, Unreachable
from sweepstack.onbox.host.platform import BoxRequest, Wait
from sweepstack.onbox.host.preflight import claim, where
from sweepstack.platforms.registry import load_platform
from sweepstack.platforms.ssh.platform import SshPlatform
from tests.simulators.host import Host

TAG = "sweepstack-abcdefghjk-box-0-g1"


def asked(place: Path, **more: Any) -> dict[str, dict[str, Any]]:
    return {box_layout.DURABLE: {"tier": "durable", "path": str(place), **more}}


def refused(root: Path, wanted: dict[str, dict[str, Any]]) -> str:
    with pytest.raises(RequestRefused) as caught:
        claim(root, "box-0", wanted)
    return str(caught.value)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with few inodes, as a shared one with a cap is. Needs root."""
    place = tmp_path / "autodl-fs"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=64", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_place_that_is_mounted_and_has_room_is_claimed_once(tmp_path: Path, small: Path) -> None:
    wanted = asked(small, mounted=True, files=20)
    (folder, native_id) = claim(tmp_path / "root", "box-0", wanted)[box_layout.DURABLE]
    assert (folder, native_id[:6]) == (str(small / "sweepstack"), "place-")
    assert claim(tmp_path / "root", "box-1", wanted)[box_layout.DURABLE] == (folder, native_id), "another box's, too"
    assert claim(tmp_path / "elsewhere", "box-0", wanted)[box_layout.DURABLE][1] == native_id, "and another host's"
    assert sorted(os.listdir(small)) == ["sweepstack"]
    assert os.listdir(small / "sweepstack") == ["place.json"]
    assert where(tmp_path / "root", native_id) == Path(folder)


def test_few_inodes_refuse_it_while_bytes_are_free(tmp_path: Path, small: Path) -> None:
    said = refused(tmp_path, asked(small, mounted=True, files=65))
    assert "more files (inodes), and the sweep leaves 65 behind at least. Remove small files there" in said
    assert "Nothing was made there" in said
    assert os.listdir(small) == []


def test_a_tier_that_is_too_small_for_the_artifacts_is_refused(tmp_path: Path, small: Path) -> None:
    """Once something of a sweep lies there, only the tier's size counts: what is sealed already is a part of it."""
    (small / "of another person").write_bytes(b"x" * 700_000)
    said = refused(tmp_path, asked(small, mounted=True, bytes=900_000))
    assert "GB, and the artifacts of the sweep have 0.0009 GB at least, by their min. Free some of it" in said
    assert not (small / "sweepstack").exists()
    claim(tmp_path, "box-0", asked(small, mounted=True, bytes=100_000))
    claim(tmp_path, "box-1", asked(small, mounted=True, bytes=900_000))
    assert "has room for 0.00105 GB" in refused(tmp_path, asked(small, mounted=True, bytes=2_000_000))


def test_an_empty_mount_point_is_not_the_tier(tmp_path: Path) -> None:
    place = tmp_path / "autodl-fs"
    assert "is not there: make it ready in the platform's console" in refused(tmp_path, asked(place))
    place.mkdir()
    assert "nothing is mounted there: what is written to it dies with the host" in refused(
        tmp_path, asked(place, mounted=True)
    )
    assert os.listdir(place) == []
    claimed = claim(tmp_path, "box-0", asked(place))  # a person said that it is the tier
    assert claimed[box_layout.DURABLE][0] == f"{place}/sweepstack"


def test_another_region_is_another_file_system(tmp_path: Path) -> None:
    here, there = tmp_path / "north", tmp_path / "south"
    here.mkdir()
    there.mkdir()
    ours = claim(tmp_path, "box-0", asked(here))[box_layout.DURABLE][1]
    said = refused(tmp_path, asked(there, expect=ours))
    assert f"than the one that this box's sealed cells and checkpoints lie on ({ours})" in said
    assert "Next: a host of that region under boxes.box-0.host" in said
    assert claim(tmp_path, "box-0", asked(here, expect=ours))[box_layout.DURABLE][1] == ours


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    wanted = {**asked(tmp_path / "fs"), "data": {"tier": "data", "path": str(tmp_path / "disk")}}
    said = refused(tmp_path, wanted)
    assert "the data tier" in said
    assert "the durable tier" in said


def test_over_ssh_a_box_shows_the_place_and_leaves_it_behind(tmp_path: Path, host: Host) -> None:
    platform = load_platform(f"ssh:{host.address}/{tmp_path}/disk/sweepstack".replace("//", "/"))
    assert isinstance(platform, SshPlatform)
    (tmp_path / "disk").mkdir()
    place = tmp_path / "fs"
    request = BoxRequest(TAG, "box-0", 0.0, places=asked(place, files=10))
    with pytest.raises(RequestRefused, match=f"{place}.* is not there"):
        platform.create(request, wait=Wait(30))
    assert platform.list_tagged("") == []
    place.mkdir()
    record = platform.create(request, wait=Wait(30))
    native_id = record.mounts[box_layout.DURABLE]
    assert platform.create(request, wait=Wait(30)).native_id == record.native_id, "adopted"
    assert platform.get(record.native_id, record.account).mounts == {box_layout.DURABLE: native_id}
    channel = platform.channel(record.native_id, record.account)
    channel.write("mnt/durable/abc/cells/a/manifest.json", b"{}")
    assert (place / "sweepstack/abc/cells/a/manifest.json").read_bytes() == b"{}"
    platform.destroy(record.native_id, record.account)
    assert list((tmp_path / "disk/sweepstack/boxes").glob("[!.]*")) == []
    left = platform.volume_channel(native_id, box_layout.DURABLE)
    assert left.read("mnt/durable/abc/cells/a/manifest.json") == b"{}", "what was sealed outlives the box"
    (place / "sweepstack/place.json").unlink()
    with pytest.raises(Unreachable, match="is its file system mounted"):
        platform.volume_channel(native_id, box_layout.DURABLE)
