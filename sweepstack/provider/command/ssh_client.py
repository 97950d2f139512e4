"""SSH connections of the command package, over OpenSSH: dials are repeated, sessions are not.

One `ssh` process is one dial and one session. ssh runs a command of ours (LocalCommand) here once the server has let it
in, which shows that a session began. The exit code does not show it: 255 can come from the dial or from the session.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import PlatformError

FIRST_WAIT, LONGEST_WAIT, GROWTH = 0.1, 5.0, 1.5
"""Seconds between two dials, as in pulumi-command."""
ALIVE_SECONDS, ALIVE_COUNT = 15, 9
"""A connection that goes silent is given up after as long as in pulumi-command (Go's TCP keepalive)."""
_STATUS = re.compile(r"rtype (exit-status|exit-signal) reply")
_HOST_KEY = ("HOST IDENTIFICATION HAS CHANGED", "Host key verification failed", "no host key is known")


@dataclass(frozen=True)
class Ended:
    """How a session ended. `code`: its exit code; None without one: then a signal ended it (`signal`), or its
    connection was lost."""

    code: int | None
    signal: bool


@dataclass
class Dialer:
    """Connects as a checked connection says. `progress`: shows a line; `cancelled`: once set, no further dial is
    begun."""

    connection: Mapping[str, Any]
    progress: Callable[[str], None]
    cancelled: threading.Event
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(
        self, command: str, stdin: bytes, stdout: Callable[[bytes], None], stderr: Callable[[bytes], None]
    ) -> Ended:
        """Runs `command` on the server, and passes its output to the two sinks as it arrives. Dials again while the
        server does not answer. Blocks.

        Raises PlatformError when the limit of dials is reached, on cancel, or if no dial can succeed.
        """
        with self._prepared() as folder:
            limit, tries, wait = int(self.connection["dialErrorLimit"]), 0, FIRST_WAIT
            while True:
                logs = [folder / "proxy.log", folder / "key.log"]
                for log in logs:
                    log.write_bytes(b"")
                code = self._once(folder, command, stdin, stdout, stderr)
                said = [log.read_text("utf-8", "replace") for log in logs]
                if (folder / "up").exists():
                    return _ended(code, said[-1])
                what, why = self._refused("\n".join(said))
                if -1 < limit < tries + 1:
                    prefix = "proxy: " if "proxy" in self.connection else ""
                    raise PlatformError(f"{prefix}after {tries} failed attempts: {why}")
                tries += 1
                self.progress(f"{what} {tries}/{limit if limit > -1 else 'inf'} failed: retrying")
                if self.cancelled.wait(wait):
                    raise PlatformError(f"context canceled: no more dials; the last one: {why}")
                wait = min(wait * GROWTH, LONGEST_WAIT)

    def accepts(self, names: list[str]) -> set[str]:
        """Which of these environment variables the server's sshd accepts (AcceptEnv). Connects, and runs `env` there.
        Raises as `run`."""
        token = os.urandom(8).hex()
        probe = Dialer(self.connection, self.progress, self.cancelled, dict.fromkeys(names, token))
        lines: list[bytes] = []
        probe.run("env", b"", lines.append, lambda _: None)
        there = b"".join(lines).decode("utf-8", "replace").splitlines()
        return {name for name in names if f"{name}={token}" in there}

    def _once(
        self,
        folder: Path,
        command: str,
        stdin: bytes,
        stdout: Callable[[bytes], None],
        stderr: Callable[[bytes], None],
    ) -> int:
        process = subprocess.Popen(
            [*self._words(folder), "--", str(self.connection["host"]), command],
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self.environment},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        pumps = [
            threading.Thread(target=_pump, args=(process.stdout, stdout), daemon=True),
            threading.Thread(target=_pump, args=(process.stderr, stderr), daemon=True),
        ]
        for pump in pumps:
            pump.start()
        if process.stdin is not None:
            feeder = threading.Thread(target=_feed, args=(process.stdin, stdin), daemon=True)
            feeder.start()
        code = process.wait()
        for pump in pumps:
            pump.join()
        return code

    def _words(self, folder: Path) -> list[str]:
        sends = [f"SendEnv={name}" for name in self.environment]
        local = [f"LocalCommand=echo up > '{_percents(folder / 'up')}'", "PermitLocalCommand=yes"]
        words = _command(self.connection, folder, "key", [*sends, *local])
        if "proxy" in self.connection:
            way = _command(self.connection["proxy"], folder, "proxy", [])
            host = str(self.connection["proxy"]["host"])
            inner = shlex.join([*way, "-W", "[%h]:%p", "--", host])
            words += ["-o", f"ProxyCommand={inner}"]
        return [*words, "-T"]

    def _refused(self, said: str) -> tuple[str, str]:
        """Which kind of dial failed, and why, by what ssh printed."""
        lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("debug")]
        last = lines[-1] if lines else "the connection ended without a message"
        if any(mark in said for mark in _HOST_KEY):
            last = "ssh: handshake failed: ssh: host key mismatch"
        elif "Permission denied" in said:
            last = f"ssh: handshake failed: ssh: unable to authenticate: {last}"
        elif "proxy" in self.connection:
            marks = ("open failed", "ssh: connect to host")
            last = next((line for line in lines if any(mark in line for mark in marks)), last)
        through = "proxy" in self.connection and "open failed" in said
        return "Dial from proxy" if through else "Dial", last

    @contextmanager
    def _prepared(self) -> Iterator[Path]:
        """A private folder with the keys, for as long as the dials last. Raises PlatformError if no dial can
        succeed."""
        with tempfile.TemporaryDirectory(prefix="sweepstack-command-") as name:
            folder = Path(name)
            _prepare(self.connection, folder, "key")
            if "proxy" in self.connection:
                _prepare(self.connection["proxy"], folder, "proxy")
            yield folder


def _prepare(server: Mapping[str, Any], folder: Path, name: str) -> None:
    if "hostKey" in server:
        words = str(server["hostKey"]).split()
        if (
            len(words) < 2
            or not re.fullmatch(r"[a-z0-9@.-]+", words[0])
            or not re.fullmatch(r"[A-Za-z0-9+/=]+", words[1])
        ):
            raise PlatformError("failed to parse host key: ssh: no key found")
        (folder / f"{name}.known").write_text(f"{name} {words[0]} {words[1]}\n")
    if "privateKey" in server:
        path = folder / name
        path.touch(0o600)
        path.write_text(str(server["privateKey"]).rstrip("\n") + "\n")
        done = subprocess.run(["ssh-keygen", "-y", "-P", "", "-f", path], stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode != 0:
            protected = b"incorrect passphrase" in done.stderr
            raise PlatformError("ssh: this private key is passphrase protected" if protected else "ssh: no key found")
    agent = _agent(server)
    if agent:
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(agent)
        except OSError as error:
            raise PlatformError(f"dial unix {agent}: connect: {(error.strerror or str(error)).lower()}") from error


def _agent(server: Mapping[str, Any]) -> str:
    return str(server.get("agentSocketPath") or os.environ.get("SSH_AUTH_SOCK") or "")


def _command(server: Mapping[str, Any], folder: Path, name: str, more: list[str]) -> list[str]:
    """The `ssh` command for one server, without the server's name. It reads and writes none of the person's own
    files."""
    known = folder / f"{name}.known"
    settings = [
        "BatchMode=yes",
        f"HostKeyAlias={name}",
        f"UserKnownHostsFile={known if known.is_file() else '/dev/null'}",
        "GlobalKnownHostsFile=none",
        f"StrictHostKeyChecking={'yes' if known.is_file() else 'no'}",
        "UpdateHostKeys=no",
        "PreferredAuthentications=publickey",
        f"IdentityFile={folder / name if 'privateKey' in server else 'none'}",
        f"IdentityAgent={_agent(server) or 'none'}",
        "ControlMaster=no",
        "ControlPath=none",
        "ClearAllForwardings=no",
        f"ServerAliveInterval={ALIVE_SECONDS}",
        f"ServerAliveCountMax={ALIVE_COUNT}",
        *([f"ConnectTimeout={int(server['perDialTimeout'])}"] if server["perDialTimeout"] else []),
        *more,
    ]
    options = [word for setting in settings for word in ("-o", setting)]
    log = ["-v", "-E", str(folder / f"{name}.log")]
    return ["ssh", "-F", "none", *log, *options, "-p", str(int(server["port"])), "-l", str(server["user"])]


def _ended(code: int, said: str) -> Ended:
    told = _STATUS.findall(said)
    if "exit-status" in told:
        return Ended(code, signal=False)
    return Ended(None, signal="exit-signal" in told)


def _pump(pipe: IO[bytes], sink: Callable[[bytes], None]) -> None:
    with pipe:
        while chunk := os.read(pipe.fileno(), 1 << 16):
            sink(chunk)


def _feed(pipe: IO[bytes], content: bytes) -> None:
    try:
        with pipe:
            pipe.write(content)
    except BrokenPipeError:
        pass  # the command has closed its stdin


def _percents(path: Path) -> str:
    return str(path).replace("%", "%%")
