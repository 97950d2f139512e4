"""Runs the programs of a setup one after the other, and writes their output to one log."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.processes import signal_group, start_of
from sweepstack.onbox.runner.cell_processes import end_group
from sweepstack.onbox.runner.environment import redact_file

KILL_SECONDS = 5.0
LAST_LINE = 300


class SetupFailed(SweepstackError):
    """A setup failed. The message is the reason."""


class Steps:
    """The programs of one setup: each runs in a process group of its own, and writes to the same log."""

    def __init__(
        self,
        log: Path,
        env: dict[str, str],
        hidden: list[str],
        deadline: float,
        running: set[int],
        stopping: threading.Event,
    ) -> None:
        self.env = env
        self._hidden = hidden
        self._log, self._deadline, self._running, self._stopping = log, deadline, running, stopping

    def run(self, argv: list[str], folder: Path, check: bool = True) -> int:
        """Runs one program until it ends. Returns its exit code. Raises SetupFailed when it fails (with `check`), when
        the deadline passes, or when the runner is stopped."""
        record = self._log.with_suffix(".pid")
        with open(self._log, "ab", buffering=0) as log:
            begin = log.tell()
            process = subprocess.Popen(
                argv, cwd=folder, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._running.add(process.pid)
        try:
            record.write_text(json.dumps({"pid": process.pid, "start": start_of(process.pid)}) + "\n")
            if self._stopping.is_set():
                signal_group(process.pid, signal.SIGTERM)
            code: int | None = process.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            signal_group(process.pid, signal.SIGTERM)
            code = None
        finally:
            left = end_group(process.pid, KILL_SECONDS)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILL_SECONDS)
            self._running.discard(process.pid)
            if not left:
                record.unlink()
        if code is None:
            raise SetupFailed(f"it did not end within its deadline; {self._last_line(begin)}")
        if left:
            raise SetupFailed(f"processes that it left behind can't be ended: {left}")
        if self._stopping.is_set():
            raise SetupFailed("the runner was stopped")
        if code and check:
            raise SetupFailed(f"exit code {code}: {self._last_line(begin)}")
        return code

    def _last_line(self, begin: int) -> str:
        redact_file(self._log, self._hidden)  # before a part is cut out: half a secret would not be found
        with open(self._log, "rb") as log:
            log.seek(max(begin, log.seek(0, os.SEEK_END) - 4096))
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:LAST_LINE] if lines else "it said nothing"


def asked(argv: list[str]) -> str:
    """The last line that an interpreter prints, run without Python's variables. Raises SetupFailed."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.path.expanduser("~")}
    try:
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60, check=True)
        return done.stdout.decode().splitlines()[-1]
    except (OSError, IndexError, subprocess.SubprocessError) as error:
        raise SetupFailed(f"{argv[0]} can't be run: {error}") from error
