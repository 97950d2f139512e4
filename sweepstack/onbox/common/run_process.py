"""Runs a command until it ends, or kills it with its process group at a deadline or upon a cancel.

`says` asks a tool of the machine, such as nvidia-smi. The tool of a driver that has lost a card may hang in the kernel,
where no signal ends it: `subprocess.run` would wait for its end for ever.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.processes import signal_group

LOOK_SECONDS, KILL_SECONDS = 0.2, 10.0

TOOL_KILL_SECONDS = 2.0
_hang: dict[str, subprocess.Popen[bytes]] = {}
"""By its path, a tool that was killed and has not ended: another one would hang beside it."""


class Completed(NamedTuple):
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


def says(*argv: str, seconds: float, path: str | None = None, check: bool = True) -> str:
    """What a tool prints. `path`: where it is looked for, if not on PATH. Blocks for `seconds` at most, and for
    KILL_SECONDS more where it has to be ended.

    Raises OSError where it is not there or can't be started; subprocess.SubprocessError where it does not end in time,
    or hangs since an earlier call, and with `check` where it ends with another exit code than 0.
    """
    tool = shutil.which(argv[0], path=path)
    if not tool:
        raise FileNotFoundError(errno.ENOENT, f"{argv[0]} is not on PATH")
    before = _hang.get(tool)
    if before is not None and before.poll() is None:
        raise subprocess.TimeoutExpired(argv[0], seconds)
    process = subprocess.Popen(
        [tool, *argv[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except BaseException:
        _end_tool(tool, process)
        raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv[0])
    return said.decode("utf-8", "replace")


def _end_tool(tool: str, process: subprocess.Popen[bytes]) -> None:
    signal_group(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    _hang[tool] = process
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(TOOL_KILL_SECONDS)
