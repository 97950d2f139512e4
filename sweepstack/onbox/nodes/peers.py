"""How the first node reaches its peers: the one place that knows what carries it.

A peer runs a program whose stdin, stdout and stderr are those of the process that is started here. All else (copying,
signals, waiting) is made of that, so another carrier (`srun` inside an allocation) is another `Peer`.
"""

from __future__ import annotations

import functools
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sweepstack.onbox.common.errors import Unreachable

TARGET = re.compile(
    r"((?P<user>[A-Za-z_][A-Za-z0-9_.-]*)@)?(?P<host>[A-Za-z0-9][A-Za-z0-9_.-]*)(:(?P<port>[0-9]{1,5}))?"
)
SMALL_SEGMENTS = Path(__file__).with_name("small_segments.py")
CONNECT_SECONDS = 10
LET_IN = "This node has to enter it without a question: try `ssh-copy-id {0}` and `ssh {0} true` here"
SILENT_SECONDS = 15
LAST_WORDS = 300


class Answer(NamedTuple):
    """How a program on a peer ended. `code`: 255 also means that the connection was not made, or broke."""

    code: int
    out: bytes
    err: str


class Peer:
    """A node besides the first one, entered by the first node's own ssh: its keys, its known hosts, its configuration.

    `name`: what the stack config says, `[user@]host[:port]`.
    """

    def __init__(self, name: str, careful: bool = False) -> None:
        """`careful`: only small segments are sent, which get through where larger packets are lost."""
        found = TARGET.fullmatch(name)
        if found is None:
            raise ValueError(f"{name!r} is no peer: write user@host or user@host:port")
        self.name = name
        self._careful = careful
        self._port = ["-p", found["port"]] if found["port"] else []
        self._login = f"{found['user']}@{found['host']}" if found["user"] else found["host"]

    def command(self, argv: Sequence[str]) -> list[str]:
        """What to start here so that `argv` runs there. Whatever runs there ends by itself when its stdin closes:
        ending the process here does not end it."""
        settings = [
            *("BatchMode=yes", f"ConnectTimeout={CONNECT_SECONDS}", "LogLevel=ERROR"),
            *(f"ServerAliveInterval={SILENT_SECONDS // 3}", "ServerAliveCountMax=3"),
        ]
        if self._careful and not ({"proxycommand", "proxyjump"} & set(self._configured)):
            proxy = shlex.join([sys.executable, "-I", "-S", str(SMALL_SEGMENTS)]).replace("%", "%%")
            settings += [f"ProxyCommand={proxy} %h %p", "ProxyUseFdpass=yes"]
        options = [word for one in settings for word in ("-o", one)]
        return ["ssh", "-T", "-x", "-a", *self._port, *options, self._login, shlex.join(argv)]

    @functools.cached_property
    def _configured(self) -> dict[str, str]:
        """What ssh's configuration on this machine says of it. Raises Unreachable."""
        asked = ["ssh", "-G", *self._port, self._login]
        try:
            said = subprocess.run(asked, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise Unreachable(f"{self.name}: ssh on this node does not say how it would enter it: {error}") from error
        lines = said.stdout.decode("utf-8", "replace").splitlines()
        pairs = (line.split(None, 1) for line in lines if " " in line)
        return {name: value for name, value in pairs if value != "none"}

    def address(self) -> str:
        """Its IPv4 address, as this machine resolves the name that ssh connects to. Raises Unreachable."""
        host = self._configured.get("hostname", "")
        try:
            return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
        except (OSError, IndexError) as error:
            raise Unreachable(f"{self.name}: {host} has no IPv4 address that this node knows: {error}") from error

    def ask(self, argv: Sequence[str], stdin: bytes = b"", seconds: float = 60.0) -> Answer:
        """Runs a program there until it ends. Blocks for `seconds` at most. Raises Unreachable when it did not end in
        time, or when it was not reached."""
        process = subprocess.Popen(
            self.command(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            out, err = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Unreachable(f"{self.name} gave no answer within {seconds:g} s") from None
        words = last_words(err)
        if process.returncode == 255:
            raise Unreachable(
                f"{self.name} can't be entered from here: {words or 'ssh said nothing'}. {LET_IN.format(self.name)}"
            )
        return Answer(process.returncode, out, words)


def last_words(err: bytes) -> str:
    """The end of what a program printed, in one line."""
    return " ".join(err.decode("utf-8", "replace").split())[-LAST_WORDS:]
