"""The template of every pod of a box: its workers, and the one that reads it. Pure.

The escape `pod:` of a stack file is closed: a field that it does not name is refused, and so is each part of one that
is ours. So pods pass the *restricted* Pod Security Standard, whatever is written, and nothing by which they are found
and ended can be changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sweepstack.extensions.kubernetes.api import BOX, MANAGED, MANAGER, PREFIX, Object, claim_name
from sweepstack.extensions.kubernetes.objects import HOME, MOUNT, ROLE
from sweepstack.extensions.kubernetes.onbox import pilot
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

WHERE: Final = "overrides.kubernetes"
SECURITY: Final = ("runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy", "supplementalGroups")
"""Fields of `securityContext` that are a person's."""
_NUMBERS: Final = SECURITY[:3]
_MAPPINGS: Final = ("nodeSelector", "labels", "annotations", "securityContext", "affinity", "dnsConfig")
_LISTS: Final = ("imagePullSecrets", "hostAliases", "topologySpreadConstraints")
_TEXTS: Final = ("runtimeClassName", "schedulerName", "dnsPolicy")
ALLOWED: Final = (*_MAPPINGS, *_LISTS, *_TEXTS)
"""`labels` and `annotations` go to the pod's metadata, the others to its spec."""
_OF_JOB = "job.run and job.image"
_ALWAYS = "sweepstack itself: its pods are started, watched and ended by it"
_APART = "sweepstack, which lets no cell into its node's own namespaces: the end of a worker could not be proved"
OWNED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("containers", "initContainers", "ephemeralContainers"), _OF_JOB),
    "volumes": f"resources.disk and {WHERE}.storage_class",
    "resources": "resources.cpu, resources.memory and resources.gpu",
    "tolerations": f"{WHERE}.tolerations",
    **dict.fromkeys(("serviceAccountName", "serviceAccount"), f"{WHERE}.service_account"),
    **dict.fromkeys(("priorityClassName", "priority"), f"{WHERE}.priority_class"),
    "terminationGracePeriodSeconds": "job.grace",
    "nodeName": "the scheduler: write pod.nodeSelector",
    **dict.fromkeys(("restartPolicy", "activeDeadlineSeconds", "schedulingGates", "readinessGates"), _ALWAYS),
    **dict.fromkeys(("hostname", "hostnameOverride", "subdomain", "setHostnameAsFQDN", "os"), _ALWAYS),
    **dict.fromkeys(("automountServiceAccountToken", "preemptionPolicy", "enableServiceLinks"), _ALWAYS),
    **dict.fromkeys(("hostPID", "hostIPC", "hostNetwork", "hostUsers", "shareProcessNamespace"), _APART),
}
"""Field of a pod → what sets it here."""
_OURS: Final = (PREFIX, "app.kubernetes.io/managed-by", "kueue.x-k8s.io/", "batch.kubernetes.io/", "job-name")


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


def mistakes(pod: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Path below `pod` → what is wrong there, and the fix."""
    if not isinstance(pod, Mapping):
        yield (), "expected fields of a pod, such as {nodeSelector: {disk: ssd}}"
        return
    for key, found in pod.items():
        if key in OWNED:
            yield (key,), f"is set by {OWNED[key]}; take it out"
        elif key not in ALLOWED:
            yield (key,), f"is no field that may be written here; those are {', '.join(ALLOWED)}"
        elif (key in _LISTS and not isinstance(found, list)) or (key in _TEXTS and not isinstance(found, str)):
            yield (key,), f"expected {'a list' if key in _LISTS else 'a text'}, as a pod has it"
        elif key in _MAPPINGS and not isinstance(found, dict):
            yield (key,), "expected a mapping, as a pod has it"
        elif key == "securityContext":
            yield from _of_security(found)
        elif key in ("labels", "annotations", "nodeSelector"):
            yield from _texts(key, found)


def _texts(key: str, found: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, text in found.items():
        if not isinstance(text, str):
            yield (key, str(name)), 'expected a text: write it in quotes, such as "true"'
        elif key != "nodeSelector" and str(name).startswith(_OURS):
            yield (key, str(name)), f"is set by {_ALWAYS}; take it out"


def _of_security(found: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in found.items():
        at, number = ("securityContext", str(key)), isinstance(value, int) and not isinstance(value, bool)
        if key not in SECURITY:
            yield at, f"is set by sweepstack, by the restricted standard of pods; yours are {', '.join(SECURITY)}"
        elif key in _NUMBERS and not (number and value > 0):
            yield at, "expected a number above 0: the restricted standard of pods lets nothing run as root"


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
        **dict.fromkeys(_NUMBERS, USER),
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
    requests, limits = dict[str, str](), dict[str, str]()
    if asked.cpu:
        requests["cpu"] = f"{math.ceil(asked.cpu * 1000)}m"
    if asked.memory:
        requests["memory"] = limits["memory"] = str(asked.memory)
    if asked.gpus:
        requests[asked.gpu_kind[0]] = limits[asked.gpu_kind[0]] = str(asked.gpus)
    return {name: found for name, found in (("requests", requests), ("limits", limits)) if found}


def _affinity(native_id: str, asked: PodRequest, more: Mapping[str, Any]) -> Object:
    """What a person wrote, and with it the cards and the node that are asked for."""
    found: Object = {name: dict(value) for name, value in more.items()}
    if asked.gpus and asked.gpu_products:
        match = {"key": asked.gpu_kind[1], "operator": "In", "values": list(asked.gpu_products)}
        found = on_nodes(found, "matchExpressions", match)
    labels = {"matchLabels": {BOX: native_id, ROLE: WORKER}}
    same = {"labelSelector": labels, "topologyKey": "kubernetes.io/hostname"}
    if asked.one_node:
        near = found.setdefault("podAffinity", {})
        near[_REQUIRED] = [*(near.get(_REQUIRED) or []), same]
    if asked.nodes > 1:  # each on a node of its own, where there are as many
        apart, wish = found.setdefault("podAntiAffinity", {}), "preferredDuringSchedulingIgnoredDuringExecution"
        apart[wish] = [*(apart.get(wish) or []), {"weight": 100, "podAffinityTerm": same}]
    return found


def on_nodes(affinity: Mapping[str, Any], kind: str, match: Object) -> Object:
    """The affinity with one thing more that a node has to meet, in each of its alternatives, of which one has to hold.
    `kind`: `matchExpressions` or `matchFields`."""
    before = affinity.get("nodeAffinity") or {}
    terms = (before.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    terms = [{**one, kind: [*(one.get(kind) or []), match]} for one in terms]
    return {**affinity, "nodeAffinity": {**before, _REQUIRED: {"nodeSelectorTerms": terms}}}


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
