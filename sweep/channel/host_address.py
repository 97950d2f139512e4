"""How a host of the user's own is named, in stack files and in state: `[user@]host[:port][/folder]`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sweep.channel.base import SshEndpoint
from sweep.errors import ConfigError

_ADDRESS = re.compile(
    r"(?:(?P<user>[A-Za-z_][A-Za-z0-9_.-]*)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9_.-]*)"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<root>/[^\s\0:]*)?"
)


@dataclass(frozen=True)
class HostAddress:
    """A host, and the folder on it below which boxes lie ("": the default of its user)."""

    user: str
    host: str
    port: int
    root: str = ""

    @classmethod
    def parse(cls, text: str) -> HostAddress:
        """`[user@]host[:port][/folder]`. Raises ConfigError for anything else."""
        match = _ADDRESS.fullmatch(text)
        folder = (match["root"] or "") if match is not None else ""
        if match is None or int(match["port"] or 22) not in range(1, 65536) or ".." in folder.split("/"):
            raise ConfigError(f"{text!r} is no host: write user@host, user@host:port or user@host:port/folder")
        host = match["host"].strip("[]")
        return cls(match["user"] or "root", host, int(match["port"] or 22), folder.rstrip("/"))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}{self.root}"

    @property
    def login(self) -> str:
        """Without the folder: the same for all boxes of one user on one host."""
        return str(HostAddress(self.user, self.host, self.port))

    @property
    def endpoint(self) -> SshEndpoint:
        """Where its sshd listens. A host keeps its key over restarts, and all boxes on it show the same one."""
        return SshEndpoint(self.host, self.port, self.user, known_as=self.login)
