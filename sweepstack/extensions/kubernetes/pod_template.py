"""The template of every pod of a box: its workers, and the one that reads it. Pure.

The pods pass the *restricted* Pod Security Standard, whatever a person adds to them by the closed escape `pod:`: it
sets fields that are not ours, and a field that is ours is refused by its name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from sweepstack.extensions.kubernetes.api import BOX, MANAGED, MANAGER, PREFIX, Object, claim_name
from sweepstack.extensions.kubernetes.objects import HOME, MOUNT, ROLE
from sweepstack.extensions.kubernetes.onbox import pilot
from sweepstack.extensions.kubernetes.pod_fields import WHERE, mistakes
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import RequestRefused

READER, WORKER = "reader", "worker"
SEEN = f"{PREFIX}seen"
"""Our finalizer on workers' pods: it is taken away once the pod's end is on record."""
CONTAINER = "worker"
"""The name of the one container, of readers, too."""
USER = 65532
GRACE_SECONDS = 20.0
"""For a cell to save, where the job names no `grace`."""
SEAL_SECONDS = 30
"""Beyond the grace of a cell: for the runner to write down how its cells ended."""
INDEX_MARK = "batch.kubernetes.io/job-completion-index"
JOB_UID = "batch.kubernetes.io/controller-uid"
NODES = f"{PREFIX}nodes"
"""A label of a Job and its pods: how many of them are one worker, where that is more than one."""
NVIDIA = ("nvidia.com/gpu", "nvidia.com/gpu.product")
"""Of GPUs: the resource, and the label of a node that names its cards."""
IMAGE = "python:3.12-slim"
"""Where a stack names none."""


@dataclass(frozen=True)
class PodRequest:
    """What one pod asks for. `cpu`: cores; `memory`: bytes, request and limit; None: none. `gpus`: of the resource
    `gpu_kind`; `gpu_products`: values of the label of its nodes, one of which must be there; empty: any. `grace`:
    seconds that a cell gets to save. `one_node`: it goes where the box's workers are: the volume is mounted on one node
    only. `nodes`: how many pods one worker has."""

    cpu: float | None = None
    memory: int | None = None
    gpus: int = 0
    gpu_kind: tuple[str, str] = NVIDIA
    gpu_products: tuple[str, ...] = ()
    grace: float = GRACE_SECONDS
    one_node: bool = False
    nodes: int = 1


def template(
    native_id: str,
    role: str,
    pods: Mapping[str, Any],
    command: Sequence[str],
    asked: PodRequest | None = None,
    *,
    claim: str = "",
) -> Object:
    """`metadata` and `spec` of a pod of this box. `role`: `READER` or `WORKER`. `pods`: what its pods are like, as the
    claim has it: `image`, `service_account`, `priority_class`, `tolerations`, `pod`. `claim`: "" for that of the box's
    own id. Raises RequestRefused for an escape that sets more than it may."""
    asked = asked or PodRequest()
    if lacks := refusals(pods):
        raise RequestRefused("; ".join(lacks))
    escape, worker = _escape(pods), role == WORKER
    plain = {name: value for name, value in escape.items() if name not in ("affinity", "labels", "annotations")}
    spec: Object = {
        **plain,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(asked.grace) + SEAL_SECONDS if worker else 1,
        "automountServiceAccountToken": bool(pods.get("service_account")),
        "enableServiceLinks": False,
        "securityContext": _security(escape.get("securityContext") or {}),
        "containers": [_container(native_id, role, str(pods.get("image") or IMAGE), command, asked)],
        "volumes": [
            {"name": "box", "persistentVolumeClaim": {"claimName": claim or claim_name(native_id)}},
            *([{"name": "shm", "emptyDir": {"medium": "Memory"}}] if worker else []),
        ],
    }
    for key, field in (("service_account", "serviceAccountName"), ("priority_class", "priorityClassName")):
        if pods.get(key):
            spec[field] = str(pods[key])
    if pods.get("tolerations"):
        spec["tolerations"] = [dict(one) for one in pods["tolerations"]]
    if affinity := _affinity(native_id, asked, escape.get("affinity") or {}):
        spec["affinity"] = affinity
    metadata: Object = {"labels": {**(escape.get("labels") or {}), BOX: native_id, MANAGED: MANAGER, ROLE: role}}
    if escape.get("annotations"):
        metadata["annotations"] = dict(escape["annotations"])
    if worker:
        metadata["finalizers"] = [SEEN]
        metadata["labels"] |= several_label(asked.nodes)
    return {"metadata": metadata, "spec": spec}


def several_label(nodes: int) -> dict[str, str]:
    """For a Job of so many pods a worker, and for each of them; empty for one."""
    return {NODES: str(nodes)} if nodes > 1 else {}


def refusals(pods: Mapping[str, Any]) -> list[str]:
    """Why no pod can be made of this, each with the key and the fix; empty where one can."""
    try:
        escape = _escape(pods)
    except (ValueError, TypeError) as error:
        return [f"{WHERE}.pod is no mapping of fields of a pod: {error}"]
    return [f"{'.'.join([WHERE, 'pod', *path])} {why}" for path, why in mistakes(escape)]


def _escape(pods: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ValueError, TypeError."""
    found = pods.get("pod") or {}
    known = json.loads(found) if isinstance(found, str) else found
    if not isinstance(known, Mapping):
        raise TypeError("it is no mapping")
    return dict(known)


def _security(more: Mapping[str, Any]) -> Object:
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
        **more,
    }


def _container(native_id: str, role: str, image: str, command: Sequence[str], asked: PodRequest) -> Object:
    worker = role == WORKER
    fields = {pilot.POD_UID: "metadata.uid", pilot.POD_NAME: "metadata.name", pilot.NODE_NAME: "spec.nodeName"}
    fields[pilot.NAMESPACE] = "metadata.namespace"
    if worker:
        fields[pilot.INDEX] = f"metadata.annotations['{INDEX_MARK}']"
    values = {"HOME": HOME, pilot.BOX: native_id}
    if asked.nodes > 1:
        values[pilot.NODES] = str(asked.nodes)
        fields |= {pilot.ADDRESS: "status.podIP", pilot.JOB: f"metadata.labels['{JOB_UID}']"}
    env: list[Object] = [{"name": name, "value": value} for name, value in values.items()]
    env += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    mounts = [{"name": "box", "mountPath": MOUNT}, *([{"name": "shm", "mountPath": "/dev/shm"}] if worker else [])]
    return {
        "name": CONTAINER,
        "image": image,
        "command": list(command),
        "workingDir": MOUNT,
        "env": env,
        "resources": _resources(asked),
        "volumeMounts": mounts,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _resources(asked: PodRequest) -> Object:
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    if asked.cpu:
        requests["cpu"] = f"{math.ceil(asked.cpu * 1000)}m"
    if asked.memory:
        requests["memory"] = limits["memory"] = str(asked.memory)
    if asked.gpus:
        requests[asked.gpu_kind[0]] = limits[asked.gpu_kind[0]] = str(asked.gpus)
    return {**({"requests": requests} if requests else {}), **({"limits": limits} if limits else {})}


def _affinity(native_id: str, asked: PodRequest, more: Mapping[str, Any]) -> Object:
    """What a person wrote, and with it the cards and the node that are asked for."""
    found: Object = {name: dict(value) for name, value in more.items()}
    if asked.gpus and asked.gpu_products:
        match = {"key": asked.gpu_kind[1], "operator": "In", "values": list(asked.gpu_products)}
        found = on_nodes(found, "matchExpressions", match)
    if asked.one_node:
        labels = {"matchLabels": {BOX: native_id, ROLE: WORKER}}
        near = found.setdefault("podAffinity", {})
        rule = {"labelSelector": labels, "topologyKey": "kubernetes.io/hostname"}
        near[_REQUIRED] = [*(near.get(_REQUIRED) or []), rule]
    if asked.nodes > 1:  # each on a node of its own, where there are as many
        term = {
            "labelSelector": {"matchLabels": {BOX: native_id, ROLE: WORKER}},
            "topologyKey": "kubernetes.io/hostname",
        }
        apart, wish = found.setdefault("podAntiAffinity", {}), "preferredDuringSchedulingIgnoredDuringExecution"
        apart[wish] = [*(apart.get(wish) or []), {"weight": 100, "podAffinityTerm": term}]
    return found


def on_nodes(affinity: Mapping[str, Any], kind: str, match: Object) -> Object:
    """The affinity with one thing more that a node has to meet, in each of its alternatives, of which one has to hold.
    `kind`: `matchExpressions` or `matchFields`."""
    before = affinity.get("nodeAffinity") or {}
    terms = (before.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    terms = [{**one, kind: [*(one.get(kind) or []), match]} for one in terms]
    return {**affinity, "nodeAffinity": {**before, _REQUIRED: {"nodeSelectorTerms": terms}}}


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
