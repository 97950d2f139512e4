"""A fresh checkout in a home of its own, as a new user has it, and the ways to measure a command in it."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMAND_SECONDS = 900.0


class BenchFailed(Exception):
    """A command of the bench failed: there is no figure. The message has its output."""


class Clone:
    """The tracked and new files of this checkout, copied; HOME, state and data are temporary, caches are the user's.

    Everything that it started is ended and everything it wrote is removed on leaving.
    """

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="sweepstack-bench-"))
        self.root = self.base / "checkout"
        home = self.base / "home"
        home.mkdir()
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        keep = ("PATH", "LANG", "SSL_CERT_FILE", "PIP_CERT", "PYENV_ROOT", "GOMODCACHE", "TMPDIR")
        self.env: dict[str, str] = {key: os.environ[key] for key in keep if key in os.environ} | {
            "HOME": str(home),
            "XDG_CACHE_HOME": cache,
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR") or f"{cache}/uv",
            "XDG_DATA_HOME": str(self.base / "data"),
            "NO_COLOR": "1",
        }

    def __enter__(self) -> Clone:
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, timeout=60).stdout.decode()
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                target = self.root / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_processes_of(self.base)
        shutil.rmtree(self.base, ignore_errors=True)

    @property
    def pulumi(self) -> str:
        return str(self.root / ".venv" / "bin" / "pulumi")

    def run(self, *argv: str, cwd: Path | None = None, seconds: float = COMMAND_SECONDS) -> float:
        """Runs a command to its end and returns its wall seconds.

        Raises:
            BenchFailed: exit code other than 0, or the deadline.
        """
        began = time.perf_counter()
        try:
            done = subprocess.run(
                argv,
                cwd=cwd or self.root,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchFailed(f"{' '.join(argv)}: still running after {seconds:.0f} s") from error
        took = time.perf_counter() - began
        if done.returncode != 0:
            raise BenchFailed(f"{' '.join(argv)}: exit code {done.returncode}\n{done.stdout[-4000:]}")
        return took


def end_processes_of(base: Path) -> None:
    """Kills what still runs with an environment that names `base` (trainings of a bench that failed). Linux only."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if str(base).encode() in environment and int(folder.name) != os.getpid():
            try:
                os.kill(int(folder.name), signal.SIGKILL)
            except OSError:
                continue


def spread(seconds: Sequence[float]) -> dict[str, Any]:
    """Median and maximum, as every figure is given."""
    return {"n": len(seconds), "median": round(statistics.median(seconds), 3), "max": round(max(seconds), 3)}


def interleaved(ways: Mapping[str, Sequence[str]], clone: Clone, cwds: Mapping[str, Path], n: int) -> dict[str, Any]:
    """Measures several commands turn by turn, so that a noisy neighbour hits all of them; one warm-up each."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(n + 1):
        for name, argv in ways.items():
            took = clone.run(*argv, cwd=cwds[name])
            if turn:
                times[name].append(took)
    return {name: spread(values) for name, values in times.items()}
