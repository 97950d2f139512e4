"""Disks that are mounted in the local platform's folders: what lies on one is neither deleted nor taken for gone.

Each test mounts file systems in a namespace of its own, so it needs no root.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.onbox.common.errors import NotYetGone, Unreachable
from sweepstack.onbox.host.folder_platform import LocalPlatform

ROOT = Path(__file__).parents[3]
VOLUME_TAG = "sweepstack-a1b2c3-volume-a"
PROGRAM = """
import sys
from pathlib import Path
from tests.unit.platforms import test_local_disks
getattr(test_local_disks, sys.argv[1])(Path(sys.argv[2]))
"""


@functools.cache
def why_no_mounts() -> str:
    """Why nothing can be mounted in a namespace here; "" when it can."""
    try:
        words = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
        return subprocess.run(words, capture_output=True, text=True, timeout=60).stderr.strip()
    except OSError as error:
        return str(error)


def in_a_namespace(scenario: Callable[[Path], None], folder: Path) -> None:
    """Runs a function of this module in a process that may mount; what it mounts ends with it."""
    if why_no_mounts():
        pytest.skip(f"NOT TESTED: nothing can be mounted in a namespace here: {why_no_mounts()}")
    words = ["unshare", "-rm", sys.executable, "-c", PROGRAM, scenario.__name__, str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def mount(point: Path, *, of: Path | None = None) -> None:
    """An empty file system; or the folder `of`, which is on the same file system as the point."""
    point.mkdir(parents=True, exist_ok=True)
    what = ["--bind", str(of)] if of else ["-t", "tmpfs", "none"]
    subprocess.run(["mount", *what, str(point)], check=True)


def umount(point: Path) -> None:
    subprocess.run(["umount", str(point)], check=True)


def word(error: BaseException) -> str:
    """The command that the message names."""
    found = re.search(r"`([^`]*)`", str(error))
    assert found
    return found[1]


def volume_in(root: Path) -> tuple[LocalPlatform, str, Path]:
    platform = LocalPlatform(root)
    volume = platform.ensure_volume(VOLUME_TAG, "a").native_id
    return platform, volume, root / "volumes" / volume / "content"


def a_delete_below_which_a_disk_is_mounted(folder: Path) -> None:
    for point, of in (("content", None), ("content/deep/er", folder / "disk"), ("content/a b", folder / "disk")):
        (folder / "disk").mkdir(exist_ok=True)
        platform, volume, content = volume_in(folder / "root")
        mount(content.parent / point, of=of)
        platform.ensure_volume(VOLUME_TAG, "a")
        precious = content.parent / point / "thesis"
        precious.write_text("x")
        with pytest.raises(NotYetGone, match=f"{point} is mounted inside the volume: `umount .* leaves") as caught:
            platform.delete_volume(volume, platform.account())
        assert precious.read_text() == "x"
        assert platform.get_volume(volume) is not None
        own_disk = f" && rm {content.parent / 'own-disk'}" if of is None else ""
        assert word(caught.value) == f"umount {shlex.quote(str(content.parent / point))}{own_disk}"
        umount(content.parent / point)
        if own_disk:
            (content.parent / "own-disk").unlink()
        platform.delete_volume(volume, platform.account())
        assert platform.get_volume(volume) is None
        assert of is None or (of / "thesis").read_text() == "x"
        assert not list((folder / "root" / "trash").iterdir())


def test_a_delete_empties_no_disk_that_is_mounted_on_the_volume(tmp_path: Path) -> None:
    in_a_namespace(a_delete_below_which_a_disk_is_mounted, tmp_path)


def a_disk_in_the_trash(folder: Path) -> None:
    """An older version moved it there; a disk may also be mounted while a box or volume ends."""
    root, disk = folder / "root", folder / "disk"
    platform, volume, _ = volume_in(root)
    disk.mkdir()
    left = [root / "trash" / name for name in ("volume-x/content", "local-x/data/deep", "whole")]
    left.append(root / "staging" / "local-y" / "data")
    for point in left:
        mount(point, of=disk)
    mount(root / "trash" / "other-fs" / "content")
    (root / "trash" / "other-fs" / "content" / "thesis").write_text("x")
    (root / "trash" / "plain" / "content").mkdir(parents=True)
    (root / "trash" / "file").write_text("x")
    (root / "trash" / "link").symlink_to(disk)
    (disk / "thesis").write_text("x")
    platform.ensure_volume(VOLUME_TAG + "b", "b")
    platform.delete_volume(volume, platform.account())
    assert (disk / "thesis").read_text() == "x"
    assert (root / "trash" / "other-fs" / "content" / "thesis").read_text() == "x"
    assert {path.name for path in (root / "trash").iterdir()} == {"volume-x", "local-x", "whole", "other-fs"}
    for point in [*left, root / "trash" / "other-fs" / "content"]:
        umount(point)
    platform.ensure_volume(VOLUME_TAG + "b", "b")
    assert not [*(root / "trash").iterdir(), *(root / "staging").iterdir()]
    assert (disk / "thesis").read_text() == "x"


def test_no_later_command_empties_a_disk_in_the_trash(tmp_path: Path) -> None:
    in_a_namespace(a_disk_in_the_trash, tmp_path)


def a_look_at_a_mounted_disk(folder: Path) -> None:
    platform, volume, content = volume_in(folder / "root")
    mount(content)
    assert platform.get_volume(volume) is not None
    umount(content)
    with pytest.raises(Unreachable, match="was the mount point of a disk, and is on none now"):
        platform.get_volume(volume)
    mount(content)
    assert platform.get_volume(volume) is not None


def test_a_look_that_sees_the_disk_notes_it(tmp_path: Path) -> None:
    """`pulumi up` of a stack whose volume and boxes are there already only looks."""
    in_a_namespace(a_look_at_a_mounted_disk, tmp_path)


def a_look_that_cannot_note(folder: Path) -> None:
    platform, volume, content = volume_in(folder / "root")
    mount(content)
    subprocess.run(["mount", "--bind", str(content.parent), str(content.parent)], check=True)
    mount(content)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(content.parent)], check=True)
    assert platform.get_volume(volume) is not None
    assert not (content.parent / "own-disk").exists()


def test_a_look_goes_on_where_it_can_t_note_the_disk(tmp_path: Path) -> None:
    in_a_namespace(a_look_that_cannot_note, tmp_path)


def links_to_a_disk(folder: Path) -> None:
    a_link_to_a_disk(folder / "a" / "home", folder / "a" / "mnt" / "disk")
    mount(folder / "b" / "mnt")
    a_link_to_a_disk(folder / "b" / "home", folder / "b" / "mnt" / "disk")


def a_link_to_a_disk(home: Path, disk: Path) -> None:
    mount(home)
    disk.mkdir(parents=True)
    platform, volume, content = volume_in(home / "root")
    content.rmdir()
    content.symlink_to(disk)
    assert platform.get_volume(volume) is not None, "never seen mounted, so not missed"
    mount(disk)
    assert platform.get_volume(volume) is not None
    umount(disk)
    said = re.escape(f"{content} was on the disk mounted at {disk}, and is not now")
    for ask in (
        lambda: platform.get_volume(volume),
        lambda: platform.delete_volume(volume, platform.account()),
        lambda: platform.ensure_volume(VOLUME_TAG, "a"),
    ):
        with pytest.raises(Unreachable, match=said):
            ask()
    disk.rmdir()
    with pytest.raises(Unreachable, match=said):
        platform.get_volume(volume)
    mount(disk)
    assert platform.get_volume(volume) is not None

    umount(disk)
    content.unlink()
    content.symlink_to(home)
    with pytest.raises(Unreachable, match=said) as caught:
        platform.get_volume(volume)
    subprocess.run(["/bin/sh", "-c", word(caught.value)], check=True)
    assert platform.get_volume(volume) is not None


def test_the_disk_behind_a_link_is_missed_wherever_the_volumes_lie(tmp_path: Path) -> None:
    """They lie on a file system of their own, so the disk's empty mount point is on another one than they are: on that
    of `/`, or on one between."""
    in_a_namespace(links_to_a_disk, tmp_path)


def a_mark_without_a_name(folder: Path) -> None:
    platform, volume, content = volume_in(folder / "root")
    disk = folder / "disk"
    content.rmdir()
    content.symlink_to(disk)
    mount(disk)
    (content.parent / "own-disk").touch()
    assert platform.get_volume(volume) is not None
    assert (content.parent / "own-disk").read_text() == f"{disk}\n"
    (content.parent / "own-disk").write_text("")
    umount(disk)
    with pytest.raises(Unreachable, match="is on none now"):
        platform.get_volume(volume)


def test_an_older_mark_does_not_say_where_the_disk_was_and_is_completed(tmp_path: Path) -> None:
    in_a_namespace(a_mark_without_a_name, tmp_path)


def moved_with_its_disk(folder: Path) -> None:
    platform, volume, content = volume_in(folder / "root")
    mount(content)
    assert platform.get_volume(volume) is not None
    umount(content)
    os.rename(folder / "root", folder / "elsewhere")
    platform = LocalPlatform(folder / "elsewhere")
    mount(folder / "elsewhere" / "volumes" / volume / "content")
    assert platform.get_volume(volume) is not None


def test_the_platform_s_folder_may_move_with_the_mount_point(tmp_path: Path) -> None:
    in_a_namespace(moved_with_its_disk, tmp_path)
