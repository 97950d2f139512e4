"""Tells which of a box's workers take cells, and which are leaving, lost or held.

An index of an unfinished Job is a worker, whether it has a pod just now or not: the cluster keeps one there. Pods of
Jobs that were deleted, and such that were orphaned, count by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from sweepstack.extensions.kubernetes import jobs, pods
from sweepstack.extensions.kubernetes.api import Cluster, Object, labels_of, marks_of
from sweepstack.extensions.kubernetes.objects import NAME, deleted, is_over
from sweepstack.extensions.kubernetes.onbox import ends
from sweepstack.extensions.kubernetes.pod_template import SEEN
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.errors import NotAuthorized

GOES_ON = ("signal", "wall")
"""Why a worker ended that another pod follows."""


@dataclass(frozen=True)
class Standing:
    """One look. `ended`, `lost`, `leaving`, `at_work`: the pods by their uid, each in one of them; `why`: what shows
    it. `lost`: whether these have ended is not known. `box`: its name, where a pod is lost.
    `kubectl`: how a person's command about the cluster begins."""

    jobs: Sequence[Object]
    pods: Sequence[Object]
    ended: dict[str, Object] = field(default_factory=dict)
    lost: dict[str, Object] = field(default_factory=dict)
    leaving: dict[str, Object] = field(default_factory=dict)
    at_work: dict[str, Object] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    box: str = "BOX"
    kubectl: str = "kubectl"

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

    def open_of(self, job: Object, stopped: Mapping[str, str] | None = None) -> set[int]:
        """The workers that a Job has, or will have; see `slots`."""
        own = filter(jobs.leads, self.of_job(job))
        through = {jobs.index_of(pod) for pod in own if self._is_through(uid_of(pod), stopped or {})}
        return {index for index in jobs.open_indices(job) if index not in through}

    def slots(self, stopped: Mapping[str, str] | None = None) -> Slots:
        """How many workers there are. `stopped`: workers whose end the journal has, and why: what it says of a pod that
        the cluster still shows as running counts."""
        live = held = queued = lost = 0
        closed = [job for job in self.jobs if jobs.CLOSED in marks_of(job)]
        counted = {uid_of(pod) for job in closed for pod in self.of_job(job)}  # told to end, or just about to be
        for job in self.open_jobs:
            own = {uid_of(pod): pod for pod in self.of_job(job)}
            there = self.open_of(job, stopped)
            if jobs.is_suspended(job):
                queued += len(there) if jobs.is_queued(job) else 0
                held += 0 if jobs.is_queued(job) else len(there)
                continue
            only_lost = {jobs.index_of(pod) for uid, pod in own.items() if uid in self.lost or given_up(pod)}
            only_lost -= {jobs.index_of(pod) for uid, pod in own.items() if uid in self.at_work}
            only_lost = {0} if only_lost and jobs.nodes_of(job) > 1 else only_lost  # it has all of its pods, or none
            lost += len(there & only_lost)
            live += len(there - only_lost)
            counted.update(own)
        others = [uid for uid, pod in self.at_work.items() if uid not in counted and jobs.leads(pod)]
        others = [uid for uid in others if not self._is_through(uid, stopped or {})]
        return Slots(live + len(others), held, queued, lost)

    def _is_through(self, uid: str, stopped: Mapping[str, str]) -> bool:
        """Whether a pod has ended, or is about to, so that the cluster brings no other one for it."""
        if uid in self.ended:
            return pods.exit_of(self.ended[uid]) in (0, *jobs.NO_SENSE)
        return uid not in self.lost and stopped.get(f"{uid}.0", GOES_ON[0]) not in GOES_ON


@dataclass(frozen=True)
class Slots:
    """`live`: workers that are there, or that the cluster brings by itself; `queued`: that Kueue still keeps waiting;
    `held`: of a Job that a person suspended; `lost`: whose pod's node does not answer."""

    live: int
    held: int
    queued: int
    lost: int


def given_up(pod: Object) -> bool:
    """Whether a person's word alone proves its end, and it is kept: until it is let go its Job brings no other pod."""
    said = ends.SAW in (pod["metadata"].get("annotations") or {}) and SEEN in (pod["metadata"].get("finalizers") or ())
    return said and not is_over(pod)


def uid_of(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def look(cluster: Cluster, native_id: str) -> Standing:
    """What there is now. Reads only. Raises Unreachable, NotAuthorized."""
    found = cluster.list("job", labels_of(native_id))
    pods = cluster.list("pod", labels_of(native_id, role="worker"))
    seen = judged(sorted(found, key=jobs.number_of), pods, _nodes(cluster, pods), time.time())
    claim = cluster.get("pvc", native_id) if seen.lost else None
    name = marks_of(claim).get(NAME, seen.box) if claim is not None else seen.box
    return replace(seen, box=name, kubectl=cluster.kubectl)


def judged(
    found: Sequence[Object], pods: Sequence[Object], nodes: Mapping[str, Mapping[str, object] | None], now: float
) -> Standing:
    """The same, of objects that were read already. `nodes`: see `ends.judged`."""
    seen = Standing(found, pods)
    for pod in pods:
        uid, node = uid_of(pod), ends.node_of(pod)
        state, seen.why[uid] = ends.judged(pod, nodes.get(node), now)
        if state == ends.ENDED:
            seen.ended[uid] = pod
        elif state == ends.UNKNOWN:
            seen.lost[uid] = pod
        elif deleted(pod):
            seen.leaving[uid] = pod
        else:
            seen.at_work[uid] = pod
    return seen


def _nodes(cluster: Cluster, pods: Sequence[Object]) -> dict[str, Mapping[str, object] | None]:
    """The nodes that are asked about: those of pods that may run. Where this user may not read nodes, none is known."""
    now = time.time()
    names = {ends.node_of(pod) for pod in pods if ends.node_of(pod) and ends.judged(pod, None, now)[0] != ends.ENDED}
    try:
        return {name: cluster.get("node", name) or ends.NO_NODE for name in sorted(names)}
    except NotAuthorized:
        return {}
