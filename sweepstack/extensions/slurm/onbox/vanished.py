"""Tells which workers vanished with cells in their hands, and what frees these cells.

Slurm does not prove the end of such a worker, since its node does not answer: only a person can say that it is off.
Python 3.8 and the standard library.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Mapping

from . import standing, worker_state
from .standing import WORKERS, WorkerTasks

MOST_NAMED = 2
"""Workers, and cells of each, that are named."""
_CELLS = ("cell-started", "cell-resealing", "cell-sealed", "cell-failed", "cell-dropped")


def words(native_id: str, home: Path, found: WorkerTasks, ended: Mapping[str, str] | None = None) -> list[str]:
    """A line for each such worker: its cells, why nothing proves its end, and the command for a person. `found`: the
    tasks now; `ended`: what `standing.ends` says, if it was asked already. Asks Slurm only where a worker has no end on
    record and is not among those at work. Never raises."""
    there = {task.worker for task in [*found.at_work, *found.ending]}
    ended = standing.ends(home) if ended is None else ended
    begun = [path.name for path in (home / WORKERS).glob("*") if path.name not in ended and path.name not in there]
    if not begun:
        return []
    held = _held(home)
    lines: list[str] = []
    for worker in sorted(begun):
        job, _, tries = worker.rpartition(".")
        if worker not in held or not tries.isdigit() or len(lines) >= MOST_NAMED:
            continue
        state, why = worker_state.state(native_id, home, job, int(tries))
        if state == "unknown":
            cells = held[worker]
            more = f" and {len(cells) - MOST_NAMED} more" if cells[MOST_NAMED:] else ""
            asks = f"sweepctl confirm worker BOX {worker} --saw …"
            why = why.replace(asks, f'`sweepctl confirm worker {_box(home)} {worker} --saw "…"`')
            lines.append(f"{worker} has {', '.join(cells[:MOST_NAMED])}{more} still: {why}")
    return lines


def _held(home: Path) -> dict[str, list[str]]:
    """Worker -> the cells that it began last, and that have no end, by the journal."""
    holder: dict[str, str] = {}
    for entry in standing.entries(home, _CELLS):
        with contextlib.suppress(KeyError):
            holder.pop(str(entry["cell"]), None)
            if entry["event"] in ("cell-started", "cell-resealing"):
                holder[str(entry["cell"])] = str(entry["worker"])
    found: dict[str, list[str]] = {}
    for cell, worker in holder.items():
        found.setdefault(worker, []).append(cell)
    return found


def _box(home: Path) -> str:
    """The name of the box in the stack config."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((home / "spec.json").read_bytes())["box"])
    return "BOX"
