"""Runs a command until it ends, or kills it with its process group at a deadline or upon a cancel."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.processes import signal_group

LOOK_SECONDS, KILL_SECONDS = 0.2, 10.0


@dataclass(frozen=True)
class Completed:
    """How a command ended; `returncode` is -n for signal n. It does not prove what the command did."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run(
    what: str,
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout: float,
    stdin: bytes | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Completed:
    """Blocks until the command has ended. `what` names it in errors; `cancelled` is asked several times a second.

    Raises Unreachable after `timeout` seconds or once `cancelled()`, OSError when it can't be started. Upon any
    exception, an interrupt too, its process group has been killed.
    """
    process = subprocess.Popen(
        list(argv),
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    ends = time.monotonic() + timeout
    try:
        while True:
            left = ends - time.monotonic()
            try:
                stdout, stderr = process.communicate(stdin, max(0.0, min(left, LOOK_SECONDS) if cancelled else left))
                return Completed(process.returncode, stdout, stderr)
            except subprocess.TimeoutExpired:
                stdin = None  # communicate() remembers what it was given
            if cancelled is not None and cancelled():
                raise Unreachable(f"{what} was ended: the command that asked for it is gone")
            if time.monotonic() >= ends:
                raise Unreachable(f"{what} did not end within {timeout:g} s")
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    signal_group(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
        process.communicate(timeout=1)  # a grandchild in another session may hold the pipes
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel ends upon no signal
        process.wait(KILL_SECONDS)
