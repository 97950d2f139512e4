"""Asks a host: sends the code of `_ssh_host` with one verb, over the connection that everything to this host shares."""

from __future__ import annotations

import functools
import json
import os
import re
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep import errors
from sweep.channel.agent_source import OLDEST
from sweep.channel.base import SshEndpoint
from sweep.errors import ConfigError, OutcomeUnknown, PlatformError, StillCreating, Unreachable

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "sweep.errors",
    "sweep.canonical",
    "sweep.units",
    "sweep.onbox",
    "sweep.channel.base",
    "sweep.channel.walking",
    "sweep.channel.processes",
    "sweep.channel.running",
    "sweep.channel.visiting",
    "sweep.channel.local",
    "provider.platforms.offers",
    "provider.platforms.base",
    "provider.platforms._local_drills",
    "provider.platforms._local_store",
    "provider.platforms._local_removal",
    "provider.platforms._local_power",
    "provider.platforms._local_volumes",
    "provider.platforms.local",
    "provider.platforms._ssh_host",
)
"""In the order in which they are loaded: each after what it imports."""
MARK = b"\0sweepstack-host "
READS = frozenset({"account", "find_by_tag", "get", "list_tagged", "list_volumes", "get_volume", "where"})
CALL_SECONDS = 120.0
"""Beyond what the verb itself may wait."""
_ADDRESS = re.compile(
    r"(?:(?P<user>[A-Za-z_][A-Za-z0-9_.-]*)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9_.-]*)"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<root>/[^\s\0:]*)?"
)

_LOADER = """
import sys
if sys.version_info < {oldest}:
    sys.stderr.write("sweepstack: python3 here is %d.%d, and {oldest} is the oldest that will do" % sys.version_info[:2])
    sys.exit(97)
import datetime, enum, json, types
if not hasattr(datetime, "UTC"):
    datetime.UTC = datetime.timezone.utc
if not hasattr(enum, "StrEnum"):
    class StrEnum(str, enum.Enum):
        __str__ = str.__str__
    enum.StrEnum = StrEnum
settings = json.loads({settings!r})
for name, text in json.loads({modules!r}):
    whole = name.split(".")
    for depth in range(1, len(whole)):
        package = ".".join(whole[:depth])
        if package not in sys.modules:
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = []
    module = types.ModuleType(name)
    module.__file__ = "<sweepstack>/" + name
    sys.modules[name] = module
    exec(compile(text, module.__file__, "exec"), module.__dict__)
    setattr(sys.modules[name.rpartition(".")[0]], whole[-1], module)
sys.modules["provider.platforms._ssh_host"].main(settings)
"""
_FROM_STDIN = "import sys,zlib;exec(zlib.decompress(sys.stdin.buffer.read()))"


@dataclass(frozen=True)
class Address:
    """A host, and the folder on it below which boxes lie ("": the default of its user)."""

    user: str
    host: str
    port: int
    root: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """`[user@]host[:port][/folder]`. Raises ConfigError for anything else."""
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match["port"] or 22) not in range(1, 65536):
            raise ConfigError(f"{text!r} is no host; write user@host, user@host:port or user@host:port/folder")
        host = match["host"].strip("[]")
        return cls(match["user"] or "root", host, int(match["port"] or 22), (match["root"] or "").rstrip("/"))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}{self.root}"

    @property
    def endpoint(self) -> SshEndpoint:
        """Where its sshd listens. A host keeps its key over restarts: one start for ever."""
        return SshEndpoint(self.host, self.port, self.user)

    @property
    def known_as(self) -> str:
        """The name under which its host key is pinned: the folder is no part of it."""
        return f"{self.user}@{self.host}:{self.port}"


class Caller:
    """Asks one host. `grace`: seconds from SIGTERM to SIGKILL over there."""

    def __init__(self, address: Address, *, grace: float = 5.0) -> None:
        self.address, self.grace = address, grace
        self._lock = threading.Lock()
        self._channel: Any = None

    def ask(self, verb: str, *, wait: float = 0.0, **args: Any) -> Any:
        """The verb's answer. Raises what it raised over there; Unreachable; OutcomeUnknown where a verb that changes
        something was sent and its answer was lost."""
        settings = {"root": self.address.root, "grace": self.grace, "verb": verb, "args": args}
        channel = self._open()
        channel.size("root")  # a host that does not answer is told apart from one that was told something
        try:
            done = channel.run(
                [channel.python, "-I", "-c", _FROM_STDIN], timeout=wait + CALL_SECONDS, stdin=program(settings)
            )
        except Unreachable as error:
            if verb in READS:
                raise
            raise OutcomeUnknown(f"{self.address}: {verb} was sent, and its answer was lost: {error}") from error
        return self._answer(verb, done.stdout, done.stderr, done.returncode)

    def _open(self) -> Any:
        from sweep.channel.ssh import SshChannel

        with self._lock:
            if self._channel is None:
                name = self.address.known_as
                self._channel = SshChannel(f"host {name}", self.address.endpoint, root="/", known_as=name)
            return self._channel

    def _answer(self, verb: str, out: bytes, err: bytes, code: int) -> Any:
        _, mark, text = out.rpartition(MARK)
        try:
            answer = json.loads(text) if mark else None
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            said = err[-2000:].decode("utf-8", "replace").strip() or f"it ended with {code} and said nothing"
            if "is the oldest that will do" in said:
                raise PlatformError(f"{self.address}: {said.splitlines()[-1]}: install a newer python3 there")
            kind = Unreachable if verb in READS else OutcomeUnknown
            raise kind(f"{self.address}: {verb} has no answer that can be read: {said.splitlines()[-1]}")
        if "error" not in answer:
            return answer.get("ok")
        raise self._error(answer)

    def _error(self, answer: dict[str, Any]) -> Exception:
        kind, text = getattr(errors, str(answer["error"]), PlatformError), f"{self.address}: {answer.get('text', '')}"
        if kind is StillCreating:
            return StillCreating(str(answer["identifier"]), dict(answer["outputs"]), list(answer["reasons"]))
        made: Exception = kind(text)
        return made


def program(settings: dict[str, Any]) -> bytes:
    """What the host's Python reads from stdin and runs."""
    text = _LOADER.format(oldest=OLDEST, settings=json.dumps(settings), modules=_modules())
    return zlib.compress(text.encode("utf-8"), 6)


@functools.cache
def _modules() -> str:
    return json.dumps([(name, (ROOT / f"{name.replace('.', os.sep)}.py").read_text("utf-8")) for name in MODULES])
