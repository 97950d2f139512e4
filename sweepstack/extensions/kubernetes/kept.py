"""Makes a box readable again whose claim, or whose namespace, was deleted by hand.

Our finalizer holds the claim, but no new pod may mount one that is Terminating, and a namespace that is Terminating
takes no new object. So the volume behind it is kept (`Retain`) and bound to a claim of another name: in the same
namespace, or where that ends, in `KEPT`. The old claim stays: it is the box's record.

Where a person took our finalizer away, too, the claim is gone, and what becomes of the volume is its reclaim policy's
to say. Then the claim of another name is the box's record, with what its Jobs carry of the former.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from sweepstack.extensions.kubernetes import api, jobs, objects
from sweepstack.extensions.kubernetes.api import MANAGED, MANAGER, Cluster, Exists, Object, let_go, marks_of
from sweepstack.extensions.kubernetes.objects import HOLD, NAME
from sweepstack.onbox.common.errors import RequestRefused, Unreachable

KEPT = "sweepstack-kept"
"""The namespace of what lay in one that ends."""
RECLAIM, WHERE = "reclaim", "kept-in"
"""Annotations: of a volume, what its reclaim policy was before; of a claim, the namespace of the one that reads it."""


def name_of(native_id: str) -> str:
    """The claim that takes the volume over."""
    return f"{native_id}-kept"


def claim(cluster: Cluster, native_id: str) -> Object | None:
    """The claim that is the box's record: its own, else the one that took its place (`saved`). Raises Unreachable."""
    return cluster.get("pvc", native_id) or cluster.get("pvc", name_of(native_id))


def saved(cluster: Cluster, native_id: str) -> Object:
    """The same. Where there is none, and Jobs of the box are, a person took its claim away, with our hold on it: a
    destroy lets Jobs go first. So its volume is kept, while workers may write still. Idempotent; blocks for seconds.

    Raises Unreachable where no Job is there; else with what is missing: rights, or the volume."""
    if (found := claim(cluster, native_id)) is not None:
        return found
    why = f"{native_id} can't be read: {cluster} has no claim of this name"
    job = max(cluster.list("job", api.labels_of(native_id)), key=jobs.number_of, default=None)
    if job is None:
        raise Unreachable(why)
    why += ": it was deleted by hand, and our hold with it"
    _must_change(cluster, f"{why}; its volume is there for as long as its reclaim policy lets it", "list", "patch")
    volume = next((pv for pv in cluster.list("pv") if _is_of(pv, cluster.namespace, native_id)), None)
    if volume is None:
        if (found := claim(cluster, native_id)) is not None:  # another command was first
            return found
        box = marks_of(job).get(NAME, "BOX")
        raise Unreachable(
            f"{why}, and the cluster has no volume that was its: what was on it is gone, unless a person gave it to "
            f'another claim. Next: sweepctl give-up data/{box} --reason "…", then pulumi up and pulumi destroy'
        )
    spec = job["spec"]["template"]["spec"]
    like = {"image": spec["containers"][0]["image"], "service_account": spec.get("serviceAccountName")}
    like["tolerations"] = spec.get("tolerations")  # that of a Job without a record: an older version made it
    record = objects.mark(pods=objects.spelled(like))["metadata"]["annotations"] | objects.record_of(job)
    pv = _released(cluster, volume["metadata"]["name"], name_of(native_id))
    return _claimed(cluster, native_id, pv, record)


def _must_change(cluster: Cluster, why: str, *verbs: str) -> None:
    if not all(cluster.may(verb, "pv") for verb in verbs):
        raise Unreachable(
            f"{why}. To read it, its volume has to be bound to a new claim, which this user may not do "
            f"({' and '.join(verbs)} persistentvolumes). Next: the same command by a user who may"
        )


def _is_of(pv: Object, namespace: str, native_id: str) -> bool:
    """Whether a volume was that of the box's own claim, or of the one that takes its place, or is set aside for it."""
    of = {"name": "", "uid": "", **(pv["spec"].get("claimRef") or {})}
    its = of["name"] == name_of(native_id) or api.id_of({"metadata": of}) == native_id
    return its and of.get("namespace") == namespace


def ends(cluster: Cluster) -> bool:
    """Whether the namespace itself was deleted. Raises Unreachable."""
    found = cluster.get("namespace", cluster.namespace)
    return found is not None and objects.deleted(found)


def claim_of(cluster: Cluster, native_id: str, pvc: Object) -> tuple[Cluster, str]:
    """Where a new pod can mount the box: the cluster's namespace and the claim's name. Its own, where neither it nor
    its namespace was deleted. Else the volume is bound anew, which takes a moment more than this call. Idempotent.

    Raises Unreachable with what is missing: the right to change volumes, or a volume."""
    leaves = ends(cluster)
    if not objects.deleted(pvc) and not leaves:
        return cluster, str(pvc["metadata"]["name"])
    volume = str((pvc.get("spec") or {}).get("volumeName") or "")
    if not volume:
        raise Unreachable(f"the claim {native_id} was deleted before it had a volume: there is nothing to read")
    _must_change(cluster, f"the claim {native_id} or its namespace was deleted by hand, and no pod of it runs", "patch")
    there = cluster.beside(KEPT) if leaves else cluster
    name = name_of(native_id)
    if there.get("pvc", name) is None:
        if there is not cluster:
            _namespace(there)
        cluster.patch("pvc", pvc["metadata"]["name"], objects.mark(kept_in=there.namespace))
        _claimed(there, native_id, _released(there, volume, name), objects.record_of(pvc))
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


def _released(there: Cluster, volume: str, name: str) -> Object:
    """Keeps the volume whatever becomes of its claim, and reserves it for the new one; returns it. Several commands may
    do this at once: to reserve it again would take it from the claim that has it by then, which is lost by that."""

    def reserved(pv: Object) -> Object | None:
        has = pv["spec"].get("claimRef") or {}
        if (has.get("namespace"), has.get("name")) == (there.namespace, name):
            now = there.get("pvc", name) if has.get("uid") else None
            if not has.get("uid") or (now is not None and now["metadata"]["uid"] == has["uid"]):
                return None  # else it is of one that was deleted, too
        was = marks_of(pv).get(RECLAIM) or str(pv["spec"].get("persistentVolumeReclaimPolicy") or "Retain")
        claim = {"namespace": there.namespace, "name": name, "uid": None, "resourceVersion": None}
        spec = {"persistentVolumeReclaimPolicy": "Retain", "claimRef": claim}
        return {**objects.mark(reclaim=was), "spec": spec}

    pv = api.change(there, "pv", volume, reserved)
    if pv is None:
        raise Unreachable(f"the volume {volume} of the claim that was deleted is gone")
    return pv


def _claimed(there: Cluster, native_id: str, pv: Object, record: Mapping[str, str]) -> Object:
    spec = {
        "accessModes": pv["spec"]["accessModes"],
        "resources": {"requests": {"storage": pv["spec"]["capacity"]["storage"]}},
        "storageClassName": pv["spec"].get("storageClassName") or "",
        "volumeName": pv["metadata"]["name"],
    }
    marks = objects.mark(kept_in=there.namespace, ready_at=objects.now())["metadata"]["annotations"]
    labels = {api.BOX: native_id, objects.ROLE: "kept"}
    body = objects.held_claim(name_of(native_id), labels, {**record, **marks}, spec)
    with contextlib.suppress(Exists):
        return there.create("pvc", body)
    return there.get("pvc", name_of(native_id)) or body
