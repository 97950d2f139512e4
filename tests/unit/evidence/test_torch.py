"""Against torch itself: what it saves the restricted reader reads, and both readers say the same."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweepstack.loaders.base import LoadResult, PlainSpec, Reader
from sweepstack.loaders.load import load
from sweepstack.loaders.pool import FileToRead, read_all
from tests.unit.evidence import torchzip
from tests.unit.evidence.world import World, cell_of, outputs

pytestmark = pytest.mark.torch
READERS: tuple[Reader, Reader] = ("restricted", "torch")


@pytest.fixture(scope="module")
def torch() -> Any:
    """The library; these tests fail where it is missing, and are left out by `-m "not torch"`."""
    return importlib.import_module("torch")


def both(path: Path, *keys: str) -> tuple[LoadResult, LoadResult]:
    """What each reader says."""
    first, second = (load(str(path), PlainSpec("torch", keys), reader=reader) for reader in READERS)
    return first, second


def trained(torch: Any) -> tuple[Any, Any]:
    """A small model and its optimizer after two steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).pow(2).mean().backward()
        optimizer.step()
    return model, optimizer


def test_a_training_state_passes_both_readers(torch: Any, tmp_path: Path) -> None:
    model, optimizer = trained(torch)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 3, 5])
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": schedule.state_dict(),
        "ema": [parameter.detach().clone() for parameter in model.parameters()],
        "rng": torch.get_rng_state(),
        "best": float("inf"),
        "shape": torch.Size([1, 2]),
        "device": torch.device("cpu"),
        "dtype": torch.bfloat16,
        "args": {"name": "x", "betas": (0.9, 0.99), "none": None, "flag": True, "data": b"\x00\xff"},
    }
    path = tmp_path / "best.pt"
    torch.save(state, path)
    keys = ("model", "model.0.weight", "model.1.num_batches_tracked", "optimizer.state.0.exp_avg", "rng")
    for result in both(path, *keys):
        assert result.ok, result.reasons
    for result in both(path, "model.9.weight"):
        assert result.reasons == ("lacks model.9.weight",)


def test_every_number_type_passes_and_its_nan_does_not(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    floats = ["float64", "float32", "float16", "bfloat16", "complex64", "complex128"]
    floats += ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
    integers = ["int64", "int32", "int16", "int8", "uint8", "bool", "uint16", "uint32", "uint64"]
    for name in floats + integers:
        dtype = getattr(torch, name)
        torch.save({"w": torch.ones(5, dtype=torch.float32).to(dtype)}, path)
        for result in both(path):
            assert result.ok, (name, result.reasons)
        if name in floats:
            torch.save({"w": torch.tensor([1, float("nan"), 2]).to(dtype)}, path)
            for result in both(path):
                assert result.reasons == ("1 non-finite (w)",), name


def test_views_are_judged_alike(torch: Any, tmp_path: Path) -> None:
    base = torch.ones(6, 8)
    base[2, 3] = float("nan")
    views = {
        "clean": [base[:2], base[3:], base[:, :3], base[:, 4:], base.t()[:3], base[::2, ::2], base[0].expand(5, 8)],
        "bad": [base, base.t(), base[2:3], base[:, 3], base[2, 3], base[2].expand(5, 8)[:1], base[::2, 1::2]],
    }
    path = tmp_path / "best.pt"
    for kind, tensors in views.items():
        for view in tensors:
            torch.save({"w": view}, path)
            for result in both(path):
                assert result.reasons == (() if kind == "clean" else ("1 non-finite (w)",))


def test_shapes_and_strides_are_those_that_torch_saved(torch: Any, tmp_path: Path) -> None:
    from sweepstack.loaders.base import open_file
    from sweepstack.loaders.torch_files.archive import TorchZip

    model, optimizer = trained(torch)
    path = tmp_path / "best.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    with open_file(str(path)) as file:
        found = TorchZip(file)
        read = {}
        for name, tensor in found.tensors:
            part = found.directory.parts[f"{found.prefix}/data/{tensor.storage.key}"]
            raw = np.frombuffer(file.read(part.start, part.size), {"f4": "<f4", "i8": "<i8"}[tensor.format])
            steps = [step * raw.itemsize for step in tensor.stride]
            read[name] = np.lib.stride_tricks.as_strided(raw[tensor.offset :], tensor.size, steps)
    for name, expected in model.state_dict().items():
        assert read[f"model.{name}"].tolist() == expected.tolist()
    for number, state in optimizer.state_dict()["state"].items():
        for key, expected in state.items():
            assert read[f"optimizer.state.{number}.{key}"].tolist() == expected.tolist()


def test_what_is_more_than_weights_is_refused_by_both(torch: Any, tmp_path: Path) -> None:
    model, _ = trained(torch)
    path = tmp_path / "best.pt"
    for extra in (model, np.float64(3), Path("/tmp"), np.ones(3)):
        torch.save({"w": torch.ones(3), "extra": extra}, path)
        first, second = both(path)
        assert "not on the reader's list" in first.reasons[0]
        assert second.reasons == first.reasons
        assert first.unsupported
        assert second.unsupported


def test_damage_is_seen_by_both(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    torch.save({"w": torch.ones(5000)}, path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    assert torch.load(path, weights_only=True)  # torch alone sees nothing
    for result in both(path):
        assert "damaged before it was sealed: CRC of best/data/0" in result.reasons[0]
    path.write_bytes(bytes(data[: len(data) // 2]))
    for result in both(path):
        assert "is cut off or damaged" in result.reasons[0]


def test_the_old_format_is_for_torch_alone(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    torch.save({"w": torch.ones(5)}, path, _use_new_zipfile_serialization=False)
    first, second = both(path)
    assert "SWEEPSTACK_TORCH_READER=torch" in first.reasons[0]
    assert second.ok


def test_without_a_tensor_both_say_so(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    for root in (
        {"epoch": 3},
        {"w": torch.empty(0)},
        torch.optim.lr_scheduler.LambdaLR(trained(torch)[1], lambda _: 1.0),
    ):
        torch.save(root.state_dict() if hasattr(root, "state_dict") else root, path)
        for result in both(path):
            assert (result.ok, result.notes) == (True, ("holds no tensor",))
    for nothing in ({}, {"state_dict": OrderedDict()}):
        torch.save(nothing, path)
        for result in both(path):
            assert result.reasons == ("holds nothing: no tensor, and no other value",)


def test_our_own_writer_writes_what_torch_reads(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    torchzip.save({"w": torchzip.tensor(array), "p": torchzip.Parameter(torchzip.tensor(array)), "e": 3}, path)
    found = torch.load(path, weights_only=True)
    assert found["w"].tolist() == array.tolist()
    assert isinstance(found["p"], torch.nn.Parameter)


def test_a_worker_with_torch_reads_too(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    model, optimizer = trained(torch)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    job = FileToRead(str(path), PlainSpec("torch", ("model",)), None, path.stat().st_size)
    ((_, result),) = read_all([job], reader="torch")
    assert result.ok, result.reasons


def test_a_tensor_that_the_memory_can_not_hold_is_no_damage(torch: Any, tmp_path: Path) -> None:
    """One number, shown as a petabyte of them. torch loads it; to look at each is more than it can."""
    path = tmp_path / "best.pt"
    torch.save({"w": torch.ones(1).expand(1 << 48)}, path)
    found = load(str(path), PlainSpec("torch"), reader="torch")
    assert (found.ok, found.unknown) == (False, True), found.reasons
    assert "could not be checked number by number" in found.reasons[0]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")])
def test_a_checkpoint_that_the_memory_can_not_hold_is_no_damage(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    path = tmp_path / "best.pt"
    torch.save({"w": torch.ones(5)}, path)

    def full(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(torch, "load", full)
    found = load(str(path), PlainSpec("torch"), reader="torch")
    assert (found.unknown, found.reasons) == (True, ("needs more memory than a reader is given",))


def test_both_say_of_the_same_tensors_that_they_are_untrained(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    for w, notes in ((torch.ones(5), ("looks untrained: every number is the same within w",)), (torch.rand(5), ())):
        torch.save({"w": w}, path)
        assert [result.notes for result in both(path)] == [notes] * 2
    torch.save({"w": torch.tensor([1e300, 1.0], dtype=torch.float64)}, path)  # no float32 holds it
    assert [result.reasons for result in both(path)] == [(), ()]


def test_both_readers_make_one_receipt(torch: Any, world: World) -> None:
    model, optimizer = trained(torch)
    path = world.folder / "best.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    world.run()
    world.box.seal(world.cells[0], {**outputs(world.folder), "best.pt": path.read_bytes()}, attempt=2)
    world.pull()
    digests = set()
    for reader in READERS:
        outcome = world.verify(reader=reader)
        assert cell_of(outcome, world.cells[0]).state == "verified", cell_of(outcome, world.cells[0]).reasons
        digests.add(outcome.digest)
    assert len(digests) == 1
