"""TrainingState with torch: models, optimizers, schedules, loaders, averages, and two ranks that train together."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.addresses import port_for_a_program
from tests.onbox.harness import CHECKPOINT

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

TRAIN = """
import os, random, sys
import numpy as np
import torch
from torch import nn
from sweepstack_checkpoint import TrainingState

folder, until = sys.argv[1], int(sys.argv[2])
rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if ranks > 1:
    torch.distributed.init_process_group("gloo")
torch.manual_seed(rank); random.seed(rank); np.random.seed(rank)
order = torch.Generator().manual_seed(9)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 1))
net = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)
average = torch.optim.swa_utils.AveragedModel(model)
scaler = torch.amp.GradScaler("cpu")
parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "average": average, "scaler": scaler}
seen = []
state = TrainingState(dict(parts, order=order, seen=seen), folder)
metrics = state.metrics(f"{folder}/../metrics.jsonl")
for step in range(state.load_latest() + 1, until + 1):
    x = torch.rand(4, 8, generator=order) + torch.rand(4, 8) + random.random() + float(np.random.rand())
    loss = (net(x) ** 2).mean()
    optimizer.zero_grad(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
    schedule.step(); average.update_parameters(model)
    seen.append(float(torch.rand(1)))
    metrics.write({"step": step, "loss": loss.item()})
    state.save(step)
mine = [p.detach().numpy().tobytes().hex() for p in [*model.parameters(), *average.parameters()]]
print(mine, schedule.get_last_lr(), seen[-1], random.random(), np.random.rand(), torch.rand(1).item())
if ranks > 1:
    torch.distributed.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)
"""
"""What each rank trains. Gloo's threads outlive the process group, and one that frees a tensor while Python ends aborts
the process (pytorch/pytorch#190489): with several ranks nothing is left for Python to end."""


ONE_START = """
import json, os, sys
import numpy, torch
code, runs = sys.argv[1], json.loads(sys.argv[2])
for argv in runs:
    child = os.fork()
    if not child:
        sys.argv = ["-c", *argv]
        exec(code, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
"""Runs of one rank, each in a process of its own, forked after torch was imported: its start takes 4 seconds of a
core."""


def run_alone(*runs: tuple[Path, int]) -> list[str]:
    """What each run ends with, one after the other."""
    for folder, _ in runs:
        (folder / "x").mkdir(parents=True, exist_ok=True)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKPOINT), "OMP_NUM_THREADS": "1"}
    told = json.dumps([[str(folder / "x"), str(until)] for folder, until in runs])
    done = subprocess.run(
        [sys.executable, "-c", ONE_START, TRAIN, told], env=env, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run(folder: Path, until: int, ranks: int) -> list[str]:
    """What each rank ends with."""
    (folder / "x").mkdir(parents=True, exist_ok=True)
    port = port_for_a_program()
    processes = []
    for rank in range(ranks):
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKPOINT), "OMP_NUM_THREADS": "1"}
        env |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        argv = [sys.executable, "-c", TRAIN, str(folder / "x"), str(until)]
        processes.append(subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    ends = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, ends
    return [out for out, _ in ends]


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.proof)])  # two take half a minute of a core
def test_run_cut_anywhere_ends_the_same(tmp_path: Path, ranks: int) -> None:
    """Each rank goes on with its own random numbers; the metrics of rank 0 are those of an undisturbed run."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    if ranks == 1:
        expected, _, ended = ([said] for said in run_alone((whole, 9), (cut, 4), (cut, 9)))
    else:
        expected = run(whole, 9, ranks)
        for until in (2, 6):
            run(cut, until, ranks)
        ended = run(cut, 9, ranks)
    assert len(set(expected)) == ranks
    assert ended == expected
    assert (cut / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert len(list((cut / "x").glob("step-*"))) == 2
