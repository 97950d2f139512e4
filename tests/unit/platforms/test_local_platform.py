"""What is particular to boxes that are folders: kills at every step, the registry, links, what people do by hand."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.core import this_host
from sweepstack.onbox.common import mount_points, processes
from sweepstack.onbox.common.errors import (
    FolderLost,
    NotYetGone,
    PlatformError,
    RequestRefused,
    Unreachable,
    WrongAccount,
)
from sweepstack.onbox.common.processes import BOX_ID_VARIABLE
from sweepstack.onbox.host import box_folders, folder_platform
from sweepstack.onbox.host.folder_platform import BOOT_DRILL, CREATE_DRILL, KILLED_BY_STOP, LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.local.__main__ import main as claim
from sweepstack.platforms.local.platform import connect
from sweepstack.profiles.load import load_profile
from tests.short_wait import out_of_time

TAG = "sweepstack-a1b2c3-box-0-g1"

CHANGES = ("mkdir", "rename", "replace", "symlink", "fsync", "unlink", "rmdir", "fchmod")
"""The calls that change a folder."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for drill in (BOOT_DRILL, CREATE_DRILL):
        monkeypatch.delenv(drill, raising=False)
    monkeypatch.setattr(processes, "SCAN_SECONDS", 0.005)
    return tmp_path / "sweepstack" / "local"


@pytest.fixture
def platform(root: Path) -> LocalPlatform:
    return LocalPlatform(root, grace=0.2)


def rent(platform: LocalPlatform, tag: str = TAG, **changes: object) -> BoxRecord:
    return platform.create(BoxRequest(tag=tag, name="box-0", **changes), wait=Wait(120))  # type: ignore[arg-type]


def killed_at(step: int, root: Path, work: Callable[[LocalPlatform], object]) -> bool:
    """Does `work` in a child that is killed before its call number `step` of CHANGES. Whether it came so far."""
    child = os.fork()
    if child == 0:
        left = step

        def cut(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **named)

            return call

        try:
            for name in CHANGES:
                setattr(os, name, cut(getattr(os, name)))
            work(LocalPlatform(root, grace=0.1))
            os._exit(0)
        finally:
            os._exit(1)
    end = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert end in (0, -signal.SIGKILL)
    return end != 0


def test_a_stop_killed_at_any_step_is_finished_by_the_next(root: Path, platform: LocalPlatform) -> None:
    """Killed before each call that changes a folder: never "stopped" with something left on the scratch."""
    record = rent(platform)
    scratch, phases, step = root / "boxes" / record.native_id / "scratch", set(), 1
    while True:
        platform.start(record.native_id, record.account, wait=Wait(120))
        for number in range(3):
            (scratch / "deep").mkdir(exist_ok=True)
            (scratch / "deep" / str(number)).write_text("bytes")
        killed = killed_at(step, root, lambda it, made=record: it.stop(made.native_id, made.account))
        phase = platform.get(record.native_id, record.account).phase
        phases.add(phase)
        assert phase is not Phase.STOPPED or not any(scratch.iterdir())
        assert phase is not Phase.RUNNING or len(list((scratch / "deep").iterdir())) == 3
        platform.stop(record.native_id, record.account)
        assert platform.get(record.native_id, record.account).phase is Phase.STOPPED
        assert not any(scratch.iterdir())
        if not killed:
            break
        step += 1
    assert phases == {Phase.RUNNING, Phase.STOPPING, Phase.STOPPED}


def test_a_power_file_that_does_not_read_is_unknown_and_a_stop_mends_it(root: Path, platform: LocalPlatform) -> None:
    record = rent(platform)
    (root / "boxes" / record.native_id / "power.json").write_text('{"state": "of')
    assert platform.get(record.native_id, record.account).phase is Phase.UNKNOWN
    with pytest.raises(PlatformError, match="may be stopped"):
        platform.channel(record.native_id, record.account).run(["true"], timeout=5)
    platform.stop(record.native_id, record.account)
    assert platform.get(record.native_id, record.account).phase is Phase.STOPPED


def test_the_profile_says_of_stop_what_the_adapter_does() -> None:
    """The provider never opens a profile, so nothing else keeps the two together."""
    assert load_profile("local").verbs["stop"].kills == KILLED_BY_STOP


def test_a_create_killed_at_any_step_leaves_no_box_or_a_whole_one(root: Path) -> None:
    """On a machine's first use, so that founding its registry is cut off at every step as well."""
    found_after_kill = set()
    step = 1
    while killed_at(step, root / str(step), lambda it: rent(it, price_per_hour=1.5)):
        platform = LocalPlatform(root / str(step), grace=0)
        seen = platform.find_by_tag(TAG)
        found_after_kill.add(seen is not None)
        assert seen is None or (seen.phase, seen.price_per_hour) == (Phase.RUNNING, 1.5)
        record = rent(platform, price_per_hour=1.5)
        assert seen is None or record == seen
        assert [path.name for path in (root / str(step) / "boxes").glob("[!.]*")] == [record.native_id]
        assert list((root / str(step) / "staging").iterdir()) == []
        step += 1
    assert step > 20
    assert found_after_kill == {True, False}


def test_a_destroy_killed_at_any_step_is_listed_until_it_is_finished(root: Path, platform: LocalPlatform) -> None:
    phases = set()
    step = 1
    while True:
        record = rent(platform)
        channel = platform.channel(record.native_id, record.account)
        for path in (
            "data/sweep/journal.jsonl",
            "data/sweep/cells/a/1/out/w",
            "data/sweep/cells/b/1/out/w",
            "scratch/x",
        ):
            channel.write(path, b"x")
        if not killed_at(step, root, lambda it, made=record: it.destroy(made.native_id, made.account)):
            break
        seen = platform.get(record.native_id, record.account)
        phases.add(seen.phase)
        if seen.phase is Phase.GONE:
            assert platform.list_tagged("") == []
        else:
            assert platform.find_by_tag(TAG) == seen
            half = platform.channel(record.native_id, record.account)
            assert half.read("data/sweep/journal.jsonl") == b"x"
        platform.destroy(record.native_id, record.account)
        assert platform.get(record.native_id, record.account).phase is Phase.GONE
        assert list((root / "boxes").glob("[!.]*")) == []
        step += 1
    assert step > 10
    assert phases == {Phase.RUNNING, Phase.ENDING, Phase.GONE}


def test_looking_changes_nothing(root: Path, platform: LocalPlatform) -> None:
    assert platform.find_by_tag(TAG) is None
    assert platform.list_tagged("") == []
    assert not root.exists()
    record = rent(platform)

    def tree() -> list[tuple[str, int, int]]:
        return sorted((str(p), p.lstat().st_mtime_ns, p.lstat().st_size) for p in root.rglob("*"))

    before = tree()
    platform.get(record.native_id, record.account)
    platform.find_by_tag(TAG)
    platform.list_tagged("")
    platform.account()
    platform.channel(record.native_id, record.account).listdir("data")
    assert tree() == before


def test_the_account_is_host_and_registry(root: Path, platform: LocalPlatform) -> None:
    assert platform.account() == f"{socket.gethostname()}/{json.loads((root / 'registry.json').read_bytes())['id']}"
    assert LocalPlatform(root).account() == platform.account()


@pytest.mark.parametrize("damage", ["removed", "garbage", "all gone", "boxes gone"])
def test_a_lost_registry_is_unknown_and_one_command_away_from_known(
    root: Path,
    platform: LocalPlatform,
    damage: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = rent(platform)
    if damage == "removed":
        (root / "registry.json").unlink()
    elif damage == "garbage":
        (root / "registry.json").write_text("{")
    elif damage == "boxes gone":
        os.rename(root / "boxes", root / "away")
    else:
        os.rename(root, root.with_name("away"))
    for ask in (platform.get, platform.destroy, platform.channel):
        with pytest.raises(Unreachable) as caught:
            ask(record.native_id, record.account)
        assert str(root) in str(caught.value)
        assert "`" in str(caught.value), "the message names the command that helps"
    monkeypatch.setenv("XDG_DATA_HOME", str(root.parent.parent))
    assert claim(["--also", record.account]) == 0
    kept = [path.read_text() for path in root.glob("registry.json.unread-*")]
    assert kept == (["{"] if damage == "garbage" else []), "what was there is kept"
    assert record.account in capsys.readouterr().out
    gone = damage in ("all gone", "boxes gone")
    assert platform.get(record.native_id, record.account).phase is (Phase.GONE if gone else Phase.RUNNING)
    platform.destroy(record.native_id, record.account)
    assert platform.get(record.native_id, record.account).phase is Phase.GONE


@pytest.mark.parametrize("mounted", ["an empty folder", "another registry's"])
def test_a_disk_that_is_not_mounted_is_unknown_and_not_gone(root: Path, platform: LocalPlatform, mounted: str) -> None:
    record = rent(platform)
    os.rename(root / "boxes", root / "disk")
    (root / "boxes").mkdir()
    if mounted != "an empty folder":
        (root / "boxes" / ".registry").write_text("otherother\n")
        (root / "boxes" / "local-aaaaaaaaaa").mkdir()
    asked = {
        "get": lambda: platform.get(record.native_id, record.account),
        "destroy": lambda: platform.destroy(record.native_id, record.account),
        "find": lambda: platform.find_by_tag(TAG),
        "list": lambda: platform.list_tagged(""),
        "create": lambda: rent(platform),
    }
    for name, ask in asked.items():
        with pytest.raises(Unreachable, match="another folder than the one that boxes were made in") as caught:
            ask()
        assert f"--also {record.account}    (only if they are really gone)`" in str(caught.value), name
    shutil.rmtree(root / "boxes")
    os.rename(root / "disk", root / "boxes")
    assert platform.get(record.native_id, record.account).phase is Phase.RUNNING


def test_a_box_whose_processes_outlived_its_folder_is_not_gone(root: Path, platform: LocalPlatform) -> None:
    record = rent(platform)
    marked = {**os.environ, BOX_ID_VARIABLE: record.native_id}
    left = subprocess.Popen(["sleep", "60"], env=marked, start_new_session=True)
    try:
        shutil.rmtree(root / "boxes" / record.native_id)
        seen = platform.get(record.native_id, record.account)
        assert seen.phase is Phase.UNKNOWN
        assert f"1 of its processes still run ({left.pid}): destroy ends them" in seen.note
        platform.destroy(record.native_id, record.account)
        assert left.wait(timeout=30) < 0
    finally:
        left.kill()
        left.wait(timeout=30)
    assert platform.get(record.native_id, record.account).phase is Phase.GONE


def test_an_earlier_name_of_the_host_proves_nothing_of_its_boxes(
    root: Path, platform: LocalPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sweepctl adopt --renamed-from`: the folder without its disk stays unknown, also after something was made."""
    record = rent(platform)
    monkeypatch.setattr("sweepstack.onbox.host.box_folders.host_identity", lambda: "another-name")
    platform.answer_for(record.account)
    os.rename(root / "boxes", root / "disk")
    (root / "boxes").mkdir()
    with pytest.raises(Unreachable):
        rent(platform, tag=TAG + "2")
    with pytest.raises(Unreachable):
        platform.get(record.native_id, record.account)


def test_where_the_registry_was_lost_the_mark_says_whose_boxes_these_are(
    root: Path, platform: LocalPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sweepctl adopt BOX` on another machine than that of the box, or without the disk of the boxes."""
    record = rent(platform)
    monkeypatch.setattr("sweepstack.onbox.host.box_folders.host_identity", lambda: "another-name")
    (root / "registry.json").unlink()
    with pytest.raises(WrongAccount, match="is marked as that of the registry"):
        platform.answer_for("far-away/zzzzzzzzzz")
    assert not (root / "registry.json").exists()
    (root / "volumes" / "volume-a").mkdir()
    os.rename(root / "boxes", root / "disk")
    (root / "boxes").mkdir()
    platform.answer_for(record.account)
    with pytest.raises(Unreachable, match="is empty and carries no mark"):
        platform.get(record.native_id, record.account)


def test_a_registry_of_before_there_was_a_mark(root: Path, platform: LocalPlatform) -> None:
    """With boxes in it, a folder is the one that boxes were made in, and it is marked before the last of them ends."""
    record = rent(platform)
    unmarked(root)
    assert platform.get(record.native_id, record.account).phase is Phase.RUNNING
    platform.destroy(record.native_id, record.account)
    assert platform.get(record.native_id, record.account).phase is Phase.GONE
    assert rent(platform).phase is Phase.RUNNING


@pytest.mark.parametrize("remote", [False, True], ids=["this_machine", "a_host"])
def test_an_empty_folder_of_before_there_was_a_mark_proves_nothing_until_a_person_says_so(
    root: Path, remote: bool
) -> None:
    """It may be the mount point of a disk. A `pulumi up` marked it, and each box on the disk was "gone"."""
    platform = LocalPlatform(root, remote=remote)
    record = rent(platform)
    unmarked(root)
    os.rename(root / "boxes", root / "disk")
    (root / "boxes").mkdir()
    asked = (
        lambda: platform.get(record.native_id, record.account),
        lambda: platform.destroy(record.native_id, record.account),
        lambda: platform.find_by_tag(TAG),
        lambda: platform.list_tagged(""),
        lambda: rent(platform, tag=TAG + "2"),
        lambda: platform.ensure_volume("sweepstack-a1b2c3-volume-a", "a"),
    )
    said = set()
    for ask in asked:
        with pytest.raises(Unreachable, match=r"is empty and carries no mark .*Is its disk mounted") as caught:
            ask()
        said.add(str(caught.value).rpartition(" `")[2].partition("`")[0].strip())
    (word,) = said
    os.rmdir(root / "boxes")  # the disk is back: nothing was written below it meanwhile
    os.rename(root / "disk", root / "boxes")
    assert platform.get(record.native_id, record.account).phase is Phase.RUNNING
    shutil.rmtree(root / "boxes")
    (root / "boxes").mkdir()  # its boxes are really gone, and the person says so
    if remote:
        subprocess.run(["/bin/sh", "-c", word], check=True)
    else:
        assert word == f"{box_folders.CLAIM} {record.account}    (only if they are really gone)"
        box_folders.LocalStore(root).answer_for(record.account)
    assert platform.get(record.native_id, record.account).phase is Phase.GONE
    assert rent(platform).phase is Phase.RUNNING


def unmarked(root: Path) -> None:
    """As a version left it that knew no mark."""
    known = json.loads((root / "registry.json").read_bytes())
    for folder, word in (("boxes", "marked"), ("volumes", "volumes_marked")):
        (root / folder / ".registry").unlink()
        del known[word]
    (root / "registry.json").write_text(json.dumps(known))


VOLUME_TAG = "sweepstack-a1b2c3-volume-a"


@pytest.mark.parametrize("mounted", ["an empty folder", "another registry's", "nothing at all"])
def test_a_disk_of_volumes_that_is_not_mounted_is_unknown_and_not_gone(
    root: Path, platform: LocalPlatform, mounted: str
) -> None:
    """As with boxes: what its sealed copies are on was "gone, with all that was on it", and made anew."""
    volume = platform.ensure_volume(VOLUME_TAG, "a")
    os.rename(root / "volumes", root / "disk")
    if mounted != "nothing at all":
        (root / "volumes").mkdir()
    if mounted == "another registry's":
        (root / "volumes" / ".registry").write_text("otherother\n")
        (root / "volumes" / "volume-otherother-aaaaaaaaaa").mkdir()
    asked: dict[str, Callable[[], object]] = {
        "get": lambda: platform.get_volume(volume.native_id),
        "delete": lambda: platform.delete_volume(volume.native_id, volume.account),
        "list": lambda: platform.list_volumes(""),
        "read": lambda: platform.volume_channel(volume.native_id),
        "make again": lambda: platform.ensure_volume(VOLUME_TAG, "a"),
        "make another": lambda: platform.ensure_volume(VOLUME_TAG + "b", "b"),
        "mount": lambda: rent(platform, mounts={"mnt/durable": volume.native_id}),
    }
    for name, ask in asked.items():
        with pytest.raises(Unreachable) as caught:
            ask()
        assert str(root / "volumes") in str(caught.value), name
    with pytest.raises(Unreachable, match=r"nothing is known of the volumes in it.*--also"):
        platform.get_volume(volume.native_id)
    assert rent(platform).phase is Phase.RUNNING, "a box without a volume needs none"
    shutil.rmtree(root / "volumes", ignore_errors=True)
    os.rename(root / "disk", root / "volumes")
    assert platform.get_volume(volume.native_id) is not None


def test_volumes_of_before_there_was_a_mark(root: Path, platform: LocalPlatform) -> None:
    """With volumes in it, a folder is the one that they were made in, and it is marked before the last of them ends."""
    volume = platform.ensure_volume(VOLUME_TAG, "a")
    rent(platform)
    unmarked(root)
    assert platform.get_volume(volume.native_id) is not None
    another = volume.native_id[:-1] + ("b" if volume.native_id.endswith("a") else "a")
    assert platform.get_volume(another) is None
    platform.delete_volume(volume.native_id, volume.account)
    assert platform.get_volume(volume.native_id) is None
    assert platform.ensure_volume(VOLUME_TAG, "a").created


@pytest.mark.parametrize("remote", [False, True], ids=["this_machine", "a_host"])
def test_an_empty_folder_of_volumes_of_before_there_was_a_mark_proves_nothing_until_a_person_says_so(
    root: Path, remote: bool
) -> None:
    platform = LocalPlatform(root, remote=remote)
    volume = platform.ensure_volume(VOLUME_TAG, "a")
    rent(platform)
    unmarked(root)
    os.rename(root / "volumes", root / "disk")
    (root / "volumes").mkdir()
    assert rent(platform, tag=TAG + "2").phase is Phase.RUNNING
    assert platform.list_volumes("") == [], "a list is no proof, and what else is here can be asked for"
    said = set()
    for ask in (
        lambda: platform.get_volume(volume.native_id),
        lambda: platform.ensure_volume(VOLUME_TAG + "b", "b"),
    ):
        with pytest.raises(Unreachable, match=r"is empty and carries no mark .*Is its disk mounted") as caught:
            ask()
        said.add(str(caught.value).rpartition(" `")[2].partition("`")[0].strip())
    (word,) = said
    os.rmdir(root / "volumes")  # the disk is back: nothing was written below it meanwhile
    os.rename(root / "disk", root / "volumes")
    assert platform.get_volume(volume.native_id) is not None
    shutil.rmtree(root / "volumes")
    (root / "volumes").mkdir()  # its volumes are really gone, and the person says so
    if remote:
        subprocess.run(["/bin/sh", "-c", word], check=True)
    else:
        assert word == f"{box_folders.CLAIM} {volume.account}    (only if they are really gone)"
        box_folders.LocalStore(root).answer_for(volume.account)
    assert platform.get_volume(volume.native_id) is None
    assert platform.ensure_volume(VOLUME_TAG, "a").created


def test_a_damaged_mark_of_the_volumes_is_no_obstacle_to_a_box(root: Path, platform: LocalPlatform) -> None:
    record = rent(platform)
    (root / "volumes" / ".registry").write_bytes(b"\xff\xfe")
    assert platform.get(record.native_id, record.account).phase is Phase.RUNNING
    platform.destroy(record.native_id, record.account)
    assert platform.get(record.native_id, record.account).phase is Phase.GONE


def test_two_boxes_with_one_tag_are_never_taken_for_one(root: Path, platform: LocalPlatform) -> None:
    """Neither is adopted: which of them is meant is a person's to say."""
    record = rent(platform)
    twin = root / "boxes" / "local-aaaaaaaaaa"
    shutil.copytree(root / "boxes" / record.native_id, twin)
    with pytest.raises(Unreachable, match=f"several boxes carry the tag {TAG}"):
        platform.find_by_tag(TAG)
    with pytest.raises(Unreachable, match="several boxes carry the tag"):
        rent(platform)
    assert len(list((root / "boxes").glob("[!.]*"))) == 2
    platform.destroy(twin.name, record.account)
    assert platform.find_by_tag(TAG) == record


def test_on_another_host_both_are_named(root: Path, platform: LocalPlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder that two hosts share: the other host's processes can't be seen from here."""
    record = rent(platform)
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    with pytest.raises(WrongAccount, match=r"elsewhere") as caught:
        platform.destroy(record.native_id, record.account)
    host = record.account.partition("/")[0]
    assert f"--also {record.account}    (if this computer was called {host}, and was renamed)`" in str(caught.value)
    os.rename(root / "boxes", root / "away")
    with pytest.raises(WrongAccount, match=rf"\(only if this computer was called {host}: "):
        platform.destroy(record.native_id, record.account)
    os.rename(root / "away", root / "boxes")
    monkeypatch.setenv("XDG_DATA_HOME", str(root.parent.parent))
    assert claim(["--also", record.account]) == 0  # the machine was renamed, says a person
    assert platform.get(record.native_id, record.account).phase is Phase.RUNNING


@pytest.mark.parametrize("own", [True, False], ids=["boxes of its own", "none"])
def test_another_computer_can_t_call_a_box_gone(
    tmp_path: Path,
    platform: LocalPlatform,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    own: bool,
) -> None:
    """Typed on a second laptop it made the living box of the first one "gone", and its record ended."""
    record = rent(platform)
    host = record.account.partition("/")[0]
    monkeypatch.setattr(socket, "gethostname", lambda: "laptop")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "laptop"))
    here = LocalPlatform(tmp_path / "laptop" / "sweepstack" / "local")
    if own:
        rent(here)
    assert claim(["--also", record.account]) == 1
    assert f"names another computer, {host}" in capsys.readouterr().err
    with pytest.raises(WrongAccount):
        here.get(record.native_id, record.account)
    this_host.also_known_as(host)
    assert claim(["--also", record.account]) == 0, "this computer was renamed, a person says, and its registry lost"


def test_a_fresh_machine_is_not_the_one_that_rented(tmp_path: Path, platform: LocalPlatform) -> None:
    record = rent(platform)
    other = LocalPlatform(tmp_path / "other")
    with pytest.raises(Unreachable, match=r"XDG_DATA_HOME.*\(only if its registry here was lost: "):
        other.get(record.native_id, record.account)
    with pytest.raises(WrongAccount):
        other.get(record.native_id, "far-away/abcdefghij")
    assert not (tmp_path / "other").exists()


def test_xdg_data_home_is_honoured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    connect().account()
    assert (tmp_path / "sweepstack" / "local" / "registry.json").is_file()


def test_a_destroy_never_follows_a_link(root: Path, platform: LocalPlatform, tmp_path: Path) -> None:
    volume = platform.ensure_volume("sweepstack-a1b2c3-volume-durable", "durable")
    record = rent(platform, mounts={"mnt/durable": volume.native_id})
    box = root / "boxes" / record.native_id
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("x")
    (box / "mnt" / "durable" / "kept").write_text("x")
    for place in ("", "data", "data/sweep", "scratch"):
        (box / place).mkdir(exist_ok=True)
        os.symlink(precious, box / place / "link")
        os.symlink(precious / "thesis", box / place / "file-link")
    os.symlink(box / "mnt" / "durable", box / "data" / "sweep" / "to-durable")
    platform.destroy(record.native_id, record.account)
    assert (precious / "thesis").read_text() == "x"
    assert (root / "volumes" / volume.native_id / "content" / "kept").read_text() == "x"


def test_a_link_in_place_of_a_box_is_not_deleted_through(root: Path, platform: LocalPlatform, tmp_path: Path) -> None:
    record = rent(platform)
    box = root / "boxes" / record.native_id
    os.rename(box, tmp_path / "moved")
    os.symlink(tmp_path / "moved", box)
    assert platform.get(record.native_id, record.account).phase is Phase.UNKNOWN
    with pytest.raises(NotYetGone, match="link"):
        platform.destroy(record.native_id, record.account)
    assert (tmp_path / "moved" / "box.json").exists()


def test_something_mounted_inside_the_box_is_not_deleted(
    root: Path, platform: LocalPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = rent(platform)
    point = root / "boxes" / record.native_id / "data" / "dataset"
    point.mkdir()
    (point / "picture").write_text("x")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 0:21 / /proc rw - proc proc rw\n99 1 8:1 / {point} rw - ext4 /dev/sdb1 rw\n")
    monkeypatch.setattr(mount_points, "MOUNTS", mounts)
    with pytest.raises(NotYetGone, match=re.escape(f"is mounted inside the box: `umount {point}`, which leaves what")):
        platform.destroy(record.native_id, record.account)
    assert (point / "picture").exists()
    mounts.write_text("")
    platform.destroy(record.native_id, record.account)


def test_a_folder_that_is_bound_to_another_is_a_mount_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are on one device, so only /proc tells them apart; a volume's content may be such a folder."""
    content = tmp_path / "content"
    (content / "deep").mkdir(parents=True)
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(mount_points, "MOUNTS", mounts)
    mounts.write_text(f"99 1 8:1 /elsewhere {content} rw - ext4 /dev/sda1 rw\n")
    assert mount_points.mount_point_of(content / "deep") == content
    mounts.write_text("")
    assert mount_points.mount_point_of(content / "deep") != content


def test_something_mounted_is_found_where_there_is_no_proc(
    root: Path, platform: LocalPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = rent(platform)
    point, is_mount = root / "boxes" / record.native_id / "data" / "dataset", os.path.ismount
    (point / "deep").mkdir(parents=True)
    monkeypatch.setattr(mount_points, "MOUNTS", tmp_path / "nowhere")
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path).startswith(str(point)) or is_mount(path))
    with pytest.raises(NotYetGone, match=re.escape(f"`umount {point}`")):
        platform.destroy(record.native_id, record.account)
    assert point.is_dir()


@pytest.mark.parametrize("left", ["box.json", "tag", "everything"])
def test_a_box_that_lost_its_records_can_still_be_ended(root: Path, platform: LocalPlatform, left: str) -> None:
    record = rent(platform)
    box = root / "boxes" / record.native_id
    for path in [box / "box.json", box / "tag"]:
        if left in (path.name, "everything"):
            path.unlink()
    seen = platform.get(record.native_id, record.account)
    assert seen.phase is (Phase.RUNNING if left == "tag" else Phase.UNKNOWN)
    assert [r.native_id for r in platform.list_tagged(TAG)] == [record.native_id]
    if left == "everything":
        with pytest.raises(Unreachable, match=record.native_id):
            platform.find_by_tag("sweepstack-other-box-0-g1")
    platform.destroy(record.native_id, record.account)
    assert platform.get(record.native_id, record.account).phase is Phase.GONE


def test_read_only_folders_are_no_obstacle(root: Path, platform: LocalPlatform) -> None:
    record = rent(platform)
    code = root / "boxes" / record.native_id / "data" / "sweep" / "code" / "abc"
    code.mkdir(parents=True)
    (code / "train.py").write_text("x")
    for folder in (code, code.parent):
        folder.chmod(0o555)
    platform.destroy(record.native_id, record.account)
    assert not code.exists()


def test_other_mounts_are_not_adopted(platform: LocalPlatform) -> None:
    first = platform.ensure_volume("sweepstack-a1b2c3-volume-a", "a").native_id
    second = platform.ensure_volume("sweepstack-a1b2c3-volume-b", "b").native_id
    rent(platform, mounts={"mnt/durable": first})
    with pytest.raises(PlatformError, match=second):
        rent(platform, mounts={"mnt/durable": second})
    assert len(platform.list_tagged("")) == 1


@pytest.mark.parametrize("mount", ["durable", "/mnt/durable", "mnt/../data", "mnt/a/b", "mnt/..", "data/x", "mnt/"])
def test_a_mount_lies_below_mnt(platform: LocalPlatform, mount: str) -> None:
    volume = platform.ensure_volume("sweepstack-a1b2c3-volume-a", "a").native_id
    with pytest.raises(PlatformError):
        rent(platform, mounts={mount: volume})
    assert platform.list_tagged("") == []


@pytest.mark.parametrize(("variable", "value"), [(CREATE_DRILL, "loose-answer"), (BOOT_DRILL, "soon")])
def test_a_mistyped_drill_is_named(
    platform: LocalPlatform, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(PlatformError, match=value):
        rent(platform)
    assert platform.list_tagged("") == []


def test_progress_is_said_and_the_lock_has_a_deadline(root: Path, platform: LocalPlatform) -> None:
    said: list[str] = []
    platform.create(BoxRequest(tag=TAG, name="box-0"), wait=Wait(10, said.append))
    assert any("box-0" in line and "made" in line for line in said)
    program = "import fcntl,sys,time; f=open(sys.argv[1],'ab'); fcntl.flock(f,2); print(1,flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", program, str(root / "registry.lock")], stdout=subprocess.PIPE)
    try:
        assert holder.stdout
        holder.stdout.readline()
        with pytest.raises(Unreachable, match=r"registry\.lock"):
            platform.create(BoxRequest(tag=TAG, name="box-0"), wait=Wait(0.3))
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.parametrize("again", [False, True], ids=["new", "started again"])
def test_a_clock_that_was_set_back_leaves_no_box_creating(
    platform: LocalPlatform, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """It was that for a day, and the `pulumi up` that would have cleared it hung."""
    monkeypatch.setenv(BOOT_DRILL, "30")
    record = platform.make(BoxRequest(tag=TAG, name="box-0"), wait=Wait(10))
    if again:
        platform.stop(record.native_id, record.account)
        assert platform.turn_on(record.native_id, record.account).phase is Phase.CREATING
    assert platform.get(record.native_id, record.account).phase is Phase.CREATING
    honest = folder_platform.now
    monkeypatch.setattr(folder_platform, "now", lambda: honest() - timedelta(days=1))
    assert platform.get(record.native_id, record.account).phase is Phase.RUNNING
    monkeypatch.setattr(folder_platform, "now", lambda: honest() + timedelta(seconds=31))
    assert platform.get(record.native_id, record.account).phase is Phase.RUNNING


def test_removed_while_it_was_being_made(root: Path, platform: LocalPlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOOT_DRILL, "30")
    error = out_of_time(lambda wait: platform.create(BoxRequest(tag=TAG, name="box-0"), wait=wait))
    record = platform.find_by_tag(TAG)
    assert record is not None
    wait = Wait(10, lambda line: platform.destroy(record.native_id, record.account) if "adopted" in line else None)
    with pytest.raises(PlatformError, match="nothing bills"):
        platform.create(BoxRequest(tag=TAG, name="box-0"), wait=wait)
    assert error.identifier == record.native_id


def test_a_volume_is_listed_by_its_tag_and_deleted_once(tmp_path: Path) -> None:
    platform = LocalPlatform(tmp_path)
    mine = platform.ensure_volume("sweepstack-a1b2c3-volume-a", "a")
    other = platform.ensure_volume("sweepstack-d4e5f6-volume-a", "a")
    assert [record.native_id for record in platform.list_volumes("sweepstack-a1b2c3-")] == [mine.native_id]
    platform.volume_channel(mine.native_id).write("weights", b"weights")
    with pytest.raises(WrongAccount):
        platform.delete_volume(mine.native_id, "somebody-else/abc")
    assert platform.volume_channel(mine.native_id).read("weights") == b"weights"
    for _ in range(2):
        platform.delete_volume(mine.native_id, platform.account())
    assert platform.get_volume(mine.native_id) is None
    assert [record.native_id for record in platform.list_volumes("")] == [other.native_id]
    assert not any((tmp_path / "trash").glob("*"))


@pytest.mark.parametrize("left", ["nothing", "a file", "a link that leads nowhere"])
def test_a_volume_that_lost_its_content_is_listed_and_can_be_ended(tmp_path: Path, left: str) -> None:
    platform = LocalPlatform(tmp_path)
    lost = platform.ensure_volume("sweepstack-a1b2c3-volume-a", "a").native_id
    whole = platform.ensure_volume("sweepstack-a1b2c3-volume-b", "b").native_id
    content = tmp_path / "volumes" / lost / "content"
    content.rmdir()
    if left == "a file":
        content.write_text("x")
    elif left != "nothing":
        content.symlink_to(tmp_path / "unmounted")
    listed = {record.native_id: record.lost for record in platform.list_volumes("sweepstack-")}
    assert set(listed) == {lost, whole}
    assert f"{content} is not there" in listed[lost]
    assert not listed[whole]
    for used in (
        lambda: platform.volume_channel(lost),
        lambda: rent(platform, mounts={"mnt/durable": lost}),
        lambda: platform.ensure_volume("sweepstack-a1b2c3-volume-a", "a"),
    ):
        with pytest.raises(PlatformError, match=r"content is not there: what was on it is lost, or elsewhere"):
            used()
    platform.delete_volume(lost, platform.account())
    assert platform.get_volume(lost) is None
    assert [record.native_id for record in platform.list_volumes("")] == [whole]


@pytest.mark.parametrize("seen_by", ["a box", "an up"])
@pytest.mark.parametrize("left", ["an empty folder", "nothing"])
def test_a_volume_whose_own_disk_is_not_mounted_is_unknown_and_neither_empty_nor_gone(
    root: Path, platform: LocalPlatform, monkeypatch: pytest.MonkeyPatch, left: str, seen_by: str
) -> None:
    """The mount point is given here; test_local_disks.py mounts. The volume was made before its disk came."""
    volume = platform.ensure_volume(VOLUME_TAG, "a")
    content, disk = root / "volumes" / volume.native_id / "content", root / "disk"
    points, is_mount = {content}, os.path.ismount
    monkeypatch.setattr(os.path, "ismount", lambda path: path in points or is_mount(path))
    (content / "weights").write_bytes(b"weights")
    if seen_by == "an up":
        assert not platform.ensure_volume(VOLUME_TAG, "a").created
    box = rent(platform, mounts={"mnt/durable": volume.native_id})
    assert platform.channel(box.native_id, box.account).read("mnt/durable/weights") == b"weights"
    if seen_by == "an up":
        platform.destroy(box.native_id, box.account)
    record = platform.get_volume(volume.native_id)
    assert record is not None
    assert not record.lost

    os.rename(content, disk)
    points.clear()
    if left == "an empty folder":
        content.mkdir()
    asked: dict[str, Callable[[], object]] = {
        "get": lambda: platform.get_volume(volume.native_id),
        "delete": lambda: platform.delete_volume(volume.native_id, volume.account),
        "read": lambda: platform.volume_channel(volume.native_id),
        "make again": lambda: platform.ensure_volume(VOLUME_TAG, "a"),
        "mount": lambda: rent(platform, tag=TAG + "2", mounts={"mnt/durable": volume.native_id}),
    }
    if seen_by == "a box":
        asked["read the box"] = lambda: platform.channel(box.native_id, box.account)
    for name, ask in asked.items():
        with pytest.raises(Unreachable, match=r"content was the mount point of a disk, and is on none now") as caught:
            ask()
        assert content.parent.is_dir(), name
    (listed,) = platform.list_volumes("")
    assert "what is on it is not known. Mount it; if it is lost" in listed.lost, "it is listed, and bills"
    assert platform.ensure_volume(VOLUME_TAG + "b", "b").created, "another volume needs none of it"

    if left == "an empty folder":
        content.rmdir()
    os.rename(disk, content)
    points.add(content)
    assert platform.volume_channel(volume.native_id).read("weights") == b"weights"
    points.clear()
    word = str(caught.value).rpartition(" `")[2].partition("`")[0]
    subprocess.run(["/bin/sh", "-c", word], check=True)  # copied onto the first disk, and the person says so
    assert platform.volume_channel(volume.native_id).read("weights") == b"weights"
    platform.delete_volume(volume.native_id, volume.account)
    assert platform.get_volume(volume.native_id) is None


@pytest.mark.parametrize(
    ("number", "inodes_left", "said"),
    [
        (errno.EROFS, 9, "is read-only: make it writable, or set XDG_DATA_HOME to a folder elsewhere"),
        (errno.EACCES, 9, "may not be written by this user: make it writable"),
        (errno.ENOSPC, 9, "is full (`df -h "),
        (errno.ENOSPC, 0, "holds as many files as it can (1,000 inodes, `df -i "),
        (errno.EIO, 9, "Input/output error"),
    ],
)
def test_what_the_file_system_refuses_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, inodes_left: int, said: str
) -> None:
    """Read-only homes and disks without inodes can't be had without root: what the system says of them is."""
    room = SimpleNamespace(f_files=1000, f_favail=inodes_left)
    monkeypatch.setattr(box_folders.os, "statvfs", lambda path: room)
    with (
        pytest.raises(Unreachable, match=re.escape(said)) as caught,
        box_folders.answering(tmp_path / "not" / "there"),
    ):
        raise OSError(number, os.strerror(number))
    assert str(tmp_path) in str(caught.value)


def test_a_host_that_was_renamed_is_told_from_the_laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its own end of the connection does: the person sits elsewhere, and no checkout of ours is on it."""
    from typing import cast

    from sweepstack.onbox.agent.agent import Wire
    from sweepstack.onbox.host.agent import Host

    def host() -> Host:
        return Host(cast(Wire, None), {"root": str(tmp_path / "root"), "grace": 0.1})

    def box() -> dict[str, Any]:
        return {"native_id": "host-abcdefghij", "account": account}

    account = str(host().do_verb("account", {})["is"])
    monkeypatch.setattr("sweepstack.onbox.host.box_folders.host_identity", lambda: "another-name")
    said = host().do_verb("get", box())
    assert said["raised"] == "WrongAccount"
    assert '`sweepctl adopt BOX --reason "…"`' in said["text"]
    refused = host().do_verb("answer_for", {"account": f"{account.rpartition('/')[0]}/zzzzzzzzzz"})
    assert refused["raised"] == "WrongAccount"
    assert host().do_verb("answer_for", {"account": account})["is"] == f"another-name/{account.rpartition('/')[2]}"
    assert host().do_verb("get", box())["is"]["phase"] == "gone"


def test_memory_that_this_machine_lacks_is_refused_and_nothing_is_made(root: Path, platform: LocalPlatform) -> None:
    asked = BoxRequest("sweepstack-a-box-0-g1", "box-0", 0.0, resources={"memory": "9000TB+"})
    with pytest.raises(RequestRefused, match=r"9e\+06 GB of memory asked for, and it may use .*lower resources.memory"):
        platform.create(asked, wait=Wait(60))
    assert platform.find_by_tag(asked.tag) is None
    fits = BoxRequest(asked.tag, "box-0", 0.0, resources={"memory": "1MB"})
    assert platform.create(fits, wait=Wait(60)).phase is Phase.RUNNING
    assert platform.create(asked, wait=Wait(60)).phase is Phase.RUNNING, "it is there, and is adopted"


def test_a_registry_on_a_host_that_does_not_read_is_adopted(root: Path) -> None:
    """Found on 6f8d950f: the message named `adopt`, which refused with the same message."""
    host = LocalPlatform(root, addressed=True)
    record = rent(host)
    (root / "registry.json").write_text("{")
    with pytest.raises(Unreachable, match="sweepctl adopt BOX"):
        host.get(record.native_id, record.account)
    with pytest.raises(PlatformError):
        host.count_as_lost(record.account)
    assert host.answer_for(record.account) == record.account
    assert host.get(record.native_id, record.account).phase is Phase.RUNNING
    (root / "registry.json").unlink()
    (root / "boxes" / ".registry").write_text("another")
    (root / "volumes" / ".registry").write_text("another")
    with pytest.raises(FolderLost, match="sweepctl confirm gone BOX"):
        host.get(record.native_id, record.account)
