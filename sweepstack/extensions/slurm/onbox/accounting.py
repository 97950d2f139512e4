"""What the site's accounting says of tasks: how they ended, and how much memory they took (`sacct`).

A site may keep none; then the question fails at once, and all goes on without. It is for words and figures, and proves
no end: where a controller has lost its state, it writes down that all jobs have ended, while they run on.
"""

from __future__ import annotations

import os
import re
import time
from typing import Iterable, Sequence

from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.units import enough_memory

from . import commands

SECONDS = 5.0
"""An answer is not waited for longer; a look at a box has other things to say."""
QUIET_SECONDS = 20.0
"""After a question that failed, none is asked for so long."""
MOST_TASKS = 64
_FIELDS = ("JobID", "State", "ExitCode", "MaxRSS", "ReqMem", "Submit", "NodeList", "JobName")
_ID = re.compile(r"(\d+_(?:\d+|\[[^]]*\]))(\.[A-Za-z0-9_+-]+)?")
"""Tasks that have not begun share a row, `17_[2-9]`."""
_EXIT = re.compile(r"\d+:\d+")
_BYTES = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)([nc]?)")


@dataclass(frozen=True)
class Try:
    """One try of a task. `peak`: bytes that its processes had at most when Slurm looked; 0 where it never did. `asked`:
    bytes that it could have on a node; 0 where that is not known."""

    task: str
    state: str
    exit: str
    peak: int
    asked: int
    submitted: int
    nodes: str


class Accounting:
    """The accounting of one cluster. After a failure it is not asked for some seconds: so one that hangs costs a look
    at many boxes no more than a look at one."""

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def tries(self, native_id: str, tasks: Sequence[str], seconds: float = SECONDS) -> dict[str, list[Try]]:
        """The tries of these tasks of a box (`<array job>_<task>`), the oldest first; of the first `MOST_TASKS`. Tasks
        that it does not know are left out, and so is a job of the same number that another box or user had. One
        question. Blocks for `seconds` at most. Raises Unreachable where there is no accounting, or it does not read."""
        if time.monotonic() < self._quiet_until:
            raise Unreachable("sacct gave no answer a moment ago")
        try:
            return _read(_ask(tasks[:MOST_TASKS], seconds), native_id, frozenset(tasks))
        except Unreachable:
            self._quiet_until = time.monotonic() + QUIET_SECONDS
            raise


def enough(found: Iterable[Try]) -> str:
    """The line of the stack config that gives a worker enough memory, after these tries did not have enough: 1.2 times
    the most that one took, rounded up. One that was ended for memory took all that it had asked for at least, whatever
    Slurm saw of it: it looks every half a minute. "" where nothing is known."""
    return enough_memory(max((max(one.peak, one.asked) for one in found), default=0))


def _ask(tasks: Sequence[str], seconds: float) -> str:
    # By numbers: a question by the name of the jobs needs a span of time, which a site may limit (MaxQueryTimeRange).
    return commands.ask(
        "sacct",
        "--noheader",
        "--parsable2",
        "--noconvert",
        "--duplicates",  # each try has a row
        f"--user={os.geteuid()}",
        f"--jobs={','.join(tasks)}",
        f"--format={','.join(_FIELDS)}",
        seconds=seconds,
    )


def _read(said: str, native_id: str, tasks: frozenset[str]) -> dict[str, list[Try]]:
    """A row for each try, and after it one for each of its steps, which alone have a peak."""
    found: list[Try] = []
    current: Try | None = None
    for line in said.splitlines():
        try:
            identity, *fields = line.split("|", len(_FIELDS) - 1)
            match = _ID.fullmatch(identity)
            if match is None:
                raise ValueError("no row of a task")
            state, code, peak, asked, submitted, nodes, name = fields
            if not match[2]:
                current = None
                if name == native_id and match[1] in tasks:
                    current = Try(
                        match[1], _state(state), _exit(code), _bytes(peak), _bytes(asked), int(submitted), nodes
                    )
                    found.append(current)
            elif current is not None:
                if match[1] != current.task:
                    raise ValueError("a step of another task")
                current = found[-1] = replace(current, peak=max(current.peak, _bytes(peak)))
        except ValueError as error:
            raise Unreachable(f"sacct answered what can't be read ({error}): {line[:200]!r}") from error
    tries: dict[str, list[Try]] = {}
    for one in sorted(found, key=lambda one: one.submitted):
        tries.setdefault(one.task, []).append(one)
    return tries


def _state(text: str) -> str:
    """`CANCELLED by 1000` is CANCELLED."""
    word = text.split(" ")[0]
    if not word.replace("_", "").isalpha():
        raise ValueError("no state")
    return word.upper()


def _exit(text: str) -> str:
    if not _EXIT.fullmatch(text):
        raise ValueError("no exit code")
    return text


def _bytes(text: str) -> int:
    """`409722880`, `400120K`, `100M`, `4Gn` (older: on a node). 0 for nothing, and for a size per CPU (`4Gc`)."""
    match = _BYTES.fullmatch(text or "0")
    if match is None:
        raise ValueError("no size")
    size = float(match[1]) * 1024 ** (" KMGTP".index(match[2] or " "))
    return 0 if match[3] == "c" else int(size)
