"""Training code that was not written for sweepstack, from `init` to verified: what docs/your-own-train-py.md shows."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.engine.package_project import Project, build
from tests.week.play import Play, replacing

SOURCE = Path(__file__).with_name("own_project")
NAME, STACK = "bert", "sweep-a"
TEXT = """\
# two learning rates, on this machine
config:
  sweepstack:sweep:
    job:
      workdir: .
      run: >-
        python train.py --lr {lr} --output-root {checkpoints} --exp-name run --resume
        && cp {checkpoints}/run/best.pt {checkpoints}/run/metrics.json {out}/
      resources: {cpu: 1}
    cells:
      grid: {lr: [0.001, 0.003]}
    artifacts:
      best.pt: {load: torch, keys: [model]}
      metrics.json: {load: json, keys: [eval_loss]}
    candidates: [local]
    boxes: {box-0: {want: running}}
    pull_to: results/sweep-a
"""
CHECK = '''\
"""Whether the numbers of a checkpoint are good: `load: command` reads the last line."""

import json, sys
import torch

model = torch.load(sys.argv[1], map_location="cpu", weights_only=False)["model"]
good = all(bool(tensor.isfinite().all()) for tensor in model.values())
print(json.dumps({"ok": good, "note": f"{len(model)} tensors"}))
'''
CURVE = '''\
"""Lines for `metrics`: Trainer(…, callbacks=[Curve()])."""

import json, os
from transformers import TrainerCallback


class Curve(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **more):
        if "SWEEPSTACK_OUT" in os.environ and "loss" in logs:
            with open(os.path.join(os.environ["SWEEPSTACK_OUT"], "metrics.jsonl"), "a") as file:
                file.write(json.dumps({"step": state.global_step, "loss": float(logs["loss"])}) + "\\n")
'''


def make_repository(folder: Path) -> None:
    """A small repository of a person who trains with the Trainer: the script is in git, the data is not."""
    texts = [(f"a {mood} {thing}", mood in ("good", "fine")) for mood in MOODS for thing in THINGS]
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "train.csv").write_text("text,glad\n" + "".join(f"{text},{int(glad)}\n" for text, glad in texts))
    (folder / "train.py").write_text((SOURCE / "train.py").read_text())
    (folder / ".gitignore").write_text("data/\nruns/\nresults/\n.venv/\n__pycache__/\n")
    committed(folder)


def committed(folder: Path) -> None:
    """A repository of what lies in this folder, with one commit."""
    who = ["-c", "user.name=A person", "-c", "user.email=person@example.com"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "Train"]):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=60)


MOODS = ("good", "fine", "bad", "sad")
THINGS = ("day", "film", "song", "meal")


def prepare(project: Project) -> None:
    """Install the package beside the person's own packages, in the person's repository."""
    project.make_environment()
    project.install(build(project.base, "7.1.0"))
    make_repository(project.folder)


def own(project: Project) -> Play:
    """Plays it on the real engine. Raises at the first surprise."""
    play = Play(project, project.folder, title="Your own train.py")
    tell(play, project.folder / "stacks" / f"Pulumi.{STACK}.yaml")
    return play


def tell(play: Play, stack: Path) -> None:
    """What is typed and what is said about it; `stack`: the stack file."""
    play.say(
        """How training code that knows nothing of sweepstack becomes a sweep, without a changed line. This page was
        made by typing these commands (`python -m tests.week`), in a repository whose
        [train.py](../tests/week/own_project/train.py) uses the Trainer of Hugging Face and writes all it has to
        `OUTPUT_ROOT/EXP_NAME/`: `checkpoint-10`, …, `best.pt`, `metrics.json`. The package is
        [installed](../README.md#in-a-repository-of-your-own) beside the script's own packages. The two mistakes
        below are the usual ones."""
    )
    begin(play, stack)
    run(play, stack)
    verify(play, stack)
    recipes(play, stack)


def begin(play: Play, stack: Path) -> None:
    """The project's files, the stack file, and the first mistake."""
    play.day("Describe it")
    play.type("sweepctl init --no-example", expect=["wrote Pulumi.yaml", "edit     stacks/Pulumi.sweep-a.yaml"])
    play.say(f"`stacks/Pulumi.{STACK}.yaml`, once run, cells and artifacts are those of the script:")
    play.write(stack, TEXT)
    play.say(
        """All of it is in `run`. `{checkpoints}` is a folder of this cell that is kept between its tries: the script
        goes on there from what it finds. `{out}` is new for each try, and what lies in it when the command ends
        with 0 is the result. So: **let the script write where it likes below `{checkpoints}`, `&&`, copy what is
        a result to `{out}`.** A script that fails copies nothing, and checkpoints are neither sealed nor pulled
        with the result."""
    )
    play.type(f"pulumi stack init {STACK}")
    play.type(f"pulumi preview --stack {STACK}", expect=["ignored by git and left behind: data/ (1 file"])


def run(play: Play, stack: Path) -> None:
    """The cells run."""
    play.say("`train.py` reads `data/train.csv`, which git ignores: the first correction.")
    play.edit(stack, replacing("workdir: .\n", "workdir: .\n      include: [data/train.csv]\n"))
    play.day("Run it")
    play.type(f"pulumi up --stack {STACK}", expect=["8 created"])
    play.type(f"sweepctl wait --stack {STACK} done", expect=["2 sealed"])


def verify(play: Play, stack: Path) -> None:
    """Copied and verified, after the second mistake."""
    play.day("Verify it")
    play.type(f"sweepctl pull --stack {STACK}", expect=["2 cells here"])
    play.type(f"sweepctl verify --stack {STACK}", rc=1, told=True, expect=["unsupported", "load: command", "pulumi up"])
    play.say(
        """The files are what the box sealed. But the script saves its `args` with the weights, as many do, and the
        reader builds no objects of classes: a file that can do that can run code. The second correction is a
        check of your own, in one line of `artifacts` (`trust`: it runs on your machine). Nothing is trained again
        for it."""
    )
    play.write(stack.parents[1] / "checks" / "pt.py", CHECK)
    play.edit(
        stack,
        replacing("{load: torch, keys: [model]}", '{load: command, run: "python checks/pt.py {file}", trust: true}'),
    )
    play.type("git add checks/pt.py")
    play.type(f"pulumi up --stack {STACK}")
    play.type(f"sweepctl verify --stack {STACK}", expect=["2 of 2 verified"])
    play.type(f"sweepctl results --stack {STACK}", expect=["eval_loss"])
    play.say(
        f"""From here on it is the [daily loop](../README.md#the-daily-loop): more cells, `pulumi up`; and `sweepctl
        finish --stack {STACK}` when you have what you want."""
    )


def recipes(play: Play, stack: Path) -> None:
    """What other scripts need."""
    play.day("Other scripts")
    play.say(
        """- **The script must find its checkpoint.** With `--resume` or without, it goes on only if it looks into
        the folder that it is given; else each try begins at 0. [Trainer and
        Lightning](checkpoints.md#without-the-helper-checkpoints): the lines that do it, and which of their files
        are whole.
        - **Lightning**: `run: python train.py --dir {checkpoints} && cp {checkpoints}/last.ckpt {out}/model.ckpt`,
        with `default_root_dir` and `ModelCheckpoint(dirpath=…, save_last=True)` in that folder, and `model.ckpt:
        {load: torch, keys: [state_dict]}`. Where `save_hyperparameters()` keeps a class, a `Path` or an
        `argparse.Namespace`, the correction is the one above.
        - **argparse, Hydra**: what `load: torch` takes is tensors and plain values. It does not take an
        `argparse.Namespace`, a `Path`, a `DictConfig`, a dataclass, an `Enum`, a NumPy number. Either the check
        above; or, in a script that you may change, `vars(args)`, `str(path)`, `OmegaConf.to_container(cfg)`,
        `float(x)`: then the file is judged without code of yours.
        - **A script that writes to one folder and can't be told where**: `run: cd {checkpoints} && python
        $OLDPWD/train.py --lr {lr} && cp runs/best.pt {out}/`. `$OLDPWD` is the folder of the code.
        - **A file that is a name of its parameters** (`lr0.001_s0.pt`): `cp {checkpoints}/lr{lr}_s{seed}.pt
        {out}/best.pt`, or [a placeholder in the artifact's name](stack-config.md#artifacts).
        - **Hugging Face's cache, tokenizers**: `job.env: {HF_HOME: …}`; what is downloaded before any cell:
        `job.setup`."""
    )
    play.day("Curves")
    play.say(
        """`sweepctl results` takes its numbers from JSON artifacts (`metrics.json` above). For steps, ETA, `sweepctl
        results --as plot` and `stop_on_nan` the script writes one JSON object a line below `{out}`, whose path is also
        in `$SWEEPSTACK_OUT`. With the Trainer:"""
    )
    play.write(stack.parents[1] / "curve.py", CURVE)
    play.say(
        """and in the stack file `metrics: {file: metrics.jsonl, x: step, y: [loss]}`. `{out}` is new for each try;
        where one goes on from a checkpoint, the curve begins with what the tries before it wrote. TensorBoard's event
        files, the Trainer's `trainer_state.json` and others are [read as they
        are](stack-config.md#formats-of-curves), too."""
    )
