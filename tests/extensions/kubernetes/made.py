"""Objects as the API server shows them: pods, nodes and Jobs of a box."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from sweepstack.extensions.kubernetes import jobs
from sweepstack.extensions.kubernetes.pod_template import INDEX_MARK, SEEN

BOX = "k8s-0123456789abcdef"
NODE = "node-a"
_SERIAL = itertools.count(1)
RUNS: Mapping[str, Any] = {"running": {"startedAt": "2026-11-29T03:00:00Z"}}
LATE = "2026-11-29T03:00:00Z"
NOW = 1795921200.0 + 3600
"""Some time after `LATE`."""


def ended(code: int = 0, reason: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason or ("Error" if code else "Completed")}}


def node(*, ready: str = "True", taints: Sequence[str] = (), name: str = NODE, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": {"taints": [{"key": one, "effect": "NoExecute"} for one in taints]},
        "status": {"conditions": [{"type": "Ready", "status": ready}], **more},
    }


def pod(
    state: Mapping[str, Any] | None = RUNS,
    *,
    phase: str = "Running",
    at: str = NODE,
    deleted: str = "",
    manager: str = "kubelet",
    index: int = 0,
    job: Mapping[str, Any] | None = None,
    conditions: Mapping[str, str] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """`state`: of its container; None: its node has told of none. `manager`: who set its phase last."""
    serial = next(_SERIAL)
    told = [] if state is None else [{"name": "worker", "state": dict(state), "restartCount": 0, "image": "box:1"}]
    known = {"Ready": "True"} if conditions is None else conditions
    owned = [{"kind": "Job", "uid": job["metadata"]["uid"]}] if job else []
    found: dict[str, Any] = {
        "metadata": {
            "name": f"{BOX}-1-{index}-{serial}",
            "uid": f"{serial:08d}-0000-4000-8000-000000000000",
            "annotations": {INDEX_MARK: str(index)},
            "finalizers": [SEEN],
            "resourceVersion": "1",
            "ownerReferences": owned,
            "managedFields": [
                {"manager": manager, "subresource": "status", "fieldsV1": {"f:status": {"f:phase": {}}}},
            ],
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "worker", "resources": {"limits": {"memory": str(64 << 20)}}}],
        },
        "status": {
            "phase": phase,
            "containerStatuses": told,
            "conditions": [{"type": kind, "status": value} for kind, value in known.items()],
            **status,
        },
    }
    if at:
        found["spec"]["nodeName"] = at
    if deleted:
        found["metadata"]["deletionTimestamp"] = deleted
    return found


def job(number: int = 1, count: int = 2, **more: Any) -> dict[str, Any]:
    made = jobs.worker_job(BOX, number, count, {}, jobs.PodRequest())
    made["metadata"].update(uid=f"job-{number}", resourceVersion="1", annotations={})
    made["status"] = dict(more.pop("status", {}))
    made["metadata"]["annotations"].update(more.pop("marks", {}))
    made["spec"].update(more)
    return made
