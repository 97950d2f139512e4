"""What Kubernetes costs a sweep: `python -m bench.kubernetes_bench`.

On a real cluster of one node, through `pulumi` and `sweepctl`. Three figures, each beside its baseline in the same run:

- cells of one second, by one worker, from the start of one to the start of the next; beside it, at the same time, a pod
  whose shell does the same in a loop;
- from `pulumi up` to the first line of the first cell; beside it the first line of a bare Job that `kubectl` makes, and
  an `up` of the same sweep on the platform `local`;
- a sweep of 10,000 cells (`bench.slurm_scale_bench`), with what was asked of the API server.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.compared import compared
from bench.slurm_scale_bench import FEW, LIMITS, looked_at
from bench.start_bench import JOB
from tests.engine.commands import ok
from tests.engine.harness import Stack
from tests.rented.kube_stack import CONTROL, JOBS, NAMESPACE, PODS, KubeStack
from tests.simulators.kubernetes import IMAGE, KubernetesCluster
from tests.simulators.kubernetes.audit import Asked, audited
from tests.simulators.kubernetes.enclosure import until

CELLS = 60
MOST_RATIO, LOCAL_FACTOR = 1.02, 1.2
LIMIT_SECONDS = 240.0
NOTE = "date +%s.%N >> {to}; sleep 1; echo '[]' > {out}/result.json"


@contextmanager
def stacks(*, cells: tuple[str, ...], workers: int = 1, audit: bool = False) -> Iterator[KubeStack]:
    """A stack on a cluster of its own."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SWEEPSTACK_BENCH_DIR"), prefix="bench-") as folder:
        keep = Path(folder) / "c"
        options = audited(keep) if audit else []
        with KubernetesCluster.start(keep, nodes=1, api_options=options) as cluster:
            stack = KubeStack(Path(folder) / "s", cluster=cluster, cells=cells, workers=workers)
            try:
                yield stack
            finally:
                stack.close()


def between(stack: KubeStack, name: str) -> list[float]:
    """Seconds from each start to the next one, of those that were noted in this file."""
    at = [float(text) for text in (stack.control / name).read_text().split()]
    return [after - before for before, after in itertools.pairwise(at)]


def job(name: str, command: str) -> dict[str, Any]:
    """A bare Job of one pod, which the restricted standard lets in."""
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {
        "name": "c",
        "image": IMAGE,
        "command": ["sh", "-c", command],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "v", "mountPath": "/sweepstack"}],
    }
    volume = {"name": "v", "emptyDir": {}}
    spec = {"restartPolicy": "Never", "securityContext": security, "containers": [container], "volumes": [volume]}
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": {"spec": spec}}}


def line_of(stack: KubeStack, name: str) -> str:
    """The log of the pod of a Job, once there is one."""
    pods = stack.cluster.admin.list(PODS, labelSelector=f"job-name={name}")
    if not pods or pods[0]["status"].get("phase") == "Pending":
        return ""
    return stack.cluster.admin.text(f"{PODS}/{pods[0]['metadata']['name']}/log")


def one_after_the_other(cells: int = CELLS) -> dict[str, Any]:
    """A cell of one second, and the same loop."""
    with stacks(cells=tuple(f"seed{n}" for n in range(cells))) as stack:
        stack.write_config()
        run = NOTE.format(to=f"{CONTROL}/ours", out="{out}")
        stack.edit_config(lambda sweep: sweep["job"].update(run=run, env={"SEED": "{seed}"}))
        stack.edit_config(lambda sweep: sweep.update(artifacts={"result.json": {"load": "json"}}))
        stack.init()
        loop = NOTE.format(to="/sweepstack/loop", out="/sweepstack")
        ok(stack.up(timeout=LIMIT_SECONDS))
        body = job("loop", f"for n in $(seq {cells}); do {loop}; done; cat /sweepstack/loop")
        stack.cluster.admin.make(JOBS, body)
        until(lambda: len(stack.sealed()) == cells, f"{cells} cells", LIMIT_SECONDS, stack.cluster.told)
        until(lambda: len(line_of(stack, "loop").split()) == cells, "the loop", LIMIT_SECONDS, stack.cluster.told)
        (stack.control / "loop").write_text(line_of(stack, "loop"))
        took = {name: between(stack, name) for name in ("ours", "loop")}
    found = compared(took, "ours", "loop")
    mean = {name: statistics.mean(times) for name, times in took.items()}
    return {**found, "seconds": mean, "ratio": mean["ours"] / mean["loop"], "cells": cells, "limit": MOST_RATIO}


def first_line() -> dict[str, float]:
    """Seconds until a bare Job's first line, of an `up` on `local`, and from an `up` here to the first cell's line."""
    with stacks(cells=("seed0",)) as stack:
        local = Stack(stack.base.parent / "l", cells=("seed0",), boxes=("box-0",))
        for one in (local, stack):
            (one.job / "train.py").write_text(JOB)
            one.write_config()
            one.edit_config(lambda sweep: sweep.update(artifacts={"metrics.json": {"load": "json", "keys": ["loss"]}}))
            one.init()
        file = stack.base / "job.json"
        body = {"apiVersion": "batch/v1", "kind": "Job", **job("bare", "date +%s.%N")}
        file.write_text(json.dumps(body))
        began = time.time()
        argv = ["kubectl", "--kubeconfig", str(stack.cluster.kubeconfig), "-n", NAMESPACE, "create", "-f", str(file)]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
        until(lambda: line_of(stack, "bare"), "the Job's line", LIMIT_SECONDS, stack.cluster.told)
        found = {"job": float(line_of(stack, "bare")) - began}
        found["local"] = ok(local.up(timeout=LIMIT_SECONDS)).seconds
        local.wait_idle()
        began = time.time()
        found["command"] = ok(stack.up(timeout=LIMIT_SECONDS)).seconds
        until(lambda: stack.sealed(), "a sealed cell", LIMIT_SECONDS, stack.cluster.told)
        (log,) = stack.folder.glob("box/data/sweep/cells/seed0/1/log.txt")
        return {**found, "first": float(log.read_text().split()[0]) - began}


def to_the_first_line(rounds: int = 3) -> dict[str, Any]:
    """The first round is a warm-up."""
    took = [first_line() for _ in range(rounds + 1)][1:]
    columns = {key: [one[key] for one in took] for key in took[0]}
    columns["allowed"] = [one["job"] + LOCAL_FACTOR * one["local"] for one in took]
    return {**compared(columns, "first", "allowed"), "rounds": rounds, "limit": LOCAL_FACTOR}


def scale(*counts: int) -> dict[str, Any]:
    """As `bench.slurm_scale_bench.measure`, with what the commands asked of the API server."""
    found: dict[str, Any] = {"limits": LIMITS}
    for count in (FEW, *counts):
        with stacks(cells=(), workers=2, audit=True) as stack:
            asked = Asked(stack.cluster.keep)
            found[str(count)] = looked_at(stack, count, made=True)
            calls = asked.counted()
        watches = sum(times for (verb, _), times in calls.items() if verb == "watch")
        found[str(count)] |= {"watches": watches, "boxes": 1, "calls": sum(calls.values())}
    return found


def measure() -> dict[str, Any]:
    """All three, and the load before each."""
    found: dict[str, Any] = {"loads": []}
    for name, work in (("cell", one_after_the_other), ("first", to_the_first_line), ("scale", lambda: scale(10_000))):
        found["loads"].append(os.getloadavg()[0])
        found[name] = work()
    return found


if __name__ == "__main__":
    chosen: dict[str, Any] = {"cell": one_after_the_other, "first": to_the_first_line, "scale": lambda: scale(10_000)}
    print(json.dumps({name: chosen[name]() for name in sys.argv[1:] or chosen}, indent=2))
