"""Reads an sbatch script: its options as resources, and a cell for each index of its array."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from sweepstack.extensions.importers.found import Found, few, quoted
from sweepstack.extensions.importers.shell_script import TASK, Reader, Started, fill
from sweepstack.extensions.importers.shell_words import Cant, Scope, plain, statements
from sweepstack.onbox.common.errors import No

SHORT = {
    "p": "partition",
    "A": "account",
    "q": "qos",
    "C": "constraint",
    "t": "time",
    "c": "cpus-per-task",
    "a": "array",
    "J": "job-name",
    "o": "output",
    "e": "error",
    "n": "ntasks",
    "N": "nodes",
    "G": "gpus",
    "D": "chdir",
}
ONE = ("nodes", "ntasks", "ntasks-per-node")
OURS = ("job-name", "output", "error", "open-mode", "requeue", "parsable", "mail-type", "mail-user", "export")


def fits(text: str) -> bool:
    """Whether it is a script for sbatch."""
    return re.search(r"^#SBATCH\s", text, re.MULTILINE) is not None


def read(text: str, shown: str, path: Path, root: Path) -> Found:
    """The cells of the array. Where the script does more with its index than is understood, it is kept as it is, and
    each cell gets its index."""
    found = Found("sbatch script", shown)
    array, line = options(found, text)
    tasks = indices(array, shown, line)
    reader = Reader(found, Scope(root))
    before = len(found.lost)
    try:
        for task in tasks:
            one = Reader(found, Scope(root))
            if array:
                one.bind(TASK, plain(str(task)))
                one.scope.values["SLURM_ARRAY_TASK_COUNT"] = plain(str(len(tasks)))
            one.scope.values |= {"SLURM_ARRAY_JOB_ID": plain("0"), "SLURM_JOB_ID": plain("0")}
            one.current = Started(line, [], {})
            one.run(statements(text))
            one.close()
            reader.started += one.started
            reader.env = one.env
        if not reader.started:
            raise Cant(line, "no command that it starts was found")
        fill(found, reader)
        if TASK in found.names:
            found.note(f"{TASK} is an axis of its own: cells are called by their index")
    except Cant as cant:
        del found.lost[before:]
        found.lose(cant.line, f"{cant.what}: not understood, so each cell runs the script with its index")
        whole(found, path, root, tasks if array else [])
    return found


def whole(found: Found, path: Path, root: Path, tasks: list[int]) -> None:
    """The script as it is, once for each index."""
    script = path.resolve()
    name = str(script.relative_to(root.resolve())) if script.is_relative_to(root.resolve()) else path.name
    found.run, found.program, found.rows, found.names = f"bash {quoted(name)}", "", [], {}
    if tasks:
        found.axis(TASK, tasks)
        found.job["env"] = {TASK: found.slot(TASK), "SLURM_ARRAY_TASK_COUNT": str(len(tasks))}


def indices(array: str, shown: str, line: int) -> list[int]:
    """`0-9:2,15` as numbers; one where there is no array."""
    made: list[int] = []
    for part in filter(None, array.split("%")[0].split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip())
        if match is None or (match[3] and not int(match[3])):
            raise No(f"{shown}:{line}: --array={array} is no list of indices")
        first, last = int(match[1]), int(match[2] or match[1])
        made += few(range(first, last + 1, int(match[3] or 1)), f"{shown}:{line}: --array={array}")
    return list(dict.fromkeys(made)) or [0]


def options(found: Found, text: str) -> tuple[str, int]:
    """What the script asks Slurm for, as resources. Gives --array, and its line."""
    array, at = "", 1
    for number, name, value in _options(text):
        if name == "array":
            array, at = value, number
            if "%" in value:
                found.workers = int(value.split("%")[1])
        elif name not in OURS and not _resource(found, name, value) and (name not in ONE or value not in ("", "1")):
            found.lose(number, f"--{name}{'=' * bool(value)}{value}")
    return array, at


def _options(text: str) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("#SBATCH"):
            continue
        words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
        at = 0
        while at < len(words):
            word = words[at]
            name, joined, value = word.lstrip("-").partition("=")
            if not word.startswith("--"):
                name, value = SHORT.get(word[1:2], word[1:2]), word[2:]
                joined = value
            if not joined and at + 1 < len(words) and not words[at + 1].startswith("-"):
                at += 1
                value = words[at]
            yield number, name, value
            at += 1


def _resource(found: Found, name: str, value: str) -> bool:
    if name in ("partition", "account", "qos", "constraint"):
        found.resources[name] = value
    elif name == "time":
        found.resources["time"] = duration(value)
    elif name == "cpus-per-task":
        found.resources["cpu"] = int(value)
    elif name == "mem":
        found.resources["memory"] = memory(value)
    elif name in ("gres", "gpus", "gpus-per-node", "gpus-per-task"):
        parts = value.removeprefix("gres/").split(":")
        if name == "gres" and parts[0] != "gpu":
            found.resources["gres"] = value
            return True
        parts = parts[1:] if name == "gres" else parts
        count = int(parts[-1]) if parts and parts[-1].isdigit() else 1
        gpu: dict[str, object] = {"count": count}
        if parts and not parts[0].isdigit():
            gpu = {"name": parts[0].upper(), "count": count}
        found.resources["gpu"] = gpu
    elif name in ("exclude", "nodelist", "reservation", "exclusive", "nice", "begin", "dependency"):
        found.resources.setdefault("sbatch", []).append(f"--{name}{'=' * bool(value)}{value}")
    else:
        return False
    return True


def duration(text: str) -> str:
    """`1-12:00:00`, `04:00:00` or minutes, as `36h`."""
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if days:
        parts += [0] * (3 - len(parts))
    minutes = parts[0] if len(parts) < 3 else 60 * parts[0] + parts[1] + (parts[2] > 0)
    minutes += 24 * 60 * int(days or 0)
    return f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m"


def memory(text: str) -> str:
    """`64G` as `64GB`; a bare number is megabytes."""
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", text, re.IGNORECASE)
    return f"{match[1]}{(match[2] or 'M').upper()}B" if match else text
