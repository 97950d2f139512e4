"""What a look costs: `python -m bench.status_bench [cells] [rounds]`.

`sweepctl status` over two boxes of the local platform with real journals, all cells sealed, half of them pulled and
verified, against one `cat` of the same journals. The engine's part is a `cat` of the state that it would print: what
`pulumi stack export` takes comes on top. Interleaved rounds.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from bench.clone import ROOT
from tests.unit.cli.support import STACK, World

SEEDS = 100
RUN = """
import sys, sweep.state
engine = sys.argv.pop(1)
sweep.state.find_engine = lambda: engine
from sweep.cli.main import main
main()
"""


class Quiet:
    """Stands where pytest's capsys would."""

    out = err = ""

    def readouterr(self) -> Quiet:
        return self


def build(folder: Path, cells: int, patch: pytest.MonkeyPatch) -> World:
    """A sweep of `cells` sealed cells on two boxes, half of them verified."""
    lrs = [round(0.001 * number, 3) for number in range(1, cells // SEEDS + 1)]
    world = World(folder, patch, Quiet(), lrs=f"{lrs}, seed: {list(range(SEEDS))}")  # type: ignore[arg-type]
    boxes = world.add("box-0"), world.add("box-1")
    world.up_roster = world.file_roster()
    by_name = {cell.name: cell for cell in world.up_roster.cells}
    world.cell = by_name.__getitem__  # type: ignore[method-assign]
    names = list(by_name)
    half = len(names) // 2
    for box, mine in zip(boxes, (names[:half], names[half:]), strict=True):
        box.launch(*mine)
    for name in names[:half]:
        boxes[0].seal(name)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        for command in ("pull", "verify"):
            world.run(command)  # exit code 1: the other half is not there yet
    for name in names[half:]:
        boxes[1].seal(name)
    world.save()
    return world


def look(world: World) -> tuple[float, float]:
    """Seconds of one `sweepctl status`: of the clock, and of the CPU. Raises RuntimeError when it saw another sweep."""
    command = [sys.executable, "-c", RUN, str(world.engine / "pulumi"), "status", "--stack", STACK]
    began, cpu = perf_counter(), _cpu()
    done = subprocess.run(command, cwd=world.root, capture_output=True, text=True)
    took = perf_counter() - began, _cpu() - cpu
    cells = len(world.up_roster.cells)
    wanted = f"{cells // 2}/{cells} verified"
    if done.returncode or wanted not in done.stdout.splitlines()[0]:
        said = f"{done.stdout[:500]}{done.stderr[:500]}"
        raise RuntimeError(f"status ended with {done.returncode}, not {wanted}:\n{said}")
    return took


def _cpu() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def cat(journals: list[Path]) -> float:
    """Seconds of one `cat` of the journals."""
    began = perf_counter()
    subprocess.run(["cat", *journals], stdout=subprocess.DEVNULL, check=True)
    return perf_counter() - began


def measure(cells: int = 10_000, rounds: int = 10) -> dict[str, Any]:
    """Medians and maxima in seconds, and the ratio of the medians. `cpu`: of the status, which no neighbour changes."""
    took: dict[str, list[float]] = {"status": [], "cat": [], "cpu": []}
    base = Path(os.environ.get("SWEEPSTACK_BENCH_DIR") or ROOT / ".cache")
    base.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="status-bench-", dir=base) as folder:
        here = Path.cwd()
        world = build(Path(folder), cells, patch)
        journals = [box.root / "data/sweep/journal.jsonl" for box in world.boxes]
        size = sum(path.stat().st_size for path in journals)
        look(world)  # byte code and the page cache are warm for both
        for _ in range(rounds):
            took["cat"].append(cat(journals))
            clock, cpu = look(world)
            took["status"].append(clock)
            took["cpu"].append(cpu)
        os.chdir(here)
    median = {way: statistics.median(seconds) for way, seconds in took.items()}
    return {
        "cells": cells,
        "rounds": rounds,
        "journal_bytes": size,
        "seconds": median,
        "max_seconds": {way: max(seconds) for way, seconds in took.items()},
        "ratio": median["status"] / median["cat"],
    }


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:])), indent=2))
