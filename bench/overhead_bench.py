"""What runner and patrol cost while cells run: `python -m bench.overhead_bench [seconds] [cells]`.

A real runner over a long queue, two slots busy with cells that log and write metrics now and then as training does, and
use next to no CPU themselves. Measured is the runner's own process, with all that it started but the cells: seconds of
CPU in a window that begins after its start, and its memory at the end of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.clone import ROOT
from sweepstack.core.records import Cell
from tests.onbox.harness import Box, wait_for

SLOTS = 2
WARM_UP = 5.0
JOB = """while :; do
echo step; echo '{"step": 1, "loss": 0.5}' >> {out}/metrics.jsonl; sleep 1
done"""
TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def used(pid: int) -> tuple[float, int]:
    """Seconds of CPU so far, with those of the children that it waited for; bytes of memory now."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS, int(fields[21]) * PAGE


def measure(seconds: float = 90, cells: int = 10_000) -> dict[str, Any]:
    """Share of one core and bytes, with the runner's settings as they come."""
    base = Path(os.environ.get("SWEEPSTACK_BENCH_DIR") or ROOT / ".cache")
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="overhead-bench-", dir=base) as folder:
        metrics = {"file": "metrics.jsonl", "x": "step", "y": ["loss"], "stop_on_nan": True}
        box = Box(Path(folder), slots=SLOTS, metrics=metrics)
        box.append(*(box.line(cell, JOB) for cell in _cells(cells)))
        runner = box.start()
        try:
            wait_for(lambda: len(box.events("cell-started")) == SLOTS, box.log, 60)
            time.sleep(WARM_UP)
            before, began, lines = used(runner.pid)[0], time.perf_counter(), len(box.patrol())
            time.sleep(seconds)
            cpu, rss = used(runner.pid)
            took = time.perf_counter() - began
            if [entry["event"] for entry in box.journal().entries] != ["runner-started", *["cell-started"] * SLOTS]:
                raise RuntimeError(f"the cells did not stay as they were\n{box.log()}")
            patrolled = len(box.patrol()) - lines
        finally:
            os.kill(runner.pid, signal.SIGTERM)
            runner.ended(60)
            box.clean()
    return {"cells": cells, "seconds": took, "cpu_share": (cpu - before) / took, "rss": rss, "patrol_lines": patrolled}


def _cells(count: int) -> list[Cell]:
    return [Cell(name=f"cell{number}", params={"number": number}) for number in range(count)]


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:])), indent=2))
