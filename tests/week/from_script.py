"""A project of Hugging Face's Trainer and one of Lightning: `init --from train.py` to verified, in six commands.

Both scripts are those of examples/, which know nothing of sweepstack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.engine.harness import ROOT
from tests.engine.package_project import Project, build
from tests.week.own import committed
from tests.week.play import Play, replacing

TO_VERIFIED = 6
"""Commands from a script to verified cells, at most."""


@dataclass(frozen=True)
class Own:
    """One such project. `by`: what its script uses; `text`: the stack file of it, `read`: how it came; `edit`: what
    its owner changes in it; `more`: what to know of such results; `metric`: the one that is asked for."""

    page: str
    title: str
    name: str
    example: str
    by: str
    text: str
    edit: Callable[[str], str]
    read: str
    more: str
    metric: str

    def prepare(self, project: Project) -> None:
        """Install the package beside the person's own packages, in a repository with nothing but the script."""
        project.make_environment()
        project.install(build(project.base, "7.1.0"))
        project.folder.mkdir(exist_ok=True)
        text = (ROOT / "examples" / self.example / "train.py").read_text()
        (project.folder / "train.py").write_text(text)
        (project.folder / ".gitignore").write_text("runs/\n.venv/\n__pycache__/\n")
        committed(project.folder)

    def play(self, project: Project) -> Play:
        """Plays it on the real engine. Raises at the first surprise."""
        play = Play(project, project.folder, title=self.title)
        self.tell(play, project.folder / "stacks" / f"Pulumi.{self.name}.yaml")
        return play

    def tell(self, play: Play, stack: Path) -> None:
        """What is typed and what is said about it; `stack`: the stack file."""
        name = self.name
        play.say(
            f"""From a script to verified results in six commands, and without a changed line of it. This page was made
            by typing these commands (`python -m tests.week {self.page}`) in a repository that has one file,
            [train.py](../examples/{self.example}/train.py): {self.by}. The package is
            [installed](../README.md#in-a-repository-of-your-own) beside the script's own packages."""
        )
        play.day("Describe it")
        begin = f"sweepctl init {name} --from train.py"
        play.type(begin, answers=[("Type yes:", "yes\r")], expect=[f"wrote    stacks/Pulumi.{name}.yaml"])
        play.say(self.read)
        play.made(stack, self.text)
        play.say("All of it was seen in the script, and in one short run of it. The values are the one thing to say:")
        play.edit(stack, self.edit)
        play.day("Run it")
        play.type(f"pulumi stack init {name}", told=True)
        play.type(f"pulumi up --stack {name}", expect=["8 created"])
        play.type(f"sweepctl wait --stack {name} done", expect=["2 sealed"])
        play.day("Verify it")
        play.type(f"sweepctl pull --stack {name}", expect=["2 cells here"])
        play.type(f"sweepctl verify --stack {name}", told=True, expect=["2 of 2 verified"])
        play.type(f"sweepctl results --stack {name} --metric {self.metric}", expect=[self.metric])
        play.say(self.more)
        play.day("End it")
        play.type(f"sweepctl finish --stack {name}", answers=[("to go on:", "yes\r")], expect=["nothing bills"])


FILM = Own(
    page="hf-trainer.md",
    title="A script with Hugging Face's Trainer",
    name="film",
    example="hf-trainer",
    by="a small BERT, `HfArgumentParser` and `Trainer`",
    text="""\
# film: from train.py (script). Preview it (free): pulumi preview --stack film
# note: train.py goes on from its checkpoints: it writes to {checkpoints}, kept between the tries of a cell, \
and all of it is copied to {out}
# note: the values of learning_rate and seed are a beginning: write yours
config:
  sweepstack:sweep:
    job:
      workdir: .
      run: >-
        python train.py --learning_rate {learning_rate} --seed {seed} --num_train_epochs {num_train_epochs}
        --output_dir {checkpoints} && cp -r {checkpoints}/. {out}/
      resources: {cpu: 1}
    cells:
      base: {num_train_epochs: 3}
      grid:
        learning_rate: [5e-05, 2e-05]
        seed: [0, 1, 2]
    artifacts:
      "checkpoint-*/": {load: trainer}
      model.safetensors: {load: safetensors}
      all_results.json: {load: json}
      eval_results.json: {load: json}
      train_results.json: {load: json}
    metrics: {file: trainer_state.json, x: step, "y": [train_loss, eval_accuracy, eval_loss]}
    candidates: [local]
    boxes: {box-0: {want: running}}
    pull_to: ~/sweeps/film
""",
    edit=lambda text: replacing("seed: [0, 1, 2]", "seed: [0]")(
        replacing("learning_rate: [5e-05, 2e-05]", "learning_rate: [0.01, 0.003]")(text)
    ),
    read="""The options are those of `TrainingArguments`. The script asks `get_last_checkpoint`, so it is given
        `{checkpoints}` to write to: a cell that was killed goes on from its last `checkpoint-N`.""",
    more="""`checkpoint-*/` was read whole: the model, the optimizer, the scheduler, and that its step is the one in its
        name ([formats](formats.md)). Options of `TrainingArguments` are words of `run`: `--save_steps 200`,
        `--save_total_limit 2`, `--logging_steps 50`.""",
    metric="eval_accuracy",
)
SPIRALS = Own(
    page="lightning.md",
    title="A script with Lightning",
    name="spirals",
    example="lightning",
    by="argparse, `L.Trainer` with a `ModelCheckpoint`, and `CSVLogger`",
    text="""\
# spirals: from train.py (script). Preview it (free): pulumi preview --stack spirals
# note: train.py goes on from its checkpoints: it writes to {checkpoints}, kept between the tries of a cell, \
and all of it is copied to {out}
# note: the values of lr and seed are a beginning: write yours
config:
  sweepstack:sweep:
    job:
      workdir: .
      run: >-
        python train.py --lr {lr} --seed {seed} --epochs {epochs} --output_dir {checkpoints} && cp -r
        {checkpoints}/. {out}/
      resources: {cpu: 1}
    cells:
      base: {epochs: 30}
      grid:
        lr: [0.01, 0.003]
        seed: [0, 1, 2]
    artifacts:
      best.ckpt: {load: lightning}
      last.ckpt: {load: lightning}
      version_0/metrics.csv: {load: csv}
      version_0/hparams.yaml: {load: yaml}
    metrics: {file: "version_*/metrics.csv", x: step, "y": [val_acc, val_loss, train_loss]}
    candidates: [local]
    boxes: {box-0: {want: running}}
    pull_to: ~/sweeps/spirals
""",
    edit=replacing("seed: [0, 1, 2]", "seed: [0]"),
    read="""The options are those that the script adds. It gives `fit` a `ckpt_path` that it finds itself, so it writes
        to `{checkpoints}`: a cell that was killed goes on from its `last.ckpt`. `CSVLogger` begins `version_1` then;
        `version_*` in `metrics.file` means one curve over both, and a step that stands in both counts once.""",
    more="""Of each checkpoint the weights, the optimizer, the epoch and the step were read, without running code of it
        ([formats](formats.md)). A script that writes to `lightning_logs/`, and can't be told where, is started in
        `{out}`. One with a `LightningCLI` gets `fit --trainer.default_root_dir {out}`; its config file goes beside it:
        `--from train.py --from config.yaml`.""",
    metric="max:val_acc",
)
OWN = {own.page: own for own in (FILM, SPIRALS)}
