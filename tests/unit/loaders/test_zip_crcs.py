"""Checkpoints whose CRCs were not computed, and those whose CRCs do not agree."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweepstack.loaders.base import LoadResult, PlainSpec
from sweepstack.loaders.load import load
from tests.unit.evidence.torchzip import save, tensor

NOTE = "was saved without CRCs: judged by its directory, sizes and numbers"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A good checkpoint."""
    save({"w": tensor(np.arange(3000, dtype=np.float32)), "epoch": 3}, tmp_path / "best.pt")
    return tmp_path / "best.pt"


def without(path: Path, *, directory: bool = True, own: bool = True, keep: str = "") -> None:
    """Zeroes CRCs: in the zip directory, and in each part's own header. `keep`: the part that keeps its CRC."""
    with zipfile.ZipFile(path) as archive:
        infos, start = archive.infolist(), archive.start_dir
    data = bytearray(path.read_bytes())
    at = start
    for info in infos:
        if not info.filename.endswith(keep or "\0"):
            if directory:
                data[at + 16 : at + 20] = bytes(4)
            if own:
                data[info.header_offset + 14 : info.header_offset + 18] = bytes(4)
        at += 46 + sum(struct.unpack_from("<3H", data, at + 28))
    path.write_bytes(bytes(data))


def judge(path: Path, load_as: Any = "torch") -> LoadResult:
    """What the restricted reader says."""
    return load(str(path), PlainSpec(load_as))


def test_crcs_that_were_not_computed_are_noted(path: Path) -> None:
    assert judge(path).notes == ()
    without(path)
    assert (judge(path).ok, judge(path).notes) == (True, (NOTE,))


@pytest.mark.parametrize("keep", ["data.pkl", "data/0", "version"])
def test_one_crc_that_differs_while_another_is_computed_is_damage(path: Path, keep: str) -> None:
    without(path, keep=keep)
    found = judge(path)
    assert (found.ok, found.unsupported) == (False, False)
    assert "CRC of archive/" in found.reasons[0]


def test_a_directory_whose_crcs_were_lost_does_not_agree_with_the_parts(path: Path) -> None:
    without(path, own=False)
    assert judge(path).reasons == ("archive/data.pkl has two CRCs",)


def test_what_has_no_crcs_is_still_judged_by_its_numbers_and_sizes(path: Path) -> None:
    save({"w": tensor(np.array([1, np.nan], np.float32))}, path)
    without(path)
    assert judge(path).reasons == ("1 non-finite (w)",)
    data = path.read_bytes()
    path.write_bytes(data[:-40])
    assert "cut off or damaged" in judge(path).reasons[0]


def test_what_stands_behind_a_part_has_to_agree_too(path: Path) -> None:
    """As torch writes it: the CRC of a part stands behind its bytes."""

    class Stream:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: bytes) -> int:
            self.data += bytes(data)
            return len(data)

        def flush(self) -> None:
            pass

    stream: Any = Stream()
    with zipfile.ZipFile(path) as good, zipfile.ZipFile(stream, "w") as archive:
        for info in good.infolist():
            archive.writestr(info.filename, good.read(info))
    path.write_bytes(stream.data)
    assert judge(path).ok
    data = bytearray(stream.data)
    data[data.index(b"PK\x07\x08") + 4] ^= 1
    path.write_bytes(bytes(data))
    assert judge(path).reasons == ("archive/data.pkl has two CRCs",)


def test_numpy_needs_its_crcs(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, w=np.arange(9.0))
    without(path)
    assert not judge(path, "npz").ok
