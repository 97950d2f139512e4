"""The safetensors and JSON readers."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from sweepstack.loaders import json_file
from sweepstack.loaders.base import LoadResult, PlainSpec
from sweepstack.loaders.load import load

W = np.arange(12, dtype=np.float32).reshape(3, 4)


def header(path: Path, entries: Any, data: bytes = b"", *, length: int | None = None) -> None:
    """Writes a safetensors file by hand."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def prove(path: Path, *keys: str, finite: Any = "require") -> LoadResult:
    return load(str(path), PlainSpec("safetensors", keys, finite))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file goes."""
    return tmp_path / "file"


def test_safetensors_are_read(path: Path) -> None:
    many = {f"t{n}": np.ones((n + 1, 3), kind) for n, kind in enumerate(("f8", "f4", "f2", "i8", "u1", "?"))}
    save_file({"w1": W, "empty": np.empty((0, 4), np.float32), **many}, path, metadata={"epoch": "3"})
    assert prove(path, "w1", "t5").ok
    assert prove(path, "w1", "w2").reasons == ("lacks w2",)


@pytest.mark.parametrize("kind", ["f8", "f4", "f2"])
def test_safetensors_with_nan_are_named(path: Path, kind: str) -> None:
    worse = np.ones(300_000, kind)
    worse[[0, 150_000, -1]] = [np.nan, np.inf, -np.inf]
    save_file({"good": W, "bad": worse}, path)
    assert prove(path).reasons == ("3 non-finite (bad)",)
    assert prove(path, finite="report").notes == ("3 non-finite (bad)",)


@pytest.mark.parametrize(
    ("dtype", "values", "count"),
    [("BF16", b"\x80\x7f\xc0\x7f\x80\x3f", 2), ("F8_E4M3", b"\x7f\x7e\xff", 2), ("F8_E5M2", b"\x7c\x7b\xff", 2)],
)
def test_short_floats_are_judged_by_their_bits(path: Path, dtype: str, values: bytes, count: int) -> None:
    length = len(values) // (2 if dtype == "BF16" else 1)
    header(path, {"w": {"dtype": dtype, "shape": [length], "data_offsets": [0, len(values)]}}, values)
    assert prove(path).reasons == (f"{count} non-finite (w)",)


def entry(start: int, end: int, shape: list[int] | None = None, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - start) // 4] if shape is None else shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    ("entries", "data", "reason"),
    [
        ({"w": entry(0, 16)}, b"\0" * 12, "is cut off or too long"),
        ({"w": entry(0, 8)}, b"\0" * 12, "is cut off or too long"),
        ({"a": entry(0, 8), "b": entry(4, 12)}, b"\0" * 12, "does not lie where"),
        ({"a": entry(4, 12)}, b"\0" * 12, "does not lie where"),
        ({"w": entry(0, 12, [4])}, b"\0" * 12, "where its shape needs 16"),
        ({"w": entry(0, 12, [1 << 62, 1 << 62])}, b"\0" * 12, "where its shape needs"),
        ({"w": entry(0, 12, [-1, -3])}, b"\0" * 12, "sizes that are no sizes"),
        ({"w": entry(12, 0)}, b"\0" * 12, "sizes that are no sizes"),
        ({"w": entry(0, 12, [True, 3])}, b"\0" * 12, "sizes that are no sizes"),
        ({"w": entry(0, 12, dtype="X99")}, b"\0" * 12, "no known dtype"),
        ({"w": 7}, b"", "no known dtype"),
        ({}, b"", "holds no tensor"),
        ({"w": entry(0, 0)}, b"", "holds no tensor"),
        ({"w": entry(0, 1, [2], dtype="F4")}, b"1", "w is of F4, whose numbers this reader does not know"),
        (b'{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"w":1}', b"", "names a key twice: w"),
        (b"[]", b"", "not an object"),
        (b"{", b"", "not JSON"),
        (b"[" * 50_000, b"", "not JSON"),
        (b"\xff\xff", b"", "not JSON"),
    ],
)
def test_headers_made_to_mislead_are_refused(path: Path, entries: Any, data: bytes, reason: str) -> None:
    header(path, entries, data)
    assert reason in prove(path).reasons[0]


@pytest.mark.parametrize("length", [1 << 62, 1000, 100_000_001])
def test_header_lengths_are_bounded(path: Path, length: int) -> None:
    header(path, {}, length=length)
    assert "cut off in its header" in prove(path).reasons[0]
    path.write_bytes(b"\0" * 7)
    assert "too short" in prove(path).reasons[0]


def test_the_library_has_its_say(path: Path) -> None:
    header(path, {"__metadata__": {"epoch": 3}, "w": entry(0, 12)}, b"\0" * 12)  # metadata must be text
    assert "safetensors refuses it" in prove(path).reasons[0]


def judge(path: Path, text: bytes | str, *keys: str, finite: Any = "require") -> LoadResult:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(str(path), PlainSpec("json", keys, finite))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"a": NaN}', "a"),
        ('{"a": {"b": [1, Infinity]}}', "a.b.1"),
        ('{"a": -Infinity}', "a"),
        ('{"a": 1e999}', "a"),
        ("[1, -1e999]", "1"),
        ("NaN", "value"),
    ],
)
def test_json_numbers_must_be_numbers(path: Path, text: str, where: str) -> None:
    assert judge(path, text).reasons == (f"1 non-finite ({where})",)
    assert judge(path, text, finite="report").notes == (f"1 non-finite ({where})",)


def test_json_keys_are_those_at_the_top(path: Path) -> None:
    assert judge(path, '{"loss": 1, "more": {"accuracy": 2}}', "loss").ok
    assert judge(path, '{"loss": 1, "more": {"accuracy": 2}}', "accuracy").reasons == ("lacks accuracy",)
    assert judge(path, "[1]", "loss").reasons == ("lacks loss",)
    assert judge(path, '{"loss": "NaN"}', "loss").ok


@pytest.mark.parametrize("text", [b"{", b"{'a': 1}", b"\xff", b"[" * 200_000, b'{"a":' + b"9" * 5000 + b"}", b" "])
def test_what_is_not_json_says_so(path: Path, text: bytes) -> None:
    assert "is not JSON" in judge(path, text).reasons[0]


def test_json_that_is_too_large_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "MAX_BYTES", 8)
    assert judge(path, '{"a": 1}').ok
    found = judge(path, '{"a": 11}')
    assert (found.ok, found.unsupported) == (False, True)
    assert "is too large for JSON: 9 bytes, 8 at most" in found.reasons[0]
