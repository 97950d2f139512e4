"""`sweepctl-check hf-shards`, through `load: command` and by itself."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import struct
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sweepstack.evidence.verify import check_code
from sweepstack.loaders.base import LoadResult, PlainSpec
from sweepstack.loaders.command import Check
from sweepstack.loaders.load import load
from tests.unit.evidence.world import safetensors_bytes

ROOT = Path(__file__).resolve().parents[3]
RUN = "sweepctl-check hf-shards {file}"
SHARDS = 3


def shard(number: int, of: int = SHARDS) -> str:
    """A shard's name."""
    return f"model-{number:05}-of-{of:05}.safetensors"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The folder of a model as `save_pretrained` leaves it: two tensors in each shard, and an index."""
    folder = tmp_path / "out"
    folder.mkdir()
    placed = {}
    for number in range(1, SHARDS + 1):
        held = {f"layers.{number}.{part}": np.full(4, number, "f4") for part in ("weight", "bias")}
        (folder / shard(number)).write_bytes(safetensors_bytes(held))
        placed |= dict.fromkeys(held, shard(number))
    write_index(folder, placed, 4 * 4 * 2 * SHARDS)
    return folder


def write_index(folder: Path, placed: dict[str, str], size: int) -> None:
    """The index as transformers writes it."""
    document = {"metadata": {"total_size": size}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(document))


def placed_in(folder: Path) -> dict[str, str]:
    """The weight_map of the index."""
    found: dict[str, str] = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    return found


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], LoadResult]:
    """Judges a folder by its index, with the script that pyproject.toml says is installed."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["sweepctl-check"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    script = bin_ / "sweepctl-check"
    script.write_text(
        f"#!{sys.executable} -I\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from {module} import {function}\nsys.exit({function}())\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}{os.environ['PATH']}")
    work = tmp_path / "job"
    work.mkdir()
    (work / "copy.py").write_text("raise SystemExit('a file of the job was imported')\n")  # shadows Python's own

    def run(folder: Path) -> LoadResult:
        with check_code(work) as code:
            index = folder / "model.safetensors.index.json"
            return load(str(index), PlainSpec("command", run=RUN, trust=True), check=Check(code.root, 60))

    return run


def test_a_whole_model_is_good(saved: Path, judge: Callable[[Path], LoadResult]) -> None:
    found = judge(saved)
    assert (found.ok, found.reasons, found.notes) == (True, (), ())
    write_index(saved, placed_in(saved), 95)
    assert judge(saved).notes == ("model.safetensors.index.json says 95 bytes in all, and the shards hold 96",)


def missing(folder: Path) -> str:
    """What a run that was cut off leaves."""
    (folder / shard(2)).unlink()
    return f"{shard(2)} is not there"


def cut(folder: Path) -> str:
    """Half of a shard."""
    data = (folder / shard(2)).read_bytes()
    (folder / shard(2)).write_bytes(data[:-5])
    return f"{shard(2)} is cut off or too long"


def twice(folder: Path) -> str:
    """transformers loads it, with tensors that are newly initialised."""
    shutil.copyfile(folder / shard(2), folder / shard(3))
    return f"{shard(3)} does not hold layers.3.bias, layers.3.weight"


def swapped(folder: Path) -> str:
    """Two shards under each other's name."""
    data = (folder / shard(1)).read_bytes()
    (folder / shard(1)).write_bytes((folder / shard(3)).read_bytes())
    (folder / shard(3)).write_bytes(data)
    return f"{shard(1)} does not hold layers.1.bias, layers.1.weight"


def named_and_absent(folder: Path) -> str:
    """The index of another save."""
    write_index(folder, {**placed_in(folder), "head.weight": shard(4)}, 96)
    return f"{shard(4)} is not there"


def foreign_tensor(folder: Path) -> str:
    """A shard of another model, which holds all that is asked for."""
    held = {name: np.zeros(4, "f4") for name in ("layers.1.weight", "layers.1.bias", "other")}
    (folder / shard(1)).write_bytes(safetensors_bytes(held))
    return f"{shard(1)} holds other, which model.safetensors.index.json does not say of it"


def foreign_shard(folder: Path) -> str:
    """A shard that an earlier save left."""
    shutil.copyfile(folder / shard(1), folder / shard(4, 4))
    return f"{shard(4, 4)} lies there, and model.safetensors.index.json does not name it"


def of_fewer(folder: Path) -> str:
    """The last shard, taken out of the index together with its tensors."""
    write_index(folder, {name: place for name, place in placed_in(folder).items() if place != shard(3)}, 64)
    (folder / shard(3)).unlink()
    return f"{shard(1)} is one of 3 shards, and model.safetensors.index.json names 2"


def elsewhere(folder: Path) -> str:
    """A shard outside of the folder."""
    write_index(folder, {"w": "../secret.safetensors"}, 1)
    return "names ../secret.safetensors, which is not beside it"


def no_map(folder: Path) -> str:
    """An index of nothing."""
    write_index(folder, {}, 0)
    return "has no weight_map"


def gap(folder: Path) -> str:
    """Two tensors that lie over each other, and bytes that none has: in all, as long as it should be."""
    header = {"layers.2.weight": [0, 16], "layers.2.bias": [8, 32]}
    write_header(folder / shard(2), json.dumps({name: {"data_offsets": at} for name, at in header.items()}), 32)
    return f"{shard(2)}: layers.2.bias does not lie where its neighbour ends"


def cut_in_its_header(folder: Path) -> str:
    """The first bytes of a shard."""
    (folder / shard(2)).write_bytes((folder / shard(2)).read_bytes()[:20])
    return f"{shard(2)} is no safetensors file, or cut off in its header"


def no_offsets(folder: Path) -> str:
    """A header that says of no tensor where it lies."""
    write_header(folder / shard(2), '{"layers.2.weight": {}, "layers.2.bias": 7}', 0)
    return f"{shard(2)} has a header without offsets"


def no_object(folder: Path) -> str:
    """A list for an index."""
    (folder / "model.safetensors.index.json").write_text("[]")
    return "model.safetensors.index.json is not a JSON object"


def tensor_twice(folder: Path) -> str:
    """Of two places for one tensor JSON takes the last."""
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("layers.2.bias", "layers.1.bias"))
    return "model.safetensors.index.json names a key twice: layers.1.bias"


def write_header(path: Path, header: str, size: int) -> None:
    """A shard by hand: its header, and so many bytes."""
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + bytes(size))


WHOLE_OR_NOT = [missing, cut, twice, swapped, named_and_absent, foreign_tensor, foreign_shard, of_fewer, elsewhere]


@pytest.mark.parametrize(
    "hurt",
    [*WHOLE_OR_NOT, no_map, gap, cut_in_its_header, no_offsets, no_object, tensor_twice],
    ids=lambda hurt: hurt.__name__,
)
def test_each_way_that_a_model_is_not_whole_is_named(
    saved: Path, judge: Callable[[Path], LoadResult], hurt: Callable[[Path], str]
) -> None:
    reason = hurt(saved)
    found = judge(saved)
    assert (found.ok, found.unknown) == (False, False)
    assert reason[:100] in found.reasons[0]


def test_shards_that_are_pickles_it_does_not_know(saved: Path) -> None:
    from sweepstack.loaders.shipped_checks import main

    (saved / "model.safetensors.index.json").rename(saved / "pytorch_model.bin.index.json")
    assert main(["hf-shards", str(saved / "pytorch_model.bin.index.json")]) == 2
    assert main(["hf-shards"]) == 2
