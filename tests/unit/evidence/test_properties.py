"""Whatever is done to sealed bytes, they never verify."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.loaders.base import PlainSpec
from sweepstack.loaders.finite import FORMATS, FiniteCheck
from sweepstack.loaders.load import load
from tests.unit.evidence.torchzip import ITEMSIZE, Blob, View, save
from tests.unit.evidence.world import ARTIFACTS, checkpoint_bytes, outputs

SPECS = {spec.path: spec for spec in ARTIFACTS}
Edit = tuple[str, float, int]
EDITS = st.tuples(st.sampled_from(["flip", "cut", "insert", "append", "zero"]), st.floats(0, 1), st.integers(0, 7))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that all examples share."""
    path = tmp_path_factory.mktemp("properties")
    yield path
    shutil.rmtree(path)


def damaged(data: bytes, edit: Edit) -> bytes:
    how, share, bit = edit
    at = min(int(share * len(data)), len(data) - 1)
    match how:
        case "flip":
            return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
        case "cut":
            return data[:at]
        case "insert":
            return data[:at] + bytes([bit]) + data[at:]
        case "append":
            return data + bytes([bit]) * (bit + 1)
        case _:
            return data[:at] + bytes(len(data) - at)


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(sorted(SPECS)), edits=st.lists(EDITS, min_size=1, max_size=3))
def test_bytes_that_were_touched_after_sealing_never_load(folder: Path, name: str, edits: list[Edit]) -> None:
    good = outputs(folder, 3)[name]
    bad = good
    for edit in edits:
        bad = damaged(bad, edit) if bad else bad
    path = folder / "after"
    path.write_bytes(bad)
    result = load(str(path), SPECS[name], hashlib.sha256(good).hexdigest(), expected_size=len(good))
    assert result.ok == (bad == good)


@settings(max_examples=250, deadline=None)
@given(share=st.floats(0, 1), bit=st.integers(0, 7))
def test_a_bit_that_flipped_before_sealing_is_seen_or_harmless(folder: Path, share: float, bit: int) -> None:
    good = checkpoint_bytes(folder, 3)
    bad = damaged(good, ("flip", share, bit))
    path = folder / "before"
    path.write_bytes(bad)
    result = load(str(path), SPECS["best.pt"], hashlib.sha256(bad).hexdigest(), expected_size=len(bad))
    if result.ok:  # then it hit padding, a date or the like: the parts are bit for bit what they were
        path.with_suffix(".good").write_bytes(good)
        assert parts(path) == parts(path.with_suffix(".good"))


def parts(path: Path) -> dict[str, bytes]:
    """The tensors' bytes and the structure, as Python's own zip reader sees them."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        wanted = [name for name in archive.namelist() if "/data" in name and ".data" not in name]
        return {name: archive.read(name) for name in wanted}


@settings(max_examples=200, deadline=None)
@given(
    shape=st.lists(st.integers(0, 5), max_size=4),
    offset=st.integers(0, 30),
    strides=st.lists(st.integers(0, 9), min_size=4, max_size=4),
    bad=st.sets(st.integers(0, 59), max_size=4),
)
def test_views_count_what_numpy_counts(
    folder: Path, shape: list[int], offset: int, strides: list[int], bad: set[int]
) -> None:
    values = np.ones(60, np.float32)
    values[list(bad)] = np.nan
    stride = tuple(strides[: len(shape)])
    last = offset + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))
    elements = int(np.prod(shape))
    path = folder / "view.pt"
    save({"w": View(Blob(values.tobytes()), offset, tuple(shape), stride)}, path)
    result = load(str(path), PlainSpec("torch"))
    if not elements:
        assert result.notes == ("holds no tensor",)
        return
    if last >= 60:
        assert "reaches beyond its storage" in result.reasons[0]
        return
    view = np.lib.stride_tricks.as_strided(values[offset:], shape, [4 * step for step in stride])
    if result.ok:
        assert np.isfinite(view).all()
    elif np.isfinite(view).all():  # only a view that overlaps itself is judged by all that lies under it
        assert elements >= last + 1 - offset
        assert not np.isfinite(values[offset : last + 1]).all()


@settings(max_examples=200, deadline=None)
@given(kind=st.sampled_from(["f8", "f4", "f2", "bf16", "c8", "c16"]), data=st.binary(max_size=256))
def test_the_quick_check_and_the_count_agree_with_numpy(kind: str, data: bytes) -> None:
    data = data[: len(data) // ITEMSIZE[kind] * ITEMSIZE[kind]]
    check = FiniteCheck(kind, block=256)
    if kind == "bf16":
        wide = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        expected = np.isfinite(wide.view(np.float32))
    else:
        expected = np.isfinite(np.frombuffer(data, {"c8": "f4", "c16": "f8"}.get(kind, kind)))
    assert check.holds(memoryview(data)) == bool(expected.all())
    found = check.count(np.frombuffer(data, check.dtype))
    assert found.total == int((~expected).sum())
    values = wide.view(np.float32) if kind == "bf16" else np.frombuffer(data, {"c8": "f4", "c16": "f8"}.get(kind, kind))
    assert found.nan == int(np.isnan(values).sum())


def test_every_format_has_whole_units() -> None:
    for format_ in FORMATS.values():
        assert format_.itemsize % np.dtype(format_.unit).itemsize == 0
