"""What verifying many pulled cells costs: `python -m bench.pulled_bench [cells] [rounds]`.

`sweepctl verify` of cells that were pulled already, against a loop over the same files that opens each and asks
`hashlib.file_digest`, in as many processes as there are cores. Wall clock, and processor time of all processes. The
engine's part is a `cat` of its state, as in `status_bench`. Interleaved rounds; both read warm files.

A cell holds what one of `examples/digits` leaves: a model of four tensors (614 KB, read by `load: safetensors`),
metrics.json, a log and its manifest. `tiny` is the same without the model: files of 40 bytes, of which hardly anything
is to be hashed, so that only what a cell itself costs is left. It has no limit.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from bench.status_bench import RUN, SEEDS, Quiet
from bench.verify_bench import hash_plainly
from sweepstack.core.records import ArtifactSpec
from sweepstack.loaders.pool import cores
from sweepstack.onbox.common import box_layout
from tests.unit.cli.support import IDENTITY, STACK, World

LIMIT = 2.0
SHAPES = {"b1": [2048], "b2": [10], "w1": [64, 2048], "w2": [2048, 10]}
"""The tensors of `examples/digits/train.py`."""
MODEL = ArtifactSpec(path="model.safetensors", load="safetensors", keys=("w1", "w2"))


def measure(cells: int = 10_000, rounds: int = 5) -> dict[str, Any]:
    """Medians and maxima in seconds (`wall`, `cpu`) of both ways, and their ratios; `tiny`: the same without models."""
    found = {name: _measured(cells, rounds, models=name == "models") for name in ("models", "tiny")}
    return found["models"] | {"tiny": found["tiny"]}


def _measured(cells: int, rounds: int, *, models: bool) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="sweepstack-bench-") as folder:
        here = Path.cwd()
        try:
            world = pulled(Path(folder) / "world", cells, patch, models=models)
            return _rounds(world, cells, rounds)
        finally:
            os.chdir(here)


def pulled(base: Path, cells: int, patch: pytest.MonkeyPatch, *, models: bool = False) -> World:
    """A sweep on one box of this machine whose cells are all sealed and lie in the evidence as a pull leaves them. They
    are moved there: a pull would write each file a second time, and wait until the disk has it."""
    base.mkdir()
    if models:
        patch.setattr("tests.unit.cli.support.ARTIFACT", MODEL)
    lrs = [round(0.001 * number, 3) for number in range(1, max(cells // SEEDS, 1) + 1)]
    world = World(base, patch, Quiet(), lrs=f"{lrs}, seed: {list(range(min(SEEDS, cells)))}")  # type: ignore[arg-type]
    box = world.add("box-0")
    world.up_roster = world.file_roster()
    by_name = {cell.name: cell for cell in world.up_roster.cells}
    world.cell = by_name.__getitem__  # type: ignore[method-assign]
    box.launch(*by_name)
    weights = _weights() if models else b""
    for number, name in enumerate(by_name):
        model = weights[:-4] + struct.pack("<f", number)
        box.seal(name, files={MODEL.path: model} if models else None)
    (box.root / box_layout.DURABLE / box_layout.sealed_dir(IDENTITY, "")).rename(world.evidence / "cells")
    world.store.write_journal(box.name, box.generation, (box.root / box_layout.JOURNAL).read_bytes())
    world.save()
    gc.collect()
    return world


def _weights() -> bytes:
    """A safetensors file of random numbers in these shapes."""
    import numpy as np
    from safetensors.numpy import save

    numbers = np.random.default_rng(0)
    return save({name: numbers.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()})


def _rounds(world: World, cells: int, rounds: int) -> dict[str, Any]:
    files = [path for path in (world.evidence / "cells").rglob("*") if path.is_file()]
    if len(files) % cells:
        raise RuntimeError(f"{len(files)} files of {cells} cells were pulled")
    ways: dict[str, Callable[[], None]] = {
        "verify": lambda: _verify(world, cells),
        "hashlib": lambda: _loop(files),
    }
    took: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    _verify(world, cells)
    for number in range(rounds):
        for way in list(ways) if number % 2 else list(reversed(ways)):
            begun, cpu = perf_counter(), _cpu()
            ways[way]()
            took[way].append((perf_counter() - begun, _cpu() - cpu))
    wall, cpu_time = ({way: [pair[index] for pair in pairs] for way, pairs in took.items()} for index in (0, 1))
    seconds = {way: statistics.median(values) for way, values in wall.items()}
    cpu_seconds = {way: statistics.median(values) for way, values in cpu_time.items()}
    return {
        "cells": cells,
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "workers": cores(),
        "rounds": rounds,
        "seconds": seconds,
        "max_seconds": {way: max(values) for way, values in wall.items()},
        "cpu_seconds": cpu_seconds,
        "max_cpu_seconds": {way: max(values) for way, values in cpu_time.items()},
        "ratio": seconds["verify"] / seconds["hashlib"],
        "cpu_ratio": cpu_seconds["verify"] / cpu_seconds["hashlib"],
        "limit": LIMIT,
    }


def _cpu() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def _loop(files: list[Path]) -> None:
    if len(hash_plainly(files, cores())) != len(files):
        raise RuntimeError("the loop did not read all files")


def _verify(world: World, cells: int) -> None:
    command = [sys.executable, "-c", RUN, str(world.engine / "pulumi"), "verify", "--stack", STACK]
    done = subprocess.run(command, cwd=world.root, capture_output=True, text=True)
    if done.returncode or f"{cells} of {cells} verified" not in done.stdout:
        raise RuntimeError(f"verify ended with {done.returncode}:\n{done.stdout[:2000]}{done.stderr[:2000]}")


if __name__ == "__main__":
    print(json.dumps(measure(*[int(word) for word in sys.argv[1:]]), indent=2))
