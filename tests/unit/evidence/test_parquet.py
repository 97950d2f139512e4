"""Parquet files, by pyarrow."""

from __future__ import annotations

import builtins
import math
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from sweepstack.loaders import parquet_file
from sweepstack.loaders.base import LoadResult, PlainSpec
from sweepstack.loaders.load import load


def read(path: Path, **settings: Any) -> LoadResult:
    return load(str(path), PlainSpec("parquet", **settings))


def write(path: Path, **columns: Any) -> Path:
    parquet.write_table(arrow.table(columns), path, write_page_checksum=True)
    return path


def test_columns_and_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", step=[1, 2], loss=[0.5, 0.25], name=["a", None])
    assert read(path, keys=("step", "loss")).ok
    assert read(path, keys=("accuracy",)).reasons == ("lacks accuracy",)
    assert read(path).notes == ()


@pytest.mark.parametrize(
    ("column", "count"),
    [
        ([1.0, math.nan, math.inf], 2),
        (arrow.array([1.0, math.nan], arrow.float32()), 1),
        ([[1.0, math.nan], [math.inf]], 2),
        ([{"a": math.nan, "b": 1}], 1),
        (arrow.array(["x", "y"]).dictionary_encode(), 0),
    ],
)
def test_numbers_that_are_not_finite(tmp_path: Path, column: Any, count: int) -> None:
    found = read(write(tmp_path / "a.parquet", loss=column))
    assert found.reasons == ((f"{count} non-finite (loss)",) if count else ())


def test_a_null_in_place_of_a_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", loss=[0.5, None])
    words = "has null or a text in place of a number (loss)"
    assert read(path).notes == (words,)
    assert read(path, plausible="require").reasons == (words,)


def test_what_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", loss=[0.5] * 1000)
    data = path.read_bytes()
    for bad in (b"PAR1", data[:-1], data[: len(data) // 2], b"x" + data[1:], data + b"x"):
        path.write_bytes(bad)
        assert not read(path).ok
    assert not read(write(path, loss=arrow.array([], arrow.float32()))).ok


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = [arrow.array([1.0]), arrow.array([2.0])]
    parquet.write_table(arrow.Table.from_arrays(columns, names=["loss", "loss"]), path)
    assert read(path).reasons == ("names a column twice",)


def test_what_is_beyond_a_limit_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", step=[1], loss=[0.5])
    monkeypatch.setattr(parquet_file, "MAX_COLUMNS", 1)
    assert "has 2 columns, 1 at most" in read(path).reasons[0]
    assert read(path).unsupported

    def full(*_: Any, **__: Any) -> Any:
        raise arrow.ArrowMemoryError("malloc of size 1 failed")

    monkeypatch.setattr(parquet, "ParquetFile", full)
    found = read(path)
    assert (found.unknown, found.reasons) == (True, ("needs more memory than a reader is given",))


def test_a_flipped_bit_in_a_page_is_seen(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", loss=[float(number) for number in range(1000)])
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(bytes(data))
    assert "pyarrow refuses it" in read(path).reasons[0]


def test_without_pyarrow_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", loss=[0.5])
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    found = read(path)
    assert found.unknown
    assert "can't be read here: pyarrow" in found.reasons[0]
