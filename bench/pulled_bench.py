"""What verifying many pulled cells costs: `python -m bench.pulled_bench [cells] [rounds]`.

`sweepctl verify` of cells that were pulled already, each of a small artifact, a log and a manifest, against a loop over
the same files that opens each and asks `hashlib.file_digest`, in as many processes as there are cores. Wall clock, and
processor time of all processes. The engine's part is a `cat` of its state, as in `status_bench`. Interleaved rounds;
both read warm files.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from bench.status_bench import RUN, SEEDS, Quiet
from bench.verify_bench import hash_plainly
from sweep.loaders.pool import cores
from tests.unit.cli.support import STACK, World

LIMIT = 2.0


def measure(cells: int = 10_000, rounds: int = 5) -> dict[str, Any]:
    """Medians and maxima in seconds (`wall`, `cpu`) of both ways, and their ratios."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="sweepstack-bench-") as folder:
        here = Path.cwd()
        try:
            world = pulled(Path(folder) / "world", cells, patch)
            return _rounds(world, cells, rounds)
        finally:
            os.chdir(here)


def pulled(base: Path, cells: int, patch: pytest.MonkeyPatch) -> World:
    """A sweep on one box of this machine whose cells are all sealed and pulled."""
    base.mkdir()
    lrs = [round(0.001 * number, 3) for number in range(1, max(cells // SEEDS, 1) + 1)]
    world = World(base, patch, Quiet(), lrs=f"{lrs}, seed: {list(range(min(SEEDS, cells)))}")  # type: ignore[arg-type]
    box = world.add("box-0")
    world.up_roster = world.file_roster()
    by_name = {cell.name: cell for cell in world.up_roster.cells}
    world.cell = by_name.__getitem__  # type: ignore[method-assign]
    box.launch(*by_name)
    for name in by_name:
        box.seal(name)
    world.save()
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        world.run("pull")
    return world


def _rounds(world: World, cells: int, rounds: int) -> dict[str, Any]:
    files = [path for path in (world.evidence / "cells").rglob("*") if path.is_file()]
    if len(files) != 3 * cells:
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
