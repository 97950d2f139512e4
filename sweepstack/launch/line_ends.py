"""Finds shell scripts that end lines as Windows does: a shell takes the CR for a part of a word.

Only what a shell or a shebang runs is looked at. Python, YAML and the like read both kinds of line ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from sweepstack.core.workdir import ShippedFile

SHELLS = (".sh", ".bash", ".zsh", ".ksh", ".dash")
_SHELL_LINE = re.compile(rb"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*)?(?:\S*/)?(?:ba|z|k|da|a)?sh\b")
_MOST = 4 << 20
"""Bytes. No shell script is longer."""


def crlf_problems(workdir: Path, files: Iterable[ShippedFile]) -> list[str]:
    """One line for each script that would fail on a box, with its fix. A file that can't be read is left to others."""
    problems = []
    for file in files:
        line = _bad_line(workdir / file.path, file.path, file.mode) if file.size <= _MOST else 0
        if line:
            problems.append(
                f"{file.path}, line {line}: ends with CRLF, as on Windows, and a shell takes the CR for part of the "
                f"command; run sed -i 's/\\r$//' {file.path}, and keep it so: echo '{_pattern(file.path)} text eol=lf' "
                ">> .gitattributes"
            )
    return problems


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
