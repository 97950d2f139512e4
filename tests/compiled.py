"""The runner's files with what Python compiled of them.

Else each box of each test would compile all of it again when its runner starts, in a sixth of a second of a core.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sweepstack.launch import ship

SECONDS = 120.0


@functools.cache
def compiled_runner(python: str = sys.executable) -> Path:
    """A folder with them, made once in a process. What was compiled holds whatever times the copies of its sources
    have."""
    folder = Path(tempfile.mkdtemp(prefix="sweepstack-runner-"))
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))  # not in a fork of us
    for path, source, _ in RUNNER_FILES():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / path)
    command = [python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(folder)]
    subprocess.run(command, check=True, timeout=SECONDS)
    return folder


RUNNER_FILES = ship.runner_files


def ship_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on boxes get them compiled. Their Python takes none of it where it is another version."""
    folder = compiled_runner()
    more = [(str(path.relative_to(folder)), path, 0o644) for path in sorted(folder.rglob("*.pyc"))]
    monkeypatch.setattr(ship, "runner_files", lambda: [*RUNNER_FILES(), *more])
