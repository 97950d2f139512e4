"""A person on a box of this machine: a shell or a command in its folder, on the person's own terminal.

Such a process is not the box's. It does not carry the box's id, so a stop or a delete neither waits for it nor ends it;
all it loses then is the folder under its feet. What it starts is the person's, too.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sweep.channel.base import BOX_ID_VARIABLE
from sweep.errors import PlatformError

VISITED = "SWEEPSTACK_VISITING"
"""The box that a shell is on, for prompts; nothing is found or ended by it."""
KEPT = ("TERM", "LANG", "LC_ALL", "COLORTERM", "USER", "LOGNAME", "SHELL", "TZ", "NO_COLOR", "SSH_AUTH_SOCK")
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def environment(native_id: str, root: Path) -> dict[str, str]:
    """What a process of the box sees, without the mark that makes it one; and the terminal's own."""
    env = {name: value for name in KEPT if (value := os.environ.get(name)) is not None}
    env |= {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(root), VISITED: native_id}
    env.pop(BOX_ID_VARIABLE, None)
    return env


def run(native_id: str, root: Path, cwd: Path, argv: Sequence[str]) -> int:
    """See `Channel.attach`. An interrupt at the terminal reaches the command; it alone decides what that means."""
    command = list(argv) or [os.environ.get("SHELL") or "/bin/sh"]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        code = subprocess.run(
            command,
            cwd=cwd,
            env=environment(native_id, root),
            check=False,
            preexec_fn=_interruptible,  # what is ignored here would be ignored there, too
        ).returncode
    except FileNotFoundError:
        return _complain(f"{command[0]}: there is no such command on the box", NOT_FOUND)
    except OSError as error:
        return _complain(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def _interruptible() -> None:
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def _complain(text: str, code: int) -> int:
    os.write(2, f"sweepctl: {text}\n".encode())
    return code


def reachable(port: int, local: int) -> str:
    """See `Channel.reach`: the box is this machine. Looks whether something answers at `port`."""
    if local != port:
        raise PlatformError(
            f"the box is this machine: its port {port} is {port} here already, and is not renamed to {local}. "
            f"Next: leave the second port away"
        )
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        answers = probe.connect_ex(("127.0.0.1", port)) == 0
    where = f"http://127.0.0.1:{port}"
    if answers:
        return f"nothing to forward: the box is this machine, and something answers at {where}"
    return f"nothing to forward: the box is this machine, and {where} is it; nothing answers there yet"
