"""What torch's own restricted load takes is never damaged, and what it refuses is never good."""

from __future__ import annotations

import argparse
import collections
import importlib
import pathlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.loaders.base import LoadResult, PlainSpec, Reader
from sweepstack.loaders.load import load
from sweepstack.loaders.torch_files.archive import restricted

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
Make = Callable[[Any], Any]


@pytest.fixture(scope="module")
def torch() -> Any:
    """The library."""
    return importlib.import_module("torch")


def read(path: Path, reader: Reader = "restricted") -> LoadResult:
    """What a reader says of it."""
    return load(str(path), PlainSpec("torch"), reader=reader)


def taken_by(torch: Any, path: Path) -> bool:
    """Whether torch's restricted load takes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            restricted(torch, path)
        except Exception:
            return False
    return True


def bsr(torch: Any) -> Any:
    """Blocks of 2 x 2, in two of four places."""
    values = torch.ones(2, 2, 2)
    return torch.sparse_bsr_tensor(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), values, size=(4, 4))


def per_channel(torch: Any) -> Any:
    """A scale for each row."""
    return torch.quantize_per_channel(torch.ones(3, 2), torch.tensor([0.1, 0.2, 0.3]), torch.zeros(3), 0, torch.quint8)


GOOD: dict[str, Make] = {
    "coo": lambda t: t.eye(3).to_sparse(),
    "coo not coalesced": lambda t: t.sparse_coo_tensor(t.tensor([[1, 1, 0]]), t.tensor([1.0, 2.0, 3.0]), (4,)),
    "coo hybrid": lambda t: t.sparse_coo_tensor(t.tensor([[0, 2]]), t.ones(2, 5), (3, 5)).coalesce(),
    "coo empty": lambda t: t.sparse_coo_tensor(size=(3, 3)),
    "csr": lambda t: t.eye(3).to_sparse_csr(),
    "csc": lambda t: t.tensor([[0.0, 2.0], [3.0, 4.0]]).to_sparse_csc(),
    "csr of a batch": lambda t: t.stack([t.eye(3), t.eye(3).flip(0)]).to_sparse_csr(),
    "bsr": bsr,
    "bsc": lambda t: t.ones(4, 4).to_sparse_bsc((2, 2)),
    "quantized": lambda t: t.quantize_per_tensor(t.ones(3), 0.1, 0, t.qint8),
    "quantized by channel": per_channel,
    "quantized, 32 bits": lambda t: t.quantize_per_tensor(t.ones(3), 0.1, 0, t.qint32),
    "parameter": lambda t: t.nn.Parameter(t.randn(3)),
    "buffer of a subclass": lambda t: t.nn.Buffer(t.randn(3)),
    "empty": lambda t: t.empty(0, 3),
    "one storage, two types": lambda t: [(x := t.arange(8, dtype=t.uint8)), x.view(t.uint16)],
    "complex": lambda t: t.view_as_complex(t.randn(3, 2)).conj(),
    "float8": lambda t: t.randn(4).to(t.float8_e4m3fn),
    "bytes": lambda _: [b"\x00\xff", bytearray(b"ab"), {1, 2}, 3 + 4j, 10**30, "\udcff"],
    "counter": lambda _: collections.Counter("abca"),
    "state": lambda t: t.nn.BatchNorm1d(3).state_dict(),
    "scheduler": lambda _: {
        "base_lrs": [0.1],
        "last_epoch": 3,
        "_step_count": 4,
        "_last_lr": [0.1],
        "lr_lambdas": [None],
    },
    "plateau": lambda _: {"factor": 0.1, "best": float("inf"), "mode_worse": float("inf"), "num_bad_epochs": 0},
    "scaler": lambda _: {"scale": 65536.0, "growth_factor": 2.0, "growth_interval": 2000, "_growth_tracker": 0},
    "rng": lambda t: t.get_rng_state(),
    "kinds": lambda t: [t.float32, t.device("cpu"), t.Size([1]), t.strided, t.per_tensor_affine],
    "storage": lambda t: t.arange(3.0).untyped_storage(),
}
UNTOLD: dict[str, Make] = {
    "meta": lambda t: t.empty(3, device="meta"),
    "4 bits": lambda t: t.quantize_per_channel(t.ones(2, 2), t.ones(2), t.zeros(2), 0, t.quint4x2),
}
"""What torch takes and the restricted reader does not, or can't judge."""
REFUSED: dict[str, Make] = {
    "Namespace": lambda _: argparse.Namespace(lr=1),
    "path": lambda _: pathlib.Path("a"),
    "number of numpy": lambda _: np.float64(3),
    "array of numpy": lambda _: np.ones(3),
    "defaultdict": lambda _: collections.defaultdict(list, a=[1]),
    "module": lambda t: t.nn.Linear(2, 2),
    "range": lambda _: range(3),
    "nested": lambda t: t.nested.nested_tensor([t.ones(2), t.ones(3)]),
}


@pytest.mark.parametrize("name", [*GOOD, *UNTOLD, *REFUSED])
def test_both_readers_and_torch_agree(torch: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / "best.pt"
    kind = GOOD.get(name) or UNTOLD.get(name) or REFUSED[name]
    torch.save({"w": torch.arange(5.0), "x": kind(torch)}, path)
    found, by_torch = read(path), read(path, "torch")
    assert taken_by(torch, path) == (name not in REFUSED)
    if name in GOOD:
        assert found.ok or (name == "one storage, two types" and found.unsupported), found.reasons
        assert by_torch.ok, by_torch.reasons
        assert found.notes == (by_torch.notes if found.ok else ())
    else:
        assert (found.ok, found.unsupported) == (False, True), found.reasons
        assert by_torch.ok == (name == "4 bits"), by_torch.reasons
        assert by_torch.unsupported == (name != "4 bits"), by_torch.reasons


def test_the_torch_reader_says_the_same_of_what_lightning_wrote(torch: Any) -> None:
    real = Path(__file__).parent / "real"
    for name in ("lightning-2.6.6.ckpt", "lightning-2.6.6-hparams.ckpt"):
        found, by_torch = read(real / name), read(real / name, "torch")
        assert (found.ok, found.reasons, found.notes) == (by_torch.ok, by_torch.reasons, by_torch.notes)


def test_nan_is_found_in_sparse_and_quantized_ones(torch: Any, tmp_path: Path) -> None:
    path, nan = tmp_path / "best.pt", float("nan")
    dense = torch.tensor([[0.0, nan], [2.0, 0.0]])
    scales = torch.quantize_per_channel(torch.ones(2, 2), torch.tensor([0.1, nan]), torch.zeros(2), 0, torch.qint8)
    for bad in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_bsr((2, 2)), scales):
        torch.save({"x": bad}, path)
        for reader in ("restricted", "torch"):
            assert read(path, reader).reasons == ("1 non-finite (x)",), (bad, reader)


def test_sparse_ones_whose_indices_do_not_fit_are_refused_as_by_torch(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    three = torch.ones(3)

    def coo(indices: list[list[int]], size: tuple[int, ...], *, sorted_: bool = False) -> Any:
        found = torch.sparse_coo_tensor(torch.tensor(indices), three, size, check_invariants=False)
        return found._coalesced_(sorted_)

    def csr(starts: list[int], places: list[int]) -> Any:
        parts = (torch.tensor(starts), torch.tensor(places), three)
        return torch.sparse_csr_tensor(*parts, size=(2, 3), check_invariants=False)

    hurt = [
        coo([[0, 1, 3]], (3,)),
        coo([[0, 1, -1]], (3,)),
        coo([[2, 1, 0]], (3,), sorted_=True),
        coo([[0, 0, 1]], (3,), sorted_=True),
        csr([0, 2, 3], [0, 3, 1]),
        csr([0, 2, 3], [1, 0, 1]),
        csr([0, 2, 3], [1, 1, 1]),
        csr([0, 2, 2], [0, 1, 1]),
        csr([1, 2, 3], [0, 1, 1]),
        csr([0, 4, 3], [0, 1, 2]),
    ]
    for number, bad in enumerate(hurt):
        torch.save({"x": bad}, path)
        assert not taken_by(torch, path), number
        assert "whose indices do not fit its size" in read(path).reasons[0], number
    for good in (coo([[0, 1, 1]], (3,)), csr([0, 2, 3], [0, 2, 1]), csr([0, 3, 3], [0, 1, 2])):
        torch.save({"w": torch.arange(3.0), "x": good}, path)
        assert read(path).ok


def test_a_file_that_is_refused_says_nothing_of_the_next_one(torch: Any, tmp_path: Path) -> None:
    bad = torch.sparse_coo_tensor(torch.tensor([[0, 1, 3]]), torch.ones(3), (3,), check_invariants=False)
    torch.save([bad, argparse.Namespace()], tmp_path / "bad.pt")
    torch.save({"w": torch.ones(3)}, tmp_path / "good.pt")
    assert not read(tmp_path / "bad.pt", "torch").ok
    assert read(tmp_path / "good.pt", "torch").ok


def test_files_that_torch_was_told_to_save_without_crcs(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.arange(5.0)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    for reader in ("restricted", "torch"):
        found = read(path, reader)
        assert (found.ok, len(found.notes)) == (True, 1), found
        assert "without CRCs" in found.notes[0]


def test_old_formats_and_plain_pickles_are_told_apart(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    torch.save({"w": torch.arange(5.0)}, path, _use_new_zipfile_serialization=False)
    assert read(path).unsupported
    assert read(path, "torch").ok
    path.write_bytes(path.read_bytes()[:200])
    assert not read(path, "torch").ok
    scripted = torch.jit.script(torch.nn.Linear(2, 2))
    scripted.save(str(path))
    for reader in ("restricted", "torch"):
        found = read(path, reader)
        assert (found.ok, found.unsupported) == (False, True), found.reasons


LEAF = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.sampled_from([*GOOD, *REFUSED]).map(lambda name: (GOOD | REFUSED)[name]),
)
ROOT = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


@settings(max_examples=40, deadline=None)
@given(root=ROOT, zipped=st.booleans())
def test_what_torch_takes_is_never_damaged(
    torch: Any, tmp_path_factory: pytest.TempPathFactory, root: Any, zipped: bool
) -> None:
    def made(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: made(child) for key, child in value.items()}
        if isinstance(value, list):
            return [made(child) for child in value]
        return value(torch) if callable(value) else value

    path = tmp_path_factory.getbasetemp() / "generated-by-torch.pt"
    torch.save(made(root), path, _use_new_zipfile_serialization=zipped)
    found = read(path)
    if not taken_by(torch, path):
        assert not found.ok
        assert found.unsupported, found.reasons
    elif not found.ok and not found.unsupported:
        assert found.reasons == ("holds nothing: no tensor, and no other value",)
