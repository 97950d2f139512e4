"""Optuna's pruner (successive halving) over the trials of `bench.asha_bench`: `by_optuna.py FILE`, as `by_tune.py`.

Optuna itself runs an objective in a thread; a trial is given a process of its own, which waits at each epoch for the
pruner's answer.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import optuna
import trial as digits  # type: ignore[import-not-found]


class Pruned(Exception):
    """Ends the training inside its process."""


def child(line: Connection, words: dict[str, Any]) -> None:
    def report(row: dict[str, float]) -> None:
        line.send(row)
        if line.recv():
            raise Pruned

    try:
        digits.run(report=report, **words)
    except Pruned:
        return
    line.send(None)


def objective(trial: optuna.Trial, asked: dict[str, Any]) -> float:
    number = trial.number
    words = {key: asked[key] for key in ("seed", "epochs", "notes")}
    words |= {"cell": f"s{number}", "lr": asked["lrs"][number], "out": f"{asked['folder']}/s{number}"}
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=child, args=(theirs, words))
    process.start()
    theirs.close()
    loss, pruned = float("inf"), False
    while (row := ours.recv()) is not None:
        loss = row["loss"]
        trial.report(loss, int(row["step"]))
        pruned = trial.should_prune()
        ours.send(pruned)
        if pruned:
            break
    process.join()
    assert process.exitcode == 0, f"trial {number} ended with {process.exitcode}"
    if pruned:
        raise optuna.TrialPruned
    return loss


def main() -> None:
    asked: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=asked["grace"], reduction_factor=asked["factor"])
    study = optuna.create_study(direction="minimize", pruner=pruner)
    study.optimize(lambda trial: objective(trial, asked), n_trials=len(asked["lrs"]), n_jobs=asked["slots"])
    print(optuna.__version__)


if __name__ == "__main__":
    main()
