"""Runs a person's shell or command on a box, in the box's folder and on the person's terminal.

Such a process does not belong to the box. It does not have the box's id in its environment, so a stop or delete neither
waits for it nor ends it; the delete only removes its folder. The same holds for the processes that it starts.

This module is sent alone, as an argument that `ps` on the box shows: it imports no other module of ours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

VISITED = "SWEEPSTACK_VISITING"
"""Variable with the id of the box that a shell is on, for prompts. It does not make the process one of the box."""
KEPT = ("TERM", "LANG", "LC_ALL", "COLORTERM", "USER", "LOGNAME", "SHELL", "TZ", "NO_COLOR", "SSH_AUTH_SOCK")
NOT_FOUND, NOT_EXECUTABLE = 127, 126
HANGUP_SECONDS = 5.0


def environment(native_id: str, root: Path) -> dict[str, str]:
    """The environment of a process of the box, but without the box's id; and the terminal's variables."""
    env = {name: value for name in KEPT if (value := os.environ.get(name)) is not None}
    return {**env, "PATH": os.environ.get("PATH", os.defpath), "HOME": str(root), VISITED: native_id}


def run(command: Sequence[str], cwd: Path, env: Mapping[str, str], *, leash: int | None = None) -> int:
    """See `Channel.attach`. An interrupt at the terminal goes to the command, and only the command handles it.

    `leash`: a descriptor that the person's side closes when it ends. Then the command's group gets SIGHUP, and SIGKILL
    after `HANGUP_SECONDS`: without a terminal nothing else tells it that the connection broke.
    """
    try:
        with interrupts_for_command():
            process = subprocess.Popen(list(command), cwd=cwd, env=dict(env), start_new_session=leash is not None)
            code = process.wait() if leash is None else _until_cut(process, leash)
    except FileNotFoundError:
        return _complain(f"{command[0]}: there is no such command on the box", NOT_FOUND)
    except OSError as error:
        return _complain(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE)
    return 128 - code if code < 0 else code


def visit(settings: Mapping[str, Any]) -> int:
    """Runs a person's command, or a shell, on this terminal or these pipes. See `Channel.attach`. The code that started
    this program has removed the box's id from its environment (`agent_source`)."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    command = list(settings["argv"]) or [shell, "-l"]
    env = {**os.environ, VISITED: str(settings["native_id"])}
    cwd = Path(settings["root"], settings["cwd"])
    if not cwd.is_dir():
        os.write(2, f"sweepctl: {cwd} is not there: {os.strerror(errno.ENOENT)}\n".encode())
        return NOT_EXECUTABLE
    return run(command, cwd, env, leash=None if settings["terminal"] else 1)


def _until_cut(process: subprocess.Popen[bytes], leash: int) -> int:
    poller = select.poll()
    poller.register(leash, 0)  # errors and hang-ups are always reported
    while True:
        try:
            return process.wait(0.1)
        except subprocess.TimeoutExpired:
            if poller.poll(0):
                break
    for number in (signal.SIGHUP, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(HANGUP_SECONDS)
    return process.wait()


@contextlib.contextmanager
def interrupts_for_command() -> Iterator[None]:
    """Meanwhile Ctrl-C and Ctrl-\\ at the terminal do nothing here, and end a command that is started here.

    By a handler, not by SIG_IGN: a command inherits that a signal is ignored, but not a handler.
    """
    before = {number: signal.signal(number, _do_nothing) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _do_nothing(number: int, frame: Any) -> None:
    pass


def _complain(text: str, code: int) -> int:
    os.write(2, f"sweepctl: {text}\n".encode())
    return code
