"""Thirty public kinds of sweeps: the stack file starts what the original tool starts, or names what it lacks.

The judges: bash for scripts, Hydra's own parser and sweeper, the calls that submitit would get; and what W&B's agent
and Ray Tune document, written out here. Optuna's own study: test_optuna.py.
"""

from __future__ import annotations

import itertools
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from sweepstack.cli.commands import init
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.roster import expand
from sweepstack.extensions.importers import submitit_jobs
from sweepstack.extensions.importers.found import Found
from tests.extensions.importers.definitions import BESIDE, FILES, LACKS, SEARCHES
from tests.extensions.importers.support import Words, plain, said, started


@pytest.fixture
def root(root: Path) -> Path:
    """With the files that the definitions name."""
    for name, text in BESIDE.items():
        (root / name).write_text(text)
    return root


def imported(root: Path, name: str, stack: str = "it") -> str:
    """Imports one of the definitions, and gives the stack file's text. It is a good stack file."""
    (root / name).write_text(FILES[name])
    assert init.command(stack, sources=[name]) == 0
    return (root / f"stacks/Pulumi.{stack}.yaml").read_text()


@pytest.mark.parametrize("name", sorted(FILES))
def test_it_is_a_good_stack_file_and_names_what_it_lacks(name: str, root: Path) -> None:
    text = imported(root, name)
    lost = [line for line in text.splitlines() if line.startswith("# not carried: ")]
    if name == "w6-bayes.yaml":
        assert "stop: {rule: asha, rungs: [3, 6, 12, 24], factor: 2}" in text
        assert not lost
        return
    for words in LACKS.get(name, ()):
        assert any(words in line for line in lost), (words, lost)
    known = LACKS.get(name, ())
    others = [line for line in lost if not any(words in line for words in known)]
    assert not others


def product(**axes: list[Any]) -> list[dict[str, Any]]:
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


WANDB: dict[str, list[tuple[Any, ...]]] = {
    "w1-grid.yaml": [
        ("train.py", f"--lr={lr}", f"--batch_size={size}", "--epochs=3")
        for lr in (0.1, 0.01, 0.001)
        for size in (32, 64)
    ],
    "w2-nested.yaml": [
        ("src/train.py", "--config=base.yaml", f"--optimizer.name={name}", f"--optimizer.wd={wd}", f"--model={model}")
        for name in ("sgd", "adamw")
        for wd in (0.0, 0.1)
        for model in ("meta-llama/Llama-3-8B", "a model")
    ],
    "w3-hydra.yaml": [("train.py", f"optim.lr={lr}", "trainer.max_epochs=5") for lr in (0.1, 0.01)],
    "w4-flags.yaml": [
        ("train.py", f"--depth={depth}", *(["--amp"] if amp else []), "--ema")
        for amp in (True, False)
        for depth in (2, 4)
    ],
    "w5-cap.yaml": [("train.py", f"--a={a}", f"--b={b}") for a, b in ((1, "x"), (1, "y"), (2, "x"))],
    "w8-none.yaml": [
        ("run.py", f"--pool={pool}", f"--widths={widths}") for pool in (None, "mean") for widths in ([64, 64], [128])
    ],
}


@pytest.mark.parametrize("name", sorted(WANDB))
def test_the_cells_that_an_agent_of_wandb_starts(name: str, root: Path) -> None:
    imported(root, name)
    assert sorted(map(sorted, started(root, "it"))) == sorted(map(sorted, plain(WANDB[name])))


SCRIPTS = [name for name in FILES if name.startswith("s")]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_cells_that_bash_starts(name: str, root: Path) -> None:
    imported(root, name)
    assert started(root, "it") == said(FILES[name], root, "bash")


def test_a_bash_function_is_refused_with_its_line(root: Path) -> None:
    (root / "f.sh").write_text("#!/bin/bash\nx=1\nrun() { python train.py; }\nfor s in 1 2; do run; done\n")
    with pytest.raises(Exception, match=r"f\.sh:3: run\(\): a function"):
        init.command("it", sources=["f.sh"])
    assert not (root / "stacks/Pulumi.it.yaml").exists()


ARRAYS = {
    "a1-index.sbatch": range(5),
    "a2-decoded.sbatch": range(12),
    "a3-file.sbatch": range(1, 4),
    "a4-environ.sbatch": (0, 3, 7),
    "a5-awk.sbatch": range(1, 4),
}


@pytest.mark.parametrize("name", sorted(ARRAYS))
def test_the_cells_that_an_array_starts(name: str, root: Path) -> None:
    text = imported(root, name)
    bash = [
        said(FILES[name].replace("module ", ": "), root, "bash", SLURM_ARRAY_TASK_ID=str(task)) for task in ARRAYS[name]
    ]
    if name in ("a4-environ.sbatch", "a5-awk.sbatch"):  # the index alone, in the environment
        assert 'SLURM_ARRAY_TASK_ID: "{SLURM_ARRAY_TASK_ID}"' in text
        cells = expand(StackConfig.load(root, "it").cells).cells
        assert [cell.params["SLURM_ARRAY_TASK_ID"] for cell in cells] == list(ARRAYS[name])
    else:
        assert started(root, "it") == sorted(itertools.chain.from_iterable(bash))


def test_an_arrays_options_are_resources(root: Path) -> None:
    text = imported(root, "a2-decoded.sbatch")
    assert "resources: {partition: gpu, gpu: {name: A100, count: 2}, cpu: 8}" in text
    assert "boxes: {box-0: {want: running, workers: 4}}" in text
    assert "lr: [0.1, 0.01, 0.001]" in text  # and not its index
    assert 'time: "24h"' in imported(root, "a1-index.sbatch", "other")


@pytest.mark.parametrize("name", ["h1-line.sh", "h2-line.sh", "h3-config.yaml"])
def test_the_cells_that_hydras_sweeper_makes(name: str, root: Path) -> None:
    parser = OverridesParser.create()
    words = {
        "h1-line.sh": ["model=resnet,vit", "optim.lr=0.1,0.01", "seed=range(0,3)", "+trainer.max_epochs=5"],
        "h2-line.sh": ["experiment=choice(base,large)", "data.sizes=[64,64],[128]", "optim.lr=1e-3,1e-4"],
        "h3-config.yaml": ["lr=0.1,0.01", "model=choice(mlp,cnn)", "seed=range(1,4)"],
    }[name]
    theirs = BasicSweeper.split_arguments(parser.parse_overrides(words), None)[0]

    def values(overrides: list[str]) -> dict[str, Any]:
        return {one.key_or_group: one.value() for one in parser.parse_overrides(overrides)}

    imported(root, name)
    ours = [[word for word in row if "=" in word and word != "hydra.run.dir=OUT"] for row in started(root, "it")]
    assert sorted(map(str, map(values, ours))) == sorted(str(values(list(one))) for one in theirs)


def test_what_a_launcher_of_hydra_asks_for(root: Path) -> None:
    text = imported(root, "h3-config.yaml")
    asked = 'resources: {time: "120m", cpu: 4, gpu: {count: 1}, memory: "16GB", partition: gpu}'
    assert asked in text
    assert "workers: 2" in text


def test_what_an_executor_of_submitit_is_asked_for() -> None:
    found = Found("x", "x")
    asked = {"timeout_min": 60, "mem": 32000, "partition": None, "nodes": 1, "gpus_per_node": 2, "array_parallelism": 3}
    assert all(submitit_jobs.asked(found, key, value) for key, value in asked.items())
    assert found.resources == {"time": "60m", "memory": "32000MB", "gpu": {"count": 2}}
    assert found.workers == 3
    assert submitit_jobs.asked(found, "time", "04:00:00")
    assert found.resources["time"] == "4h"
    assert not submitit_jobs.asked(found, "nodes", 2)
    assert not submitit_jobs.asked(found, "comment", "x")


@pytest.mark.parametrize("name", ["j1-map.py", "j2-loop.py"])
def test_the_calls_that_submitit_makes(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    class Executor:
        def __init__(self, **settings: Any) -> None: ...

        def update_parameters(self, **settings: Any) -> None: ...

        def submit(self, function: Any, *args: Any) -> None:
            calls.append(args)

        def map_array(self, function: Any, *columns: Any) -> None:
            calls.extend(zip(*columns, strict=True))

    monkeypatch.setitem(sys.modules, "submitit", types.SimpleNamespace(AutoExecutor=Executor))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "work", types.SimpleNamespace(train=None))  # type: ignore[arg-type]
    exec(compile(FILES[name], name, "exec"), {"__name__": "__main__"})
    imported(root, name)
    (root / "work.py").write_text("def train(*args): print(repr(args))\n")
    ours = [_called(row, root) for row in started(root, "it")]
    assert sorted(ours) == sorted(map(repr, calls))


def _called(row: tuple[str, ...], root: Path) -> str:
    import subprocess

    done = subprocess.run([sys.executable, *row], cwd=root, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def test_jobs_that_a_file_submits_when_it_is_imported(root: Path) -> None:
    text = "import submitit\ndef f(x): ...\ne = submitit.AutoExecutor('logs')\ne.map_array(f, [1, 2])\n"
    (root / "jobs.py").write_text(text)
    with pytest.raises(Exception, match=r"jobs\.py:4: the jobs are submitted when the file is imported"):
        init.command("it", sources=["jobs.py"])


OTHERS: dict[str, list[tuple[Any, ...]]] = {
    "r1-grid.py": [
        ("train.py", "--lr", str(lr), "--net.width", str(width), "--net.act", "relu", "--epochs", "10")
        for lr in (0.1, 0.01)
        for width in (64, 128)
    ],
    "t1-cells.csv": [
        ("train.py", "--lr", lr, "--model", model, "--seed", seed)
        for lr, model, seed in (
            ("0.1", "small", "0"),
            ("0.01", "meta-llama/Llama-3-8B", "1"),
            ("0.05", "'quoted'", "2"),
        )
    ],
    "q1-queue.txt": [
        ("train.py", "--config", f"configs/ablation/{cfg}.yaml", "--task", task, "--epochs", epochs)
        for cfg, task, epochs in (
            ("recon/baseline", "reconstruction", "20"),
            ("det/baseline", "detection", "50"),
            ("seg/no_aug", "segmentation", "20"),
        )
    ],
    "c1-lines.txt": [
        ("train.py", "--lr", "0.1", "--name", "first one"),
        ("train.py", "--lr", "0.2", "--name", "second"),
    ],
    "k1-sky.yaml": [("train.py", "--model", "small")],
    "d1-dstack.yml": [("train.py", "--epochs", "2")],
}


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_the_cells_of_the_other_kinds(name: str, root: Path) -> None:
    imported(root, name)
    expected: Words = plain(OTHERS[name])
    assert started(root, "it") == expected


def test_a_text_that_yaml_could_take_for_a_number_stays_text(root: Path) -> None:
    (root / "cells.csv").write_text("lr,tag\n1,.inf\n2,.5\n")
    assert init.command("it", sources=["cells.csv"]) == 0
    cells = expand(StackConfig.load(root, "it").cells).cells
    assert [cell.params["tag"] for cell in cells] == [".inf", ".5"]


def test_what_a_task_asks_of_a_machine(root: Path) -> None:
    sky = imported(root, "k1-sky.yaml", "sky")
    assert 'resources: {gpu: {name: A100, count: 8}, spot: true, disk: "256GB+"}' in sky
    assert "secrets: [HF_TOKEN]" in sky
    dstack = imported(root, "d1-dstack.yml", "dstack")
    assert 'resources: {gpu: {name: [A100, H100], count: 2, memory: "24GB+"}, cpu: 8}' in dstack
    assert "max_price: 4.5" in dstack


def test_each_definition_has_a_judge_or_is_drawn() -> None:
    judged = {
        *WANDB,
        *SCRIPTS,
        *ARRAYS,
        "h1-line.sh",
        "h2-line.sh",
        "h3-config.yaml",
        "j1-map.py",
        "j2-loop.py",
        *OTHERS,
    }
    assert judged | set(SEARCHES) == set(FILES)
    assert len(FILES) >= 30
    assert len(judged) >= 24
