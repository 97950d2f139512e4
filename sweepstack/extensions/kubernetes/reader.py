"""The pod that is asked for what lies on a box: a worker that runs, else a reader, made for that.

A reader mounts the box's claim and waits. It ends by itself: `IDLE_SECONDS` after the last command in it, and in any
case after `LONGEST_SECONDS`. There is one at most (one on a silent node aside); commands that want it at once share it.
"""

from __future__ import annotations

import time

from sweepstack.extensions.kubernetes import kept, objects, pods
from sweepstack.extensions.kubernetes.api import PREFIX, UNSAID, Cluster, Exists, Object, labels_of, marks_of
from sweepstack.extensions.kubernetes.objects import ENDING, READY, ROLE, is_over, phase_of, status_of
from sweepstack.extensions.kubernetes.onbox import ends
from sweepstack.extensions.kubernetes.pod_template import READER, WORKER, PodRequest, on_nodes, template
from sweepstack.onbox.common.canonical import canonical_json, sha256_hex
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import NotAuthorized, OutcomeUnknown, RequestRefused, Unreachable
from sweepstack.onbox.host.platform import Wait

READY_SECONDS, NEW_SECONDS = 120.0, 10.0
"""For so long a reader is waited for, where its caller names no time; of a box on which nothing lies yet."""
FIRST: set[str] = set()
"""Boxes of which this process asked for a first worker, which waits for its files (`workers.ask_first`)."""
FIRST_SECONDS = 2.0
"""For so long a node is waited for that takes it, unless the scheduler says that none does."""
IDLE_SECONDS, LONGEST_SECONDS = 300, 6 * 3600
LOOK_SECONDS = 10
SOON_SECONDS, PAUSES = 5.0, (0.2, 1.0)
"""A reader is looked at with these pauses: while it may soon be there, and later."""
CPU = 0.05
LIMITED = {"requests": {"cpu": f"{CPU * 1000:.0f}m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
"""For a reader in a namespace whose quota lets no pod in that does not say it; else it may take what it needs."""
SAME = "same"
"""Annotation of a reader: a digest of what it was made of."""
_LOOP = (
    "trap 'exit 0' TERM; n=0; while [ $n -lt {looks} ]; do sleep {seconds} & wait $!; set -- /proc/[0-9]*; "
    "if [ $# -gt 1 ]; then n=0; else n=$((n+1)); fi; done"
)
"""The shell is the only process in the pod between two looks, unless a command runs in it."""


@dataclass(frozen=True)
class Found:
    """A pod that can be asked, in its cluster and namespace. `reader`: it is no worker. `begins`: it was just put on a
    node, which has not said yet that it runs; it says so up to a second late."""

    cluster: Cluster
    name: str
    uid: str
    reader: bool
    begins: bool = False


def pod_for(cluster: Cluster, native_id: str, wait: Wait | None = None, *, soon: bool = False) -> Found:
    """The pod to ask. Where no worker runs, makes a reader and blocks until that can be asked, by `wait`
    (`READY_SECONDS` without one). `soon`: or until that begins; a first worker (`FIRST`) that a node takes at once is
    asked in its place, so that a volume that comes with its first pod is made where workers can run. Idempotent.

    Raises Unreachable, which says why there is none and what to do; also when the box is ending, or gone."""
    there = cluster.list("pod", labels_of(native_id))
    if (found := _askable(cluster, there)) is not None:
        return found
    pvc = kept.saved(cluster, native_id)
    last = next((_found(cluster, pod) for pod in there if _runs(pod)), None)  # told to end, and runs still
    if ENDING in marks_of(pvc) or objects.deleted(pvc):
        if last is not None:
            return last
        if ENDING in marks_of(pvc):
            raise Unreachable(f"{native_id} can't be read: it is being destroyed, and no pod of it runs any more")
    where, claim = kept.claim_of(cluster, native_id, pvc)
    known = wait or Wait(READY_SECONDS if READY in marks_of(pvc) else NEW_SECONDS)
    return _Reader(where, native_id, claim, pvc, known, soon).found()


def better(cluster: Cluster, found: Found, native_id: str) -> bool:
    """Whether a reader should not be asked any more, since a worker runs. One that holds the box's volume on another
    node than the one on which a worker is to begin is told to end. Raises Unreachable."""
    if found.cluster is not cluster:
        return False
    there = cluster.list("pod", labels_of(native_id))
    for pod in there:
        if _role(pod) == READER and not is_over(pod) and not objects.deleted(pod) and _blocks(pod, there):
            cluster.delete("pod", pod, grace=1)
    now = _askable(cluster, there)
    return now is None or now.uid != found.uid


def _askable(cluster: Cluster, there: list[Object]) -> Found | None:
    """A worker that runs, else the reader that does, unless that is in a worker's way."""
    running = [pod for pod in there if _runs(pod) and not objects.deleted(pod)]
    workers = sorted(
        (pod for pod in running if _role(pod) == WORKER), key=lambda pod: str(status_of(pod).get("startTime"))
    )
    readers = [pod for pod in running if _role(pod) == READER and not _blocks(pod, there)]
    return next((_found(cluster, pod) for pod in [*reversed(workers), *readers]), None)


def _found(cluster: Cluster, pod: Object) -> Found:
    metadata = pod["metadata"]
    return Found(cluster, str(metadata["name"]), str(metadata["uid"]), _role(pod) != WORKER)


def _runs(pod: Object) -> bool:
    """Whether its containers run, as its node said last, and that answers."""
    status = status_of(pod)
    running = all("running" in (one.get("state") or {}) for one in status.get("containerStatuses") or ())
    return phase_of(pod) == "Running" and ends.is_ready(pod) and running


def _role(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(ROLE) or "")


def _worker_nodes(there: list[Object]) -> set[str]:
    """The nodes on which workers begin, as these say themselves: one that is lost says nothing."""
    begin = (
        pod for pod in there if _role(pod) == WORKER and not objects.deleted(pod) and status_of(pod).get("startTime")
    )
    return {ends.node_of(pod) for pod in begin if phase_of(pod) == "Pending"}


def _blocks(reader: Object, there: list[Object]) -> bool:
    """Whether it holds the volume on another node than the one where a worker wants it."""
    wanted = _worker_nodes(there)
    return bool(wanted) and ends.node_of(reader) not in ("", *wanted)


class _Reader:
    """Makes the reader of one box, and waits for it."""

    def __init__(self, cluster: Cluster, native_id: str, claim: str, pvc: Object, wait: Wait, soon: bool) -> None:
        self._cluster, self._native_id, self._claim, self._pvc, self._wait = cluster, native_id, claim, pvc, wait
        self._soon = soon
        self.name = f"{native_id}-reader"
        self._found: Found | None = None
        self._why, self._limited = "", False
        self._begun = self._next = time.monotonic()

    def found(self) -> Found:
        """See `pod_for`."""
        late = self._wait.until(self._look, f"the pod {self.name}", lambda: self._why)
        if self._found is not None:
            return self._found
        what = f"{self._why} ({late})" if self._why else late
        raise Unreachable(f"{self._native_id} can't be read now: {what}")

    def _look(self) -> bool:
        if (now := time.monotonic()) < self._next:
            return False
        self._next = now + PAUSES[now - self._begun > SOON_SECONDS]
        there = self._cluster.list("pod", labels_of(self._native_id))
        self._found = _askable(self._cluster, there)
        if self._found is not None:
            return True
        own = next((pod for pod in there if pod["metadata"]["name"] == self.name), None)
        if own is None and self._soon and self._native_id in FIRST and now - self._begun < FIRST_SECONDS:
            self._next = now
            first = next((pod for pod in there if _role(pod) == WORKER and not objects.deleted(pod)), None)
            if first is not None and ends.node_of(first) and not is_over(first):
                self._found = replace(_found(self._cluster, first), begins=True)
            if first is None or not pods.waiting(first):
                return self._found is not None
        if own is None:
            self._wait.progress(f"a reader pod is needed for {self._native_id}: no worker of it runs")
            self._make(there)
        elif objects.deleted(own):
            self._why = f"the last reader pod ({self.name}) is just ending"
            if ends.judged(own, None, time.time())[0] == ends.UNKNOWN:
                self._overdue(own)
        elif is_over(own) or _blocks(own, there) or self._changed(own, there):
            self._cluster.delete("pod", own, grace=1)
        elif self._soon and ends.node_of(own):
            self._found = replace(_found(self._cluster, own), begins=True)
        else:
            self._say(own)
        return self._found is not None

    def _overdue(self, own: Object) -> None:
        """Its node is silent, which may have it for ever. Where other nodes mount the volume another one takes its
        place: what it may still do is a command that has no client any more."""
        if objects.is_shared(self._pvc):
            self._cluster.delete("pod", own, grace=0)
        else:
            way = pods.off(self._cluster.kubectl, own)
            self._why += f", and its node does not say that it has; once you have seen that it is off: {way}"

    def _make(self, there: list[Object]) -> None:
        try:
            self._cluster.create("pod", self._body(there))
        except Exists:
            pass  # another command was first
        except OutcomeUnknown as error:
            self._why = str(error)
        except RequestRefused as error:
            if UNSAID in str(error) and not self._limited:
                self._limited = True
                return self._make(there)
            if "cannot create resource" in str(error):
                raise NotAuthorized(
                    f"{self._native_id} can't be read, since no worker of it runs and you may not make a reader pod: "
                    f"{error}. Next: ask who runs the cluster for the verb create of pods in {self._cluster}"
                ) from error
            why = f"no worker of it runs and a reader pod is not let in: {pods.refused(str(error))}"
            raise Unreachable(f"{self._native_id} can't be read, since {why}") from error

    def _body(self, there: list[Object]) -> Object:
        loop = _LOOP.format(looks=IDLE_SECONDS // LOOK_SECONDS, seconds=LOOK_SECONDS)
        runs = ["sh", "-c", loop], PodRequest(cpu=CPU)
        made = template(self._native_id, READER, objects.pods_of(self._pvc), *runs, claim=self._claim)
        spec = {**made["spec"], "activeDeadlineSeconds": LONGEST_SECONDS}
        if nodes := sorted(_worker_nodes(there)):
            match = {"key": "metadata.name", "operator": "In", "values": nodes[:1]}
            spec["affinity"] = on_nodes(spec.get("affinity") or {}, "matchFields", match)
        metadata = {**made["metadata"], "name": self.name}
        marks = {**(metadata.get("annotations") or {}), f"{PREFIX}{SAME}": sha256_hex(canonical_json(spec))[:16]}
        spec["containers"][0] |= {"resources": LIMITED} if self._limited else {}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "annotations": marks}, "spec": spec}

    def _changed(self, pod: Object, there: list[Object]) -> bool:
        """Whether one that has not begun would be made of something else now: of another image, say."""
        return marks_of(pod).get(SAME) != marks_of(self._body(there)).get(SAME)

    def _say(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]  # of an earlier one of this name there may be events, too
        told = [one for one in self._cluster.events(self.name) if one["involvedObject"].get("uid") == uid]
        why = pods.beginning(pod, told)
        if phase_of(self._pvc) != "Bound" and not ends.node_of(pod):
            claim = self._cluster.get("pvc", self._claim)
            if claim is not None and (more := pods.claim_words(claim, self._cluster.events(self._claim))):
                why = more
        if why != self._why:
            self._wait.progress(why)
        self._why = why
