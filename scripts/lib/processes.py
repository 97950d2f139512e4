"""Runs the tools that set-up needs: with a deadline, live output, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts.lib.errors import Cancelled, SetupError

TAIL_LINES = 30


def run(
    argv: Sequence[object],
    *,
    what: str,
    deadline: float,
    cancel: threading.Event | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> str:
    """Runs a command to its end and returns its output (stdout and stderr together).

    Blocks for at most `deadline` seconds. `on_line` gets each line as it comes. The command runs in a process group of
    its own, which is killed on a deadline, on `cancel`, and when this thread is interrupted.

    Raises:
        SetupError: it failed, could not be started, or ran past the deadline; the message has its last lines.
        Cancelled: `cancel` was set.
    """
    words = [str(word) for word in argv]
    try:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env=dict(env) if env is not None else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise SetupError(f"{what}: cannot run {words[0]}: {error.strerror}") from error
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    output: list[str] = []

    def drain() -> None:
        assert process.stdout is not None
        for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            output.append(line)
            tail.append(line)
            if on_line is not None:
                on_line(line)

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    ends = time.monotonic() + deadline
    try:
        while True:
            try:
                code = process.wait(0.1)
                break
            except subprocess.TimeoutExpired:
                if cancel is not None and cancel.is_set():
                    raise Cancelled(f"{what}: ended early") from None
                if time.monotonic() > ends:
                    raise SetupError(f"{what}: still running after {deadline:.0f} s\n" + _indent(tail)) from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        # A grandchild may still hold the pipe: the output so far is enough.
        reader.join(2)
    if code != 0:
        raise SetupError(f"{what}: `{' '.join(words[:4])} …` failed with exit code {code}\n" + _indent(tail))
    return "\n".join(output)


def _indent(lines: deque[str]) -> str:
    return "\n".join("    " + line for line in lines)


class Together:
    """Runs steps side by side. The first failure cancels the others and is the one that is raised."""

    def __init__(self, cancel: threading.Event | None = None) -> None:
        self.cancel = cancel or threading.Event()

    def __call__(self, steps: Sequence[Callable[[threading.Event], None]]) -> None:
        """Blocks until all have ended.

        Raises:
            SetupError: the first that was raised and is no `Cancelled`.
            KeyboardInterrupt: after all steps were ended.
        """
        failures: list[BaseException] = []

        def guarded(step: Callable[[threading.Event], None], ended: threading.Event) -> None:
            try:
                step(self.cancel)
            except BaseException as error:  # carried to the calling thread, which raises it
                failures.append(error)
                self.cancel.set()
            finally:
                ended.set()

        # Not Thread.join: once interrupted, Python 3.11 takes the running thread for ended, and its child would stay.
        endings = [threading.Event() for _ in steps]
        for step, ended in zip(steps, endings, strict=True):
            threading.Thread(target=guarded, args=(step, ended)).start()
        try:
            for ended in endings:
                ended.wait()
        except KeyboardInterrupt:
            self.cancel.set()
            for ended in endings:
                ended.wait()
            raise
        causes = [failure for failure in failures if not isinstance(failure, Cancelled)]
        for failure in causes or failures:
            raise failure
