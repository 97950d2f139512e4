"""Which tasks of a box are its workers: those that take cells now, or will.

A task that is just ending takes none, and Slurm lists it for some time yet: until its epilog is through, minutes on
some sites. One that is held, or asks for what the cluster never gives, takes none either. Where they count as workers,
cells are left without one.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from sweepstack.onbox.common.dataclass import dataclass

from . import queue, states
from .queue import Task

JOURNAL, WORKERS = "journal.jsonl", "workers"
GOES_ON = ("wall", "signal")
"""Why a worker ended whose task may be requeued: for it the next try counts already."""
MOST_NAMED = 3
"""Of lists of nodes, and of workers that lost theirs, so many are named."""
NAMED = 16
"""Of tasks that wait for one reason, so many are named."""
_ENDS = ("runner-stopped", "worker-ended")


@dataclass(frozen=True)
class WorkerTasks:
    """The tasks that Slurm has of a box and that have not ended. `at_work`: workers, also those that still wait to
    begin; `ending`: take no cell any more; `stuck`: wait, and begin only once a person acts; `held`: those of them that
    a person holds; `lost`: hold nodes without the one that their worker was on."""

    at_work: Sequence[Task]
    ending: Sequence[Task]
    stuck: Sequence[Task]
    lost: Sequence[Task] = ()

    @property
    def held(self) -> Sequence[Task]:
        return [
            task
            for task in self.stuck
            if states.is_held(task.state, task.reason) and not states.is_held_by_slurm(task.reason)
        ]

    def words(self) -> str:
        """All of it, for people."""
        if not (self.at_work or self.ending or self.stuck or self.lost):
            return "no worker is there"
        waiting = [task for task in self.at_work if task.waits]
        run = f"{len(self.at_work) - len(waiting)} workers run{_several_nodes(self.at_work)}"
        parts = [f"{run}, {len(waiting)} wait{_reasons(waiting)}"]
        parts += [f"{len(self.ending)} just end"] if self.ending else []
        held = self.held
        rest = [task for task in self.stuck if task not in held]
        parts += [f"{len(held)} held by a person, and left so{_reasons(held)}"] if held else []
        parts += [f"{len(rest)} will not begin{_reasons(rest)}"] if rest else []
        if self.lost:
            named = ", ".join(f"{task.name}, which was on {task.host}" for task in self.lost[:MOST_NAMED])
            parts.append(f"{len(self.lost)} only hold nodes: Slurm has lost that of the worker ({named})")
        return ", ".join(parts)


def tasks_now(native_id: str, home: Path) -> WorkerTasks:
    """The tasks now. `home`: of the box's runner. Reads only. Raises Unreachable."""
    return judged(queue.live(native_id), home)


def judged(live: Sequence[Task], home: Path, ended: Mapping[str, str] | None = None) -> WorkerTasks:
    """The same for tasks that were read already, those that ended left out. `ended`: what `ends` says, if it was asked
    already."""
    ended = ends(home) if ended is None else ended
    at_work: list[Task] = []
    ending: list[Task] = []
    stuck: list[Task] = []
    lost: list[Task] = []
    for task in live:
        if is_lost(task, home):
            lost.append(task)
        elif task.waits:
            (stuck if states.is_stuck(task.state, task.reason) else at_work).append(task)
        elif _is_ending(task, ended, home):
            ending.append(task)
        else:
            at_work.append(task)
    return WorkerTasks(at_work, ending, stuck, lost)


def ends(home: Path) -> dict[str, str]:
    """Worker → why it ended, by the journal; "" where another wrote that down. Empty where it does not read. The chain
    is not proved here: a wrong line could only cost a worker that finds nothing to do."""
    found: dict[str, str] = {}
    for entry in entries(home, _ENDS):
        with contextlib.suppress(KeyError, TypeError):
            found[str(entry["worker"])] = str(entry.get("why", ""))
    return found


def entries(home: Path, events: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The journal's lines of these events, as they stand there; none where it can't be read. A line that does not read
    is left out."""
    marks = [f'"{event}"'.encode() for event in events]
    with contextlib.suppress(OSError), open(home / JOURNAL, "rb") as lines:
        for line in lines:
            if any(mark in line for mark in marks):
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    if isinstance(entry, dict) and entry.get("event") in events:
                        yield entry


def may_run(found: WorkerTasks, home: Path) -> bool:
    """Whether a worker of the box is at work, will be by itself, or may be. A task that will not begin may have begun
    before, on a node that Slurm lost: it counts until the journal has the end of each of its tries."""
    if found.at_work or found.ending:
        return True
    ended = ends(home)
    return any(
        path.name not in ended
        for task in found.stuck
        for path in (home / WORKERS).glob(f"{task.name}.*")
        if path.is_dir()
    )


def is_lost(task: Task, home: Path) -> bool:
    """Whether a task holds nodes without the one that its worker was on (`Task.lost_its_worker`), and the worker itself
    wrote down that its job had this node: sites may run scripts on other machines than the nodes of a job, and then
    nothing is lost."""
    if not task.lost_its_worker:
        return False
    try:
        return task.host in json.loads((home / WORKERS / task.worker / "worker.json").read_bytes())["nodes"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _is_ending(task: Task, ended: Mapping[str, str], home: Path) -> bool:
    if task.state == "COMPLETING":
        # A requeued one counts its next try at once: then that is not the try that ends.
        return task.restarts == 0 or (home / WORKERS / task.worker).is_dir()
    return ended.get(task.worker, GOES_ON[0]) not in GOES_ON


def _reasons(tasks: Sequence[Task]) -> str:
    """Why they wait: two reasons at most, with the names of some tasks where a command takes them."""
    names: dict[str, list[str]] = {}
    for task in sorted(tasks, key=lambda one: (int(one.job), int(one.task))):
        if task.reason:
            names.setdefault(task.reason, []).append(task.name)
    found = sorted(states.reason(reason, " ".join(known[:NAMED])) for reason, known in names.items())
    return f" ({'; '.join(found[:2])})" if found else ""


def _several_nodes(tasks: Sequence[Task]) -> str:
    """Where workers of several nodes each run, as Slurm spells that; of some of them, where there are many."""
    found = [task.nodes for task in tasks if not task.waits and ("[" in task.nodes or "," in task.nodes)]
    return f" (on {'; '.join(found[:MOST_NAMED])}{'; …' if found[MOST_NAMED:] else ''})" if found else ""
