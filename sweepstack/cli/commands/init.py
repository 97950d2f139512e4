"""`sweepctl init`: writes a project for sweeps into the user's own repository."""

from __future__ import annotations

import json as json_text
import os
import re
import shutil
import sys
import unicodedata
from pathlib import Path
from typing import Annotated

import typer

from sweepstack.cli import launcher
from sweepstack.cli.commands.new import TEMPLATE
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import YES, No, Out
from sweepstack.cli.prompt import answer
from sweepstack.core.paths import engine_fix, installed, shipped

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
IGNORED = (".venv/", "__pycache__/", "results/", "report-*.html")
OWN_JOB = {
    f"workdir: {EXAMPLE}            #": "workdir: .                          #",
    "{seed} --epochs {epochs} --out": "{seed} --out",
    "base: {epochs: 20}                  #": "base: {}                            #",
    "model.safetensors: {load: safetensors, keys: [w1, w2], ": "best.pt:      {load: torch, ",
    "metrics.json:      {load: json, keys: [test_accuracy], finite: report}": "metrics.json: {load: json}",
    "    metrics: {file": "    # metrics: {file",
}
"""What of the stack file is the example's, and what stands there for a job of one's own."""
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
"""What YAML takes for something else than text."""


def command(
    example: Annotated[
        bool | None,
        typer.Option("--example/--no-example", help="With a job to try it out, or for the one that is here."),
    ] = None,
    json: AsJson = False,
) -> int:
    """Write a small project into this folder: Pulumi.yaml, the program, a sweep on this machine, and its job.

    In a folder with files it asks whether the example is wanted, too; without a terminal one of the options says so.
    """
    out, root = Out(as_json=json), Path.cwd()
    if not installed():
        raise No("this sweepctl is of a checkout, which is a project already", ["sweepctl new NAME    (another stack)"])
    if sys.prefix == sys.base_prefix:
        why = "sweepctl is not in a virtual environment, and the engine starts the program in one"
        raise No(why, ["python3 -m venv .venv && .venv/bin/pip install 'sweepstack[examples]'"])
    files = _files(root)
    if example is None and not any((root / name).exists() for name in ("Pulumi.yaml", EXAMPLE)):
        example = _wants_example(root, ask=sys.stdin.isatty() and not json)
    if example is False:
        files = {name: _own_job(text) for name, text in files.items() if not name.startswith(EXAMPLE)}
    if there := [name for name in files if (root / name).exists() and name != ".gitignore"]:
        if _is_project(root) and (command := launcher.install()):
            out.document({"files": [_shown(command, root)], "next": []})
            out.line(f"wrote {_shown(command, root)}; this folder is a project already, and stays as it is")
            return YES
        raise No(f"{', '.join(there)}: there already, so nothing was written", ["run it in an empty folder"])
    written = []
    for name, text in files.items():
        path = root / name
        if path.exists():  # .gitignore
            text = path.read_text(encoding="utf-8")
            lines = [line for line in IGNORED if line not in text.splitlines()]
            if not lines:
                continue
            text = "\n".join([*filter(None, [text.removesuffix("\n")]), *lines, ""])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(name)
    if command := launcher.install():
        written.append(_shown(command, root))
    following = [f"pulumi stack init {STACK}", f"pulumi preview --stack {STACK}", f"pulumi up --stack {STACK}"]
    if shutil.which("pulumi") is None:
        following.insert(0, f"{engine_fix()}, then sweepctl init")
    out.document({"files": written, "next": following})
    for name in written:
        out.line(f"wrote {name}")
    if example is False:
        out.line(f"edit     stacks/Pulumi.{STACK}.yaml: run, cells and artifacts are of no job yet")
    if not _inside(root):
        out.line(
            f"note     Pulumi.yaml names {sys.prefix}, which is outside of this folder: another person has another"
        )
    out.next(following)
    return YES


def _files(root: Path) -> dict[str, str]:
    """Path → text of all files of a new project."""
    prefix = Path(os.path.relpath(sys.prefix, root)) if _inside(root) else Path(sys.prefix)
    example = shipped(EXAMPLE)
    return {
        "Pulumi.yaml": PROJECT.format(name=project_name(root.name), venv=_scalar(prefix), bin=_scalar(prefix / "bin")),
        "__main__.py": PROGRAM,
        ".gitignore": "\n".join([*IGNORED, ""]),
        f"stacks/Pulumi.{STACK}.yaml": TEMPLATE.format(name=STACK),
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


def _wants_example(root: Path, *, ask: bool) -> bool:
    """Whether the example is wanted: always in an empty folder. Raises No where that has to be said."""
    here = sorted(path.name for path in root.iterdir() if not path.name.startswith(".") and not _is_venv(path))
    if not here:
        return True
    files = ", ".join(here[:3]) + (" …" if here[3:] else "")
    said = (
        answer(f"This folder has files ({files}). Write the example into {EXAMPLE}, too? Type yes or no: ")
        if ask
        else ""
    )
    if said not in ("yes", "no"):
        why = f"this folder has files ({files}): whether the example is to be written into {EXAMPLE}, too, was not said"
        own = "sweepctl init --no-example    (for the job that is here)"
        raise No(f"{why}. Nothing was written", [own, "sweepctl init --example"])
    return said == "yes"


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
