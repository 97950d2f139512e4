"""Pulled copies in a folder: what is read of them, and the quick yes, given for what is exactly as it was alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.evidence.cell_store import FolderCopies, find_seal
from sweepstack.onbox.common.errors import EvidenceError


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    folder = tmp_path / "pulled" / "a"
    folder.mkdir(parents=True)
    for name in ("manifest.json", "best.pt"):
        (folder / name).write_bytes(name.encode())
    return folder


def expected(cell: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in cell.iterdir()}


def touch_back(path: Path, change: Callable[[Path], object]) -> None:
    """Changes a file and sets its time back."""
    before = path.stat()
    change(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_link(path: Path) -> None:
    other = path.parents[2] / "elsewhere"
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    path.unlink()
    path.symlink_to(other)


def replace_by_a_link_that_looks_alike(path: Path) -> None:
    before = path.stat()
    path.unlink()
    path.symlink_to("../../x")
    assert len("../../x") == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns), follow_symlinks=False)


def move_behind_a_link(path: Path) -> None:
    folder = path.parent
    moved = folder.parent.parent / "moved"
    shutil.move(folder, moved)
    folder.symlink_to(moved)


CHANGES: dict[str, Callable[[Path], object]] = {
    "grown": lambda path: touch_back(path, lambda one: one.write_bytes(b"best.pt.")),
    "rewritten": lambda path: (path.write_bytes(b"BEST.PT"), os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))),
    "gone": lambda path: path.unlink(),
    "a further file": lambda path: path.with_name("more.pt").write_bytes(b""),
    "a further folder": lambda path: path.with_name("more").mkdir(),
    "a hard link": lambda path: os.link(path, path.parents[2] / "second name"),
    "a link": replace_by_link,
    "a link that looks alike": replace_by_a_link_that_looks_alike,
    "a folder instead": lambda path: (path.unlink(), path.mkdir()),
    "the cell behind a link": move_behind_a_link,
    "the cell gone": lambda path: shutil.rmtree(path.parent),
}


def test_as_it_was(cell: Path) -> None:
    assert FolderCopies(cell.parent).untouched("a", expected(cell))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_anything_else_is_looked_at_closely(cell: Path, change: Callable[[Path], object]) -> None:
    before = expected(cell)
    change(cell / "best.pt")
    assert not FolderCopies(cell.parent).untouched("a", before)


def test_plain_files_are_read_and_nothing_through_a_link(cell: Path) -> None:
    copies = FolderCopies(cell.parent)
    (cell / "plots").mkdir()
    (cell / "plots" / "a").write_bytes(b"0123456789")
    (cell / "linked").symlink_to("plots")
    assert copies.read("a", "plots/a") == b"0123456789"
    assert copies.read("a", "plots/a", 7) == b"789"
    assert copies.read("a", "plots/a", 2, 3) == b"234"
    assert copies.size("a", "plots/a") == 10
    assert copies.read("a", "linked/a") is copies.size("a", "linked/a") is None
    assert copies.look_all({"a": None, "b": None}) == {"a": copies.look("a"), "b": copies.look("b")}


def test_what_can_not_be_read_is_not_absent(cell: Path) -> None:
    copies, a_file = FolderCopies(cell.parent), FolderCopies(cell / "best.pt")
    (cell / "manifest.json").unlink()
    (cell / "manifest.json").symlink_to("best.pt")
    for ask in (
        lambda: a_file.cells(),
        lambda: copies.read("a", "x" * 300),
        lambda: copies.size("a", "x" * 300),
        lambda: find_seal(copies, "a", "sha256:" + "0" * 64),
    ):
        with pytest.raises(EvidenceError, match="can't be read"):
            ask()
    found = a_file.look("a")
    assert found.exists
    assert "can't be read" in found.problems[0]
