"""What Slurm says of a box's jobs, a row for each task; what is not clear is unknown, never ended.

A box's jobs have its native id as their name. A task is one worker of the box; each time that Slurm requeues it,
`restarts` counts one up at once, while the processes of the try before may still be ending: then it is COMPLETING.
"""

from __future__ import annotations

import os
import re
from typing import Iterator, Sequence

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import Unreachable

from . import commands

ENDED = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)
"""States in which a task has ended, and none of its processes is left. Every other state counts as at work."""
WAITING = frozenset(["PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"])
"""States in which it waits, and no process of it runs."""
_FIELDS: tuple[tuple[str, int], ...] = (
    ("ArrayJobID", 24),
    ("ArrayTaskID", 24),
    ("State", 24),
    ("RestartCnt", 16),
    ("StartTime", 24),
    ("EndTime", 24),
    ("Partition", 80),
    ("NodeList", 120),
    ("BatchHost", 80),
    ("Reason", 160),
)
_FORMAT = ",".join(f"{name}:{width}" for name, width in _FIELDS)
_TASK = "ArrayTaskID"
_NO_NODE = ("", "n/a", "N/A", "None", "(null)")
_WORD = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
"""One word of a list of nodes."""


@dataclass(frozen=True)
class Task:
    """One task of an array. `restarts`: how often it was requeued. `starts`, `ends`: epoch seconds, None unknown;
    of a waiting task `starts` is the estimate of Slurm. `reason`: why it waits, or how it ended, in Slurm's words."""

    job: str
    task: str
    state: str
    restarts: int
    starts: float | None = None
    ends: float | None = None
    partition: str = ""
    nodes: str = ""
    reason: str = ""
    host: str = ""
    """Where its script, and so the worker, was started: the first of its nodes."""

    @property
    def name(self) -> str:
        """`<array job>_<task>`, by which scontrol and scancel know it."""
        return f"{self.job}_{self.task}"

    @property
    def worker(self) -> str:
        """The name of the worker that it is now, or will be: one for each try."""
        return f"{self.name}.{self.restarts}"

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def waits(self) -> bool:
        return self.state in WAITING

    @property
    def lost_its_worker(self) -> bool:
        """Whether Slurm has taken the node of its worker for lost, and left the job the others (`--no-kill`): it holds
        them until its time is over, and nothing runs there."""
        if self.state != "RUNNING" or self.host in _NO_NODE or self.nodes in (*_NO_NODE, self.host):
            return False
        if len(self.nodes) >= dict(_FIELDS)["NodeList"]:
            return False  # cut off
        try:
            return self.host not in hostnames(self.nodes)
        except ValueError:
            return False


def tasks(native_id: str, *, ended: bool = True) -> list[Task]:
    """All tasks of a box that the controller remembers; those that ended for some minutes only (MinJobAge). `ended`:
    those, too. Raises Unreachable when the controller does not answer, or its answer can't be read: an empty list is a
    proof that no task of the box is left."""
    states = ["--states=all"] if ended else []
    said = commands.ask(
        "squeue",
        "--noheader",
        "--array",
        "--all",
        "--local",
        *states,
        f"--name={native_id}",
        f"--user={os.geteuid()}",
        f"--Format={_FORMAT}",
    )
    rows = (_fields(line) for line in said.splitlines() if line.strip())
    return [_task(row) for row in rows if not _is_ended_array(row)]


def live(native_id: str) -> list[Task]:
    """The tasks that wait, run, or are just ending. Raises Unreachable."""
    return [task for task in tasks(native_id) if not task.ended]


def _fields(line: str) -> dict[str, str]:
    fields, at = {}, 0
    for name, width in _FIELDS:
        fields[name] = line[at : at + width].strip()
        at += width
    return fields


def _is_ended_array(fields: dict[str, str]) -> bool:
    """Whether a row stands for an array that was cancelled before any more of its tasks began: for some minutes Slurm
    lists it without them."""
    return fields[_TASK] == "N/A" and fields["State"] in ENDED


def _task(fields: dict[str, str]) -> Task:
    try:
        job, task = fields["ArrayJobID"], fields[_TASK]
        if not (job.isdigit() and task.isdigit() and fields["State"].replace("_", "").isalpha()):
            raise ValueError("no task of an array")
        return Task(
            job,
            task,
            fields["State"].upper(),
            int(fields["RestartCnt"]),
            _moment(fields["StartTime"]),
            _moment(fields["EndTime"]),
            fields["Partition"],
            fields["NodeList"],
            _reason(fields),
            fields["BatchHost"],
        )
    except ValueError as error:
        raise Unreachable(f"squeue answered what can't be read ({error}): {list(fields.values())}") from error


def hostnames(text: str) -> Iterator[str]:
    """The names in a list of Slurm, such as `n[1-3,07],gpu1`. Raises ValueError for what is none."""
    if text.count("[") != text.count("]"):
        raise ValueError(f"{text!r} is no list of nodes")
    for word in _WORD.findall(text):
        head, bracket, rest = word.partition("[")
        ranges, _, tail = rest.partition("]")
        if not bracket:
            yield word
        for one in ranges.split(",") if bracket else ():
            first, _, last = one.partition("-")
            for number in range(int(first), int(last or first) + 1):
                for more in hostnames(tail) if tail else [""]:
                    yield f"{head}{number:0{len(first)}d}{more}"


def _reason(fields: dict[str, str]) -> str:
    return "" if fields["Reason"] in ("None", "(null)", "N/A") else fields["Reason"]


def _moment(text: str) -> float | None:
    """Epoch seconds; None for `N/A`. A clock time would depend on the zone of this machine: it counts as unknown."""
    return float(text) if text.isdigit() and int(text) > 0 else None


def position(partition: str, names: Sequence[str]) -> int | None:
    """How many jobs of that partition wait before the first of these tasks, by their priority; None when Slurm does
    not show that. Raises Unreachable."""
    said = commands.ask(
        "squeue", "--noheader", "--all", "--local", "--array", "--states=PENDING", f"--partition={partition}",
        "--Format=ArrayJobID:24,ArrayTaskID:24,PriorityLong:24",
    )  # fmt: skip
    waiting: list[tuple[int, str]] = []
    for line in said.splitlines():
        job, task, priority = line[:24].strip(), line[24:48].strip(), line[48:].strip()
        if not priority.isdigit():
            return None
        waiting.append((int(priority), f"{job}_{task}"))
    ours = [priority for priority, name in waiting if name in set(names)]
    return sum(priority > max(ours) for priority, _ in waiting) if ours else None
