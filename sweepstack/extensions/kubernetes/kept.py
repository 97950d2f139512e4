"""Makes a box readable again whose claim, or whose namespace, was deleted by hand.

Our finalizer holds the claim, but no new pod may mount one that is Terminating, and a namespace that is Terminating
takes no new object. So the volume behind it is kept (`Retain`) and bound to a claim of another name: in the same
namespace, or where that ends, in `KEPT`. The old claim stays: it is the box's record.
"""

from __future__ import annotations

import contextlib

from sweepstack.extensions.kubernetes import api, objects
from sweepstack.extensions.kubernetes.api import BOX, MANAGED, MANAGER, Cluster, Exists, Object, let_go, marks_of
from sweepstack.extensions.kubernetes.objects import HOLD
from sweepstack.onbox.common.errors import RequestRefused, Unreachable
from sweepstack.onbox.host.platform import Wait

KEPT = "sweepstack-kept"
"""The namespace of what lay in one that ends."""
RECLAIM, WHERE = "reclaim", "kept-in"
"""Annotations: of a volume, what its reclaim policy was before; of a claim, the namespace of the one that reads it."""
BIND_SECONDS = 60.0


def name_of(native_id: str) -> str:
    """The claim that takes the volume over."""
    return f"{native_id}-kept"


def ends(cluster: Cluster) -> bool:
    """Whether the namespace itself was deleted. Raises Unreachable."""
    found = cluster.get("namespace", cluster.namespace)
    return found is not None and objects.deleted(found)


def claim_of(cluster: Cluster, native_id: str, pvc: Object) -> tuple[Cluster, str]:
    """Where a new pod can mount the box: the cluster's namespace and the claim's name. Its own, where neither it nor
    its namespace was deleted. Else the volume is bound anew, which blocks for a minute at most. Idempotent.

    Raises Unreachable with what is missing: the right to change volumes, or a volume."""
    leaves = ends(cluster)
    if not objects.deleted(pvc) and not leaves:
        return cluster, api.claim_name(native_id)
    volume = str((pvc.get("spec") or {}).get("volumeName") or "")
    if not volume:
        raise Unreachable(f"the claim {native_id} was deleted before it had a volume: there is nothing to read")
    if not cluster.may("patch", "pv"):
        raise Unreachable(
            f"the claim {native_id} or its namespace was deleted by hand, and no pod of it runs. To read it, its "
            f"volume {volume} has to be bound to a new claim, which this user may not do (patch persistentvolumes). "
            "Next: the same command by a user who may"
        )
    there = cluster.beside(KEPT) if leaves else cluster
    name = name_of(native_id)
    found = there.get("pvc", name)
    if found is None:
        if there is not cluster:
            _namespace(there)
        cluster.patch("pvc", native_id, objects.mark(kept_in=there.namespace))
        _claimed(there, name, native_id, _released(cluster, volume, there.namespace, name), pvc)
    _bound(there, name)
    return there, name


def end(cluster: Cluster, native_id: str, pvc: Object) -> list[str]:
    """Ends what was made to read a box: the pod, and the claim, whose volume gets the reclaim policy back that it had.
    Returns what of it is there still, in words. For a destroy; idempotent. Raises Unreachable."""
    where = marks_of(pvc).get(WHERE)
    if not where:
        return []
    there, name = cluster.beside(where), name_of(native_id)
    pods = [pod for pod in there.list("pod", api.labels_of(native_id)) if where != cluster.namespace]
    for pod in pods:
        there.delete("pod", pod, grace=1)
    found = there.get("pvc", name)
    if found is not None:
        pv = cluster.get("pv", str((found.get("spec") or {}).get("volumeName") or "-"))
        before = marks_of(pv).get(RECLAIM, "") if pv is not None else ""
        if pv is not None and before:
            cluster.patch("pv", pv["metadata"]["name"], {"spec": {"persistentVolumeReclaimPolicy": before}})
        there.patch("pvc", name, objects.mark(ending_at=objects.now()))
        there.delete("pvc", found)
        let_go(there, "pvc", name, HOLD)
    left = [f"pod {pod['metadata']['name']} in {where}" for pod in pods]
    return left + ([f"the claim {name} in {where}"] if there.get("pvc", name) is not None else [])


def _namespace(there: Cluster) -> None:
    metadata = {"name": there.namespace, "labels": {MANAGED: MANAGER}}
    try:
        with contextlib.suppress(Exists):
            there.create("namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    except RequestRefused as error:
        raise Unreachable(
            f"the box's namespace ends, and another one is needed to read its volume: {error}. Next: kubectl create "
            f"namespace {there.namespace}, by a user who may"
        ) from error


def _released(cluster: Cluster, volume: str, namespace: str, name: str) -> Object:
    """Keeps the volume whatever becomes of its claim, and reserves it for the new one; returns it. Several commands may
    do this at once: to reserve it again would take it from the claim that has it by then, which is lost by that."""

    def reserved(pv: Object) -> Object | None:
        has = pv["spec"].get("claimRef") or {}
        if (has.get("namespace"), has.get("name")) == (namespace, name):
            return None
        was = marks_of(pv).get(RECLAIM) or str(pv["spec"].get("persistentVolumeReclaimPolicy") or "Retain")
        claim = {"namespace": namespace, "name": name, "uid": None, "resourceVersion": None}
        spec = {"persistentVolumeReclaimPolicy": "Retain", "claimRef": claim}
        return {**objects.mark(reclaim=was), "spec": spec}

    pv = api.change(cluster, "pv", volume, reserved)
    if pv is None:
        raise Unreachable(f"the volume {volume} of the claim that was deleted is gone")
    return pv


def _claimed(there: Cluster, name: str, native_id: str, pv: Object, former: Object) -> None:
    spec = {
        "accessModes": pv["spec"]["accessModes"],
        "resources": {"requests": {"storage": pv["spec"]["capacity"]["storage"]}},
        "storageClassName": pv["spec"].get("storageClassName") or "",
        "volumeName": pv["metadata"]["name"],
    }
    marks = {f"{api.PREFIX}{key}": value for key, value in marks_of(former).items()}
    with contextlib.suppress(Exists):
        there.create("pvc", objects.held_claim(name, {BOX: native_id, objects.ROLE: "kept"}, marks, spec))


def _bound(there: Cluster, name: str) -> None:
    if Wait(BIND_SECONDS).until(lambda: objects.phase_of(there.get("pvc", name) or {}) == "Bound", name):
        raise Unreachable(f"the claim {name} in {there} is not bound still: kubectl describe pvc {name} says why")
