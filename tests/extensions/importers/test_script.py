"""A stack file from a script: what its source and its `--help` say, and what one short trial shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweepstack.cli.commands import init
from sweepstack.config.stack_config import StackConfig
from sweepstack.extensions.importers import script, stack
from sweepstack.extensions.importers.curve import curve
from sweepstack.extensions.importers.found import Found
from sweepstack.onbox.common.errors import No, Unsure
from tests.extensions.formats.curves import MADE

ARGPARSE = """\
import argparse, json, os
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.1)
p.add_argument("--seed", type=int, default=0)
p.add_argument("-e", "--epochs", type=int, default=200)
p.add_argument("--data-dir", default="data")
p.add_argument("--output-dir", default="runs")
p.add_argument("--amp", action="store_true")
a = p.parse_args()
os.makedirs(a.output_dir, exist_ok=True)
assert a.epochs == 1, "a trial is short"
with open(a.output_dir + "/metrics.jsonl", "w") as f:
    f.write(json.dumps({"epoch": 0, "loss": 1.0, "note": "x"}) + "\\n")
json.dump({"loss": 0.5}, open(a.output_dir + "/result.json", "w"))
"""
TYPER = """\
import json
import typer

def main(learning_rate: float = 0.01, seed: int = 0, steps: int = 30):
    json.dump({"acc": 0.5}, open("scores.json", "w"))

typer.run(main)
"""
CLICK = """\
import click, json

@click.command()
@click.option("--lr", default=0.3)
@click.option("--model", type=click.Choice(["small", "large"]), required=True)
@click.option("--amp/--no-amp", default=False)
@click.option("--out", "out", default="model.json")
def main(lr, model, amp, out):
    json.dump({"acc": 0.5}, open(out, "w"))

main()
"""
READS = """\
import argparse, json
p = argparse.ArgumentParser()
p.add_argument("--seed", type=int, default=0)
a = p.parse_args()
json.dump({"acc": float(open("data.txt").read())}, open("res.json", "w"))
"""
TYRO = """\
from dataclasses import dataclass
import tyro

@dataclass
class Args:
    learning_rate: float = 3e-4
    seed: int = 1
    total_steps: int = 1000
    track: bool = False
    env_id: str

tyro.cli(Args)
"""
TRAINER = """\
from dataclasses import dataclass, field
from transformers import HfArgumentParser, TrainingArguments

@dataclass
class ModelArguments:
    model_name: str = field(default="bert")
    task: str = field(metadata={"help": "which"})

model, training = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
"""
HYDRA = """\
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg): ...

main()
"""
TYRO_HELP = """\
usage: t.py [-h] [OPTIONS]

╭─ options ───────────────────────────────────────╮
│ -h, --help              show this help message  │
│ --learning-rate FLOAT   (default: 0.0003)       │
│ --seed INT              (default: 1)            │
│ --track, --no-track     (default: False)        │
│ --env-id STR            (required)              │
╰─────────────────────────────────────────────────╯
"""


def made(root: Path, text: str, *, yes: bool = True) -> str:
    (root / "train.py").write_text(text)
    assert init.command("it", sources=["train.py"], yes=yes) == 0
    StackConfig.load(root, "it")
    return (root / "stacks/Pulumi.it.yaml").read_text()


def test_a_trial_shows_what_proves_a_cell_and_its_curve(root: Path) -> None:
    text = made(root, ARGPARSE)
    assert "run: python train.py --lr {lr} --seed {seed} --epochs {epochs} --output-dir {out}" in text
    assert "base: {epochs: 200}" in text
    assert "lr: [0.1, 0.03]" in text
    assert "result.json: {load: json}" in text
    assert 'metrics: {file: metrics.jsonl, x: epoch, "y": [loss]}' in text
    assert "# edit" not in text
    assert sorted(path.name for path in root.iterdir()) == ["Pulumi.yaml", "stacks", "train.py"]  # nothing is left here


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("lines", {"file": "metrics.jsonl", "x": "step", "y": ["val/acc", "loss"]}),
        ("tensorboard", {"file": "runs/*/events.out.tfevents.*", "x": "step", "y": ["loss", "val/acc"]}),
        ("trainer", {"file": "checkpoint-*/trainer_state.json", "x": "step", "y": ["loss", "val/acc"]}),
        ("table", {"file": "logs/version_*/metrics.csv", "x": "step", "y": ["loss", "val/acc"]}),
        ("trackio", {"file": "tracker/trackio/p.db", "x": "step", "y": ["loss", "val/acc"]}),
        ("wandb", {"file": "wandb/offline-run-*/run-*.wandb", "x": "_step", "y": ["loss", "val/acc", "nested.a"]}),
    ],
)
def test_what_other_tools_log_is_the_curve(kind: str, said: dict[str, Any], tmp_path: Path) -> None:
    files = MADE[kind]()
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    guess = curve(Found("script", "train.py"), tmp_path, files)
    assert guess is not None
    assert {**guess, "y": sorted(guess["y"])} == {**said, "y": sorted(said["y"])}
    for path, data in files.items():
        (tmp_path / path).write_bytes(data[:5])
    assert curve(Found("script", "train.py"), tmp_path, files) is None


def test_the_curve_of_a_trial_is_that_of_its_tool(root: Path) -> None:
    (root / "given").write_bytes(next(iter(MADE["trainer"]().values())))
    leaves = "os.makedirs(a.output_dir + '/checkpoint-4')\nimport shutil\n"
    leaves += "shutil.copy('given', a.output_dir + '/checkpoint-4/trainer_state.json')\n"
    text = made(root, ARGPARSE.replace("/metrics.jsonl", "/plain.txt") + leaves)
    assert 'metrics: {file: "checkpoint-*/trainer_state.json", x: step, "y": [loss, val/acc]}' in text


def test_nothing_is_run_without_a_yes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "ran").mkdir()
    text = made(root, ARGPARSE + f"open({str(root / 'ran/it')!r}, 'w')\n", yes=False)
    assert not list((root / "ran").iterdir())
    assert "# edit: artifacts: names that stand in train.py, since nothing was run" in text
    assert "result.json: {load: json}" in text
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sweepstack.extensions.importers.stack.answer", lambda question: "no")
    assert init.command("two", sources=["train.py"]) == 0
    assert not list((root / "ran").iterdir())
    monkeypatch.setattr("sweepstack.extensions.importers.stack.answer", lambda question: "yes")
    assert init.command("three", sources=["train.py"]) == 0
    assert list((root / "ran").iterdir())  # the same code does run after a yes


def test_nothing_is_run_for_a_stack_file_that_is_there(root: Path) -> None:
    (root / "ran").mkdir()
    (root / "stacks/Pulumi.it.yaml").write_text("mine\n")
    with pytest.raises(No, match=r"stacks/Pulumi\.it\.yaml is there already"):
        made(root, f"open({str(root / 'ran/it')!r}, 'w')\n")
    assert not list((root / "ran").iterdir())
    assert (root / "stacks/Pulumi.it.yaml").read_text() == "mine\n"


def test_a_script_that_writes_beside_itself_is_started_in_out(root: Path) -> None:
    text = made(root, TYPER)
    run = 'cd {out} && python "$OLDPWD"/train.py --learning-rate {learning_rate} --seed {seed} --steps {steps}'
    assert f"run: {run}" in text
    assert "scores.json: {load: json}" in text


def test_one_that_reads_beside_itself_too_has_its_results_copied(root: Path) -> None:
    (root / "data.txt").write_text("1")
    text = made(root, READS)
    assert "run: rm -rf res.json && python train.py --seed {seed} && cp -r res.json {out}/" in text
    assert "slots: 1" in text


def test_a_folder_that_ships_is_not_removed_for_a_result_in_it(root: Path) -> None:
    (root / "data").mkdir()
    (root / "data/in.txt").write_text("1")
    text = made(root, READS.replace("data.txt", "data/in.txt").replace("res.json", "data/res.json"))
    assert "run: rm -rf data/res.json && python train.py --seed {seed} && cp -r data/res.json {out}/" in text


def test_a_script_that_fails_is_told(root: Path) -> None:
    text = made(root, ARGPARSE.replace("a.epochs == 1", "False"))
    assert "# edit: the trial of train.py did not end well (exit code 1: AssertionError: a trial is short)" in text


def test_click(root: Path) -> None:
    text = made(root, CLICK)
    assert "run: python train.py --lr {lr} --model {model} --out {out}/model.json" in text
    assert "base: {model: small}" in text
    assert "model.json: {load: json}" in text


def test_tyro_by_source_and_by_help(root: Path) -> None:
    text = " ".join(made(root, TYRO, yes=False).split())
    run = "python train.py --learning-rate {learning_rate} --seed {seed} --total-steps {total_steps} --env-id {env_id}"
    assert run in text
    assert "# not carried: train.py: --env-id: needed, and what it is can't be seen" in text
    known = script.of_help(TYRO_HELP, script.Takes())
    assert [(one.flag, one.default, one.needed) for one in known.options] == [
        ("--learning-rate", 0.0003, False),
        ("--seed", 1, False),
        ("--track", False, False),
        ("--env-id", None, True),
    ]


def test_the_help_that_argparse_and_typer_print(root: Path) -> None:
    for text, flags in ((ARGPARSE, {"--lr", "--seed", "--epochs", "--data-dir", "--output-dir", "--amp"}),
                        (TYPER, {"--learning-rate", "--seed", "--steps"})):  # fmt: skip
        (root / "train.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "train.py", "--help"], cwd=root, capture_output=True, text=True, timeout=60
        )
        known = script.of_help(done.stdout, script.Takes())
        assert {one.flag for one in known.options} == flags


def test_the_parser_of_transformers(root: Path) -> None:
    text = made(root, TRAINER, yes=False)
    assert "--learning_rate {learning_rate} --seed {seed} --num_train_epochs {num_train_epochs}" in text
    assert "--task {task} --output_dir {out}" in " ".join(text.split())


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("last = get_last_checkpoint(training.output_dir)", True),
        ("Trainer().train(resume_from_checkpoint=max(found, default=None))", True),
        ("last = max(found)\nTrainer().fit(model, ckpt_path=last)", True),
        ('Trainer().fit(model, ckpt_path="last")', True),
        ("Trainer().train(resume_from_checkpoint=training.resume_from_checkpoint)", False),  # a person gives it
        ("last = training.resume_from_checkpoint\nTrainer().train(resume_from_checkpoint=last)", False),
        ("Trainer().train(resume_from_checkpoint=True)", False),  # a first start fails
        ('Trainer().fit(model, ckpt_path="pretrained.ckpt")', False),
        ("Trainer().test(model, ckpt_path=best_of(found))", False),
    ],
)
def test_what_goes_on_from_its_checkpoints_writes_where_they_are_kept(line: str, kept: bool, root: Path) -> None:
    text = " ".join(made(root, f"{TRAINER}\n{line}\n", yes=False).split())
    assert ("--output_dir {checkpoints} && cp -r {checkpoints}/. {out}/" in text) is kept
    assert ("--output_dir {out}" in text) is not kept
    assert ("goes on from its checkpoints" in text) is kept


def test_a_sweep_keeps_the_checkpoints_of_its_script(root: Path) -> None:
    """Also where its own line says where to write; a script that writes one file has no such folder."""
    lines = "model, data = 1, 2\nTrainer().fit(model, ckpt_path='last')\n"
    (root / "train.py").write_text(ARGPARSE + lines)
    (root / "sweep.sh").write_text("for lr in 1 2; do python train.py --lr $lr --output-dir runs/$lr; done\n")
    assert init.command("it", sources=["sweep.sh"]) == 0
    run = StackConfig.load(root, "it").job.run
    assert run == "python train.py --lr {lr} --output-dir {checkpoints} && cp -r {checkpoints}/. {out}/"
    (root / "train.py").write_text(CLICK + lines)
    assert init.command("two", sources=["train.py"]) == 0
    assert StackConfig.load(root, "two").job.run.endswith("--out {out}/model.json")


SAVES = """\
import argparse, os, torch
from pathlib import Path
p = argparse.ArgumentParser()
p.add_argument("--out-dir", type=Path, default=Path("runs"))
p.add_argument("--resume", action="store_true")
p.add_argument("--init", default="")
a = p.parse_args()
"""
KEPT = "--out-dir {checkpoints} && cp -r {checkpoints}/. {out}/"
BEGINS_AT_0 = "a cell that is tried again begins at 0, unless what it loads lies in {checkpoints}"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            "last = os.path.join(a.out_dir, 'l.pt')\nif os.path.exists(last): torch.load(last)\ntorch.save({}, last)",
            KEPT,
        ),
        (
            "out = Path(a.out_dir)\nlast = out / 'l.pt'\nif last.is_file(): s = torch.load(str(last))\n"
            "new = last.with_suffix('.new')\ntorch.save(s, new)\nos.replace(new, last)",
            KEPT,
        ),
        (
            "LAST = a.out_dir / 'l.pt'\ndef save(s): torch.save(s, LAST)\n"
            "def load():\n    return torch.load(LAST) if LAST.exists() else None",
            KEPT,
        ),
        ("try: torch.load(a.out_dir / 'l.pt')\nexcept OSError: pass\ntorch.save({}, a.out_dir / 'l.pt')", KEPT),
        (
            "found = sorted(a.out_dir.glob('*.pt'))\nif found: torch.load(found[-1])\n"
            "for step in range(3): torch.save({}, a.out_dir / f'{step}.pt')",
            KEPT,
        ),
        (
            "last = a.out_dir / 'l.pt'\nif a.resume and last.exists(): torch.load(last)\ntorch.save({}, last)",
            "--out-dir {checkpoints} --resume && cp -r {checkpoints}/. {out}/",
        ),
        (
            "last = a.out_dir / 'l.pt'\nif a.resume: torch.load(last)\ntorch.save({}, last)",  # a first start fails
            f"under which condition it goes on from its checkpoint (line 9) can't be seen: {BEGINS_AT_0}",
        ),
        (
            "if os.path.exists('l.pt'): torch.load('l.pt')\ntorch.save({}, 'l.pt')",
            f"it goes on from 'l.pt', and no option of it says where that is: {BEGINS_AT_0}",
        ),
        (
            "def load(path): return torch.load(path)\ndef save(s, path): torch.save(s, path)",
            f"which file it loads in line 8 can't be seen: {BEGINS_AT_0}",
        ),
        ("best = a.out_dir / 'b.pt'\ntorch.save({}, best)\nif best.exists(): torch.load(best)", ""),  # at its end
        ("if a.init: torch.load(a.init)\ntorch.save({}, a.out_dir / 'm.pt')", ""),  # a person gives it
        ("torch.load('data.pt')\ntorch.save({}, a.out_dir / 'm.pt')", ""),
    ],
)
def test_a_script_that_loads_its_own_checkpoint(lines: str, said: str, root: Path) -> None:
    text = " ".join(made(root, f"{SAVES}{lines}\n", yes=False).replace("\n#", "").split())
    assert said in text
    assert ("{checkpoints}" in text) is bool(said)
    assert ("goes on from its checkpoints" in text) is ("cp -r" in said)


LIGHTNING = """\
from lightning import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI

class Net(LightningModule):
    def __init__(self, lr: float = 0.1, width: int = 4, name: str = "net", sizes: int = 3): ...

class Data(LightningDataModule):
    def __init__(self, folder: str, batch_size: int = 8): ...

class CLI(LightningCLI):
    def add_arguments_to_parser(self, parser):
        parser.add_argument("--note", default="")
        parser.link_arguments("model.width", "data.folder")
        parser.set_defaults({"trainer.max_epochs": 7})

CLI(Net, Data, seed_everything_default=3, trainer_defaults={"max_epochs": 5})
"""
RUN = "--model.lr {model_lr} --seed_everything {seed_everything} --trainer.max_epochs {trainer_max_epochs}"


def test_the_parser_of_lightning(root: Path) -> None:
    text = " ".join(made(root, LIGHTNING, yes=False).split())
    assert f"run: >- python train.py fit {RUN} --trainer.default_root_dir {{out}}" in text
    assert "base: {trainer_max_epochs: 7}" in text
    assert "model_lr: [0.1, 0.03]" in text
    assert "needed, and what it is" not in text, "data.folder is linked"


def test_the_parser_of_lightning_without_subcommands_and_with_a_config(root: Path) -> None:
    (root / "c.yaml").write_text("model: {lr: 0.5}\ntrainer: {max_epochs: 9, callbacks: [{class_path: X}]}\n")
    end = 'trainer_defaults={"max_epochs": 5})'
    alone = LIGHTNING.replace(end, 'run=False, parser_kwargs={"default_config_files": ["c.yaml"]})')
    (root / "train.py").write_text(alone)
    assert init.command("it", sources=["train.py"]) == 0
    found = StackConfig.load(root, "it")
    assert found.job.run == f"python train.py {RUN} --trainer.default_root_dir {{out}}"
    assert {cell.params["model_lr"] for cell in found.roster.cells} == {0.5, 0.2}
    assert {cell.params["trainer_max_epochs"] for cell in found.roster.cells} == {9}
    for name, source, words in (("two", LIGHTNING, "fit --config"), ("three", alone, "--config")):
        (root / "train.py").write_text(source)
        assert init.command(name, sources=["train.py", "c.yaml"]) == 0
        run = StackConfig.load(root, name).job.run
        assert run.startswith(f"python train.py {words} c.yaml --model.lr {{model_lr}}")


def test_hydras_config(root: Path) -> None:
    (root / "conf").mkdir()
    (root / "conf/config.yaml").write_text("seed: 1\noptim: {lr: 0.01}\ntrainer: {max_epochs: 10}\ndata: ???\n")
    text = " ".join(made(root, HYDRA, yes=False).split())
    assert "python train.py optim.lr={optim_lr} seed={seed} trainer.max_epochs={trainer_max_epochs}" in text
    assert "data={data} hydra.run.dir={out}" in text


def test_a_sweep_gets_the_script_of_another_from(root: Path) -> None:
    (root / "my.py").write_text(CLICK.replace("--lr", "--learning-rate"))
    (root / "cells.csv").write_text("learning_rate,model\n0.1,small\n0.2,large\n")
    assert init.command("it", sources=["cells.csv", "my.py"]) == 0
    run = StackConfig.load(root, "it").job.run
    assert run == "python my.py --learning-rate {learning_rate} --model {model} --out {out}/model.json"


def test_a_script_elsewhere_ships_from_its_own_folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It stood in `run` by its path: on no other machine, and an edit of it was no new code."""
    away = tmp_path_factory.mktemp("away")
    (away / "train.py").write_text(ARGPARSE)
    (away / "cells.csv").write_text("lr,seed\n0.1,1\n")
    (away / "conf").mkdir()
    (away / "conf/more.csv").write_text("lr,seed\n0.1,1\n")
    relative = os.path.relpath(away, root)
    for name, sources in (
        ("a", [f"{away}/train.py"]),
        ("b", [f"{relative}/cells.csv", f"{relative}/train.py"]),
        ("c", [f"{away}/conf/more.csv", f"{away}/train.py"]),
    ):
        assert init.command(name, sources=sources, yes=True) == 0
        config = StackConfig.load(root, name)
        assert (root / config.job.workdir).resolve() == away.resolve()
        assert config.job.run.startswith("python train.py ")
        assert "result.json" in config.artifacts, "the trial ran there"


def test_what_does_not_read_elsewhere_is_typed_again_as_it_was(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("away") / "train.py"
    file.write_text("def f(:\n")
    with pytest.raises(No) as caught:
        init.command("it", sources=[str(file)])
    assert caught.value.next[0].startswith(f"sweepctl init it --from {file} ")


def test_in_a_checkout_the_folder_of_the_script_ships(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout itself can't: its tests hold keys."""
    monkeypatch.setattr(stack, "PACKAGE", root / "sweepstack")
    (root / "mine").mkdir()
    (root / "mine/train.py").write_text(ARGPARSE)
    assert init.command("it", sources=["mine/train.py"], yes=False) == 0
    job = StackConfig.load(root, "it").job
    assert (job.workdir, job.run.split(" --")[0]) == ("mine", "python train.py")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def f(:\n", r"train\.py:1: invalid syntax"),
        ("import ray\n", r"train\.py: no param_space"),
    ],
)
def test_what_does_not_read_is_refused_and_nothing_written(text: str, why: str, root: Path) -> None:
    (root / "train.py").write_text(text)
    with pytest.raises(No, match=why):
        init.command("it", sources=["train.py"])
    assert not list((root / "stacks").iterdir())


MANY = "more values than the 100,000 cells"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("tarin.py", None, r"tarin\.py: no such file; train\.py is there\. --from takes a W&B sweep"),
        ("stacks", None, r"stacks: a folder\. --from takes a W&B sweep"),
        ("s.yaml", "method: [\n", r"s\.yaml, line 2: not valid YAML: "),
        ("s.yaml", "what: 1\n", r"s\.yaml: this YAML is no sweep that is known here\. --from takes a W&B sweep"),
        ("s.yaml", "method: grid\nparameters: {a: {min: low, max: 1}}\n", r"s\.yaml: does not read as .*: 'low'"),
        ("s.yaml", "type: task\nmax_price: cheap\n", r"s\.yaml: does not read as .*: 'cheap'"),
        ("s.sbatch", "#SBATCH --cpus-per-task=many\n", r"s\.sbatch: does not read as .*: 'many'"),
        ("s.txt", "python train.py --name 'it\n", r"s\.txt: does not read as .*: No closing quotation"),
        (
            "s.yaml",
            f"method: grid\nparameters: {{a: {{values: {list(range(400))}}}, b: {{values: {list(range(400))}}}}}\n",
            r"s\.yaml: 160,000 cells, and a roster has 100,000 at most",
        ),
        ("s.csv", "a,b\n" + "1,2,3\n", r"s\.csv:2: 3 fields, and the header has 2"),
        ("s.sh", "python train.py -m s='range(0,3'\n", r"s\.sh:1: s=range\(0,3: a bracket is open\. Close it"),
        ("s.sh", "python train.py -m 's=\"1,2'\n", r's\.sh:1: s="1,2: a quote is open\. Close it'),
        ("s.sh", f"python train.py -m s='range(0,{10**12})'\n", rf"s\.sh:1: s: {MANY}"),
        ("s.sh", f"for i in {{1..{10**12}}}; do python train.py $i; done\n", rf"\{{1\.\.{10**12}\}}: {MANY}"),
        ("s.sh", "for i in {1..999}{1..999}; do python train.py $i; done\n", MANY),
        ("s.sh", f"for ((i=0;i<{10**12};i++)); do python train.py $i; done\n", rf"s\.sh:1: {MANY}"),
        ("s.sh", "for ((i=0;i<9;i+=0)); do python train.py $i; done\n", r"it never ends"),
        ("s.sbatch", f"#SBATCH --array=0-{10**12}\npython train.py\n", rf"s\.sbatch:1: --array=0-{10**12}: {MANY}"),
        ("s.sbatch", "#SBATCH --array=0-9:0\npython train.py\n", r"--array=0-9:0 is no list of indices"),
        (
            "s.py",
            f"from ray import tune\nparam_space = {{'a': tune.grid_search(list(range({10**12})))}}\n",
            rf"range\({10**12}\): {MANY}",
        ),
    ],
)
def test_what_is_wrong_and_the_next_commands(name: str, text: str | None, why: str, root: Path) -> None:
    (root / "train.py").write_text("")
    if text is not None:
        (root / name).write_text(text)
    with pytest.raises(No, match=rf"(?s){why}.*\. Nothing was written$") as said:
        init.command("it", sources=[name])
    assert [line.split("    (")[0] for line in said.value.next] == [
        f"sweepctl init it --from {name}",
        "sweepctl init it",
    ]
    assert not list((root / "stacks").iterdir())


def test_what_goes_with_from(root: Path) -> None:
    with pytest.raises(Unsure, match="--from goes with NAME"):
        init.command(None, sources=["a.py"])
    with pytest.raises(Unsure, match="--yes with --from"):
        init.command("it", yes=True)
    with pytest.raises(No, match=r"nope\.yaml: no such file"):
        init.command("it", sources=["nope.yaml"])


def test_the_document(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "s.yaml").write_text(
        "program: a.py\nmethod: grid\nparameters: {a: {values: [1]}}\nearly_terminate: {type: x}\n"
    )
    assert init.command("it", sources=["s.yaml"], json=True) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["not_carried"] == [
        {"file": "s.yaml", "line": 4, "what": "early_terminate: runs are not stopped early by x"}
    ]
    assert (said["kind"], said["cells"], said["files"]) == ("W&B sweep", 1, [])


def test_names_that_a_stack_file_has_for_itself() -> None:
    found = Found("x", "x")
    assert [found.name(name) for name in ("lr", "optim.lr", "optim-lr", "name", "out", "3d", "lr")] == [
        "lr",
        "optim_lr",
        "optim_lr_2",
        "p_name",
        "p_out",
        "p_3d",
        "lr",
    ]
