"""Asks a tool of the machine, such as nvidia-smi, and never waits for it longer than it is told to.

The tool of a driver that has lost a card may hang in the kernel, where no signal ends it: `subprocess.run` would wait
for its end for ever.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import signal
import subprocess

from sweepstack.onbox.common.processes import signal_group

KILL_SECONDS = 2.0
_hang: dict[str, subprocess.Popen[bytes]] = {}
"""By its path, a tool that was killed and has not ended: another one would hang beside it."""


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
        _end(tool, process)
        raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv[0])
    return said.decode("utf-8", "replace")


def _end(tool: str, process: subprocess.Popen[bytes]) -> None:
    signal_group(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    _hang[tool] = process
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILL_SECONDS)
