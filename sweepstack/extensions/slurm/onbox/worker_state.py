"""Says whether a worker of a box may still run, as Slurm sees it: one line of JSON.

    worker_state.py NATIVE_ID HOME JOB TRY      {"state": "running" | "ended" | "unknown", "why": "…", "memory": "…"}

Ended is only said when Slurm proves it: the task is at a later try, or has ended, or is listed no more while this
worker's own task is; and its node answers. A node that does not answer may still run what Slurm has given up.

`memory`: that Slurm ended it, or one of its cells, for want of memory, and what to do about it; "" where nothing says
so. Slurm forgets a task some minutes after its end; what it wrote into the task's log stays, and the site's accounting,
if there is one, knows more. That never proves an end (`accounting`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from pathlib import Path
from typing import Sequence

from sweepstack.onbox.common.errors import SweepstackError

from . import accounting, commands, queue, states, task_log
from .accounting import Accounting, Try
from .cluster import pairs
from .queue import Task
from .standing import is_lost

ASK_SECONDS = 8.0
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
TOTAL_SECONDS = 16.0
"""The runner waits 20 s for the answer (`onbox.runner.workers`)."""


def state(native_id: str, home: Path, job: str, tries: int) -> tuple[str, str]:
    """(`running`, `ended` or `unknown`; why). Never raises."""
    return _look(native_id, home, job, tries)[:2]


def _look(native_id: str, home: Path, job: str, tries: int) -> tuple[str, str, bool]:
    """The same, and whether squeue lists the task."""
    try:
        tasks = queue.tasks(native_id)
    except SweepstackError as error:
        return "unknown", str(error), True
    task = next((task for task in tasks if task.name == job), None)
    listed = task is not None
    found, why = _of_task(task, tasks, home, job, tries)
    if found == "ended" and (silent := _silent_node(home, f"{job}.{tries}")):
        return "unknown", f"{why}, but {silent}", listed
    return found, why, listed


def _of_task(task: Task | None, tasks: Sequence[Task], home: Path, job: str, tries: int) -> tuple[str, str]:
    """By the queue alone."""
    if task is None:
        own = f"{os.environ.get('SLURM_ARRAY_JOB_ID', '')}_{os.environ.get('SLURM_ARRAY_TASK_ID', '')}"
        if own != "_" and all(other.name != own for other in tasks):
            return "unknown", f"Slurm lists neither {job} nor this worker's own task {own}"
        return "ended", f"Slurm lists {job} no more"
    if task.restarts < tries:
        return "unknown", f"Slurm says that {job} was requeued {task.restarts} times, and this is try {tries}"
    if task.state == "COMPLETING":
        return "running", f"{job} is just ending"
    if task.restarts > tries:
        return "ended", f"{job} was requeued: it is at try {task.restarts}"
    if task.waits:
        return "unknown", f"{job} is {task.state}, and try {tries} of it had begun"
    if is_lost(task, home):
        return "unknown", f"{job} holds {task.nodes} only, and {_not_seen(task.host, 'lost', f'{job}.{tries}')}"
    if not task.ended:
        return "running", f"{job} is {task.state}"
    return "ended", f"{job} is {task.state}"


def _silent_node(home: Path, worker: str) -> str:
    """Why the worker's nodes do not prove that it ended; "" when all of them do."""
    try:
        record = json.loads((home / "workers" / worker / "worker.json").read_bytes())
        hosts = [str(record["host"]), *map(str, record.get("nodes") or [])]
    except FileNotFoundError:
        return ""  # it had not begun
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"its record can't be read: {error}"
    try:
        said = commands.ask("scontrol", "--oneliner", "--all", "show", "node", seconds=ASK_SECONDS)
    except SweepstackError as error:
        return str(error)
    nodes: dict[str, str] = {}
    for fields in map(pairs, said.splitlines()):
        for key in ("NodeHostName", "NodeName"):
            nodes[fields.get(key, "").split(".")[0]] = fields.get("State", "")
    return next(filter(None, (_silent(host, nodes.get(host.split(".")[0]), worker) for host in hosts)), "")


def _silent(host: str, found: str | None, worker: str) -> str:
    if found is None:
        return f"Slurm has no node {host}, where it ran"
    words = re.split(r"[+ ]", found)
    # A node that an administrator has just set down shows no `*` yet, whether it answers or not.
    if "NOT_RESPONDING" in words or words[0].endswith("*") or words[0] == "DOWN":
        return _not_seen(host, found, worker)
    return ""


def _not_seen(host: str, found: str, worker: str) -> str:
    return (
        f"its node {host} does not answer ({found}), and may still run it. Once the node is back, or you have seen "
        f"that it is off: sweepctl confirm worker BOX {worker} --saw …"
    )


def told(native_id: str, home: Path, job: str, tries: int) -> dict[str, str]:
    """`state`, `why` and `memory`; see above. Never raises. The site's accounting is asked only in the time that the
    other questions left, and only about a worker that ended for want of memory, or that squeue has forgotten."""
    began = time.monotonic()
    found, why, listed = _look(native_id, home, job, tries)
    starved = task_log.killed_for_memory(home, job, tries)
    known: list[Try] = []
    left = TOTAL_SECONDS - (time.monotonic() - began)
    if found == "ended" and (starved or not listed) and left >= 1:
        with contextlib.suppress(SweepstackError):
            known = Accounting().tries(native_id, [job], min(left, accounting.SECONDS)).get(job, [])
    # As many tries as the worker's name says, or the accounting means another job that had this number.
    if not listed and len(known) == tries + 1 and known[-1].state in queue.ENDED:
        why += f" (sacct: {known[-1].state}, exit code {known[-1].exit})"
        starved = starved or known[-1].state == "OUT_OF_MEMORY"
    return {"state": found, "why": why, "memory": _for_memory(f"{job}.{tries}", known) if starved else ""}


def _for_memory(worker: str, known: Sequence[Try]) -> str:
    line = accounting.enough(known)
    do = states.MEMORY.format(line=line) if line else "raise resources.memory"
    return f"the cluster ended its worker {worker} for want of memory: {do}, or run fewer cells at once (job.slots)"


def main(argv: list[str]) -> int:
    """Prints the line. Returns 0; 2 for wrong arguments."""
    if len(argv) != 5 or not argv[4].isdigit() or not _NAME.fullmatch(argv[3]):
        print(json.dumps({"state": "unknown", "why": "four arguments: NATIVE_ID HOME JOB TRY"}))
        return 2
    home, job, tries = Path(argv[2]), argv[3], int(argv[4])
    print(json.dumps(told(argv[1], home, job, tries)))
    return 0
