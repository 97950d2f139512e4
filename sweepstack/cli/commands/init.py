"""`sweepctl init`: writes a project for sweeps into the user's own repository."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from sweepstack.cli import launcher
from sweepstack.cli.commands.new import TEMPLATE
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import YES, No, Out
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
IGNORED = ".venv/\n__pycache__/\nresults/\n"


def command(json: AsJson = False) -> int:
    """Write a small project into this folder: Pulumi.yaml, the program, a sweep on this machine, and its job."""
    out, root = Out(as_json=json), Path.cwd()
    if not installed():
        raise No("this sweepctl is of a checkout, which is a project already", ["sweepctl new NAME    (another stack)"])
    if sys.prefix == sys.base_prefix:
        why = "sweepctl is not in a virtual environment, and the engine starts the program in one"
        raise No(why, ["python3 -m venv .venv && .venv/bin/pip install 'sweepstack[examples]'"])
    files = _files(root)
    if there := [name for name in files if (root / name).exists() and name != ".gitignore"]:
        if _is_project(root) and (command := launcher.install()):
            out.document({"files": [_shown(command, root)], "next": []})
            out.line(f"wrote {_shown(command, root)}; this folder is a project already, and stays as it is")
            return YES
        raise No(f"{', '.join(there)}: there already, so nothing was written", ["run it in an empty folder"])
    written = []
    for name, text in files.items():
        path = root / name
        if path.exists():
            continue
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
    if not _inside(root):
        out.line(
            f"note     Pulumi.yaml names {sys.prefix}, which is outside of this folder: another person has another"
        )
    out.next(following)
    return YES


def _files(root: Path) -> dict[str, str]:
    """Path → text of all files of a new project."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", root.name)
    prefix = Path(os.path.relpath(sys.prefix, root)) if _inside(root) else Path(sys.prefix)
    example = shipped(EXAMPLE)
    return {
        "Pulumi.yaml": PROJECT.format(name=name or "sweeps", venv=prefix, bin=prefix / "bin"),
        "__main__.py": PROGRAM,
        ".gitignore": IGNORED,
        f"stacks/Pulumi.{STACK}.yaml": TEMPLATE.format(name=STACK),
        **{
            f"{EXAMPLE}/{path.name}": path.read_text(encoding="utf-8")
            for path in sorted(example.iterdir())
            if path.is_file()
        },
    }


def _is_project(root: Path) -> bool:
    file = root / "Pulumi.yaml"
    return file.is_file() and "- name: sweepstack\n" in file.read_text(encoding="utf-8", errors="replace")


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _inside(root: Path) -> bool:
    return Path(sys.prefix).is_relative_to(root)
