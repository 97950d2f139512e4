"""What a cell of one second costs on this machine: `python -m bench.seconds_bench [cells …]`.

Cells that sleep for one second, eight at once: by our runner, which keeps a journal and seals each cell; by `xargs
-P8`, which keeps nothing; and by Ray Tune, in an environment of its own below .cache, which is no part of uv.lock. Each
is timed for several numbers of cells, turn by turn. What a cell costs beyond its second is the slope, so the start of a
program is not in it. Where Ray Tune can't be installed, its figure is missing, and why is said.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from bench.clone import ROOT
from bench.slurm_bench import slope
from sweepstack.core.journal import parse_journal
from tests.onbox.harness import Box

COUNTS = (100, 200, 300)
SLOTS, SECONDS = 8, 1.0
LIMIT_SECONDS = 1800.0
ENVIRONMENT = ROOT / ".cache" / "ray"
JOB = f"sleep {SECONDS:g}; echo '[]' > {{out}}/result.json"
TUNE = """\
import sys, time
import ray
from ray import tune
count, slots, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
notes = sys.argv[4]
def train(config):
    with open(f"{notes}/{config['n']}", "w") as note:
        note.write(f"{time.time()} ")
        time.sleep(seconds)
        note.write(f"{time.time()}")
    return {"n": config["n"]}
ray.init(num_cpus=slots, include_dashboard=False, log_to_driver=False)
grid = {"n": tune.grid_search(list(range(count)))}
tuner = tune.Tuner(tune.with_resources(train, {"cpu": 1}), param_space=grid,
                   run_config=tune.RunConfig(storage_path=f"{notes}-storage", verbose=0))
found = tuner.fit()
assert not found.errors, found.errors[0]
"""


def by_runner(folder: Path, count: int) -> float:
    """Seconds from the first cell's start to the last one's seal, by the journal."""
    box = Box(folder, slots=SLOTS, artifacts=[{"path": "result.json", "load": "json"}])
    for number in range(count):
        box.add(f"cell{number}", JOB, number=number)
    code = box.start().ended(LIMIT_SECONDS)
    cells = parse_journal((box.home / "journal.jsonl").read_bytes()).cells.values()
    if code != 0 or sum(cell.state == "sealed" for cell in cells) != count:
        raise RuntimeError(f"the runner ended with {code}\n{box.log()}")
    starts = [cell.started_at for cell in cells if cell.started_at is not None]
    ends = [cell.ended_at for cell in cells if cell.ended_at is not None]
    return (max(ends) - min(starts)).total_seconds()


def by_xargs(folder: Path, count: int) -> float:
    outs = [folder / f"cell{number}" for number in range(count)]
    for out in outs:
        out.mkdir(parents=True)
    argv = ["xargs", f"-P{SLOTS}", "-I{out}", "/bin/sh", "-c", JOB]
    began = time.perf_counter()
    subprocess.run(argv, input="".join(f"{out}\n" for out in outs), text=True, check=True)
    return time.perf_counter() - began


def by_tune(folder: Path, count: int) -> float:
    """Seconds from the first trial's begin to the last one's end. Raises OSError, CalledProcessError."""
    folder.mkdir()
    script = folder.with_suffix(".py")
    script.write_text(TUNE)
    argv = [ENVIRONMENT / "bin/python", script, str(count), str(SLOTS), str(SECONDS), folder]
    env = {**os.environ, "RAY_AIR_NEW_OUTPUT": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    subprocess.run(argv, check=True, env=env, capture_output=True, timeout=LIMIT_SECONDS)
    times = [float(text) for note in folder.iterdir() for text in note.read_text().split()]
    if len(times) != 2 * count:
        raise RuntimeError(f"{len(times)} times of {count} trials")
    return max(times) - min(times)


def install(*packages: str) -> str:
    """Why Ray Tune, with these packages beside it, can't be had; "" where it can."""
    python = ENVIRONMENT / "bin/python"
    try:
        if not python.exists():
            venv.create(ENVIRONMENT, with_pip=True)
        asked = [python, "-c", "import ray.tune"]
        subprocess.run([python, "-m", "pip", "install", "-q", "ray[tune]", *packages], check=True, timeout=600)
        subprocess.run(asked, check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return ""


def measure(*counts: int) -> dict[str, Any]:
    """Milliseconds that a cell costs beyond its second and its share of eight slots."""
    base = Path(os.environ.get("SWEEPSTACK_BENCH_DIR") or ROOT / ".cache")
    base.mkdir(parents=True, exist_ok=True)
    missing = install()
    ways = {"xargs": by_xargs, "ours": by_runner} | ({} if missing else {"tune": by_tune})
    points: dict[str, list[tuple[int, float]]] = {way: [] for way in ways}
    loads = []
    for count in counts or COUNTS:
        loads.append(os.getloadavg()[0])
        for way, run in ways.items():
            with tempfile.TemporaryDirectory(prefix="seconds-bench-", dir=base) as folder:
                points[way].append((count, run(Path(folder) / "run", count)))
    extra = {way: round(1000 * (slope(found) * SLOTS - SECONDS), 1) for way, found in points.items()}
    return {
        "counts": list(counts or COUNTS),
        "slots": SLOTS,
        "seconds": points,
        "loads": loads,
        "extra_ms_per_cell": extra,
        "no_tune": missing,
    }


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:])), indent=2))
