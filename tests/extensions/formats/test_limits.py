"""What goes beyond the room of a reader is never called damaged."""

from __future__ import annotations

import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from sweepstack.extensions.formats import pickles
from sweepstack.loaders.base import PlainSpec
from sweepstack.loaders.load import NO_MEMORY, load
from tests.extensions.formats import samples
from tests.extensions.formats.damage import is_good, judged


def test_a_pickle_that_zlib_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = tmp_path / "one.joblib"
    one.write_bytes(zlib.compress(pickle.dumps(bytes(1 << 20))))
    assert load(str(one), PlainSpec("joblib")).ok
    monkeypatch.setattr(pickles, "MAX_ZLIB", 1 << 19)
    result = load(str(one), PlainSpec("joblib"))
    assert (result.unsupported, result.reasons) == (
        True,
        ("unpacks to more than a reader is given; judge it by load: command",),
    )


@pytest.mark.proof  # it imports scikit-learn
@pytest.mark.parametrize("call", ["get_untrusted_types", "loads"])
def test_skops_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    from skops import io

    def no_memory(*_: Any, **__: Any) -> Any:
        raise MemoryError

    samples.skops(tmp_path / "one.skops")
    monkeypatch.setattr(io, call, no_memory)
    result = load(str(tmp_path / "one.skops"), PlainSpec("skops"))
    assert (result.unknown, result.reasons) == (True, (NO_MEMORY,))


def test_json_lines_of_one_byte(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text("7")
    result = load(str(tmp_path / "one.jsonl"), PlainSpec("jsonl"))
    assert (result.ok, result.notes) == (True, ("its last line has no end: it may be cut where a value ends",))


def test_an_array_without_a_number(tmp_path: Path) -> None:
    import zarr

    root = zarr.open_group(str(tmp_path / "z"), mode="w")
    root.create_array("empty", shape=(3, 0), chunks=(1, 1), dtype="f4")
    root.create_array("full", data=samples.arrays()["w1"])
    assert is_good(tmp_path / "z", PlainSpec("zarr")), judged(tmp_path / "z", PlainSpec("zarr"))
