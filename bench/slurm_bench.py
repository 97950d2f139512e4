"""What a cell costs on Slurm: `python -m bench.slurm_bench [counts]`.

Cells that sleep for one second, on a real cluster of one node with eight cores: by eight workers of ours, as
`pulumi up` submits them; by a plain `sbatch --array`, a task a cell; and by submitit, which makes such an array of
Python functions (from PyPI, for the bench alone; where it can't be had its figure is missing, and why is said). Each is
timed for several numbers of cells, turn by turn; what a cell costs beyond its second is the slope, so the start of a
command and of a worker is not in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.clone import ROOT
from sweepstack.core.journal import parse_journal
from sweepstack.onbox.common import box_layout
from tests.rented.slurm_stack import SlurmStack
from tests.simulators.slurm_cluster import SHARED, SlurmCluster, until

COUNTS = (100, 200, 300)
WORKERS = 8
SECONDS = 1.0
LIMIT_SECONDS = 240.0
SUBMITIT = ROOT / ".cache" / "submitit"
SUBMIT = """\
import sys, time
import submitit
shared, count, workers, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
def train(n):
    import time
    for pause in (seconds, 0):
        with open(f"{shared}/times", "a") as note:
            note.write(f"{time.time()}\\n")
        time.sleep(pause)
executor = submitit.AutoExecutor(folder=f"{shared}/submitit", cluster="slurm")
executor.update_parameters(timeout_min=30, cpus_per_task=1, slurm_array_parallelism=workers, slurm_use_srun=False)
executor.map_array(train, range(count))
"""


def slope(points: Sequence[tuple[int, float]]) -> float:
    """Seconds that one more cell takes, by least squares."""
    mean_x = sum(count for count, _ in points) / len(points)
    mean_y = sum(took for _, took in points) / len(points)
    above = sum((count - mean_x) * (took - mean_y) for count, took in points)
    return above / sum((count - mean_x) ** 2 for count, _ in points)


def by_workers(stack: SlurmStack, box: str, count: int) -> float:
    """Seconds from the first cell's start to the last one's seal, by the journal of the box."""
    seeds = list(range(count))
    stack.edit_config(lambda sweep: sweep.update(cells={"grid": {"seed": seeds}}))
    stack.edit_config(lambda sweep: sweep["boxes"].update({box: {"host": stack.address, "workers": WORKERS}}))
    done = stack.up(timeout=LIMIT_SECONDS)
    if done.rc != 0:
        raise RuntimeError(str(done))

    def journal() -> Path | None:
        found = list(stack.cluster.shared.glob(f"sweeps/boxes/slurm-*/{box_layout.JOURNAL}"))
        return found[-1] if found else None

    def sealed() -> bool:
        path = journal()
        cells = parse_journal(path.read_bytes()).cells if path is not None else {}
        return sum(cell.state == "sealed" for cell in cells.values()) == count

    until(sealed, f"{count} sealed cells", stack.cluster.told, LIMIT_SECONDS)
    path = journal()
    assert path is not None
    cells = parse_journal(path.read_bytes()).cells.values()
    starts = [cell.started_at for cell in cells if cell.started_at is not None]
    ends = [cell.ended_at for cell in cells if cell.ended_at is not None]
    return (max(ends) - min(starts)).total_seconds()


def by_array(cluster: SlurmCluster, count: int) -> float:
    """Seconds from the begin of a plain array's first task to the end of its last."""
    times = cluster.shared / "times"
    times.write_text("")
    note = f"date +%s.%N >> {SHARED}/times"
    cluster.submit(f"{note}; sleep {SECONDS:g}; {note}", f"--array=0-{count - 1}", "--output=/dev/null")
    until(lambda: len(times.read_text().split()) == 2 * count, f"{count} tasks", cluster.told, LIMIT_SECONDS)
    seen = sorted(float(text) for text in times.read_text().split())
    return seen[-1] - seen[0]


def fetch_submitit() -> str:
    """Why submitit can't be had; "" where it can."""
    argv = [sys.executable, "-m", "venv", SUBMITIT / "venv"]
    try:
        if not (SUBMITIT / "packages/submitit").is_dir():
            subprocess.run(argv, check=True, capture_output=True, timeout=120)
            get = [
                SUBMITIT / "venv/bin/python",
                "-m",
                "pip",
                "install",
                "-q",
                "--target",
                SUBMITIT / "packages",
                "submitit",
            ]
            subprocess.run(get, check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return ""


def by_submitit(cluster: SlurmCluster, count: int) -> float:
    """The same of submitit's `map_array`, eight tasks at once, started by sbatch alone (without srun)."""
    packages, times = cluster.shared / "packages", cluster.shared / "times"
    if not packages.exists():
        shutil.copytree(SUBMITIT / "packages", packages)
    (cluster.shared / "submit.py").write_text(SUBMIT)
    times.write_text("")
    argv = ["python3", f"{SHARED}/submit.py", SHARED, str(count), str(WORKERS), str(SECONDS)]
    cluster.ask("env", f"PYTHONPATH={SHARED}/packages", *argv)
    until(lambda: len(times.read_text().split()) == 2 * count, f"{count} tasks", cluster.told, LIMIT_SECONDS)
    seen = sorted(float(text) for text in times.read_text().split())
    return seen[-1] - seen[0]


def measure(*counts: int) -> dict[str, Any]:
    """Milliseconds that a cell costs beyond its second and its share of eight cores."""
    ours: list[tuple[int, float]] = []
    plain: list[tuple[int, float]] = []
    others: list[tuple[int, float]] = []
    missing = fetch_submitit()
    loads = []
    for count in counts or COUNTS:
        loads.append(os.getloadavg()[0])
        with tempfile.TemporaryDirectory() as folder:
            stack = SlurmStack(Path(folder) / "s", workers=WORKERS, nodes=1)
            try:
                stack.write_config()
                stack.init()
                stack.edit_config(_sleeps)
                ours.append((count, by_workers(stack, "box-0", count)))
                plain.append((count, by_array(stack.cluster, count)))
                if not missing:
                    others.append((count, by_submitit(stack.cluster, count)))
            finally:
                stack.end()
    seconds = {"ours": ours, "plain": plain} | ({} if missing else {"submitit": others})
    extra = {name: slope(points) * WORKERS - SECONDS for name, points in seconds.items()}
    return {
        "counts": list(counts or COUNTS),
        "workers": WORKERS,
        "seconds": seconds,
        "loads": loads,
        "no_submitit": missing,
        "extra_ms_per_cell": {name: round(1000 * value, 1) for name, value in extra.items()},
    }


def _sleeps(sweep: dict[str, Any]) -> None:
    run = f"sleep {SECONDS:g}; echo '[]' > {{out}}/result.json"
    sweep["job"].update(run=run, env={"SEED": "{seed}"}, resources={"cpu": 1, "memory": "200MB"})
    sweep["artifacts"] = {"result.json": {"load": "json"}}


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:])), indent=2))
