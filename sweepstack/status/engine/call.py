"""One `pulumi` command that only reads, started early and waited for later.

Imports next to nothing, so that the engine can begin before anything else is imported.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sweepstack.core.paths import engine_fix
from sweepstack.onbox.common.errors import ConfigError, SweepstackError

SECONDS = 120.0
"""From the beginning of a command to its end."""


class EngineCall:
    """A command that runs. `command`: the engine and its words. `backend`: the URL of another one than is used here.
    `seconds`: from its beginning to its end, `SECONDS` where it is None; a preview takes longer than an export.

    Costs nothing and changes nothing. One that is not waited for ends by itself. Raises SweepstackError where it can't
    be started.
    """

    def __init__(
        self, command: Sequence[str], project_root: Path, backend: str = "", *, seconds: float | None = None
    ) -> None:
        self.shown = f"pulumi {' '.join(command[1:3])}"
        self.root, self.backend = project_root, backend
        self._seconds = SECONDS if seconds is None else seconds
        self._deadline = time.monotonic() + self._seconds
        env = {**os.environ, "PULUMI_BACKEND_URL": backend} if backend else None
        try:
            self._process = subprocess.Popen(
                [*command, "--non-interactive"],
                cwd=project_root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
            )
        except OSError as error:
            raise SweepstackError(f"{command[0]} could not be run: {error}. Next: {engine_fix()}") from error

    def answer(self) -> tuple[int, bytes, str]:
        """Exit code, stdout, and what it complained of. Blocks until it ends, `seconds` at most; to be called once.

        Raises SweepstackError where it does not end in time.
        """
        with self._process as process:
            try:
                out, err = process.communicate(timeout=max(self._deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise SweepstackError(f"`{self.shown}` did not answer within {self._seconds:.0f} s") from error
            except BaseException:
                process.kill()
                raise
        return process.returncode, out, err.decode("utf-8", "replace").strip().removeprefix("error: ")


class ExportCall(EngineCall):
    """`pulumi stack export` of one stack: `sweepstack.status.engine.state.Export` waits for it and reads the answer."""

    def __init__(self, stack: str, project_root: Path, backend: str = "") -> None:
        super().__init__([find_engine(), "stack", "export", "--stack", stack], project_root, backend)
        self.stack, self.project_root = stack, project_root


def find_engine() -> str:
    """The `pulumi` to run: the launcher beside this interpreter, else the one on PATH."""
    launcher = Path(sys.executable).parent / "pulumi"
    if os.access(launcher, os.X_OK):
        return str(launcher)
    found = shutil.which("pulumi")
    if found is None:
        raise SweepstackError(f"no `pulumi` beside this Python and none on PATH. Next: {engine_fix()}")
    return found


def find_project_root(start: Path) -> Path:
    """The nearest folder at or above `start` that holds a Pulumi.yaml. Raises ConfigError when there is none."""
    for folder in [start, *start.parents]:
        if (folder / "Pulumi.yaml").is_file():
            return folder
    raise ConfigError(f"there is no Pulumi.yaml in {start} or above it: run this inside a sweepstack project")
