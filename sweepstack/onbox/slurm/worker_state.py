"""Says whether a worker of a box may still run, as Slurm sees it: one line of JSON.

    worker_state.py NATIVE_ID HOME JOB TRY      {"state": "running" | "ended" | "unknown", "why": "…", "memory": "…"}

Ended is only said when Slurm proves it: the task is at a later try, or has ended, or is listed no more while this
worker's own task is; and its node answers. A node that does not answer may still run what Slurm has given up.

`memory`: that Slurm ended it, or one of its cells, for want of memory, and what to do about it; "" where nothing says
so. Slurm forgets a task some minutes after its end; what it wrote into the task's log stays.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.slurm import commands, queue
from sweepstack.onbox.slurm.cluster import pairs

ASK_SECONDS = 8.0
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_FOR_MEMORY = re.compile(rb"slurmstepd[^:\n]*: error: .*(?:exceeded (?:\w+ )?memory limit|oom[-_ ]kill)", re.IGNORECASE)
"""What Slurm writes into the log of a task, by polling (the first) or where the kernel watches."""
LOG_BYTES = 1 << 20


def state(native_id: str, home: Path, job: str, tries: int) -> tuple[str, str]:
    """(`running`, `ended` or `unknown`; why). Never raises."""
    try:
        tasks = queue.tasks(native_id)
    except SweepstackError as error:
        return "unknown", str(error)
    task = next((task for task in tasks if task.name == job), None)
    if task is None:
        own = f"{os.environ.get('SLURM_ARRAY_JOB_ID', '')}_{os.environ.get('SLURM_ARRAY_TASK_ID', '')}"
        if own != "_" and all(other.name != own for other in tasks):
            return "unknown", f"Slurm lists neither {job} nor this worker's own task {own}"
        why = f"Slurm lists {job} no more"
    elif task.restarts < tries:
        return "unknown", f"Slurm says that {job} was requeued {task.restarts} times, and this is try {tries}"
    elif task.state == "COMPLETING":
        return "running", f"{job} is just ending"
    elif task.restarts > tries:
        why = f"{job} was requeued: it is at try {task.restarts}"
    elif task.waits:
        return "unknown", f"{job} is {task.state}, and try {tries} of it had begun"
    elif task.lost_its_worker:
        return "unknown", f"{job} holds {task.nodes} only, and {_not_seen(task.host, 'lost', f'{job}.{tries}')}"
    elif not task.ended:
        return "running", f"{job} is {task.state}"
    else:
        why = f"{job} is {task.state}"
    if silent := _silent_node(home, f"{job}.{tries}"):
        return "unknown", f"{why}, but {silent}"
    return "ended", why


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
        f"that it is off: sweepctl worker-ended BOX {worker} --saw …"
    )


def memory(home: Path, job: str, tries: int) -> str:
    """What the log of the task says of this try; see above. Never raises."""
    try:
        with open(home / "jobs" / f"{job}.log", "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES))
            text = log.read()
    except OSError:
        return ""
    _, begun, after = text.rpartition(f" {job}.{tries} begins on ".encode())
    mine = after.partition(f" {job}.{tries + 1} begins on ".encode())[0]
    if not begun or not _FOR_MEMORY.search(mine):
        return ""
    return (
        f"the cluster ended its worker {job}.{tries} for want of memory: raise resources.memory, or run fewer cells at "
        "once (job.slots)"
    )


def main(argv: list[str]) -> int:
    """Prints the line. Returns 0; 2 for wrong arguments."""
    if len(argv) != 5 or not argv[4].isdigit() or not _NAME.fullmatch(argv[3]):
        print(json.dumps({"state": "unknown", "why": "four arguments: NATIVE_ID HOME JOB TRY"}))
        return 2
    home, job, tries = Path(argv[2]), argv[3], int(argv[4])
    found, why = state(argv[1], home, job, tries)
    print(json.dumps({"state": found, "why": why, "memory": memory(home, job, tries)}))
    return 0
