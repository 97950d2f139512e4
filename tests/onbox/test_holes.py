"""Holes of sparse files stay holes where a cell is sealed."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import time
from pathlib import Path

import pytest

from sweepstack.onbox.common import holes
from sweepstack.onbox.common.canonical import file_sha256
from tests.onbox.harness import Box

SPARSE = (
    """cd {{out}}; echo 1 > result.json; truncate -s {size} map; echo data >> map; head -c 300000 /dev/zero > dense"""
)


# The size that a report named, sealed within seconds: by 64 MiB, the first row shows the same of holes.
@pytest.mark.parametrize("size", [64 << 20, pytest.param(6_000_000_000, marks=pytest.mark.proof)])
def test_a_hole_takes_no_room_and_no_minutes(box: Box, size: int) -> None:
    box.add("a", SPARSE.format(size=size))
    began = time.monotonic()
    box.run("a")
    seconds = time.monotonic() - began
    told = json.loads((box.sealed("a") / "manifest.json").read_bytes())
    (entry,) = [file for file in told["files"] if file["path"] == "map"]
    assert entry["size"] == size + 5
    assert told["sparse"].keys() == {"map"}
    assert told["sparse"]["map"] <= holes.LEAST
    sealed = box.sealed("a") / "map"
    assert sealed.stat().st_blocks * 512 <= holes.CHUNK
    hashed = hashlib.sha256()
    with sealed.open("rb") as handle:
        while chunk := handle.read(holes.CHUNK):
            hashed.update(chunk)
    assert (hashed.hexdigest(), chunk) == (entry["sha256"], b"")
    (event,) = box.events("cell-sealed")
    assert event["bytes"] > size
    assert event["stored"] < 2 << 20  # by this the room for the next cell is reckoned
    assert seconds < 60


def test_pages_between_holes_are_written_alone(tmp_path: Path) -> None:
    source = tmp_path / "lmdb"
    with source.open("wb") as handle:
        for page in range(8):
            handle.seek((page << 20) + 300_000)
            handle.write(b"page")
        handle.truncate(9 << 20)
    holes.copy_file(source, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    assert (tmp_path / "copy").stat().st_blocks * 512 <= 8 * (holes.LEAST + 8192)


@pytest.mark.parametrize("size", [0, 1, holes.LEAST - 1, holes.LEAST, 3 * holes.LEAST + 7, holes.CHUNK])
@pytest.mark.parametrize("full", [(), (0,), (-1,), (0, -1), (holes.LEAST,), (70_000, 140_000)])
def test_the_parts_of_a_chunk_are_all_of_it(size: int, full: tuple[int, ...]) -> None:
    chunk = bytearray(size)
    for at in full:
        if -size <= at < size:
            chunk[at] = 1
    parts = list(holes.runs(chunk))
    assert b"".join(bytes(end - begin) if blank else chunk[begin:end] for blank, begin, end in parts) == chunk
    assert [begin for _, begin, _ in parts] == [0, *(end for _, _, end in parts)][: len(parts)]


def test_a_file_system_that_says_its_holes_wrong_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ZFS did of files that were just written: cp and tar copied zeros (openzfs/zfs#15526)."""
    source = tmp_path / "file"
    with source.open("wb") as handle:
        handle.write(os.urandom(3 << 20))
        handle.truncate(8 << 20)
    right = source.read_bytes()
    monkeypatch.setattr(holes.os, "lseek", lambda *_: (_ for _ in ()).throw(OSError(errno.ENXIO, "no data")))
    holes.copy_file(source, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == right
    assert file_sha256(source) == hashlib.sha256(right).hexdigest()


@pytest.mark.parametrize("begin", [0, 1, 300_000, 2 << 20, 9 << 20])
def test_a_sparse_file_is_read_from_anywhere(tmp_path: Path, begin: int) -> None:
    source = tmp_path / "file"
    with source.open("wb") as handle:
        for at in (0, 250_000, 5 << 20):
            handle.seek(at)
            handle.write(b"page" * 2000)
        handle.truncate((9 << 20) + 5)
    with source.open("rb") as reader:
        found = b"".join(map(bytes, holes.parts(reader, os.fstat(reader.fileno()), begin)))
    assert found == source.read_bytes()[begin:]


def test_a_place_without_holes_gets_the_zeros() -> None:
    class Flat(io.BytesIO):
        def truncate(self, size: int | None = None) -> int:
            raise OSError(errno.EPERM, "can't be made longer")

    flat = Flat()
    assert holes.write(flat, b"x") + holes.write(flat, bytes(holes.LEAST)) + holes.write(flat, b"y") == holes.LEAST + 2
    assert flat.getvalue() == b"x" + bytes(holes.LEAST) + b"y"


def test_a_full_disk_is_none_without_holes() -> None:
    class Full(io.BytesIO):
        def truncate(self, size: int | None = None) -> int:
            raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        holes.write(Full(), bytes(holes.LEAST))


def test_only_a_sparse_file_is_copied_with_holes(tmp_path: Path) -> None:
    """What a job wrote, zeros as well, has its room: a page of it is not to be lost for want of that later."""
    dense, sparse = tmp_path / "dense", tmp_path / "sparse"
    dense.write_bytes(bytes(4 << 20))
    with sparse.open("wb") as handle:
        handle.write(b"a")
        handle.truncate(4 << 20)
    for source in (dense, sparse):
        with source.open("rb") as handle:
            os.fsync(handle.fileno())
        holes.copy_file(source, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == source.read_bytes()
        assert holes.is_sparse((tmp_path / "copy").stat()) == (source == sparse)
