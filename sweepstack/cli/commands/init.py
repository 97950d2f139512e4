"""`sweepctl init`: writes a project for sweeps into the user's repository, or one more stack file."""

from __future__ import annotations

import json as json_text
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sweepstack.cli import launcher
from sweepstack.cli.extension import of_extension
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import YES, Out
from sweepstack.cli.prompt import answer
from sweepstack.config.edit.stack_file import StackFile, valid_stack_name
from sweepstack.core.paths import docs_page, engine_fix, installed, project_fix, shipped
from sweepstack.core.version import VERSION
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.operations.sweep.target import Target

STACK = "sweep-a"
EXAMPLE = "examples/digits"
PROJECT = """\
name: {name}
description: Sweeps of training runs; nothing unverified is torn down.
runtime:
  name: python
  options:
    toolchain: pip
    virtualenv: {venv}   # where `pip install sweepstack` put it
stackConfigDir: stacks
plugins:
  providers:             # both came with the package
    - name: sweepstack
      path: {bin}
    - name: command
      path: {bin}
options:
  refresh: always        # a decision is made on what is there now
"""
PROGRAM = '''\
"""The Pulumi program: turns stacks/Pulumi.<stack>.yaml into a sweep, or into volumes."""

from pathlib import Path

from components.program import one_message, program

with one_message():
    program(Path(__file__).resolve().parent).export()
'''
LINES = {
    ".gitignore": (".venv/", "__pycache__/", "results/", "report-*.html"),
    "requirements.txt": (f"sweepstack[examples]=={VERSION}",),
}
"""Files that a repository may have already: what is added to them."""
CLONED = ("python3 -m venv .venv && .venv/bin/pip install -r requirements.txt", ".venv/bin/sweepctl init")
"""What another person types in a clone, before `pulumi`."""
SWEEP = """\
# {name}: a sweep on this machine. Preview it (free): pulumi preview --stack {name}
config:
  sweepstack:sweep:
    job:
      workdir: examples/digits            # the folder to ship: git-tracked files only
      run: python train.py --lr {{lr}} --seed {{seed}} --epochs {{epochs}} --out {{out}}
      # {{out}}: where this cell must write. Between braces such texts need quotes: {{run: "check.py {{file}}"}}
      # {{checkpoints}} in `run`: a folder that is kept between tries, for checkpoints to go on from
      resources: {{cpu: 1}}
    cells:                                # one training run each; names come from the axes: lr0.1-seed0 …
      base: {{epochs: 20}}                  # the same for all; adding a default renames nothing
      grid: {{lr: [0.1, 0.03], seed: [0, 1, 2]}}
      # add:  [{{lr: 0.01, seed: 0}}]       # further cells, any day: nothing that runs is restarted
      # drop: {{lr0.1-seed2: "why"}}        # stops it; stays listed, needs no waiver
    artifacts:                            # what each cell must leave behind, and how it is proved good
      model.safetensors: {{load: safetensors, keys: [w1, w2], finite: require}}
      metrics.json:      {{load: json, keys: [test_accuracy], finite: report}}
    metrics: {{file: metrics.jsonl, x: step, y: [loss, accuracy]}}
    candidates: [local]                   # platforms, in order of preference
    # overrides: {{local: {{price_per_hour: 0.25}}}}   # what this machine costs you, USD
    boxes: {{box-0: {{want: running}}}}       # running | gone; cells are split over the boxes
    pull_to: ~/sweeps/{name}               # the evidence; outside of the checkout, so that any clone finds it
"""
STORE = """\
# {name}: volumes that outlive sweeps. Preview it (free): pulumi preview --stack {name}
config:
  sweepstack:store:
    platform: local                       # where the volumes lie; may not change
    volumes:
      {volume}: {{size: 100GB}}   # a sweep gives this name in mounts.<path>.source; a volume may only grow
      # region: the data center, by the platform's own name; needed if it binds volumes to one ({page})
      # keep_until: 2027-01-31            # after it previews and `sweepctl status` warn; nothing is deleted
    pull_to: ~/sweeps/{name}               # records: which sweeps used them, what was approved; not a sweep's folder
"""
OWN_JOB = {
    "sweepstack[examples]": "sweepstack",
    f"workdir: {EXAMPLE}            #": "workdir: .                          #",
    "{seed} --epochs {epochs} --out": "{seed} --out",
    "base: {epochs: 20}                  #": "base: {}                            #",
    "model.safetensors: {load: safetensors, keys: [w1, w2], ": "best.pt:      {load: torch, ",
    "metrics.json:      {load: json, keys: [test_accuracy], finite: report}": "metrics.json: {load: json}",
    "    metrics: {file": "    # metrics: {file",
}
"""What of these files is the example's, and what stands there for a job of one's own."""
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
"""What YAML takes for something else than text."""


def command(
    name: Annotated[
        str | None, typer.Argument(help="Only a stack file of this name: lower-case letters, digits and -.")
    ] = None,
    store: Annotated[bool, typer.Option("--store", help="With NAME: for volumes that outlive sweeps.")] = False,
    example: Annotated[
        bool | None,
        typer.Option("--example/--no-example", help="With a job to try it out, or for the one that is here."),
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="With NAME: a script, another tool's sweep, or a `-m` line of Hydra. Again: the script of that sweep.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="--from: run the script here, for a short trial, unasked.")
    ] = False,
    json: AsJson = False,
) -> int:
    """Write a project into this folder, or with NAME a stack file.

    With --from the stack file is made of what there is: nothing is asked that can be seen, and what a stack file can't
    say is named with its line. A project is Pulumi.yaml, the program, a sweep on this machine, and its job. It asks
    what to begin with: the example, the script that is here, or a stack that exists; without a terminal one of the
    options says so. In a clone of a project it sets up what a clone lacks.
    """
    if sources or yes:
        if not sources or name is None or store or example is not None:
            raise Unsure("--from goes with NAME, --yes with --from, and neither with --store or --example")
        return imported(name, sources, yes, Out(as_json=json))
    if name is not None and example is None:
        return stack_file(name, store, Out(as_json=json))
    if name is not None or store:
        raise Unsure("--store goes with NAME, --example with a new project")
    return project(example, Path.cwd(), Out(as_json=json))


def imported(name: str, sources: Sequence[str], yes: bool, out: Out) -> int:
    """A stack file of what these files say, by the extension that reads them. Raises Unsure where it is missing."""
    return of_extension("importers", "stack", "init --from", "write")(name, sources, yes, out)


def begin(root: Path) -> list[str]:
    """Makes a folder a project, without a stack and an example. Gives what it wrote: nothing where it is one already.
    Raises No where something is in the way."""
    if not installed() or _is_project(root):
        return []
    _may_be_one()
    return _write(root, {name: text for name, text in _files(root).items() if "/" not in name})


def _may_be_one() -> None:
    if sys.prefix == sys.base_prefix:
        why = "sweepctl is not in a virtual environment, and the engine starts the program in one"
        raise No(why, ["python3 -m venv .venv && .venv/bin/pip install 'sweepstack[examples]'"])


def project(example: bool | None, root: Path, out: Out) -> int:
    """Writes what a project has. Raises No where something is in the way."""
    if not installed():
        there = [] if (root / "Pulumi.yaml").is_file() else [project_fix()]
        raise No(
            "this sweepctl is of a checkout, which is a project already",
            [*there, "sweepctl init NAME    (another stack)"],
        )
    _may_be_one()
    if _is_project(root):
        return clone(root, out)
    files = _files(root)
    if example is None:
        beginning = _beginning(root, ask=sys.stdin.isatty() and not out.as_json)
        if beginning == "existing":
            out.line("nothing was written: a stack that exists has its project in a repository")
            out.next(["git clone URL && cd NAME    (the repository)", *CLONED])
            return YES
        example = beginning == "example"
    if not example:
        files = {name: _own_job(text) for name, text in files.items() if not name.startswith(EXAMPLE)}
    written = _write(root, files)
    following = first_commands(STACK)
    if shutil.which("pulumi") is None:
        following.insert(0, f"{engine_fix()}, then sweepctl init")
    out.document({"files": written, "next": following, "in_a_clone": list(CLONED) if _inside(root) else []})
    for name in written:
        out.line(f"wrote {name}")
    if not example:
        out.line(f"edit     stacks/Pulumi.{STACK}.yaml: run, cells and artifacts are of no job yet")
    if _inside(root):
        out.line("clones   another person types in one, before pulumi:")
        for line in CLONED:
            out.line(f"         {line}")
    else:
        out.line(
            f"note     Pulumi.yaml names {sys.prefix}, which is outside of this folder: another person has another"
        )
    out.next(following)
    return YES


def _write(root: Path, files: dict[str, str]) -> list[str]:
    """Writes new files, adds to those of LINES what they lack, and installs the launcher. Returns their names. Raises
    No, and nothing was written, where one is there already."""
    if there := [name for name in files if (root / name).exists() and name not in LINES]:
        raise No(f"{', '.join(there)}: there already, so nothing was written", ["run it in an empty folder"])
    written = []
    for name, text in files.items():
        path = root / name
        if path.exists():  # one of LINES
            before = path.read_text(encoding="utf-8")
            if not (lines := _lacking(before.splitlines(), text.splitlines())):
                continue
            text = "\n".join([*filter(None, [before.removesuffix("\n")]), *lines, ""])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(name)
    if command := launcher.install():
        written.append(_shown(command, root))
    return written


def clone(root: Path, out: Out) -> int:
    """Sets up what a clone of a project lacks, and names its stacks. Changes no file of the project."""
    stacks = StackFile.stacks(root)
    command = launcher.install()
    wrote = f"wrote {_shown(command, root)}; " if command else ""
    following = [] if shutil.which("pulumi") or command else [f"{engine_fix()}, then sweepctl init"]
    if stacks:
        name = stacks[0] if len(stacks) == 1 else "NAME"
        which = f"    (its stacks: {', '.join(stacks)})" if len(stacks) > 1 else ""
        following += [f"pulumi stack select --create {name}{which}", f"pulumi preview --stack {name}"]
    else:
        following.append("sweepctl init NAME    (a stack)")
    out.document({"files": [_shown(command, root)] if command else [], "stacks": stacks, "next": following})
    out.line(f"{wrote}this folder is a project already, and stays as it is")
    out.next(following)
    return YES


def _lacking(before: list[str], lines: list[str]) -> list[str]:
    """Those of the lines that a file lacks. A requirement in any spelling is there."""
    named = {_requirement(line) for line in before}
    return [line for line in lines if _requirement(line) not in named]


def _requirement(line: str) -> str:
    """`sweepstack` of `sweepstack[s3] >= 0.1`; any other line as it is."""
    return "sweepstack" if re.match(r"\s*sweepstack(?![\w.-])", line) else line


def _files(root: Path) -> dict[str, str]:
    """Path → text of all files of a new project."""
    prefix = Path(os.path.relpath(sys.prefix, root)) if _inside(root) else Path(sys.prefix)
    return new_files(project_name(root.name), prefix, shipped(EXAMPLE))


def new_files(name: str, prefix: Path, example: Path) -> dict[str, str]:
    """The same, for a project of this name whose environment is `prefix`; templates/sweepstack is made of it, too."""
    return {
        "Pulumi.yaml": PROJECT.format(name=name, venv=_scalar(prefix), bin=_scalar(prefix / "bin")),
        "__main__.py": PROGRAM,
        **{name: "\n".join([*lines, ""]) for name, lines in LINES.items()},
        f"stacks/Pulumi.{STACK}.yaml": SWEEP.format(name=STACK),
        **{
            f"{EXAMPLE}/{path.name}": path.read_text(encoding="utf-8")
            for path in sorted(example.iterdir())
            if path.is_file()
        },
    }


def project_name(folder: str) -> str:
    """A name for a project in a folder of this name, which the engine, its Python host and YAML take as it is: a
    letter, then letters, digits, `-`, `_` and `.`; 100 at most."""
    plain = unicodedata.normalize("NFKD", folder).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain).strip("-_.")
    if not name[:1].isalpha() or name.lower() in _WORDS:
        name = f"sweeps-{name}"
    return name[:100].rstrip("-_.")


def _scalar(path: Path) -> str:
    """A path as YAML reads it."""
    text = str(path)
    return text if re.fullmatch(r"[\w./-]+", text, re.ASCII) else json_text.dumps(text, ensure_ascii=False)


def _beginning(root: Path, *, ask: bool) -> str:
    """`example`, `own` or `existing`. Without a terminal the example, in an empty folder. Raises No where that has to
    be said."""
    here = sorted(path.name for path in root.iterdir() if not path.name.startswith(".") and not _is_venv(path))
    files = ", ".join(here[:3]) + (" …" if here[3:] else "")
    if ask:
        own = f"the script that is here, among {files}" if here else "a script of yours, to be copied here"
        said = answer(
            f"What does it begin with? example: a job to try it out, in {EXAMPLE}; own: {own}; existing: a stack that "
            "has a project elsewhere. Type example, own or existing: "
        )
        if said in ("example", "own", "existing"):
            return said
        raise No(f'"{said}" is none of example, own, existing. Nothing was written', ["sweepctl init"])
    if not here:
        return "example"
    why = f"this folder has files ({files}): whether the example is to be written into {EXAMPLE}, too, was not said"
    own = "sweepctl init --no-example    (for the job that is here)"
    raise No(f"{why}. Nothing was written", [own, "sweepctl init --example"])


def _is_venv(path: Path) -> bool:
    return (path / "pyvenv.cfg").is_file()


def _own_job(text: str) -> str:
    for old, new in OWN_JOB.items():
        text = text.replace(old, new)
    return text


def _is_project(root: Path) -> bool:
    file = root / "Pulumi.yaml"
    return file.is_file() and "- name: sweepstack\n" in file.read_text(encoding="utf-8", errors="replace")


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _inside(root: Path) -> bool:
    return Path(sys.prefix).is_relative_to(root)


def check_name(name: str) -> None:
    """Raises No where a new stack may not be called so."""
    if not valid_stack_name(name):
        raise No(f"\"{name}\" can't be a stack's name: lower-case letters, digits and -, a letter or digit first")


def there_already(target: Target) -> No:
    """The error for a stack file that is there."""
    again = [f"pulumi preview --stack {target.stack}"]
    return No(f"{target.file.shown} is there already, and was left as it is", again)


def first_commands(stack: str) -> list[str]:
    """What a person types for a stack file that is new."""
    return [f"pulumi {words} {stack}" for words in ("stack init", "preview --stack", "up --stack")]


def stack_file(name: str, store: bool, out: Out) -> int:
    """Writes the file of one more stack of this project. Exit 0 if it was written."""
    target = Target.find(name)
    check_name(target.stack)
    text = (STORE if store else SWEEP).format(
        name=target.stack, volume=target.stack[:35].rstrip("-"), page=docs_page("volumes.md")
    )
    if not target.file.create(text):
        raise there_already(target)
    following = first_commands(target.stack)
    out.document({"stack": target.stack, "file": target.file.shown, "next": following})
    made = "" if installed() else f" (make up STACK={target.stack} does the first and the last)"
    out.line(f"wrote {target.file.shown}: edit it, then{made}")
    out.next(following)
    return YES
