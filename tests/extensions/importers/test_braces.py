"""A brace in what another tool is given is that brace here, and no placeholder; the judges are those of the corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from sweepstack.cli.commands import init
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.roster import expand
from sweepstack.onbox.common.placeholders import fill
from tests.extensions.importers.support import plain, said, started

LOOP = """\
export TAG='{lr} of {x}'
export BOTH="{name}"
for lr in 0.1 0.01; do
  python train.py --lr $lr --tag '{lr} ${HOME} {x}' --json '{"a": {b: 1}}' --fmt="run-{name}-$lr" --at {out} --no={lr}
done
"""
LINES = """\
python train.py --lr 0.1 --tag '{lr}' --json={cell} '{'
python train.py --lr 0.2 --tag '{tag}' --json={cell} '{'
"""
WANDB = """\
program: train.py
method: grid
command: [python, "${program}", "--tag={lr}", "${args}"]
parameters:
  lr: {values: [0.1, 0.01]}
  "{lr}": {values: ["{lr}", "${HOME}"]}
  text: {value: "{out}"}
"""
SKY = """\
name: t
resources: {cpus: 2}
envs: {TAG: "{lr}", HOME_OF: "${HOME}"}
run: |
  cat table | awk '{print}'
  python train.py
"""


def imported(root: Path, name: str, text: str) -> str:
    (root / name).write_text(text)
    assert init.command("it", sources=[name]) == 0
    return (root / "stacks/Pulumi.it.yaml").read_text()


def environments(root: Path) -> list[dict[str, str]]:
    config = StackConfig.load(root, "it")
    return [
        {name: fill(text, cell.params) for name, text in config.job.env.items()} for cell in expand(config.cells).cells
    ]


def test_of_a_loop(root: Path) -> None:
    imported(root, "s.sh", LOOP)
    assert started(root, "it") == said(LOOP, root, "bash")
    assert environments(root) == [{"TAG": "{lr} of {x}", "BOTH": "{name}"}] * 2


def test_of_lines_that_are_written_out(root: Path) -> None:
    imported(root, "lines.txt", LINES)
    assert started(root, "it") == said(LINES, root, "bash")


@pytest.mark.parametrize("sweep", [["lr=0.1,0.01", 'msg="{x} of {lr}"'], ['tag="{a}","{lr}"', "+net={lr: 1}"]])
def test_of_hydra(root: Path, sweep: list[str]) -> None:
    parser = OverridesParser.create()
    theirs = BasicSweeper.split_arguments(parser.parse_overrides(sweep), None)[0]

    def values(overrides: list[str]) -> dict[str, Any]:
        return {one.key_or_group: one.value() for one in parser.parse_overrides(overrides)}

    line = " ".join(f"'{word}'" for word in sweep)
    imported(root, "h.sh", f"python train.py -m {line}\n")
    ours = [[word for word in row if "=" in word and word != "hydra.run.dir=OUT"] for row in started(root, "it")]
    assert sorted(map(str, map(values, ours))) == sorted(str(values(list(one))) for one in theirs)


def test_of_wandb(root: Path) -> None:
    imported(root, "w.yaml", WANDB)
    theirs = [
        ("train.py", "--tag={lr}", f"--lr={lr}", f"--{{lr}}={tag}", "--text={out}")
        for lr in (0.1, 0.01)
        for tag in ("{lr}", "${HOME}")
    ]
    assert started(root, "it") == plain(theirs)


def test_of_optuna(root: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage=f"sqlite:///{root / 'study.db'}", study_name="abl")
    study.enqueue_trial({"lr": 0.5, "tag": "{lr}"})
    study.enqueue_trial({"lr": 0.25, "tag": "${HOME}"})

    def objective(trial: Any) -> float:
        trial.suggest_categorical("tag", ["{lr}", "${HOME}"])
        return float(trial.suggest_float("lr", 0.1, 1))

    study.optimize(objective, n_trials=2)
    assert init.command("it", sources=["study.db"]) == 0
    theirs = [("train.py", "--tag", trial.params["tag"], "--lr", str(trial.params["lr"])) for trial in study.trials]
    assert sorted(map(sorted, started(root, "it"))) == sorted(map(sorted, plain(theirs)))


def test_of_a_table_and_of_a_task(root: Path) -> None:
    imported(root, "t.csv", "lr,tag\n0.1,{lr}\n0.2,${HOME}\n")
    assert {row[-1] for row in started(root, "it")} == {"{lr}", "${HOME}"}
    (root / "stacks/Pulumi.it.yaml").unlink()
    text = imported(root, "k.yaml", SKY)
    assert "# not carried: k.yaml:4: {print}: written { print}, which is no placeholder: see what it says" in text
    assert environments(root) == [{"TAG": "{lr}", "HOME_OF": "${HOME}"}]
