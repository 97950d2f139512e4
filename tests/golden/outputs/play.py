"""Types commands at a moment of a golden sweep, each in a process of its own, and writes down what is seen."""

from __future__ import annotations

import difflib
import gc
import importlib
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from tests.golden.outputs.masks import masked
from tests.golden.outputs.moments import MOMENTS, filled, typed
from tests.golden.outputs.still import set_clock
from tests.golden.outputs.sweeps import Sweep

LATER = (
    "dateutil.parser",
    "detect_secrets.core.plugins.initialize",
    "detect_secrets.settings",
    "requests",
    "rich.console",
    "rich.table",
    "rich.text",
    "rich._unicode_data._versions",
    "sweepstack.cli.sources",
    "sweepstack.evidence.verify",
    "sweepstack.platforms.local.platform",
    "sweepstack.status.compose",
    "typer._adapters",
)
"""What commands import when they need it."""


def play(name: str, folder: Path) -> str:
    """All that is typed at this moment, and what was seen. `folder` is empty, and left so."""
    moment = MOMENTS[name]
    set_clock(moment.now)
    sweep, kept = Sweep(folder, moment), folder / "kept"
    shutil.copytree(sweep.root, kept, symlinks=True)
    os.chdir(sweep.checkout)
    shown = [line for command in typed(name) for line in _seen(command, sweep, kept)]
    os.chdir(folder)
    sweep.end()
    for path in (sweep.root, kept):
        shutil.rmtree(path)
    return masked("\n".join(shown))


def _seen(line: str, sweep: Sweep, kept: Path) -> Iterator[str]:
    """One command: its line, what it said (`2>`: to stderr), what it wrote, and its exit code. What it wrote is taken
    back."""
    code, out, err = _run(shlex.split(filled(line)))
    yield f"$ sweepctl {line}"
    if out.startswith("{") and "--json" in line:
        out = json.dumps(json.loads(out), indent=1, ensure_ascii=False)
    yield from out.splitlines()
    yield from (f"2> {one}".rstrip() for one in err.splitlines())
    yield from _written(sweep.root, kept, sweep.stack_file)
    yield f"exit {code}\n"


def _run(words: list[str]) -> tuple[int, str, str]:
    """In a process of its own, without a terminal."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            _child(words, out.fileno(), err.fileno())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read().decode())
    return code, said[0], said[1]


def _child(words: list[str], out: int, err: int) -> None:
    from sweepstack.cli.app import app

    code = 70
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.argv = ["sweepctl", *words]
        app(words)
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _written(root: Path, kept: Path, stack_file: Path) -> Iterator[str]:
    """The files that are others than before, which are put back; with the difference, in the stack file."""
    now, before = _tree(root), _tree(kept)
    changed = [path for path in sorted({*now, *before}) if now.get(path) != before.get(path)]
    for path in changed:
        if not path.endswith("/"):
            yield f"{'removed' if path not in now else 'wrote'} {path}"
        if root / path == stack_file and path in now:
            lines = [(place / path).read_text().splitlines() for place in (kept, root)]
            yield from (f"   {line}" for line in list(difflib.unified_diff(*lines, lineterm="", n=0))[2:])
    for path in changed:
        if path in before:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(kept / path, root / path, follow_symlinks=False)
    for path in reversed(changed):
        if path not in before:
            (root / path).rmdir() if path.endswith("/") else (root / path).unlink()


def _tree(root: Path) -> dict[str, tuple[int, int]]:
    """The files and folders below, and what tells that a file was written."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in folders:
            found[os.path.relpath(os.path.join(folder, name), root) + "/"] = (0, 0)
        for name in names:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            found[os.path.relpath(path, root)] = (status.st_size, status.st_mtime_ns)
    return found


def import_all() -> None:
    """What each command would import and build for itself: that takes three times as long as all that it does."""
    from sweepstack.cli.app import command_names, load_command

    for verb in command_names():
        load_command(verb)
    for module in LATER:
        importlib.import_module(module)
    models = list(BaseModel.__subclasses__())
    while models:
        model = models.pop()
        models += model.__subclasses__()
        if model.__module__.startswith("sweepstack."):
            model.model_rebuild()
    gc.freeze()
    gc.disable()
