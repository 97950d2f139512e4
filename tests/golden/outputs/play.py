"""Types commands at a moment of a golden sweep, and writes down what is seen."""

from __future__ import annotations

import contextlib
import difflib
import functools
import gc
import importlib
import json
import os
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tests.golden.outputs.masks import masked
from tests.golden.outputs.moments import MOMENTS, filled, typed
from tests.golden.outputs.still import set_clock
from tests.golden.outputs.sweeps import GOLDEN, Sweep, files_of

APP = "sweepstack.cli.app"
"""It remembers which commands there are: that stays as it is."""
Tree = dict[str, tuple[int, int]]
LATER = (
    "dateutil.parser",
    "detect_secrets.core.plugins.initialize",
    "detect_secrets.settings",
    "requests",
    "rich.console",
    "rich.table",
    "rich.text",
    "rich._unicode_data._versions",
    "sweepstack.channel.ssh.channel",
    "sweepstack.cli.commands.status.phase",
    "sweepstack.cli.commands.status.probe",
    "sweepstack.cli.commands.status.sweep",
    "sweepstack.operations.sweep.sources",
    "sweepstack.evidence.verify",
    "sweepstack.platforms.local.platform",
    "sweepstack.status.compose",
    "typer._adapters",
)
"""What commands import when they need it."""


def play(name: str, folder: Path) -> str:
    """All that is typed at this moment, and what was seen. `folder` is empty, and left so. In a process of its own."""
    said = folder / "said"
    files_of(GOLDEN / MOMENTS[name].archive)  # once for all moments of one archive
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            said.write_text(_played(name, folder), encoding="utf-8")
            code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise SystemExit(f"{name} could not be played: see above")
    text = said.read_text(encoding="utf-8")
    said.unlink()
    return masked(text)


def _played(name: str, folder: Path) -> str:
    moment = MOMENTS[name]
    set_clock(moment.now)
    sweep, kept = Sweep(folder, moment), folder / "kept"
    shutil.copytree(sweep.root, kept, symlinks=True)
    os.chdir(sweep.checkout)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    before = _tree(sweep.root)
    shown = [line for command in typed(name) for line in _seen(command, sweep, kept, before)]
    os.chdir(folder)
    sweep.end()
    for path in (sweep.root, kept):
        shutil.rmtree(path)
    return "\n".join(shown)


def _seen(line: str, sweep: Sweep, kept: Path, before: Tree) -> Iterator[str]:
    """One command: its line, what it said (`2>`: to stderr), what it wrote, and its exit code. What it wrote is taken
    back."""
    code, out, err = _run(shlex.split(filled(line)))
    yield f"$ sweepctl {line}"
    if out.startswith("{") and "--json" in line:
        out = json.dumps(json.loads(out), indent=1, ensure_ascii=False)
    yield from out.splitlines()
    yield from (f"2> {one}".rstrip() for one in err.splitlines())
    yield from _written(sweep.root, kept, before, sweep.stack_file)
    yield f"exit {code}\n"


def _run(words: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command without a terminal. It remembers nothing of the one before it."""
    from sweepstack.cli import output
    from sweepstack.cli.app import app

    for cached in _caches(len(sys.modules)):
        cached.cache_clear()
    output._documents, output._done = 0, {}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        kept = [os.dup(number) for number in (1, 2)]
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            app(words, prog_name="sweepctl")
            code = 0
        except SystemExit as left:
            code = int(left.code or 0)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, before in zip((1, 2), kept, strict=True):
                os.dup2(before, number)
                os.close(before)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return code, said[0], said[1]


@functools.lru_cache(maxsize=1)
def _caches(modules: int) -> list[Any]:
    """What functions of sweepstack remember, in so many modules."""
    ours = [module for name, module in sys.modules.items() if name.startswith("sweepstack") and name != APP]
    return [one for module in ours for one in vars(module).values() if hasattr(one, "cache_clear")]


def _written(root: Path, kept: Path, before: Tree, stack_file: Path) -> Iterator[str]:
    """The files that are others than before, which are put back; with the difference, in the stack file."""
    now = _tree(root)
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


def _tree(root: Path) -> Tree:
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
    from sweepstack.cli import progress
    from sweepstack.cli.app import all_commands

    all_commands()
    progress.PATIENCE = 86_400.0  # a command that takes long on a busy machine says no more than elsewhere
    for module in LATER:
        with contextlib.suppress(ImportError):  # where it was moved, it is imported later, and that is all
            importlib.import_module(module)
    models = list(BaseModel.__subclasses__())
    while models:
        model = models.pop()
        models += model.__subclasses__()
        if model.__module__.startswith("sweepstack."):
            model.model_rebuild()
    _caches(len(sys.modules))
    gc.freeze()
    gc.disable()
