"""The objects of a box, as they are applied and read. Pure.

A box is a PersistentVolumeClaim, on which all of it lies, and what mounts it: the Jobs of its workers, and a pod that
reads it while no worker runs. The claim's annotations are the box's record. All of them carry its id as a label.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sweepstack.extensions.kubernetes.api import BOX, MANAGED, MANAGER, PREFIX, Object, marks_of
from sweepstack.onbox.common.units import parse_size
from sweepstack.onbox.host.platform import BoxRequest

HOLD = f"{PREFIX}hold"
"""Our finalizer on claims and Jobs: only a cleared end takes it away."""
ROLE = f"{PREFIX}role"
ROOT, HOME = "/sweepstack/box", "/sweepstack/home"
"""On the claim, which pods mount at /sweepstack: the box, and the login's home."""
MOUNT = "/sweepstack"
TAG, NAME, MADE, PRICE = "tag", "name", "created-at", "price-per-hour"
READY, POWER, ENDING, PODS, FRESH = "ready-at", "power", "ending-at", "pods", "fresh"
"""Annotations: when the box was reached first, or after a stop; `stopped`, `stopping`; when a destroy began; what its
pods are like; that no pod has had it yet: nothing lies on it."""
RECORD = (TAG, NAME, MADE, PRICE, PODS)
"""Of a claim's annotations, those that its Jobs carry, too: for one that takes its place (`kept.saved`)."""
DISK = "10GB"
"""The claim's size where `resources.disk` names none."""
SHARED, MANY = "shared", "ReadWriteMany"
"""Of `BoxRequest.resources`: true where pods on several nodes have to mount the claim; and that claim's access mode."""


def name_of(tag: str) -> str:
    """The name of the claim of the box of this tag: see `api.ID`."""
    return f"k8s-{hashlib.sha256(tag.encode()).hexdigest()[:16]}"


def claim(request: BoxRequest, storage_class: str) -> Object:
    """The claim of a new box. `storage_class`: "" for the cluster's default."""
    name = name_of(request.tag)
    bytes_ = parse_size(str(request.resources.get("disk") or DISK)).bytes
    price = "" if request.price_per_hour is None else repr(request.price_per_hour)
    marks = {TAG: request.tag, NAME: request.name, MADE: now(), PRICE: price, PODS: spelled(request.pods), FRESH: "1"}
    spec: Object = {
        "accessModes": [MANY if request.resources.get(SHARED) else "ReadWriteOnce"],
        "resources": {"requests": {"storage": str(bytes_)}},
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    return held_claim(name, {BOX: name}, {f"{PREFIX}{key}": value for key, value in marks.items() if value}, spec)


def held_claim(name: str, labels: Mapping[str, str], marks: Mapping[str, str], spec: Object) -> Object:
    """A claim of ours, which our finalizer holds. `marks`: its annotations."""
    metadata = {"name": name, "labels": {MANAGED: MANAGER, **labels}, "annotations": dict(marks), "finalizers": [HOLD]}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def mark(**marks: str | None) -> Object:
    """A merge patch that sets annotations of ours; None takes one away."""
    return {"metadata": {"annotations": {f"{PREFIX}{key.replace('_', '-')}": value for key, value in marks.items()}}}


def spelled(pods: Mapping[str, Any]) -> str:
    """What the pods of a box are like, as its claim has it."""
    return json.dumps(dict(pods), sort_keys=True)


def record_of(body: Object) -> dict[str, str]:
    """The annotations of a claim, or a Job, that are the box's record, as they are applied."""
    return {f"{PREFIX}{key}": marks[key] for marks in [marks_of(body)] for key in RECORD if key in marks}


def pods_of(pvc: Object) -> dict[str, Any]:
    """What the pods of a box are like, as its claim has it; empty where that can't be read."""
    found = read(pvc, PODS)
    return found if isinstance(found, dict) else {}


def read(body: Object, key: str) -> Any:
    """What an annotation of ours says as JSON; None where that can't be read."""
    try:
        return json.loads(marks_of(body).get(key, "null"))
    except ValueError:
        return None


def deleted(body: Object) -> bool:
    """Whether its delete was asked for: it is Terminating."""
    return bool(body["metadata"].get("deletionTimestamp"))


def is_shared(body: Object) -> bool:
    """Whether pods on several nodes may mount this claim, or this volume."""
    return MANY in (body["spec"].get("accessModes") or ())


def status_of(body: Object) -> Object:
    return body.get("status") or {}


def phase_of(body: Object) -> str:
    """Of a pod or a claim; "" before it has one."""
    return str(status_of(body).get("phase") or "")


def is_over(pod: Object) -> bool:
    """Whether the cluster takes a pod for ended: no proof that it has (`onbox/ends.py`)."""
    return phase_of(pod) in ("Succeeded", "Failed")


def now() -> str:
    """This moment, as our annotations have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
