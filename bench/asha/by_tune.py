"""Ray Tune's ASHA over the trials of `bench.asha_bench`. Runs in Ray's own environment: `by_tune.py FILE`.

FILE is JSON: `lrs`, `seed`, `epochs`, `slots`, `grace`, `factor`, `folder`, `notes`. A trial is an actor, which is a
process of its own (`reuse_actors=False`, Ray's default for functions).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import ray  # type: ignore[import-not-found]
import trial  # type: ignore[import-not-found]
from ray import tune
from ray.tune.schedulers import ASHAScheduler  # type: ignore[import-not-found]

asked: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
words = {"seed": asked["seed"], "epochs": asked["epochs"], "notes": asked["notes"]}


def train(config: dict[str, Any]) -> None:
    trial.quiet_signals()
    number = config["number"]
    out = f"{asked['folder']}/s{number}"
    trial.run(f"s{number}", asked["lrs"][number], out=out, report=tune.report, **words)


ray.init(num_cpus=asked["slots"], include_dashboard=False, log_to_driver=False)
scheduler = ASHAScheduler(
    time_attr="step", max_t=asked["epochs"], grace_period=asked["grace"], reduction_factor=asked["factor"]
)
tuner = tune.Tuner(
    tune.with_resources(train, {"cpu": 1}),
    param_space={"number": tune.grid_search(list(range(len(asked["lrs"]))))},
    tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler, reuse_actors=False),
    run_config=tune.RunConfig(storage_path=f"{asked['folder']}/ray", verbose=0),
)
found = tuner.fit()
assert not found.errors, found.errors[0]
print(ray.__version__)
