"""Writes a stack file of what other files say, and holds it to the reader of stack files."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweepstack.cli.commands.init import begin, check_name, first_commands, there_already
from sweepstack.cli.output import NO, YES, Out
from sweepstack.cli.prompt import answer
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.paths import PACKAGE, engine_fix, installed
from sweepstack.extensions.importers import kinds, script, trial
from sweepstack.extensions.importers import write as written
from sweepstack.extensions.importers.found import Found
from sweepstack.onbox.common.errors import ConfigError, No
from sweepstack.operations.sweep.target import Target


def write(name: str, sources: Sequence[str], yes: bool, out: Out) -> int:
    """Writes the stack file, and in a folder without a project that, too. Exit 0 if the stack file is good, 1 if a
    person has to edit it first. Runs the user's script once, for a short time, only after a yes, and only where a
    stack file can be written. Raises No where a source does not read; then nothing was written."""
    check_name(name.rsplit("/", 1)[-1])
    named, here = home(sources, Path.cwd())
    found = _read(name, sources, named, here)
    made = begin(Path.cwd())
    target = Target.find(name)
    if target.file.path.exists():
        raise there_already(target)
    ran = trial.run(found, here) if _may_run(found, here, yes, out) else None
    seen = trial.outcome(found, here, ran)
    if not here.samefile(target.root):
        found.job.setdefault("workdir", os.path.relpath(here.resolve(), target.root.resolve()))
    written.scored(found, seen)
    text = written.stack_text(target.stack, found, seen.artifacts, seen.metrics, seen.edit)
    if not target.file.create(text):
        raise there_already(target)
    mistakes = _mistakes(target)
    following = [] if not installed() or shutil.which("pulumi") else [f"{engine_fix()}, then sweepctl init"]
    following += first_commands(target.stack)
    out.document(
        {
            "stack": target.stack,
            "file": target.file.shown,
            "files": made,
            "kind": found.kind,
            "cells": found.count if not found.search else 0,
            "not_carried": [{"file": lost.file, "line": lost.line, "what": lost.what} for lost in found.lost],
            "notes": found.notes,
            "edit": [*seen.edit, *mistakes],
            "next": following,
        }
    )
    for file in made:
        out.line(f"wrote    {file}")
    out.line(f"wrote    {target.file.shown}: {_told(found)}")
    for title, texts in (("not carried", found.lost), ("note", found.notes), ("edit", [*seen.edit, *mistakes])):
        for one in texts:
            out.line(f"{title:<8} {one}")
    out.next(following)
    return NO if mistakes else YES


def home(sources: Sequence[str], here: Path) -> tuple[list[str], Path]:
    """The sources, and the folder that ships, from which they are named: the folder here, where they lie in it. A file
    elsewhere is on no other machine, and in no version of the code: so it is the folder of the files then. Also in a
    checkout of sweepstack itself, which is a project, and no job."""
    files = {source: (here / source).resolve() for source in sources if (here / source).is_file()}
    inside = all(file.is_relative_to(here.resolve()) for file in files.values())
    checkout = not installed() and here.resolve() == PACKAGE.parent
    if inside and not (files and checkout):
        return list(sources), here
    folder = Path(os.path.commonpath([file.parent for file in files.values()]))
    return [str(files[one].relative_to(folder)) if one in files else one for one in sources], folder


def _read(name: str, sources: Sequence[str], named: Sequence[str], here: Path) -> Found:
    """What they say. `sources`: as they were typed; `named`: from `here`. Raises No with the next commands; nothing was
    written then."""
    try:
        found = together([(source, kinds.read(source, here)) for source in named], here)
        direct(found, here)
    except (No, ConfigError) as error:
        again = " ".join(["sweepctl init", name, *(f"--from {shlex.quote(source)}" for source in sources)])
        by_hand = f"sweepctl init {name}    (a stack file to be filled in by hand)"
        raise No(f"{error}. Nothing was written", [f"{again}    (when that is mended)", by_hand]) from error
    return found


def together(sources: Sequence[tuple[str, Found | None]], here: Path) -> Found:
    """One sweep of all sources: the cells of the first that has some, the script of the other."""
    sweeps = [found for _, found in sources if found is not None]
    scripts = [source for source, found in sources if found is None]
    if len(sweeps) > 1 or len(scripts) > 1:
        names = [found.file for found in sweeps] if len(sweeps) > 1 else scripts
        raise No(f"{' and '.join(names)}: one sweep and one script make a stack")
    if not sweeps:
        return script.alone(scripts[0], here)
    if scripts:
        script.give(sweeps[0], scripts[0], here)
    return sweeps[0]


def direct(found: Found, here: Path) -> None:
    """Has the script write to {out}, where the command says or the script tells by which option."""
    if "{out}" in found.run or not found.program.endswith(".py"):
        return
    words = re.split(r"(?<=\S) (?=\S)", found.run)
    said = [
        at
        for at, word in enumerate(words)
        if script.is_out(re.split("[= ]", word.lstrip("-+"))[0]) and "." not in word[:1]
    ]
    said = [at for at in said if "=" in words[at] or (words[at].startswith("--") and at + 1 < len(words))]
    if said:
        at = said[0]
        old = words[at].partition("=")[2] or words[at + 1]
        file = old.rpartition("/")[2]
        new = f"{{out}}/{file}" if re.fullmatch(r"[\w{}-]+\.[A-Za-z]\w*", file) else "{out}"
        if "=" in words[at]:
            words[at] = f"{words[at].partition('=')[0]}={new}"
        else:
            words[at + 1] = new
        found.run = " ".join(words)
        found.note(f"{words[at].partition('=')[0]} {old}: is {new} here, a folder of each cell")
    elif (here / found.program).is_file() and " && " not in found.run:
        option = script.out_option(script.takes(found.program, here))
        if option is not None:
            found.run += f" {option.word(script.where(option))}"
    if (here / found.program).is_file():
        script.keep(found, script.takes(found.program, here))
    axes = [*found.grid, *(found.rows[0] if found.rows else ())]
    unused = [name for name in axes if name != "name" and f"{{{name}}}" not in found.run + str(found.job.get("env"))]
    if unused and said:
        found.job["env"] = {**found.job.get("env", {}), **{f"PARAM_{name.upper()}": f"{{{name}}}" for name in unused}}


def _may_run(found: Found, here: Path, yes: bool, out: Out) -> bool:
    """Whether the user's code may be run: there is a script here, and a person said yes."""
    if not found.program or not (here / found.program).is_file():
        return False
    if yes:
        return True
    if not sys.stdin.isatty() or out.as_json:
        return False
    question = f"Run {found.program} here, for {trial.SECONDS:g} s at most, to see what it takes and leaves? Type yes: "
    return answer(question) == "yes"


def _told(found: Found) -> str:
    if found.search:
        return f"{found.kind}, {len(found.search.get('axes', {}))} axes to draw from"
    return f"{found.kind}, {found.count:,} cell{'s' * (found.count != 1)}"


def _mistakes(target: Target) -> list[str]:
    """What the reader of stack files says of it."""
    try:
        StackConfig.load(target.root, target.stack)
    except ConfigError as error:
        lines: Any = str(error).splitlines()
        return [line.strip() for line in lines if line.strip().startswith("line ")] or [str(error).splitlines()[0]]
    return []
