"""How the first node reaches its peers: the one place that knows what carries it.

A peer runs a program whose stdin, stdout and stderr are those of the process that is started here. All else (copying,
signals, waiting) is made of that. ssh carries it, or what starts programs on the nodes of an allocation (`srun`): the
`Allocation` says which nodes those are, and by which command.
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

from sweepstack.onbox.common import small_segments
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.nodes import PEER, Allocation

SMALL_SEGMENTS = Path(small_segments.__file__)
CONNECT_SECONDS = 10
LET_IN = "This node has to enter it without a question: try `ssh-copy-id {0}` and `ssh {0} true` here"
SILENT_SECONDS = 15
LAST_WORDS = 300
NODE = "{node}"
"""What stands in the command of an allocation where a node's name belongs."""


class PeerExit(NamedTuple):
    """How a program on a peer ended. `code`: 255 also means that the connection was not made, or broke."""

    code: int
    out: bytes
    err: str


class Carrier:
    """A node besides the first one. `name`: for people, and of the journal."""

    name: str

    def command(self, argv: Sequence[str]) -> list[str]:
        """What to start here so that `argv` runs there. Whatever runs there ends by itself when its stdin closes:
        ending the process here does not end it."""
        raise NotImplementedError

    def address(self) -> str:
        """Its IPv4 address, as this machine resolves the name that is connected to. Raises Unreachable."""
        raise NotImplementedError

    def lost(self, code: int, words: str) -> str:
        """Why a program that ended so was not reached, or was cut off; "" where it ended by itself."""
        raise NotImplementedError

    def ask(self, argv: Sequence[str], stdin: bytes = b"", seconds: float = 60.0) -> PeerExit:
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
        if why := self.lost(process.returncode, words):
            raise Unreachable(f"{self.name} {why}")
        return PeerExit(process.returncode, out, words)


class AllocatedPeer(Carrier):
    """A node of the worker's allocation, on which the scheduler starts programs."""

    def __init__(self, name: str, allocation: Allocation) -> None:
        self.name, self._at, self._start = name, allocation.nodes[name], allocation.start

    def command(self, argv: Sequence[str]) -> list[str]:
        return [*(word.replace(NODE, self.name) for word in self._start), *argv]

    def address(self) -> str:
        return _resolved(self.name, self._at)

    def lost(self, code: int, words: str) -> str:
        broken = re.search(r"(?:srun|stepd|enter): error: (?!\S+: tasks? \d)(.*)", words)
        return f"can't be reached from here: {broken[1]}" if code and broken is not None else ""


class Peer(Carrier):
    """A node besides the first one, entered by the first node's own ssh: its keys, its known hosts, its configuration.

    `name`: what the stack config says, `[user@]host[:port]`.
    """

    def __init__(self, name: str, careful: bool = False) -> None:
        """`careful`: only small segments are sent, which get through where larger packets are lost."""
        found = PEER.fullmatch(name)
        if found is None:
            raise ValueError(f"{name!r} is no peer: write user@host or user@host:port")
        self.name = name
        self._careful = careful
        self._port = ["-p", found["port"]] if found["port"] else []
        self._login = f"{found['user']}@{found['host']}" if found["user"] else found["host"]

    def command(self, argv: Sequence[str]) -> list[str]:
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
        return _resolved(self.name, self._configured.get("hostname", ""))

    def lost(self, code: int, words: str) -> str:
        if code != 255:
            return ""
        return f"can't be entered from here: {words or 'ssh said nothing'}. {LET_IN.format(self.name)}"


def peer_of(name: str, allocation: Allocation | None, careful: bool = False) -> Carrier:
    """A node besides the first: of an allocation, else one that ssh enters. `careful`: as in `Peer`."""
    return Peer(name, careful) if allocation is None else AllocatedPeer(name, allocation)


def _resolved(name: str, host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, IndexError) as error:
        raise Unreachable(f"{name}: {host} has no IPv4 address that this node knows: {error}") from error


def last_words(err: bytes) -> str:
    """The end of what a program printed, in one line."""
    return " ".join(err.decode("utf-8", "replace").split())[-LAST_WORDS:]
