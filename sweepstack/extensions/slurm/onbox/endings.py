"""How tasks of a box ended, and what to do about it; also those that squeue has forgotten.

The site's accounting is asked once at most, and only for what squeue does not have: how much memory a task took
that was killed for it, and how tasks ended that squeue lists no more. Of these it asks for those of the array that was
submitted last, and older ones that have written since: what ended before, a person saw to when more was submitted.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Mapping, Sequence

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import Unreachable

from . import accounting, queue, states, task_log
from .accounting import Accounting, Try
from .pilot import CLOSED
from .queue import Task
from .standing import GOES_ON, WORKERS

MOST_LOGS = 16
"""The logs of so many tasks are read for what Slurm wrote there, in one look."""
_LOG = re.compile(r"(\d+_\d+)\.log")
_WORKER = re.compile(r"(\d+_\d+)\.(\d+)")


@dataclass(frozen=True)
class TaskEnd:
    """How the last try of a task ended. `words`: what to do about it, "" for nothing; `starved`: it was killed for want
    of memory. `exit` (`0:9`: by signal 9) and `peak` (bytes) are what the accounting says; "" and None where it was not
    asked, or does not know it."""

    name: str
    state: str
    restarts: int
    node: str
    starts: float | None
    words: str
    starved: bool
    exit: str
    peak: int | None


def endings_of(
    native_id: str, home: Path, listed: Sequence[Task], stopped: Mapping[str, str], sacct: Accounting
) -> list[TaskEnd]:
    """The endings of a box's tasks. `listed`: what squeue has; `stopped`: see `standing.ends`. Never
    raises: without accounting it says what squeue says."""
    ended = [task for task in listed if task.ended]
    failed = [task.name for task in ended if task.state == "FAILED"][:MOST_LOGS]
    starved = {task.name for task in ended if task.state == "OUT_OF_MEMORY"}
    starved |= {name for name in failed if task_log.killed_for_memory(home, name)}
    forgotten = _forgotten(home, {task.name for task in listed}, stopped)
    known: dict[str, list[Try]] = {}
    if starved or forgotten:
        with contextlib.suppress(Unreachable):
            known = sacct.tries(native_id, [*sorted(starved), *forgotten])
    past = [known[name][-1] for name in forgotten if name in known and known[name][-1].state in queue.ENDED]
    starved |= {one.task for one in past if _starved(home, one)}
    line = accounting.enough(one for name in sorted(starved) for one in known.get(name, ()))

    def ending(name: str, state: str, restarts: int, node: str, starts: float | None) -> TaskEnd:
        words = states.remedy("OUT_OF_MEMORY" if name in starved else state, name, line)
        last = known[name][-1] if name in known else None
        more = (last.exit, last.peak) if last is not None else ("", None)
        return TaskEnd(name, state, restarts, node, starts, words, name in starved, *more)

    return [
        *(ending(task.name, task.state, task.restarts, task.nodes, task.starts) for task in ended),
        *(ending(one.task, one.state, len(known[one.task]) - 1, one.nodes, None) for one in past),
    ]


def _starved(home: Path, one: Try) -> bool:
    if one.state == "OUT_OF_MEMORY":
        return True
    return one.state == "FAILED" and one.exit == "0:9" and task_log.killed_for_memory(home, one.task)


def _forgotten(home: Path, listed: set[str], stopped: Mapping[str, str]) -> list[str]:
    """Tasks that have left a log, that squeue does not list, and whose last worker did not write down that it was done:
    the one that wrote last first. None where a person ended them."""
    if (home / CLOSED).exists():
        return []
    logs = home / task_log.FOLDER
    try:
        since = os.stat(str(logs / task_log.SCRIPT)).st_mtime
        with os.scandir(str(logs)) as entries:
            times = {
                match[1]: entry.stat().st_mtime
                for entry in entries
                if (match := _LOG.fullmatch(entry.name)) and match[1] not in listed
            }
    except OSError:
        return []
    workers: list[str] = []
    with contextlib.suppress(OSError):  # there are none where not even one could begin
        workers = os.listdir(str(home / WORKERS))
    last: dict[str, int] = {}
    for match in filter(None, map(_WORKER.fullmatch, workers)):
        last[match[1]] = max(int(match[2]), last.get(match[1], 0))
    found = [
        name
        for name, written in times.items()
        if written >= since and stopped.get(f"{name}.{last.get(name, 0)}", "") in ("", *GOES_ON)
    ]
    return sorted(found, key=lambda name: -times[name])
