"""The quick yes about a pulled copy: given for what is exactly as it was, and for nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.evidence.cell_store import FolderCopies


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
