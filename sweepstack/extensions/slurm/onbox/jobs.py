"""Submits the jobs of a box, never one twice, and ends them.

All jobs of a box have its native id as their name, so a look at the queue shows what was submitted, whatever became of
the answer. One command at a time submits for a box (a lock in its folder).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from pathlib import Path
from typing import Iterator, Sequence

from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.errors import NotYetGone, OutcomeUnknown, RequestRefused, Unreachable
from sweepstack.onbox.common.locks import take

from . import commands, limits, queue, request, states, task_log
from .cluster import Cluster
from .queue import Task
from .request import WorkerRequest

LOCK_SECONDS = 90.0
LOOKS = (0.5, 1.0, 2.0, 4.0)
"""Seconds between the looks for an array whose answer was lost."""
_BATCH = "#!/bin/sh\nexec {python} -E -s {pilot} {home} {runner}\n"


def submit(
    native_id: str, home: Path, asked: WorkerRequest, cluster: Cluster, count: int, python: str, pilot: str, runner: str
) -> list[str]:
    """Submits `count` workers, in as many arrays as the cluster needs; fewer, or none, where the limits of the user's
    jobs leave no more. Returns the numbers of the arrays.

    Raises RequestRefused with the cluster's words when not even one was taken; OutcomeUnknown when it is not known
    whether one was: the next call looks first.
    """
    logs = home / task_log.FOLDER
    if "%" in str(home) or "\\" in str(home):
        raise RequestRefused(
            f"{home} has a % or a \\ in its path, which sbatch takes for a pattern: use another folder"
        )
    logs.mkdir(parents=True, exist_ok=True)
    words = {"python": python, "pilot": pilot, "home": str(home), "runner": runner}
    script = logs / task_log.SCRIPT
    write_atomically(script, _BATCH.format(**{k: shlex.quote(v) for k, v in words.items()}).encode(), mode=0o755)
    common = [
        *request.options(asked, cluster),
        f"--job-name={native_id}",
        f"--chdir={home}",
        f"--output={logs}/%A_%a.log",
    ]
    made: list[str] = []
    left, size = count, min(count, cluster.arrays)
    while left > 0:
        size = min(size, left)
        try:
            made.append(_array(native_id, [*common, f"--array=0-{size - 1}", str(script)]))
            left -= size
        except RequestRefused as error:
            if size == 1 or not states.may_be_too_many(str(error)):
                if made or states.is_full(str(error)):
                    return made
                raise
            size //= 2  # what the limits leave is not always told
    return made


def _array(native_id: str, arguments: Sequence[str]) -> str:
    """Submits one array. Returns its number. Raises RequestRefused; OutcomeUnknown when its answer is lost and no look
    at the queue finds it."""
    before = {task.job for task in queue.tasks(native_id)}
    try:
        said = commands.send("sbatch", "--parsable", *arguments).strip()
    except Unreachable as error:
        return _found(native_id, before, error)
    number = said.splitlines()[-1].partition(";")[0] if said else ""
    return number if number.isdigit() else _found(native_id, before, Unreachable(f"sbatch answered {said[:200]!r}"))


def _found(native_id: str, before: set[str], lost: Unreachable) -> str:
    """The number of the array that is new in the queue. `before`: those that were there before it was submitted."""
    problem: Exception = lost
    for pause in LOOKS:
        time.sleep(pause)
        try:
            new = {task.job for task in queue.tasks(native_id)} - before
        except Unreachable as error:
            problem = error
            continue
        if new:
            return sorted(new, key=int)[0]
    raise OutcomeUnknown(
        f"whether workers of {native_id} were submitted is not known: {problem}. Next: pulumi up, which looks for them "
        "first, and submits none twice"
    ) from lost


def cancel(native_id: str, *, grace: float, seconds: float) -> None:
    """Ends all jobs of a box: those that wait at once; the others are told first, and get `grace` seconds to end by
    themselves. Returns once it is proved that none is left; idempotent. Raises NotYetGone when that is not proved
    within `seconds`, Unreachable."""
    ends = time.monotonic() + seconds
    owner = f"--user={os.geteuid()}"
    tasks = queue.live(native_id)
    if not tasks:
        return
    with contextlib.suppress(Unreachable, RequestRefused):  # what counts is the look below
        commands.send("scancel", "--state=PENDING", f"--name={native_id}", owner)
        if grace > 0 and any(task.state == "RUNNING" for task in tasks):
            commands.send("scancel", "--batch", "--signal=TERM", "--state=RUNNING", f"--name={native_id}", owner)
            _until_none(native_id, min(ends, time.monotonic() + grace))
    problem = ""
    while True:
        try:
            tasks = queue.live(native_id)
            if not tasks:
                return
            problem = ", ".join(f"{task.name} is {task.state}" for task in tasks[:3])
            commands.send("scancel", f"--name={native_id}", owner)
        except (Unreachable, RequestRefused) as error:
            problem = str(error)
        if time.monotonic() > ends:
            raise NotYetGone(f"the jobs of {native_id} were cancelled, and their end is not proved yet: {problem}")
        _until_none(native_id, min(ends, time.monotonic() + 5.0))


def _until_none(native_id: str, ends: float) -> None:
    while time.monotonic() < ends:
        time.sleep(0.5)
        with contextlib.suppress(Unreachable):
            if not queue.live(native_id):
                return


def hasten(tasks: Sequence[Task]) -> int:
    """Lets tasks begin that Slurm keeps waiting: after a requeue for two minutes, and those that it holds itself,
    because a node could not start them. Returns how many it released. What a person holds stays held. A failure
    changes nothing."""
    released = 0
    for task in tasks:
        held = task.waits and states.is_held_by_slurm(task.reason)
        if held:
            with contextlib.suppress(Unreachable, RequestRefused):
                commands.send("scontrol", "release", task.name, seconds=10)
                released += 1
        if task.waits and task.restarts and (held or task.reason == "BeginTime"):
            with contextlib.suppress(Unreachable, RequestRefused):
                commands.send("scontrol", "update", f"jobid={task.name}", "StartTime=now", seconds=10)
    return released


def cancel_tasks(tasks: Sequence[Task]) -> None:
    """Cancels these tasks. A failure changes nothing: the next call tries it again."""
    for task in tasks:
        with contextlib.suppress(Unreachable, RequestRefused):
            commands.send("scancel", task.name, seconds=10)


@contextlib.contextmanager
def alone(home: Path) -> Iterator[None]:
    """A context in which no other command submits for the box. Blocks while another one does. Raises Unreachable after
    `LOCK_SECONDS`."""
    home.mkdir(parents=True, exist_ok=True)
    with open(home / "submit.lock", "ab") as holder:
        if not take(holder.fileno(), LOCK_SECONDS):
            raise Unreachable(f"another command submits workers in {home}; nothing was submitted")
        yield


def allowed(asked: WorkerRequest, cluster: Cluster, count: int) -> int:
    """So many of `count` workers as the limits of the account and the QOS leave."""
    if not cluster.limits:
        return count
    try:
        left = limits.room_left(asked, cluster)
    except Unreachable:
        return count  # sbatch has the last word
    return count if left is None else min(count, left)
