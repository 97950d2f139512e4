"""What a handler uses while it works: the project's folder, progress, warnings, cancellation.

Imports none of our modules: a process that answers only about its configuration (`sweepstack.provider.grpc_service`)
needs no more than this.
"""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.dataclass import dataclass, field


class Severity(Enum):
    """How a line is shown. There is no ERROR: the engine would print "failed" beside a success."""

    PROGRESS = "progress"
    """Replaces the last line of the resource's row; not repeated afterwards."""
    INFO = "info"
    WARNING = "warning"


@dataclass(frozen=True)
class Failure:
    """A refused input. `property` is its name, or empty for the resource as a whole."""

    property: str
    reason: str


DESTROY = frozenset({"destroy", "down", "dn"})
"""What the engine's command is called, and may be called."""
AGAIN = frozenset({"preview", "pre", "up", "update", "refresh", "import"})
"""Its other commands that reach us."""

Emit = Callable[[Severity, str, str], None]
"""(severity, URN, text)"""


@dataclass(frozen=True)
class Session:
    """What all operations of one plugin process share. The process works for one engine command, since `began` (epoch
    seconds).

    `cancelled` is set by the engine's Cancel, by SIGINT, and when the engine is gone.
    """

    project_root: Path
    emit: Emit
    cancelled: threading.Event = field(default_factory=threading.Event)
    began: float = field(default_factory=time.time)
    said: dict[tuple[str, str], str] = field(default_factory=dict)
    """Rows of refusals: (label, text) → the box whose refusal had the row first. `saying` protects it."""
    saying: threading.Lock = field(default_factory=threading.Lock)
    accounts: dict[str, str] = field(default_factory=dict)
    """Adapter → the account of the key in the provider's configuration."""
    shared: dict[str, Any] = field(default_factory=dict)
    """What the operations of this command read once for all of them: what it is → its value."""
    helpers: set[subprocess.Popen[bytes]] = field(default_factory=set)
    """Processes that we started and that work for the engine, too."""
    engine: str = ""
    """The address at which the engine takes log lines, for a process that we start."""

    def cancel(self) -> None:
        """Nothing new begins. A helper ends at once: it would go on asking an engine that closes, and hold our output
        open, for which the engine waits."""
        self.cancelled.set()
        for helper in tuple(self.helpers):
            helper.kill()


@dataclass(frozen=True)
class Operation:
    """One request of the engine. `timeout` is the user's customTimeouts in seconds, 0 where none was set."""

    session: Session
    urn: str
    timeout: float = 0
    preview: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        """The resource's logical name."""
        return self.urn.rsplit("::", 1)[-1]

    @property
    def stack(self) -> str:
        """The stack, out of the URN (`urn:pulumi:<stack>::<project>::…`)."""
        return self.urn.split("::", 1)[0].removeprefix("urn:pulumi:")

    @property
    def project(self) -> str:
        """The project, out of the URN."""
        return self.urn.split("::", 2)[1]

    def progress(self, text: str) -> None:
        """Shows a line that replaces the one before."""
        self.session.emit(Severity.PROGRESS, self.urn, text)

    def info(self, text: str) -> None:
        """Shows a line that stays."""
        self.session.emit(Severity.INFO, self.urn, text)

    def of_stack(self, text: str, *, warns: bool = False) -> None:
        """Shows a line that stays, once, on the stack's row: on a resource's row the engine repeats it at each step of
        that resource."""
        self.session.emit(Severity.WARNING if warns else Severity.INFO, "", text)

    def survives(self, text: str) -> None:
        """Shows on the resource's row, beside the engine's word `delete`, that its delete ends nothing. A terminal's
        last screen has no such line any more: so in a destroy it is shown among those that stay, too."""
        self.progress(text)
        if destroys(os.getppid()):
            self.of_stack(text)

    def warn(self, text: str) -> None:
        """Shows a warning. It must name its subject: with `--diff` the engine prints it without the resource."""
        self.session.emit(Severity.WARNING, self.urn, text)

    def seconds(self, default: float) -> float:
        """The user's timeout for this operation, or `default`."""
        return self.timeout or default


def destroys(engine: int) -> bool:
    """Whether the engine, by its process id, was asked for a destroy: no request says it. For what is shown, and
    nothing else; true where it can't be read."""
    words = _typed(engine)
    return not words or not DESTROY.isdisjoint(words)


def again(engine: int) -> str:
    """`pulumi destroy --stack t`: the command that the engine, by its process id, works for; "" where it can't be
    read."""
    words = _typed(engine)
    verb = next((word for word in words if word in AGAIN or word in DESTROY), "")
    stacks = [word for before, word in itertools.pairwise(words) if before in ("--stack", "-s")]
    stacks += [word.partition("=")[2] for word in words if word.startswith("--stack=")]
    return f"pulumi {verb}{''.join(f' --stack {stack}' for stack in stacks[:1])}" if verb else ""


@functools.cache
def _typed(engine: int) -> tuple[str, ...]:
    """The words of a process; none where they can't be read."""
    try:
        words = Path(f"/proc/{engine}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        asked = ["ps", "-ww", "-o", "args=", "-p", str(engine)]  # without -ww it cuts a line at 80 columns
        try:
            words = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True).stdout.split()
        except (OSError, subprocess.SubprocessError):
            return ()
    return tuple(words)


def token_of(urn: str) -> str:
    """The type of a resource, from its URN. The types of its parents come before it, joined by `$`."""
    return urn.split("::")[2].rsplit("$", 1)[-1]
