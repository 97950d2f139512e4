"""What the queue costs: `python -m bench.queue_bench [cells] [rounds]`.

Cells that each write one artifact of 1 KB, run and sealed by the runner in two slots, against `xargs -P2` over the same
commands, which neither keeps a journal nor makes anything durable. Interleaved rounds, so that a noisy neighbour hits
both; the figure compares medians. Everything it writes lies in one temporary folder below the checkout, or below
`SWEEPSTACK_BENCH_DIR`: fsync on a memory disk would cost nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.clone import ROOT
from bench.compared import compared
from sweepstack.core.journal import parse_journal
from tests.onbox.harness import IDENTITY, Box

SLOTS = 2
JOB = "head -c 1024 /dev/zero > {out}/data.bin"


def by_queue(folder: Path, cells: int) -> float:
    """Seconds from the runner's start to its end, with all cells sealed. Raises RuntimeError when they are not."""
    box = Box(folder, slots=SLOTS, artifacts=[{"path": "data.bin", "load": "json", "min_bytes": 1024}])
    for number in range(cells):
        box.add(f"cell{number}", JOB, number=number)
    began = perf_counter()
    code = box.start().ended(3600)
    took = perf_counter() - began
    journal = parse_journal((box.home / "journal.jsonl").read_bytes())
    sealed = sum(progress.state == "sealed" for progress in journal.cells.values())
    there = sum(1 for _ in (box.volume / IDENTITY / "cells").glob("*/data.bin"))
    if (code, sealed, there) != (0, cells, cells):
        raise RuntimeError(f"the runner ended with {code}: {sealed} sealed, {there} there, of {cells}\n{box.log()}")
    return took


def by_xargs(folder: Path, cells: int) -> float:
    """Seconds that `xargs -P` takes for the same commands; the folders are there already."""
    outs = [folder / f"cell{number}" for number in range(cells)]
    for out in outs:
        out.mkdir(parents=True)
    argv = ["xargs", f"-P{SLOTS}", "-I{out}", "/bin/sh", "-c", JOB]
    began = perf_counter()
    subprocess.run(argv, input="".join(f"{out}\n" for out in outs), text=True, check=True)
    took = perf_counter() - began
    if any((out / "data.bin").stat().st_size != 1024 for out in outs):
        raise RuntimeError("xargs did not run every command")
    return took


def measure(cells: int = 2000, rounds: int = 20) -> dict[str, Any]:
    """Medians and maxima in seconds, the ratio of the medians, and the milliseconds that a cell costs more."""
    took: dict[str, list[float]] = {"queue": [], "xargs": []}
    base = Path(os.environ.get("SWEEPSTACK_BENCH_DIR") or ROOT / ".cache")
    base.mkdir(parents=True, exist_ok=True)
    for _ in range(rounds):
        for way, run in (("xargs", by_xargs), ("queue", by_queue)):
            with tempfile.TemporaryDirectory(prefix="queue-bench-", dir=base) as folder:
                os.sync()  # each pays for its own writes only
                took[way].append(run(Path(folder), cells))
    found = compared(took, "queue", "xargs")
    more = found["seconds"]["queue"] - found["seconds"]["xargs"]
    return {"cells": cells, "rounds": rounds, **found, "extra_ms_per_cell": more / cells * 1000}


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:])), indent=2))
