"""What the cluster shows of a box's workers, and what follows: who takes cells, who is leaving, lost or held.

An index of an unfinished Job is a worker, whether it has a pod just now or not: the cluster keeps one there. Pods of
Jobs that were deleted, and such that were orphaned, count by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from sweepstack.extensions.kubernetes import jobs
from sweepstack.extensions.kubernetes.api import Cluster, Object, labels_of
from sweepstack.extensions.kubernetes.onbox import ends
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import NotAuthorized


@dataclass(frozen=True)
class Standing:
    """One look. `ended`, `lost`, `leaving`, `at_work`: the pods by their uid, each in one of them; `why`: what shows
    it. `lost`: whether these have ended is not known."""

    jobs: Sequence[Object]
    pods: Sequence[Object]
    ended: dict[str, Object] = field(default_factory=dict)
    lost: dict[str, Object] = field(default_factory=dict)
    leaving: dict[str, Object] = field(default_factory=dict)
    at_work: dict[str, Object] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    @property
    def open_jobs(self) -> list[Object]:
        """Those that keep workers there, by themselves or once they are not suspended any more."""
        return [job for job in self.jobs if not jobs.is_finished(job)]

    @property
    def may_run(self) -> list[Object]:
        """The pods whose end is not proved."""
        return [*self.at_work.values(), *self.leaving.values(), *self.lost.values()]

    def of_job(self, job: Object) -> list[Object]:
        """The pods of a Job."""
        return [pod for pod in self.pods if jobs.owner_of(pod) == job["metadata"]["uid"]]

    def slots(self) -> Slots:
        """How many workers there are."""
        live = held = queued = lost = 0
        counted: set[str] = set()
        for job in self.open_jobs:
            there = jobs.open_indices(job)
            own = {uid_of(pod): pod for pod in self.of_job(job)}
            if jobs.is_suspended(job):
                queued += len(there) if jobs.is_queued(job) else 0
                held += 0 if jobs.is_queued(job) else len(there)
                continue
            only_lost = {jobs.index_of(pod) for uid, pod in own.items() if uid in self.lost}
            only_lost -= {jobs.index_of(pod) for uid, pod in own.items() if uid in self.at_work}
            lost += len(there & only_lost)
            live += len(there - only_lost)
            counted.update(own)
        others = [uid for uid in self.at_work if uid not in counted]
        return Slots(live + len(others), held, queued, lost)


@dataclass(frozen=True)
class Slots:
    """`live`: workers that are there, or that the cluster brings by itself; `queued`: that Kueue still keeps waiting;
    `held`: of a Job that a person suspended; `lost`: whose pod's node does not answer."""

    live: int
    held: int
    queued: int
    lost: int


def uid_of(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def look(cluster: Cluster, native_id: str) -> Standing:
    """What there is now. Reads only. Raises Unreachable, NotAuthorized."""
    found = cluster.list("job", labels_of(native_id))
    pods = cluster.list("pod", labels_of(native_id, role="worker"))
    return judged(sorted(found, key=jobs.number_of), pods, _nodes(cluster, pods), time.time())


def judged(
    found: Sequence[Object], pods: Sequence[Object], nodes: Mapping[str, Mapping[str, object] | None], now: float
) -> Standing:
    """The same, of objects that were read already. `nodes`: see `ends.judged`."""
    seen = Standing(found, pods)
    for pod in pods:
        uid, node = uid_of(pod), str((pod.get("spec") or {}).get("nodeName") or "")
        state, seen.why[uid] = ends.judged(pod, nodes.get(node), now)
        if state == ends.ENDED:
            seen.ended[uid] = pod
        elif state == ends.UNKNOWN:
            seen.lost[uid] = pod
        elif pod["metadata"].get("deletionTimestamp"):
            seen.leaving[uid] = pod
        else:
            seen.at_work[uid] = pod
    return seen


def _nodes(cluster: Cluster, pods: Sequence[Object]) -> dict[str, Mapping[str, object] | None]:
    """The nodes that are asked about: those of pods that may run. Where this user may not read nodes, none is known."""
    now = time.time()
    names = {
        str(pod["spec"]["nodeName"])
        for pod in pods
        if (pod.get("spec") or {}).get("nodeName") and ends.judged(pod, None, now)[0] != ends.ENDED
    }
    found: dict[str, Mapping[str, object] | None] = {}
    for name in sorted(names):
        try:
            node = cluster.get("node", name)
        except NotAuthorized:
            return {}
        found[name] = ends.NO_NODE if node is None else node
    return found
