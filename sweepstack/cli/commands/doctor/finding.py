"""The result of one check of `sweepctl doctor`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from sweepstack.onbox.common.dataclass import dataclass

TOOL_SECONDS = 20.0


@dataclass(frozen=True)
class Finding:
    """One result. `found`: what is there. `fix`: what to do about it, "" if nothing."""

    name: str
    verdict: Literal["ok", "warn", "fail", "unknown"]
    found: str
    fix: str = ""


Check = Callable[[], list[Finding]]


def ok(name: str, found: str) -> Finding:
    return Finding(name, "ok", found)


def warn(name: str, found: str, fix: str) -> Finding:
    return Finding(name, "warn", found, fix)


def fail(name: str, found: str, fix: str) -> Finding:
    return Finding(name, "fail", found, fix)


def unknown(name: str, found: str, fix: str) -> Finding:
    return Finding(name, "unknown", found, fix)


@dataclass(frozen=True)
class ToolOutput:
    """A tool's answer; `code` is None if it could not be run, or did not end in time."""

    code: int | None
    out: str
    err: str

    @property
    def first(self) -> str:
        """The first line of its output."""
        return next(iter((self.out.strip() or self.err.strip()).splitlines()), "")


def ask(command: Sequence[str], cwd: Path | None = None, seconds: float = TOOL_SECONDS) -> ToolOutput:
    """Runs a tool to its end. Never raises."""
    try:
        done = subprocess.run(
            list(command), cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return ToolOutput(None, "", f"{type(error).__name__}: {error}")
    return ToolOutput(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def first_line(text: str) -> str:
    """The first line of a message that is not empty."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
