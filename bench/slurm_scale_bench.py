"""How far a sweep on a cluster goes: `python -m bench.slurm_scale_bench [cells …]`, and `bench.kubernetes_bench`.

A sweep of many cells on a real cluster of one node, through `pulumi` and `sweepctl`: a preview of the sweep to be made,
an `up`, a status while its workers are at work, and the resources that the engine has of it. Beside it, in the same
run, the same sweep of four cells. `memory`: of the largest process of a preview. `cpu`: the processor time of one
command, which a busy machine makes little longer.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.engine.commands import ok
from tests.engine.harness import Stack
from tests.rented.slurm_stack import SlurmStack

FEW = 4
LIMITS = {"preview": {10_000: 10.0, 100_000: 30.0}, "status": {10_000: 5.0}, "memory": 1e9}
LIMIT_SECONDS = 240.0
LOOKS = 3
LARGEST = """\
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(code)
"""


def least(times: list[float]) -> float:
    """Of a few rounds on a machine with neighbours, the one that they hindered least."""
    return min(times)


def processor_seconds() -> float:
    """What all commands that have ended took so far, with their own."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def grid(cells: int) -> dict[str, list[int]]:
    """Two axes where there are many: the engine hands the config on as one variable, of which Linux takes 128 KiB, and
    a list of 100,000 seeds is longer."""
    return {"seed": list(range(min(cells, 100)))} | ({"n": list(range(cells // 100))} if cells > 100 else {})


def of(cells: int, *, made: bool) -> dict[str, Any]:
    """`made`: also the `up` and what follows from it."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SWEEPSTACK_BENCH_DIR")) as folder:
        stack = SlurmStack(Path(folder) / "s", nodes=1)
        try:
            return looked_at(stack, cells, made=made)
        finally:
            stack.end()


def looked_at(stack: Stack, cells: int, *, made: bool) -> dict[str, Any]:
    """The same of a stack on any cluster, which is not in its backend yet."""
    stack.write_config()
    stack.edit_config(lambda sweep: sweep.update(cells={"grid": grid(cells)}))
    job = {"run": "sleep 5", "env": {axis: f"{{{axis}}}" for axis in grid(cells)}}
    stack.edit_config(lambda sweep: sweep["job"].update(job))
    stack.edit_config(lambda sweep: sweep["job"]["resources"].update(memory="200MB"))
    stack.init()
    used = processor_seconds()
    previews = [ok(stack.pulumi("preview", timeout=LIMIT_SECONDS)).seconds for _ in range(LOOKS)]
    cpu = {"preview": (processor_seconds() - used) / LOOKS}
    found: dict[str, Any] = {"preview": least(previews), "previews": previews, "cpu": cpu, "memory": memory(stack)}
    if made:
        began = time.perf_counter()
        ok(stack.up(timeout=LIMIT_SECONDS))
        found["up"] = time.perf_counter() - began
        used = processor_seconds()
        looks = [ok(stack.sweepctl("status", timeout=LIMIT_SECONDS)).seconds for _ in range(LOOKS)]
        cpu["status"] = (processor_seconds() - used) / LOOKS
        found |= {"status": least(looks), "statuses": looks}
        state = json.loads(ok(stack.pulumi("stack", "export")).text)
        found["resources"] = len(state["deployment"]["resources"])
        again = [ok(stack.pulumi("preview", timeout=LIMIT_SECONDS)).seconds for _ in range(LOOKS)]
        found["preview_again"] = least(again)
    return found


def memory(stack: Stack) -> int:
    """Bytes of the largest process of a preview."""
    argv = [sys.executable, "-c", LARGEST, "pulumi", "preview", "--stack", stack.name, "--non-interactive"]
    done = subprocess.run(argv, cwd=stack.project, env=stack.env, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return int(done.stdout.split()[-1])


def measure(*cells: int) -> dict[str, Any]:
    """Seconds of the commands, bytes, and resources, by the number of cells. Above 10,000 only the preview."""
    found: dict[str, Any] = {"limits": LIMITS, "loads": [os.getloadavg()[0]]}
    for count in (FEW, *(cells or (10_000, 100_000))):
        found[str(count)] = of(count, made=count <= 10_000)
        found["loads"].append(os.getloadavg()[0])
    return found


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:])), indent=2))
