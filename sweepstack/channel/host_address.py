"""How a host of the user's own is named, in stack files and in state.

    [user@]host[:port][/folder]                      the host itself
    user@bastion:22,user@host:22/folder              through other hosts, the first one first, as `ssh -J` takes them
    name[/folder]                                    what `ssh name` means here, or else root@name:22
    name=user@bastion:22,user@host:22/folder         a name of ~/.ssh/config, and what it led to: in state alone

State is read on other machines. So a name is kept with what it led to, and never with a file's path: where the name is
not configured, its own address does. A `*` before it says that a ProxyCommand led there, which no other machine has.
"""

from __future__ import annotations

import re

from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import ConfigError

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_HOP = re.compile(
    rf"(?:(?P<user>[A-Za-z_][A-Za-z0-9_.-]*)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|{_NAME})(?::(?P<port>[0-9]{{1,5}}))?"
)
_ADDRESS = re.compile(rf"(?:(?P<alias>{_NAME})=)?(?P<hops>[^/=\s\0]+)(?P<root>/[^\s\0:]*)?")
_COMMAND = "*"
MOST_HOPS = 8


@dataclass(frozen=True)
class Hop:
    """One host on the way, or at its end."""

    user: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Hop:
        """`[user@]host[:port]`. Raises ConfigError."""
        match = _HOP.fullmatch(text)
        if match is None or int(match["port"] or 22) not in range(1, 65536):
            raise ConfigError(f"{text!r} is no host")
        return cls(match["user"] or "root", match["host"].strip("[]"), int(match["port"] or 22))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}"


@dataclass(frozen=True)
class HostAddress:
    """A host, and the folder on it below which boxes lie ("": the default of its user).

    `jumps`: the hosts on the way, the first one first. `alias`: its name in ssh's configuration, "" where it has none.
    `bare`: only a name was given, and it was not looked up yet. `by_command`: the alias leads there through
    a ProxyCommand, which is known where the alias is.
    """

    user: str
    host: str
    port: int
    root: str = ""
    jumps: tuple[Hop, ...] = ()
    alias: str = ""
    bare: bool = False
    by_command: bool = False

    @classmethod
    def parse(cls, text: str) -> HostAddress:
        """Any of the forms above. Raises ConfigError for anything else."""
        match = _ADDRESS.fullmatch(text)
        folder = (match["root"] or "").rstrip("/") if match is not None else ""
        try:
            if match is None or ".." in folder.split("/"):
                raise ConfigError("no address")
            words = match["hops"].split(",")
            by_command = bool(match["alias"]) and words[0] == _COMMAND
            *jumps, last = [Hop.parse(word) for word in words[1 if by_command else 0 :]]
            if len(jumps) > MOST_HOPS:
                raise ConfigError("too far")
        except (ConfigError, ValueError):
            raise ConfigError(
                f"{text!r} is no host: write user@host, user@host:port, user@host:port/folder, a host of your "
                f"~/.ssh/config by its name, or user@bastion:port,user@host:port to go through another one"
            ) from None
        bare = not match["alias"] and re.fullmatch(_NAME, match["hops"]) is not None
        return cls(last.user, last.host, last.port, folder, tuple(jumps), match["alias"] or "", bare, by_command)

    def __str__(self) -> str:
        return f"{self.login}{self.root}" if not self.alias else f"{self.alias}={self._route}{self.root}"

    @property
    def name(self) -> str:
        """What ssh's configuration may know it by; "" where the address is given in full."""
        return self.alias or (self.host if self.bare else "")

    @property
    def hop(self) -> Hop:
        """The host itself."""
        return Hop(self.user, self.host, self.port)

    @property
    def login(self) -> str:
        """Without the folder: the same for all boxes of one user on one host. Its host key is pinned under it."""
        return self.name or self._route

    @property
    def endpoint(self) -> SshEndpoint:
        """Where its sshd listens. A host keeps its key over restarts, and all boxes on it show the same one."""
        return SshEndpoint(self.host, self.port, self.user, known_as=self.login)

    def explicit(self) -> HostAddress:
        """For a name that nothing here knows: the host of that name."""
        return replace(self, bare=False)

    @property
    def _route(self) -> str:
        way = [_COMMAND] if self.by_command else []
        return ",".join([*way, *map(str, self.jumps), str(self.hop)])
