"""The boxes of one cluster: folders on its shared tier, and the jobs that Slurm runs for them.

Making a box submits nothing: its queue does that, and tops it up. A box's folder is seen by every login node, so the
cluster's name stands in the account, and not the host's.

    <root>/cluster      the cluster's name, written once: it is known while the controller does not answer
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Mapping, Sequence

from sweepstack.onbox.common import box_layout, processes
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.errors import PlatformError, RequestRefused, Unreachable
from sweepstack.onbox.host.folder_platform import LocalPlatform

from . import cluster as clusters
from . import commands, endings, jobs, queue, request, standing, states, vanished
from .accounting import Accounting
from .endings import TaskEnd
from .pilot import CLOSED as CLOSED_BELOW_HOME
from .queue import Task
from .request import WorkerRequest
from .standing import WorkerTasks

PREFIX = "slurm"
"""The ids of its boxes, and the names of their jobs, begin with this."""
NEEDED = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
CLUSTER = "cluster"
CLOSED = f"{box_layout.HOME}/{CLOSED_BELOW_HOME}"
END_SECONDS = 150.0
"""A request is answered within 180 s."""


class SlurmPlatform(LocalPlatform):
    """See `onbox.host.platform.Platform`. Raises Unreachable while the cluster's name is not known."""

    def __init__(self, root: Path, *, grace: float) -> None:
        self.cluster = _name_of_cluster(root)
        self._accounting = Accounting()
        super().__init__(
            root, grace=grace, prefix=PREFIX, own=(box_layout.DURABLE,), addressed=True, machine=self.cluster
        )

    def _end(self, native_id: str, grace: float) -> None:
        jobs.cancel(native_id, grace=grace and max(grace, request.GRACE_SECONDS), seconds=END_SECONDS)
        processes.end_box(native_id, grace=grace)

    def _at_work(self, native_id: str) -> list[str]:
        return [*super()._at_work(native_id), *(f"job {task.name}" for task in queue.live(native_id))]

    def end_workers(self, native_id: str, account: str) -> None:
        """Ends all jobs of the box; none begins until its queue is topped up again. Idempotent. Raises NotYetGone when
        the end is not proved, Unreachable."""
        box, _ = self.where(native_id, account)
        write_atomically(box / CLOSED, b"")
        self._end(native_id, self._grace)

    def workers(self, native_id: str, account: str) -> dict[str, Any]:
        """The box's workers, for people: `tasks` (each with `name`, `state`, `try`, `starts`, `node`, `words`), and
        `before`: how many jobs wait before the first that waits; None where Slurm does not say. `at_work`: how many
        take cells, or will by themselves; `held`: how many a person holds; `lost`: how many hold nodes without their
        worker. Of tasks that ended also `exit` (`0:9`: by signal 9) and `max_rss` (bytes), where the site's accounting
        was asked; and those that only it remembers (`endings`). Reads only."""
        self._store.require(account)
        tasks, home = queue.tasks(native_id), self._box(native_id) / box_layout.HOME
        ended = standing.ends(home)
        found = standing.judged([task for task in tasks if not task.ended], home, ended)
        past = endings.endings_of(native_id, home, tasks, ended, self._accounting)
        waiting = [task for task in found.at_work if task.waits]
        before = None
        if waiting:
            try:
                before = queue.position(waiting[0].partition, [task.name for task in waiting])
            except Unreachable:
                before = None
        return {
            "tasks": [*(_told(task, task in found.lost) for task in tasks if not task.ended), *map(_told_of, past)],
            "before": before,
            "at_work": len(found.at_work),
            "held": len(found.held),
            "lost": len(found.lost),
            "words": "; ".join([_words(past, found, before), *vanished.words(native_id, home, found, ended)]),
        }

    def refusals(self, scheduler: Mapping[str, Any]) -> list[str]:
        """Why the cluster would not run such workers; empty when it would. Submits nothing. Raises Unreachable."""
        asked = WorkerRequest.of(scheduler)
        found = clusters.read_cluster()
        lacks = request.cluster_refusals(asked, found)
        if not lacks and (why := request.dry_run(asked, found)):
            lacks = [f"resources: the cluster says: {why}"]
        return lacks

    def top_up(
        self,
        native_id: str,
        account: str,
        scheduler: Mapping[str, Any],
        cells: int,
        python: str,
        pilot: str,
        runner: str,
    ) -> str:
        """Submits the workers that are missing: as many as there are cells to do, and `workers` at most, less those
        that Slurm has already (`standing`). Releases those that Slurm itself holds; what a person holds stays held, and
        none is submitted in its place. Ends those that hold nodes without their worker: what such a worker had stays
        its own until its end is proved. Idempotent. Returns in words what there is now. Call it once the queue has its
        cells: a worker that ends later has read them.

        `python`, `pilot`: absolute paths; `runner`: below the box's home. Raises RequestRefused with what the cluster
        says against it; OutcomeUnknown when an answer was lost: called again, it looks first."""
        box, _ = self.where(native_id, account)
        home = box / box_layout.HOME
        asked = WorkerRequest.of(scheduler)
        with jobs.alone(home):
            (box / CLOSED).unlink(missing_ok=True)
            released = jobs.hasten(queue.live(native_id))
            found, wanted = standing.tasks_now(native_id, home), min(asked.workers, cells)
            notes = [f"released {released} that Slurm held"] if released else []
            if found.lost:
                jobs.cancel_tasks(found.lost)
                notes.append(f"ended {', '.join(task.name for task in found.lost)}, which lost the node of the worker")
            # Those that will not begin are replaced; but where all end so, each call would submit as many again.
            missing = wanted - len(found.at_work) - len(found.held)
            missing = min(missing, 2 * asked.workers - len(found.at_work) - len(found.stuck))
            if missing > 0:
                cluster = clusters.read_cluster()
                if lacks := request.cluster_refusals(asked, cluster):
                    raise RequestRefused("nothing was submitted:\n" + "\n".join(f"  {lack}" for lack in lacks))
                count = jobs.allowed(asked, cluster, missing)
                if count:
                    made = jobs.submit(native_id, home, asked, cluster, count, python, pilot, runner)
                    notes += [f"submitted as {', '.join(made)}"] if made else []
                found = standing.tasks_now(native_id, home)
                if (less := wanted - len(found.at_work)) > 0 and not found.stuck:
                    notes.append(f"{less} more than the limits of the account leave: pulumi up submits them later")
            elif found.lost:
                found = standing.tasks_now(native_id, home)
        return "; ".join([found.words(), *notes])


def _name_of_cluster(root: Path) -> str:
    try:
        name = (root / CLUSTER).read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        name = ""
    except OSError as error:
        raise Unreachable(f"{root / CLUSTER} can't be read: {error}") from error
    return name or clusters.settings()["ClusterName"]


def keep_name(root: Path, name: str) -> None:
    """Keeps the cluster's name beside its boxes. Call it when one is made."""
    if not (root / CLUSTER).exists():
        root.mkdir(parents=True, exist_ok=True)
        write_atomically(root / CLUSTER, f"{name}\n".encode())


def must_have_slurm() -> None:
    """Returns when this host has Slurm's commands and its controller answers. Raises RequestRefused."""
    lacks = []
    for name in NEEDED:
        try:
            commands.program(name)
        except Unreachable as error:
            lacks.append(str(error))
    if not lacks:
        try:
            clusters.read_cluster()
        except PlatformError as error:
            lacks.append(f"{error}. Is this a login node, and does `sinfo` answer there?")
    if lacks:
        raise RequestRefused("this host is no login node of a cluster; nothing was made there: " + "; ".join(lacks))


def _told(task: Task, lost: bool) -> dict[str, Any]:
    words = states.reason(task.reason, task.name) if task.waits and task.reason else ""
    if lost:
        words = f"Slurm has lost {task.host}, where its worker was: `pulumi up` ends it, and submits another"
    return {
        "name": task.name,
        "state": task.state,
        "try": task.restarts,
        "starts": task.starts,
        "node": task.nodes,
        "words": words,
    }


def _told_of(one: TaskEnd) -> dict[str, Any]:
    return {
        "name": one.name,
        "state": one.state,
        "try": one.restarts,
        "starts": one.starts,
        "node": one.node,
        "words": one.words,
        "exit": one.exit,
        "max_rss": one.peak,
    }


def _words(past: Sequence[TaskEnd], found: WorkerTasks, before: int | None) -> str:
    """All of it in one line: who runs, who waits and why, what ended badly and what to do about it."""
    parts = [found.words()]
    if before is not None:
        parts.append(f"{before} jobs are before it" if before else "it is the next one")
    starts = [task.starts for task in found.at_work if task.waits and task.starts is not None]
    if starts:
        parts.append(f"Slurm expects it to begin at {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(min(starts)))}")
    bad: dict[tuple[str, bool], str] = {}
    for one in past:
        if one.words:
            bad.setdefault((one.state, one.starved), f"{one.name} ended as {one.state}: {one.words}")
    parts += bad.values()
    return "; ".join(parts)
