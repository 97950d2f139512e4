"""What a look costs: `python -m bench.status_bench [cells] [rounds]`.

`sweepctl status` over two boxes of the local platform with real journals, against one `cat` of the same journals: of a
sweep at work (half of the cells verified, two running with their curves, the rest waiting), and of the same sweep when
all are sealed. The engine's part is a `cat` of the state that it would print: what `pulumi stack export` takes comes on
top. Interleaved rounds.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from bench.clone import ROOT
from bench.compared import compared
from tests.unit.cli.support import STACK, World

SEEDS = 100
RUNNING = 2
STEPS = 200
RUN = """
import gc, sys
gc.disable()  # as the script begins
import sweepstack.status.engine.call
engine = sys.argv.pop(1)
sweepstack.status.engine.call.find_engine = lambda: engine
from sweepstack.cli.entry import main
main()
"""


class Quiet:
    """Stands where pytest's capsys would."""

    out = err = ""

    def readouterr(self) -> Quiet:
        return self


def build(folder: Path, cells: int, patch: pytest.MonkeyPatch) -> World:
    """A sweep of `cells` cells on two boxes at work: those of the first are verified, of the second two run."""
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
    running = names[half : half + RUNNING]
    for name in running:
        metrics = [{"step": step, "loss": 1 / (step + 1)} for step in range(STEPS)]
        boxes[1].start(name, log=f"training {name}\n" * STEPS, metrics=metrics)
    boxes[1].alive()
    boxes[1].beat(running=[{"cell": name, "attempt": 1, "verdict": "working"} for name in running])
    world.save()
    return world


def settle(world: World) -> None:
    """The runner goes on until all is sealed, and ends."""
    box = world.boxes[1]
    for name in list(box.cells):
        box.seal(name)
    box.alive(False)
    world.save()


def look(world: World, rest: str) -> tuple[float, float]:
    """Seconds of one `sweepctl status`: of the clock, and of the CPU. Raises RuntimeError when it saw another sweep."""
    command = [sys.executable, "-c", RUN, str(world.engine / "pulumi"), "status", "--stack", STACK]
    began, cpu = perf_counter(), _cpu()
    done = subprocess.run(command, cwd=world.root, capture_output=True, text=True)
    took = perf_counter() - began, _cpu() - cpu
    cells = len(world.up_roster.cells)
    wanted = f"{cells // 2}/{cells} verified   {rest}"
    if done.returncode or wanted not in done.stdout:
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
    """See `_rounds`: of the sweep whose cells are sealed, and as `running` of the one at work."""
    base = Path(os.environ.get("SWEEPSTACK_BENCH_DIR") or ROOT / ".cache")
    base.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="status-bench-", dir=base) as folder:
        here = Path.cwd()
        world = build(Path(folder), cells, patch)
        running = _rounds(world, rounds, f"{RUNNING} running   {cells - cells // 2 - RUNNING} pending")
        settle(world)
        found = _rounds(world, rounds, f"{cells - cells // 2} sealed")
        os.chdir(here)
    return found | {"running": running}


def _rounds(world: World, rounds: int, rest: str) -> dict[str, Any]:
    """Medians and maxima in seconds, and the ratio of the medians. `cpu`: of the status, which no neighbour changes.

    `rest`: what the picture says of the cells that are not verified.
    """
    took: dict[str, list[float]] = {"status": [], "cat": [], "cpu": []}
    journals = [box.root / "data/sweep/journal.jsonl" for box in world.boxes]
    look(world, rest)  # byte code and the page cache are warm for both
    for _ in range(rounds):
        took["cat"].append(cat(journals))
        clock, cpu = look(world, rest)
        took["status"].append(clock)
        took["cpu"].append(cpu)
    return {
        "cells": len(world.up_roster.cells),
        "rounds": rounds,
        "journal_bytes": sum(path.stat().st_size for path in journals),
        **compared(took, "status", "cat"),
    }


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:])), indent=2))
