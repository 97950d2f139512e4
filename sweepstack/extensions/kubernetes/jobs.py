"""The Jobs of a box: what one looks like, and what is left of it. Pure.

Each is Indexed: an index is a worker that the cluster keeps there until it has ended well, in one pod after the other.
`podReplacementPolicy: Failed`: a pod that is only leaving is not replaced, since it may still run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sweepstack.extensions.kubernetes import pod_template
from sweepstack.extensions.kubernetes.api import BOX, MANAGED, MANAGER, Object, marks_of
from sweepstack.extensions.kubernetes.objects import HOLD, ROLE, ROOT, deleted, status_of
from sweepstack.extensions.kubernetes.onbox.pilot import AGAIN, LATE, START
from sweepstack.extensions.kubernetes.pod_template import CONTAINER, NODES, WORKER, PodRequest, several_label
from sweepstack.onbox.common import box_layout

QUEUE = "kueue.x-k8s.io/queue-name"
CLOSED = "closed"
"""An annotation of ours: the Job was suspended to end its workers, and begins none again."""
TRIES = 6
"""So often an index may fail, in a way that another pod may mend."""
NO_SENSE = (2, 3, 4, 5, 9, 126, 127, 128)
"""Exit codes after which another pod of the same index would do no better: see `onbox/pilot.py`; a program that is not
there, or does not start, has the last three."""
WAIT_SECONDS, LONGEST_WAIT = 180, 1800
"""For so long a pod waits for its program; then for its queue, after the last command in it, and in any case."""
_COMMAND = (
    "trap 'exit {again}' TERM; begun=$(date +%s); until [ -f {start} ]; do sleep 0.05 & wait $! || "
    "{{ sleep 1 & wait $!; }}; [ $(($(date +%s) - begun)) -lt {seconds} ] || {{ "
    'echo "{start} {late}" >&2; exit 2; }}; done; . {start}'
)
"""The shell of a worker's pod, which may be asked for before its files are there. Not each `sleep` takes parts."""
OVER = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
"""Conditions of a Job that has come to its end; the last two as soon as that is decided."""
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def shell(home: str) -> str:
    """What the shell of a worker's pod runs; `home`: the box's, on the claim."""
    return _COMMAND.format(again=AGAIN, seconds=WAIT_SECONDS, late=LATE, start=f"{home}/{START}")


def worker_job(native_id: str, number: int, count: int, pods: Mapping[str, Any], asked: PodRequest) -> Object:
    """The Job `number` of a box, with `count` workers; of several pods each, with one: then it comes to its end as that
    one does, which is its first pod. `pods`: see `pod_template.template`; its `queue` is Kueue's, which then decides
    when it begins. Raises RequestRefused."""
    several = asked.nodes > 1
    queue = str(pods.get("queue") or "")
    found = pod_template.template(native_id, WORKER, pods, ["sh", "-c", shell(f"{ROOT}/{box_layout.HOME}")], asked)
    labels = {BOX: native_id, MANAGED: MANAGER, ROLE: WORKER, **several_label(asked.nodes)}
    labels |= {QUEUE: queue} if queue else {}
    codes = {"containerName": CONTAINER, "operator": "In"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{native_id}-{number}", "labels": labels, "finalizers": [HOLD]},
        "spec": {
            "completionMode": "Indexed",
            **dict.fromkeys(("completions", "parallelism"), asked.nodes if several else count),
            "backoffLimitPerIndex": TRIES,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "FailIndex", "onExitCodes": {**codes, "values": list(NO_SENSE)}},
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "Ignore", "onExitCodes": {**codes, "values": [AGAIN]}},
                ]
            },
            "suspend": bool(queue),
            **({"maxFailedIndexes": 0, "successPolicy": {"rules": [{"succeededIndexes": "0"}]}} if several else {}),
            "template": found,
        },
    }


def number_of(job: Object) -> int:
    """The number in its name; 0 where that has none."""
    tail = str(job["metadata"]["name"]).rpartition("-")[2]
    return int(tail) if tail.isdigit() and len(tail) < 10 else 0


def has(job: Object, *kinds: str) -> bool:
    """Whether a condition of one of these types holds."""
    there = status_of(job).get("conditions") or ()
    return any(one.get("type") in kinds and one.get("status") == "True" for one in there)


def is_finished(job: Object) -> bool:
    """Whether no pod of it begins any more by itself: it is complete, failed, being deleted, or closed and left so."""
    return has(job, *OVER) or deleted(job) or (CLOSED in marks_of(job) and is_suspended(job))


def is_suspended(job: Object) -> bool:
    return bool(job["spec"].get("suspend"))


def is_queued(job: Object) -> bool:
    """Whether Kueue decides when it begins."""
    return QUEUE in (job["metadata"].get("labels") or {})


def indices(text: str) -> set[int]:
    """`1,3-5` as numbers. What is none is left out."""
    found = filter(None, map(_RANGE.fullmatch, text.replace(" ", "").split(",")))
    return {index for one in found for index in range(int(one[1]), int(one[2] or one[1]) + 1)}


def open_indices(job: Object) -> set[int]:
    """The workers that it has, or will have: those of its indices that have not ended. Empty once it is finished."""
    if is_finished(job):
        return set()
    status = status_of(job)
    done = indices(str(status.get("completedIndexes") or "")) | indices(str(status.get("failedIndexes") or ""))
    return set(range(1 if nodes_of(job) > 1 else int(job["spec"].get("completions") or 0))) - done


def nodes_of(body: Object) -> int:
    """How many pods a worker of this Job has, or the worker of this pod."""
    return int((body["metadata"].get("labels") or {}).get(NODES, 1))


def leads(pod: Object) -> bool:
    """Whether a pod is a worker, or the first one of its worker."""
    return nodes_of(pod) == 1 or index_of(pod) == 0


def index_of(pod: Object) -> int | None:
    """The worker of its Job that a pod is."""
    text = str((pod["metadata"].get("annotations") or {}).get(pod_template.INDEX_MARK, ""))
    return int(text) if text.isdigit() else None


def owner_of(pod: Object) -> str:
    """The uid of the Job that a pod is of; "" for one that was orphaned."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(one.get("uid")) for one in owners if one.get("kind") == "Job"), "")
