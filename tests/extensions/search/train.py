"""The job of these tests: writes a curve that gets better by its `lr`, one step at a time."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--out", type=Path, required=True)
arguments, _ = parser.parse_known_args()
control = Path(os.environ["DRILL_CONTROL"])
cell = os.environ["SWEEPSTACK_CELL"]
while (control / f"wait-{cell}").exists():
    time.sleep(0.05)
with (arguments.out / "metrics.jsonl").open("w") as curve:
    for step in range(1, arguments.steps + 1):
        curve.write(json.dumps({"step": step, "loss": abs(arguments.lr - 0.01) + 1 / step}) + "\n")
        curve.flush()
        print(f"step {step}", flush=True)
        while step == 1 and (control / f"hold-{cell}").exists():
            time.sleep(0.05)
(arguments.out / "model.json").write_text(json.dumps({"lr": arguments.lr}))
