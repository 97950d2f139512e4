"""Stops, starts and ends a box. What the cluster shows afterwards proves it."""

from __future__ import annotations

import time

from sweepstack.extensions.kubernetes import create, kept, objects, states, workers
from sweepstack.extensions.kubernetes.api import Cluster, Object, labels_of, let_go, marks_of
from sweepstack.extensions.kubernetes.objects import ENDING, FRESH, HOLD, POWER
from sweepstack.onbox.common.dataclass import replace
from sweepstack.onbox.common.errors import NotYetGone, NotYetStopped, PlatformError
from sweepstack.onbox.host.platform import BoxRecord, Phase, Wait

END_SECONDS = 150.0
"""For so long a stop or a destroy waits for its pods; then its caller calls again."""


def stop(cluster: Cluster, native_id: str) -> None:
    """Ends the workers. What lies on the claim stays. See `CanStop.stop`."""
    _there(cluster, native_id)
    cluster.patch("pvc", native_id, objects.mark(power="stopping"))
    try:
        workers.end_all(cluster, native_id, END_SECONDS)
    except NotYetGone as error:
        raise NotYetStopped(str(error)) from error
    cluster.patch("pvc", native_id, objects.mark(power="stopped"))


def start(cluster: Cluster, native_id: str, account: str, wait: Wait, reach: create.Reach) -> BoxRecord:
    """Lets workers be submitted again, which its queue does; blocks until a pod has the box. See `CanStop.start`."""
    pvc = _there(cluster, native_id)
    if marks_of(pvc).get(POWER) == "stopping":
        stop(cluster, native_id)
        pvc = _there(cluster, native_id)
    if marks_of(pvc).get(POWER) == "stopped":
        cluster.patch("pvc", native_id, objects.mark(power=None, ready_at=None))
        pvc = _there(cluster, native_id)
    found = states.record(cluster, pvc, account)
    if FRESH in marks_of(pvc):
        return replace(found, phase=Phase.RUNNING)  # it needs no machine until its queue is there: `create.begun`
    return create.made_ready(cluster, found, wait, reach)


def destroy(cluster: Cluster, native_id: str) -> None:
    """See `Platform.destroy`. In this order: that it ends is written on the claim, the workers end, the reader, the
    Jobs; only then our hold is taken from the claim, which ends it. A call after a crash goes on from there."""
    pvc = kept.claim(cluster, native_id)
    ends = time.monotonic() + END_SECONDS
    if pvc is not None and ENDING not in marks_of(pvc):
        cluster.patch("pvc", pvc["metadata"]["name"], objects.mark(ending_at=objects.now()))
    if pvc is not None or states.left_of(cluster, native_id):
        workers.end_all(cluster, native_id, END_SECONDS)
        for pod in cluster.list("pod", labels_of(native_id, role="reader")):
            cluster.delete("pod", pod, grace=1)
    for job in cluster.list("job", labels_of(native_id)):
        let_go(cluster, "job", job["metadata"]["name"], HOLD)
        cluster.delete("job", job, propagation="Background")
    while True:
        left = states.left_of(cluster, native_id)
        if pvc is not None and not left:  # the claim goes last: it is what the box is known by
            left = kept.end(cluster, native_id, pvc)
            if not left:
                cluster.delete("pvc", pvc)
                let_go(cluster, "pvc", native_id, HOLD)
            pvc = kept.claim(cluster, native_id)
            left += [f"the claim {pvc['metadata']['name']}"] if pvc is not None else []
        if not left:
            return
        if time.monotonic() > ends:
            raise NotYetGone(f"{cluster} still has {', '.join(left)}: the same command again goes on")
        time.sleep(workers.POLL_SECONDS)


def _there(cluster: Cluster, native_id: str) -> Object:
    pvc = cluster.get("pvc", native_id)
    if pvc is None:
        raise PlatformError(f"{cluster} has no claim of the box {native_id}: nothing can be stopped or started")
    if ENDING in marks_of(pvc):
        raise PlatformError(f"the box {native_id} is being destroyed")
    return pvc
