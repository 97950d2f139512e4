"""The job of the drill: every step depends on all before it. Told to, it dies in the middle of a save."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import sweepstack_files
from sweepstack_checkpoint import TrainingState

STEPS = 120
seed, out, control = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
cell = os.environ["SWEEPSTACK_CELL"]

alone = open(control / f"alone-{cell}", "w")  # noqa: SIM115 - held as long as this process lives
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    (control / f"overlap-{cell}").touch()


def told(word: str) -> bool:
    """Was this process told to go wrong like that? Once: whoever takes the order away obeys it."""
    try:
        (control / f"order-{word}").unlink()
    except FileNotFoundError:
        return False
    with open(control / "obeyed", "a") as handle:
        handle.write(word + "\n")
    return True


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Weights(dict):  # type: ignore[type-arg]
    """Half of a checkpoint is on the disk when its state is asked for the second time."""

    def __reduce__(self) -> Any:
        if told("die-while-writing"):
            die()
        if told("full"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return dict, (dict(self),)


real = {name: getattr(os, name) for name in ("fsync", "replace")}


def fsync(descriptor: int) -> None:
    if told("die-before-fsync"):
        die()
    real["fsync"](descriptor)


def replace(source: Path, target: Path) -> None:
    if told("die-before-rename"):
        die()
    real["replace"](source, target)
    if told("die-after-rename"):
        die()


sweepstack_files.os.fsync, sweepstack_files.os.replace = fsync, replace  # type: ignore[assignment]

random.seed(seed)
own = random.Random(seed + 1)
before, after = [0.0] * 2000, [0.0] * 20_000  # what is written before and after the moment to die in
state = TrainingState({"before": before, "own": own, "weights": [Weights()], "after": after}, between_losses=0.5)
weights = state.parts["weights"]
metrics = state.metrics(out / "metrics.jsonl")
done = state.load_latest()
print(f"from step {done} pid {os.getpid()}", flush=True)
for step in range(done + 1, STEPS + 1):
    for _ in range(50):
        before[own.randrange(2000)] += random.random()
        after[random.randrange(20_000)] -= own.random()
    weights[0] = Weights(weights[0], step=step, sum=sum(before) + sum(after))
    metrics.write({"step": step, "loss": weights[0]["sum"]})
    time.sleep(0.005)
    state.after_step(step)
(out / "result.json").write_text(json.dumps({"weights": weights[0], "before": before, "after": after}))
