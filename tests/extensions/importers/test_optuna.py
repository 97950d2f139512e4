"""A study that the real Optuna wrote: the cells are its trials, the space what it drew from."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from sweepstack.cli.commands import init
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.roster import expand
from sweepstack.extensions.importers import optuna_study

optuna = pytest.importorskip("optuna")


@pytest.fixture
def root(root: Path) -> Path:
    """With an Optuna that says no more than errors."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return root


def studied(root: Path, trials: int = 6) -> Any:
    study = optuna.create_study(
        storage=f"sqlite:///{root / 'study.db'}", study_name="abl", sampler=optuna.samplers.RandomSampler(seed=1)
    )
    study.enqueue_trial({"lr": 0.03, "layers": 2, "act": "relu", "drop": 0.1, "amp": True})

    def objective(trial: Any) -> float:
        lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
        trial.suggest_int("layers", 1, 4)
        trial.suggest_categorical("act", ["relu", "gelu", None])
        trial.suggest_float("drop", 0.0, 0.5, step=0.1)
        trial.suggest_categorical("amp", [True, False])
        if trial.number == 2:
            raise optuna.TrialPruned
        return float(lr)

    study.optimize(objective, n_trials=trials)
    return study


def test_the_cells_are_the_trials_and_the_space_what_it_drew_from(root: Path) -> None:
    study = studied(root)
    assert init.command("it", sources=["study.db"]) == 0
    cells = {cell.name: cell.params for cell in expand(StackConfig.load(root, "it").cells).cells}
    theirs = {f"trial-{trial.number}": trial.params for trial in study.trials}
    assert {
        name: {key: "null" if value is None else value for key, value in params.items()}
        for name, params in theirs.items()
    } == cells
    text = (root / "stacks/Pulumi.it.yaml").read_text()
    assert "run: python train.py --lr {lr} --layers {layers} --act {act} --drop {drop} --amp {amp}" in text
    assert "# note: what more cells could be drawn by: search: {axes: {lr: {log_uniform: [1e-05, 0.1]}, " in text
    assert "trials that were PRUNED run to their end here: 2" in text
    found = optuna_study.read(root / "study.db", "study.db")
    assert found.further["axes"] == {
        "lr": {"log_uniform": [1e-5, 1e-1]},
        "layers": {"int": [1, 4]},
        "act": {"choice": ["relu", "gelu", "null"]},
        "drop": {"uniform": [0.0, 0.5], "step": 0.1},
        "amp": {"choice": [True, False]},
    }


def test_a_database_without_a_study_is_refused(root: Path) -> None:
    with sqlite3.connect(root / "other.db") as base:
        base.execute("CREATE TABLE t (x)")
    with pytest.raises(Exception, match=r"other\.db: no study of Optuna: no such table: studies"):
        init.command("it", sources=["other.db"])
