"""The ssh command line for one box, and the connection that all its commands share."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

from sweepstack.channel.pinned_keys import Pin
from sweepstack.channel.ssh.keys import SshKey
from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import PlatformError

CONNECT_SECONDS = 15
ALIVE_SECONDS, ALIVE_COUNT = 10, 3
"""A connection over which nothing came for their product is given up."""
PERSIST_SECONDS = 60
MASTER_SECONDS = 5.0
LONGEST_SOCKET = 80
"""Bytes of the socket's path: the system takes about 104, and ssh adds 17 while it makes it."""


@dataclass(frozen=True)
class Way:
    """How one box is reached: where, with which key, and which host key it has to show.

    `config`: an ssh configuration file to read; none is read by default, so that a person's own settings for all hosts
    change nothing here. `via`: the way to the host that it goes through, which has to show its own pinned key. `proxy`:
    a command that leads there instead, from the person's configuration. `master`: the socket of the connection that the
    person's own ssh shares, "" for none: while that is open, all goes over it, and nothing here ever ends it.
    """

    endpoint: SshEndpoint
    key: SshKey
    pin: Pin
    config: str = "none"
    via: Way | None = None
    proxy: str = ""
    master: str = ""
    name: str = ""
    """What the person's own ssh calls it; "" where they gave an address."""

    def command(self, *options: str, shared: bool = True, known: Path | None = None, masters: bool = True) -> list[str]:
        """`ssh … user@host`, to which the remote command is added. `options`: more of ssh's own.

        `shared`: over one connection that stays open for a while. `known`: where an unknown host key is written, at
        first contact; else only the pinned one will do. `masters`: over the person's own connection, where that is
        open: who that was let in, and which host key it saw, their ssh has decided.
        """
        settings = {
            "BatchMode": "yes",
            "ConnectTimeout": CONNECT_SECONDS,
            "ServerAliveInterval": ALIVE_SECONDS,
            "ServerAliveCountMax": ALIVE_COUNT,
            "HostKeyAlias": self.pin.alias,
            "UserKnownHostsFile": known or self.pin.path,
            "GlobalKnownHostsFile": "none",
            "StrictHostKeyChecking": "accept-new" if known else "yes",
            "UpdateHostKeys": "no",
            "HashKnownHosts": "no",
            "IdentitiesOnly": "yes",
            "IdentityFile": _identity(self.key),
            "PreferredAuthentications": "publickey",
            "ForwardAgent": "no",
            "ForwardX11": "no",
            "ClearAllForwardings": "no" if "-L" in options else "yes",
            "EscapeChar": "none",
            "LogLevel": "ERROR",
        }
        if proxy := self._proxy():
            settings["ProxyCommand"] = proxy
        if masters and known is None and self.joins_master:
            settings |= {"ControlMaster": "no", "ControlPath": self.master}
        elif shared and known is None:
            settings |= {"ControlMaster": "auto", "ControlPath": self.socket, "ControlPersist": PERSIST_SECONDS}
        else:
            settings |= {"ControlMaster": "no", "ControlPath": "none"}
        words = [
            word
            for name, value in settings.items()
            for word in ("-o", f"{name}={value if name == 'ProxyCommand' else _quoted(value)}")
        ]
        where = ["-p", str(self.endpoint.port), "-l", self.endpoint.user, "--", self.endpoint.host]
        return ["ssh", "-F", self.config, *words, *options, *where]

    def _proxy(self) -> str:
        """The command that leads to the endpoint, as ssh's configuration takes it: a line for a shell, % doubled."""
        if self.via is None:
            return self.proxy
        host = f"[{self.endpoint.host}]" if ":" in self.endpoint.host else self.endpoint.host
        command = self.via.command("-W", f"{host}:{self.endpoint.port}", shared=False)
        return shlex.join(command).replace("%", "%%")

    @property
    def chain(self) -> tuple[Way, ...]:
        """This way and those that it goes through, the last one first."""
        return (self,) if self.via is None else (self, *self.via.chain)

    @property
    def socket(self) -> str:
        """The shared connection's. Another address, key or pin is another connection: what was accepted for one proves
        nothing for the other."""
        return str(_private_folder() / hashlib.sha256(repr(self.facts).encode()).hexdigest()[:20])

    @property
    def facts(self) -> tuple[object, ...]:
        """All that makes one way differ from another."""
        before = self.via.facts if self.via is not None else ()
        return (
            self.endpoint,
            self.key.public,
            self.key.identity,
            self.pin.path,
            self.config,
            self.proxy,
            self.master,
            before,
        )

    @property
    def joins_master(self) -> bool:
        """Whether the connection that the person shares is open now."""
        if not self.master:
            return False
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(MASTER_SECONDS)
                probe.connect(self.master)
            return True
        except OSError:
            return False

    def forget_connection(self) -> None:
        """Makes the next ssh connect anew: the shared connection seems dead. What still runs over it may go on."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [*self.command("-O", "stop", masters=False)], capture_output=True, stdin=subprocess.DEVNULL, timeout=3
            )
        with contextlib.suppress(OSError):
            os.unlink(self.socket)

    def close(self) -> None:
        """Ends the shared connection, with all that runs over it. Idempotent."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [*self.command("-O", "exit", masters=False)], capture_output=True, stdin=subprocess.DEVNULL, timeout=3
            )


def _private_folder() -> Path:
    """A short folder of this user's alone: another user who can write there could answer for a box."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for base in (runtime, tempfile.gettempdir(), "/tmp"):
        folder = Path(base) / f"sweepstack-{os.getuid()}"
        if base and len(os.fsencode(folder)) + 21 <= LONGEST_SOCKET and os.access(base, os.W_OK):
            break
    folder.mkdir(mode=0o700, exist_ok=True)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PlatformError(f"{folder} has to be a folder of yours that no other user may use: remove it and try again")
    return folder


def _identity(key: SshKey) -> Path:
    """The private key's file; or one with the public key, by which ssh asks the agent for exactly this one."""
    if key.identity is not None:
        return key.identity
    path = _private_folder() / f"{hashlib.sha256(key.public.encode()).hexdigest()[:20]}.pub"
    if not path.is_file():
        staged = path.with_name(f"{path.name}.{os.getpid()}")
        staged.write_text(f"{key.public}\n", encoding="ascii")
        os.replace(staged, path)
    return path


def _quoted(value: object) -> str:
    """A value as ssh's configuration reads it: words are split at spaces, and % and ~ mean something."""
    text = str(value)
    if "/" not in text:
        return text
    escaped = text.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
