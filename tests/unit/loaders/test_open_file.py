"""Which files are opened at all, and what becomes of one that changes, shrinks or can't be read meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.loaders import scan as scan_module
from sweepstack.loaders.base import LoadResult, OpenFile, PlainSpec, Unreadable, open_file
from sweepstack.loaders.load import load
from sweepstack.loaders.scan import BLOCK, REPORT_EVERY, Region, scan


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of three blocks."""
    (tmp_path / "file").write_bytes(bytes(3 * BLOCK))
    return tmp_path / "file"


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    """What `make` makes in the file's place."""
    path.unlink()
    make(path)


@pytest.mark.parametrize(
    ("hurt", "reason"),
    [
        (Path.unlink, "is not there"),
        (lambda path: replaced(path, lambda new: new.symlink_to("/dev/zero")), "is a link, not a copy"),
        (lambda path: replaced(path, Path.mkdir), "is not a regular file"),
        (lambda path: replaced(path, os.mkfifo), "is not a regular file"),
        (
            lambda path: replaced(path, lambda new: os.mknod(new, stat.S_IFSOCK | 0o600)),
            "can't be opened: No such device or address",
        ),
        (
            lambda path: os.link(path, path.with_name("second")),
            "shares its bytes with another name (a hard link), so it is not a copy",
        ),
    ],
    ids=["nothing", "link", "folder", "pipe", "socket", "hard link"],
)
def test_what_is_no_plain_file_of_its_own_is_not_opened(
    path: Path, hurt: Callable[[Path], object], reason: str
) -> None:
    hurt(path)
    assert load(str(path), None) == LoadResult(False, (reason,))


def test_a_disk_that_can_not_read_is_a_reason(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(scan_module.os, "preadv", bad)
    assert load(str(path), None).reasons == ("can't be read: Input/output error",)


@pytest.mark.parametrize(
    ("hurt", "reason"),
    [
        (lambda path: os.truncate(path, BLOCK), "shrank while it was read"),
        (lambda path: os.truncate(path, 4 * BLOCK), "changed while it was read"),
        (lambda path: os.utime(path, ns=(1, 1)), "changed while it was read"),
    ],
    ids=["shrinks", "grows", "is written"],
)
@pytest.mark.parametrize("by", [scan, lambda file: (file.read(0, file.size), file.check_unchanged())])
def test_a_file_that_changes_under_its_reader_is_not_good(
    path: Path, hurt: Callable[[Path], object], reason: str, by: Callable[[OpenFile], object]
) -> None:
    """Without these checks its digest would be that of no file, or the reader would never end."""
    with open_file(str(path)) as file:
        hurt(path)
        with pytest.raises(Unreadable, match=reason):
            by(file)


def test_a_file_that_is_written_after_its_bytes_were_read_is_not_good(path: Path) -> None:
    """The progress of the last bytes is told behind the scan's own look, and before the reader's."""
    path.write_bytes(b"{}")
    found = load(str(path), PlainSpec("json"), progress=lambda _: os.utime(path, ns=(1, 1)))
    assert found.reasons == ("changed while it was read",)


@pytest.mark.parametrize(
    ("regions", "reason"),
    [
        ([Region(0, 8, "a"), Region(4, 12, "b")], "b overlaps another part, or lies outside of the file"),
        ([Region(0, 3 * BLOCK + 1, "a")], "a overlaps another part, or lies outside of the file"),
        ([Region(8, 4, "a")], "a overlaps another part, or lies outside of the file"),
        ([Region(0, 4, "a", skip=5)], "a overlaps another part, or lies outside of the file"),
        ([Region(0, 9, "a", format="f4")], "a does not hold whole numbers"),
        ([Region(0, 9, "a", format="f4", skip=2)], "a does not hold whole numbers"),
    ],
)
def test_regions_that_do_not_fit_the_file_are_refused(path: Path, regions: list[Region], reason: str) -> None:
    with open_file(str(path)) as file, pytest.raises(Unreadable, match=reason):
        scan(file, regions)


def test_progress_is_told_now_and_then_and_in_all(tmp_path: Path) -> None:
    path, told = tmp_path / "file", list[int]()
    path.touch()
    os.truncate(path, REPORT_EVERY + 2 * BLOCK)
    with open_file(str(path)) as file:
        scan(file, progress=told.append)
    assert told == [REPORT_EVERY, 2 * BLOCK]
