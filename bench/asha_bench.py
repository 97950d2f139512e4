"""ASHA on the digits example, beside the full grid, Ray Tune's ASHA and Optuna's pruner: `python -m bench.asha_bench`.

For each seed the same learning rates in the same order, which our search draws; the same training code, the same rungs,
two trials at once, each in a process of its own. Ours is a real sweep: `pulumi up`, then `sweepctl tend` every second.
The full grid is plain processes, two at a time. Ray Tune lies in an environment of its own below .cache
(`bench.seconds_bench`), Optuna in ours. The ways take turns within each seed.

What a trial costs beyond its training: from one training's last epoch in a slot to the next one's first. It has the end
of one process, the decision, and the start of the next with its imports and data; not the start of the whole program,
and not the end, when a slot has nothing left to do.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench import seconds_bench
from bench.clone import ROOT
from sweepstack.config.search import SearchConfig
from sweepstack.extensions.search.space import first
from tests.engine.harness import Stack

SEEDS, CELLS, EPOCHS, SLOTS = 5, 9, 10, 2
GRACE, FACTOR = 1, 3
RANGE = (0.001, 0.5)
HERE = Path(__file__).with_name("asha")
EXAMPLE = ROOT / "examples" / "digits"
NEEDS = ("numpy", "safetensors", "scikit-learn")
LIMIT_SECONDS = 1200.0


@dataclass(frozen=True)
class Trial:
    """What a trial noted of itself. `began`, `ended`: of its training, the start of the first epoch and the end of the
    last one; `cpu`: processor time of the epochs."""

    cell: str
    began: float
    ended: float
    cpu: float
    losses: tuple[float, ...]


@dataclass(frozen=True)
class Ran:
    """What one way did with the trials of one seed. `seconds`: of the whole command; `to_first`: of it, until the first
    training began. `asked_to_end`: cell → the epoch at which its rule had stopped it, where that is on record."""

    trials: tuple[Trial, ...]
    seconds: float
    to_first: float
    asked_to_end: dict[str, int]

    def found(self, epochs: int, grid: dict[str, float]) -> dict[str, Any]:
        """Its figures. `grid`: cell → its last loss in the full grid."""
        whole = {one.cell: one.losses[-1] for one in self.trials if len(one.losses) == epochs}
        best = min(whole, key=lambda cell: whole[cell]) if whole else ""
        trained = {one.cell: len(one.losses) for one in self.trials}
        return {
            "winner": best,
            "rank": 1 + sorted(grid, key=lambda cell: grid[cell]).index(best) if best else None,
            "cell_seconds": sum(one.ended - one.began for one in self.trials),
            "cpu_seconds": sum(one.cpu for one in self.trials),
            "epochs": sum(trained.values()),
            "late_epochs": sum(trained[cell] - rung for cell, rung in self.asked_to_end.items()),
            "whole": len(whole),
            "gaps": gaps(self.trials),
            "seconds": self.seconds,
            "to_first": self.to_first,
        }


def gaps(trials: Sequence[Trial], slots: int = SLOTS) -> list[float]:
    """Seconds of a slot between the end of one training and the start of the next, for each but the first `slots`."""
    starts, ends = sorted(one.began for one in trials), sorted(one.ended for one in trials)
    return [start - end for start, end in zip(starts[slots:], ends, strict=False)]


def asked(seed: int, cells: int, epochs: int) -> dict[str, Any]:
    """`search` of the stack file."""
    rungs = []
    rung = GRACE
    while rung < epochs:
        rungs.append(rung)
        rung *= FACTOR
    return {
        "axes": {"lr": {"log_uniform": list(RANGE)}},
        "at_most": {"cells": cells},
        "at_once": cells,
        "seed": seed,
        "metric": "loss",
        "goal": "minimize",
        "stop": {"rule": "asha", "rungs": rungs, "factor": FACTOR},
    }


def read(notes: Path, began: float, seconds: float, stopped: dict[str, int] | None = None) -> Ran:
    """What the trials noted. Raises RuntimeError for one that began twice, or never ended an epoch."""
    trials = []
    for path in sorted(notes.iterdir()):
        start, *epochs = [json.loads(line) for line in path.read_text().splitlines()]
        if not epochs or any("began" in line for line in epochs):
            raise RuntimeError(f"{path.name} did not train in one piece: {path.read_text()}")
        losses = tuple(line["loss"] for line in epochs)
        trials.append(Trial(path.name, start["time"], epochs[-1]["time"], epochs[-1]["cpu"] - start["cpu"], losses))
    return Ran(tuple(trials), seconds, min(one.began for one in trials) - began, stopped or {})


def workdir(folder: Path) -> Path:
    """The code of a trial."""
    folder.mkdir(parents=True)
    for path in (EXAMPLE / "train.py", HERE / "trial.py", HERE / "by_tune.py", HERE / "by_optuna.py"):
        shutil.copy2(path, folder)
    return folder


def by_grid(folder: Path, lrs: Sequence[float], words: dict[str, Any]) -> Ran:
    """Each trial to its end, in order, by as many threads as there are slots."""
    code, notes = workdir(folder / "code"), folder / "notes"
    notes.mkdir()

    def one(number: int) -> None:
        given = {"cell": f"s{number}", "lr": lrs[number], "out": folder / f"s{number}", "notes": notes, **words}
        argv = [sys.executable, "trial.py", *(f"--{name}={value}" for name, value in given.items())]
        subprocess.run(argv, cwd=code, env=_env(code), check=True, capture_output=True, timeout=LIMIT_SECONDS)

    began, clock = time.time(), time.perf_counter()
    with ThreadPoolExecutor(SLOTS) as pool:
        list(pool.map(one, range(len(lrs))))
    return read(notes, began, time.perf_counter() - clock)


def by_program(folder: Path, program: str, python: Path, lrs: Sequence[float], words: dict[str, Any]) -> Ran:
    """Ray or Optuna, by a program of `bench/asha`."""
    code, notes = workdir(folder / "code"), folder / "notes"
    notes.mkdir()
    given = {"lrs": lrs, "slots": SLOTS, "grace": GRACE, "factor": FACTOR, "folder": str(folder), "notes": str(notes)}
    (folder / "asked.json").write_text(json.dumps({**given, **words}))
    began, clock = time.time(), time.perf_counter()
    argv = [python, code / program, folder / "asked.json"]
    done = subprocess.run(argv, cwd=code, env=_env(code), capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{program} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return read(notes, began, time.perf_counter() - clock)


def by_us(folder: Path, lrs: Sequence[float], words: dict[str, Any]) -> Ran:
    """`pulumi up`, then `sweepctl tend` until nothing is left to do."""
    stack = Stack(folder, name="s", boxes=("box-0",))
    try:
        notes = folder / "notes"
        notes.mkdir()
        shutil.rmtree(stack.job)
        workdir(stack.job)
        stack.write_config()

        def change(sweep: dict[str, Any]) -> None:
            words_ = " ".join(f"--{name} {value}" for name, value in {**words, "notes": notes}.items())
            sweep["job"] |= {"run": f"python trial.py --cell {{cell}} --lr {{lr}} --out {{out}} {words_}"}
            sweep["job"] |= {"slots": SLOTS, "env": {}}
            sweep["cells"] = {"base": {}}
            sweep["search"] = asked(words["seed"], len(lrs), words["epochs"])
            sweep["metrics"] = {"file": "metrics.jsonl", "x": "step", "y": ["loss"]}
            sweep["artifacts"] = {"metrics.json": {"load": "json", "keys": ["test_accuracy"]}}

        stack.edit_config(change)
        stack.init()
        began, clock = time.time(), time.perf_counter()
        _typed(stack.up())
        _typed(stack.sweepctl("tend", "--interval", "1s", "--timeout", "15m", timeout=LIMIT_SECONDS))
        seconds = time.perf_counter() - clock
        log = [json.loads(line) for line in (stack.evidence / "records/search.jsonl").read_text().splitlines()]
        stopped = {line["cell"]: int(line["rung"]) for line in log if line["kind"] == "pruned"}
        return read(notes, began, seconds, stopped)
    finally:
        stack.close()


def _typed(result: Any) -> None:
    if result.rc:
        raise RuntimeError(str(result))


def _env(code: Path) -> dict[str, str]:
    """One thread a trial, as `train.py` asks for: Ray and Optuna import numpy before that."""
    helper = ROOT / "sweepstack/onbox/checkpoint"
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**os.environ, **threads, "PYTHONPATH": f"{code}:{helper}", "RAY_USAGE_STATS_ENABLED": "0"}


def measure(seeds: int = SEEDS, cells: int = CELLS, epochs: int = EPOCHS) -> dict[str, Any]:
    """For each way its figures a seed, and their sums; overhead a trial in seconds, as mean and median of all gaps."""
    base = Path(os.environ.get("SWEEPSTACK_BENCH_DIR") or ROOT / ".cache")
    base.mkdir(parents=True, exist_ok=True)
    missing = seconds_bench.install(*NEEDS)
    runs: dict[str, list[dict[str, Any]]] = {}
    loads = []
    for seed in range(seeds):
        lrs = [params["lr"] for params in first(SearchConfig.model_validate(asked(seed, cells, epochs)))]
        words = {"seed": seed, "epochs": epochs}
        grid: dict[str, float] = {}
        for way in ("grid", "ours", *(() if missing else ("tune",)), "optuna"):
            loads.append(os.getloadavg()[0])
            with tempfile.TemporaryDirectory(prefix="asha-bench-", dir=base) as name:
                folder = Path(name) / "run"
                if way == "grid":
                    ran = by_grid(folder, lrs, words)
                    grid = {one.cell: one.losses[-1] for one in ran.trials}
                elif way == "ours":
                    ran = by_us(folder, lrs, words)
                else:
                    python = seconds_bench.ENVIRONMENT / "bin/python" if way == "tune" else Path(sys.executable)
                    ran = by_program(folder, f"by_{way}.py", python, lrs, words)
            runs.setdefault(way, []).append(ran.found(epochs, grid))
    return {
        "seeds": seeds,
        "cells": cells,
        "epochs": epochs,
        "slots": SLOTS,
        "loads": loads,
        "no_tune": missing,
        "at": datetime.now().isoformat(timespec="seconds"),
        "runs": runs,
        "sums": {way: summed(found) for way, found in runs.items()},
    }


def summed(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of all seeds of a way."""
    every = [gap for one in found for gap in one["gaps"]]
    keys = ("cell_seconds", "cpu_seconds", "epochs", "late_epochs", "seconds")
    return {
        **{key: sum(one[key] for one in found) for key in keys},
        "ranks": [one["rank"] for one in found],
        "overhead": statistics.mean(every) if every else None,
        "overhead_median": statistics.median(every) if every else None,
        "to_first": statistics.median(one["to_first"] for one in found),
    }


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:])), indent=2))
