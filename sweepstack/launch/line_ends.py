"""Finds shell scripts that end lines as Windows does: a shell takes the CR for a part of a word.

Only what a shell or a shebang runs is looked at. Python, YAML and the like read both kinds of line ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sweepstack.core.workdir import ShippedFile

SHELLS = (".sh", ".bash", ".zsh", ".ksh", ".dash")
_SHELL_LINE = re.compile(rb"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*)?(?:\S*/)?(?:ba|z|k|da|a)?sh\b")
_MOST = 4 << 20
"""Bytes. No shell script is longer."""


class CrlfScript(NamedTuple):
    """A script that would fail on a box. `runs`: a command of the job reaches it, or it can be executed as it is; any
    other one (of vendored code) may never run."""

    problem: str
    runs: bool


def crlf_scripts(workdir: Path, files: Iterable[ShippedFile], commands: Iterable[str]) -> list[CrlfScript]:
    """The scripts that end lines with CRLF, each with its fix. `commands`: all that the job runs. A file that can't be
    read is left to others."""
    small = [file for file in files if file.size <= _MOST]
    bad = [(file, line) for file in small if (line := _bad_line(workdir / file.path, file.path, file.mode))]
    reached = _reached(workdir, small, commands) if bad else frozenset()
    return [
        CrlfScript(
            f"{file.path}, line {line}: ends with CRLF, as on Windows, and a shell takes the CR for part of the "
            f"command; run sed -i 's/\\r$//' {file.path}, and keep it so: echo '{_pattern(file.path)} text eol=lf' "
            ">> .gitattributes",
            file.path in reached or _executes(workdir / file.path, file.mode),
        )
        for file, line in bad
    ]


def _reached(workdir: Path, files: Iterable[ShippedFile], commands: Iterable[str]) -> frozenset[str]:
    """The files that the commands name, and those that these files name, and so on. A name counts without its folder,
    since a command may change into it first; a Python module also counts by its own name (`-m`, `import`)."""
    left = {file.path: _name(file.path) for file in files}
    texts, reached = [command.encode() for command in commands], set()
    while texts:
        text = texts.pop()
        for path in [path for path, name in left.items() if name.search(text)]:
            del left[path]
            reached.add(path)
            with suppress(OSError):
                texts.append((workdir / path).read_bytes())
    return frozenset(reached)


def _name(path: str) -> re.Pattern[bytes]:
    name = re.escape(Path(path).name.encode())
    if path.endswith(".py"):
        name = re.escape(Path(path).stem.encode()) + rb"(?:\.py)?"
    return re.compile(rb"(?<![\w.-])" + name + rb"(?![\w-]|\.\w)")


def _executes(path: Path, mode: int) -> bool:
    try:
        with path.open("rb") as handle:
            return bool(mode & 0o100) and handle.read(2) == b"#!"
    except OSError:
        return False


def _bad_line(path: Path, name: str, mode: int) -> int:
    """The first line that the program that runs this file would misread; 0 for none."""
    shell = name.lower().endswith(SHELLS)
    try:
        with path.open("rb") as handle:
            first = handle.readline(1 << 10)
            shell = shell or _SHELL_LINE.match(first) is not None
            if first.startswith(b"#!") and first.endswith(b"\r\n") and (shell or mode & 0o100):
                return 1  # the kernel looks for a program whose name ends with CR
            if not shell:
                return 0
            handle.seek(0)
            return next((number for number, line in enumerate(handle, 1) if line.endswith(b"\r\n")), 0)
    except OSError:
        return 0


def _pattern(name: str) -> str:
    suffix = Path(name).suffix
    return f"*{suffix}" if suffix else Path(name).name
