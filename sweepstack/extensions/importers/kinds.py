"""Tells what a file is, by what stands in it, and has it read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from sweepstack.config.file import Document, parse_document
from sweepstack.core.suggest import closest
from sweepstack.extensions.importers import (
    hydra_sweep,
    optuna_study,
    ray_space,
    script,
    shell_script,
    slurm_array,
    submitit_jobs,
    tables,
    tasks,
    wandb_sweep,
)
from sweepstack.extensions.importers.found import Found
from sweepstack.extensions.importers.python_file import parsed
from sweepstack.onbox.common.errors import No

MOST_BYTES = 4 << 20
KNOWN = (
    "W&B sweep YAML, Hydra config or `-m` line, Optuna study (SQLite), Ray Tune or submitit Python file, sbatch array "
    "script, shell loop, list of commands, CSV, queue file, SkyPilot or dstack YAML, or the script itself"
)


def read(source: str, root: Path) -> Found | None:
    """The sweep in a file, or in a command line; None for a script of Python that is none of the known kinds.

    `root`: the folder that relative paths, also those in the file, are of. Raises No for what is no sweep, ConfigError
    for YAML that is broken.
    """
    try:
        found = _found(source, root)
        if found is not None:
            found.settle()
        return found
    except OSError as error:
        raise No(f"{source} can't be read: {error.strerror}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # another one's file
        raise No(f"{source}: does not read as what it seems to be: {error}") from error


def _found(source: str, root: Path) -> Found | None:
    path = root / source
    if not path.is_file():
        if " " in source.strip() and hydra_sweep.is_line(_words(source)):
            return hydra_sweep.of_line(source, "the line", 0, root)
        near = closest(path.name, (one.name for one in path.parent.iterdir())) if path.parent.is_dir() else None
        what = "a folder" if path.is_dir() else f"no such file{f'; {near} is there' if near else ''}"
        raise No(f"{source}: {what}. --from takes a {KNOWN}")
    if optuna_study.fits(path):
        return optuna_study.read(path, source)
    text = _text(path, source)
    return _yaml(text, source, root) if path.suffix in (".yaml", ".yml") else _other(text, source, path, root)


def _text(path: Path, source: str) -> str:
    if path.stat().st_size > MOST_BYTES:
        raise No(f"{source}: more than {MOST_BYTES >> 20} MiB; a definition of a sweep is smaller")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise No(f"{source}: neither text nor a database of SQLite. --from takes a {KNOWN}") from None


def _yaml(text: str, source: str, root: Path) -> Found:
    document = parse_document(text, source)
    found = _of(document, root)
    for flaw in document.flaws:
        found.lose(flaw.line, flaw.text)
    return found


def _of(document: Document, root: Path) -> Found:
    data = document.data
    if wandb_sweep.fits(data):
        return wandb_sweep.read(document)
    if hydra_sweep.fits(data):
        return hydra_sweep.of_config(document, root)
    if script.is_lightning_config(data):
        return script.of_lightning_config(data, document.shown)
    if tasks.is_dstack(data):
        return tasks.read_dstack(document)
    if tasks.is_sky(data):
        return tasks.read_sky(document)
    raise No(f"{document.shown}: this YAML is no sweep that is known here. --from takes a {KNOWN}")


def _other(text: str, source: str, path: Path, root: Path) -> Found | None:
    if path.suffix == ".py":
        tree = parsed(text, source)
        if ray_space.fits(tree):
            return ray_space.read(tree, source)
        return submitit_jobs.read(tree, source) if submitit_jobs.fits(tree) else None
    if path.suffix in (".csv", ".tsv"):
        return tables.read_csv(text, source)
    if slurm_array.fits(text):
        return slurm_array.read(text, source, path, root)
    multirun = _multirun(text)
    if multirun is not None:
        return hydra_sweep.of_line(multirun[1], source, multirun[0], root)
    if tables.is_queue(text):
        return tables.read_queue(text, source)
    if re.search(r"^\s*(for|while)\b", text, re.MULTILINE) or text.startswith("#!"):
        return shell_script.read_loops(text, source, root)
    if tables.is_commands(text):
        return tables.read_commands(text, source)
    raise No(f"{source}: not known. --from takes a {KNOWN}")


def _multirun(text: str) -> tuple[int, str] | None:
    """The line and the text of the one Hydra multirun of a shell script."""
    found = []
    number = 1
    for line in re.split(r"(?<!\\)\n", text):
        plain = line.replace("\\\n", " ").strip()
        if re.search(r"\s(-m|--multirun)\s", f"{plain} ") and hydra_sweep.is_line(_words(plain)):
            found.append((number, plain))
        number += line.count("\n") + 1
    return found[0] if len(found) == 1 else None


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return []
