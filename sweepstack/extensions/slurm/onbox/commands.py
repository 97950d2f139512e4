"""Runs the commands of Slurm, with a time limit, in an environment that changes nothing.

An environment variable may change what a command does (`SBATCH_PARTITION`, `SQUEUE_FORMAT`). So a command gets none of
them, plain English messages, and times as epoch seconds. Python 3.8 and the standard library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Sequence

from sweepstack.onbox.common import run_process
from sweepstack.onbox.common.errors import RequestRefused, Unreachable

READ_SECONDS = 20.0
WRITE_SECONDS = 60.0
SHELL_SECONDS = 10.0
PLACES = (
    "/usr/bin",
    "/usr/local/bin",
    "/opt/slurm/bin",
    "/usr/local/slurm/bin",
    "/cm/shared/apps/slurm/current/bin",
    "/opt/slurm/current/bin",
)
_LOST = (
    "unable to contact",
    "timed out",
    "zero bytes",
    "connection refused",
    "connection reset",
    "communication connection failure",
    "communications connection failure",
    "unexpected message",
    "temporarily unable",
    "protocol authentication error",
    "munge",
    "broken pipe",
)
"""What a command prints, in lower case, has one of these in it when the controller did not answer, or its answer was
lost."""
_FOUND: dict[str, str] = {}


def program(name: str) -> str:
    """The absolute path of a command of Slurm. Raises Unreachable when this machine has none: it may be the wrong
    machine, or a disk that is not mounted, and nothing is known of the jobs then."""
    if name not in _FOUND:
        path = shutil.which(name) or shutil.which(name, path=os.pathsep.join(PLACES)) or _by_login_shell(name)
        if path is None:
            raise Unreachable(
                f"there is no {name} here: a login node of the cluster has it (looked on PATH, in {', '.join(PLACES)}, "
                "and where a login shell finds it)"
            )
        _FOUND[name] = path
    return _FOUND[name]


def _by_login_shell(name: str) -> str | None:
    """Where the shell of a login finds it: sites set PATH in files that only a login reads."""
    try:
        done = run_process.run(
            "a login shell",
            ["/bin/sh", "-lc", 'command -v "$1"', "sh", name],
            cwd="/",
            env={"HOME": os.path.expanduser("~"), "PATH": os.environ.get("PATH", os.defpath)},
            timeout=SHELL_SECONDS,
        )
    except (OSError, Unreachable):
        return None
    found = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return found[-1] if found and os.path.isabs(found[-1]) and os.access(found[-1], os.X_OK) else None


def environment() -> dict[str, str]:
    """The environment of each command."""
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.path.expanduser("~"),
        "LANG": "C",
        "LC_ALL": "C",
        "SLURM_TIME_FORMAT": "%s",
    }
    if os.environ.get("SLURM_CONF"):
        env["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return env


def ask(name: str, *arguments: str, seconds: float = READ_SECONDS) -> str:
    """What a command that only reads prints. Raises Unreachable for every failure: then nothing is known."""
    done = _run(name, arguments, seconds)
    if done.returncode != 0:
        raise Unreachable(f"`{_shown(name, arguments)}` failed ({done.returncode}): {_said(done)}")
    return done.stdout.decode("utf-8", "replace")


def send(name: str, *arguments: str, seconds: float = WRITE_SECONDS) -> str:
    """What a command that changes something prints. Raises RequestRefused when the cluster refused it, so that nothing
    was changed; Unreachable when it may have been carried out: look before it is sent again."""
    done = _run(name, arguments, seconds)
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace")
    said = _said(done)
    if done.returncode < 0 or not said or any(word in said.lower() for word in _LOST):
        raise Unreachable(f"`{_shown(name, arguments)}`: whether it was carried out is not known: {said or 'no word'}")
    raise RequestRefused(f"the cluster refused `{_shown(name, arguments)}`: {said}")


def _run(name: str, arguments: Sequence[str], seconds: float) -> run_process.Completed:
    argv: list[str] = [program(name), *arguments]
    try:
        return run_process.run(
            f"`{_shown(name, arguments)}`", argv, cwd="/", env=environment(), timeout=seconds, stdin=b""
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unreachable(f"`{name}` can't be run: {error}") from error


def _shown(name: str, arguments: Sequence[str]) -> str:
    """The command for a message; its first words tell which one it was."""
    words = " ".join([name, *arguments])
    return words if len(words) <= 160 else words[:157] + "…"


def _said(done: run_process.Completed) -> str:
    text = (done.stderr + b"\n" + done.stdout).decode("utf-8", "replace")
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())[:600]
