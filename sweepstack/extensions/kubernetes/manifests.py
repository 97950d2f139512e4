"""The objects of a box as we apply them, and what others changed of them.

Each is built of what the cluster has, without what the server adds. So whatever applies it beside us owns the same
values, and changes none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweepstack.extensions.kubernetes import gate, jobs
from sweepstack.extensions.kubernetes.api import MANAGER, PREFIX, Cluster, Object, labels_of
from sweepstack.onbox.common.errors import Unreachable

_JOB = (
    *("completionMode", "completions", "parallelism", "backoffLimitPerIndex", "podReplacementPolicy"),
    *("podFailurePolicy", "maxFailedIndexes", "successPolicy", "suspend", "template"),
)
_CLAIM = ("accessModes", "resources", "storageClassName")
_OF_SERVER = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
"""Labels of a Job's pods that the server sets."""


def manifests(cluster: Cluster, native_id: str) -> tuple[list[Object], list[str]]:
    """See `HasManifests.manifests`."""
    claim = cluster.get("pvc", native_id)
    if claim is None:
        raise Unreachable(f"{cluster} has no claim {native_id}: the box is gone, or was not made")
    there = sorted(cluster.list("job", labels_of(native_id)), key=jobs.number_of)
    live: list[tuple[str, str, Sequence[str], Object]] = [("v1", "PersistentVolumeClaim", _CLAIM, claim)]
    live += [("batch/v1", "Job", _JOB, job) for job in there if not jobs.is_finished(job)]
    found = [_ours(version, kind, cluster.namespace, keys, body) for version, kind, keys, body in live]
    told = [words for made, (*_, body) in zip(found, live, strict=True) for words in others(made, body)]
    return [*found, *gate.objects()], told


def _ours(version: str, kind: str, namespace: str, keys: Sequence[str], live: Object) -> Object:
    metadata, spec = live["metadata"], {key: live["spec"][key] for key in keys if key in live["spec"]}
    if "template" in spec:
        template = spec["template"]
        labels = {name: text for name, text in template["metadata"]["labels"].items() if name not in _OF_SERVER}
        about = {key: value for key, value in template["metadata"].items() if key != "creationTimestamp"}
        spec["template"] = {**template, "metadata": {**about, "labels": labels}}
        spec["parallelism"] = spec["completions"]  # as we set it, whatever another made of it
    marks = {name: text for name, text in (metadata.get("annotations") or {}).items() if name.startswith(PREFIX)}
    about = {"name": metadata["name"], "namespace": namespace, "labels": metadata["labels"]}
    about |= {"annotations": marks, "finalizers": [one for one in metadata["finalizers"] if one.startswith(PREFIX)]}
    return {"apiVersion": version, "kind": kind, "metadata": about, "spec": spec}


def others(made: Object, live: Object) -> Iterator[str]:
    """What another manager set of what is ours, in words. `made`: as we apply it."""
    by: dict[str, list[str]] = {}
    for entry in live["metadata"].get("managedFields") or ():
        for field in _fields(made, entry.get("fieldsV1") or {}):
            by.setdefault(field, []).append(str(entry.get("manager")))
    queued = jobs.QUEUE in (live["metadata"].get("labels") or {})
    for field, managers in sorted(by.items()):
        if MANAGER not in managers and not (queued and field == "spec.suspend"):
            where = f"{made['kind']} {made['metadata']['name']}"
            yield f"{field} of the {where} was set by {', '.join(managers)}: it is left so"


def _fields(made: Object, owned: Mapping[str, Any]) -> Iterator[str]:
    for part in ("labels", "annotations"):
        there = owned.get("f:metadata", {}).get(f"f:{part}", {})
        yield from (f"{part}[{name}]" for name in made["metadata"].get(part, ()) if f"f:{name}" in there)
    yield from (f"spec.{name}" for name in made["spec"] if f"f:{name}" in owned.get("f:spec", {}))
