"""Judges by what the API server shows whether a worker's pod has ended. Pure.

The same judgement counts in the pods and on a person's machine. What the cluster itself decides about a pod (a phase
that its garbage collector set, an object that is not there any more) says nothing about the processes: a node that does
not answer may still run them. So an end is proved only by

- the pod's node: it has told that each container has terminated, or has itself set the pod's last phase;
- a pod that never had a node, and can get none any more;
- a person, where the node does not answer: by the taint `out-of-service` on it, or by what they saw (`SAW`) on the pod
  of a node that is not in the cluster any more.

All else is unknown, and unknown is never ended. Python 3.8, standard library.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.units import amount_of, enough_memory

RUNNING, ENDED, UNKNOWN = "running", "ended", "unknown"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
SAW = "sweepstack.dev/saw-ended"
"""An annotation of the pod: what a person saw that shows that its node is off. It counts while that is silent."""
LATE_SECONDS = 60.0
"""After its grace a pod that still has not ended is no longer just ending."""
NO_NODE: Mapping[str, Any] = {}
"""For a node that the API server has no more."""
_KUBELET = "kubelet"


def judged(pod: Mapping[str, Any], node: Mapping[str, Any] | None, now: float) -> tuple[str, str]:
    """(`running`, `ended` or `unknown`; why). `pod`: as the API server shows it. `node`: that of its `nodeName`; None
    where it could not be asked, `NO_NODE` where the API server has none of this name. `now`: epoch seconds. Whatever
    does not read is unknown. Never raises."""
    try:
        return _judged(pod, node, now)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return UNKNOWN, f"what the API server shows of the pod does not read: {error!r}"


def _judged(pod: Mapping[str, Any], node: Mapping[str, Any] | None, now: float) -> tuple[str, str]:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    name, place = f"pod {metadata['name']}", node_of(pod)
    leaving = _moment(metadata.get("deletionTimestamp"))
    if not place:
        if leaving is not None and not status.get("containerStatuses"):
            return ENDED, f"{name} was deleted before it had a node"
        if status.get("phase") in ("Succeeded", "Failed"):
            return UNKNOWN, f"{name} is {status['phase']}{_reason(status)}, and had no node"
        return RUNNING, f"{name} waits for a node"
    if spec.get("restartPolicy") == "Never" and (how := _terminated(spec, status)):
        return ENDED, f"{name}: node {place} says that it has ended ({how})"
    phase = str(status.get("phase") or "")
    if phase in ("Succeeded", "Failed") and _told_by_node(metadata) and not _any_may_run(status):
        return ENDED, f"{name}: node {place} says that it is {phase}{_reason(status)}"
    ready = None if node is None else is_ready(node)
    if node and not ready and _is_out_of_service(node):
        return ENDED, f"{name}: its node {place} does not answer, and has the taint {OUT_OF_SERVICE}"
    saw = str((metadata.get("annotations") or {}).get(SAW) or "")
    if saw and not ready and (node is not None or not _answers(status)):
        return ENDED, f"{name}: a person saw that it has ended ({saw})"
    if node is not None and not ready:
        gone = "is not in the cluster any more" if not node else "does not answer"
        return UNKNOWN, f"{name}: its node {place} {gone}, and may still run it"
    if phase in ("Succeeded", "Failed"):
        return UNKNOWN, f"{name} is {phase}{_reason(status)}, but its node {place} has not said so"
    if leaving is not None:
        # The moment of the delete is that of its end: the grace is counted in.
        if now > leaving + LATE_SECONDS:
            return UNKNOWN, f"{name} should have ended, and its node {place} has not said that it has"
        return RUNNING, f"{name} is just ending"
    if ready is None and not _answers(status):
        return UNKNOWN, f"{name}: whether its node {place} answers is not known"
    return RUNNING, f"{name} runs on {place}" if phase == "Running" else f"{name} is about to start on {place}"


def _terminated(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """How each of a pod's containers has terminated; "" unless its node has told so of all of them."""
    told = {str(one["name"]): one.get("state") or {} for one in status.get("containerStatuses") or ()}
    if any(one.get("restartPolicy", "Never") != "Never" or one.get("restartPolicyRules") for one in spec["containers"]):
        return ""  # which may be started again
    wanted = [str(one["name"]) for one in spec["containers"]]
    ends: list[Mapping[str, Any]] = [told.get(name, {}).get("terminated") or {} for name in wanted]
    if not wanted or not all("exitCode" in end for end in ends):
        return ""
    if any("running" in told[name] for name in wanted):
        return ""
    return ", ".join(f"{end.get('reason') or 'ended'}, exit code {end['exitCode']}" for end in ends)


def _any_may_run(status: Mapping[str, Any]) -> bool:
    """Whether a container is shown as running: then the phase came from another than its node."""
    lists = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    return any("running" in (one.get("state") or {}) for name in lists for one in status.get(name) or ())


def _told_by_node(metadata: Mapping[str, Any]) -> bool:
    """Whether the pod's node was the last to set its phase: the API server notes who set which field."""
    owners = [
        str(entry.get("manager"))
        for entry in metadata.get("managedFields") or ()
        if entry.get("subresource") == "status" and "f:phase" in ((entry.get("fieldsV1") or {}).get("f:status") or {})
    ]
    return owners == [_KUBELET]


def _answers(status: Mapping[str, Any]) -> bool:
    """Whether its own conditions speak for its node: the cluster sets pods of a lost one not ready within a minute."""
    conditions = {str(one.get("type")): one for one in status.get("conditions") or ()}
    ready = conditions.get("Ready", {}).get("status") == "True"
    starts = status.get("phase") == "Pending"
    return (ready or starts) and conditions.get("DisruptionTarget", {}).get("status") != "True"


def node_of(pod: Mapping[str, Any]) -> str:
    """Where it was put; "" before that."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def is_ready(body: Mapping[str, Any]) -> bool:
    """Whether the cluster takes this node for one that answers, or this pod for one that can be asked."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _is_out_of_service(node: Mapping[str, Any]) -> bool:
    taints = (node.get("spec") or {}).get("taints") or ()
    return any(one.get("key") == OUT_OF_SERVICE for one in taints)


def _reason(status: Mapping[str, Any]) -> str:
    return f" ({status['reason']})" if status.get("reason") else ""


def _moment(text: Any) -> float | None:
    """Epoch seconds of `2026-11-29T03:00:00Z`; None for none. Raises ValueError."""
    if not text:
        return None
    parsed = datetime.datetime.strptime(str(text)[:19], "%Y-%m-%dT%H:%M:%S")
    return parsed.replace(tzinfo=datetime.timezone.utc).timestamp()


# -- memory


def starved(pod: Mapping[str, Any]) -> bool:
    """Whether the cluster ended this pod, or a process of it, for want of memory. Never raises."""
    try:
        status = pod.get("status") or {}
        if status.get("reason") == "Evicted" and "memory" in str(status.get("message") or ""):
            return True
        ends = [
            (one.get(which) or {}).get("terminated") or {}
            for one in status.get("containerStatuses") or ()
            for which in ("state", "lastState")
        ]
        return any(end.get("reason") == "OOMKilled" for end in ends)
    except (AttributeError, TypeError):
        return False


def for_memory(pod: Mapping[str, Any]) -> str:
    """That the cluster ended this worker for want of memory, and what to do about it; "" where it did not."""
    if not starved(pod):
        return ""
    uid = (pod.get("metadata") or {}).get("uid", "")
    return f"the cluster ended its worker {uid}.0 for want of memory: {more_memory(pod)}"


def more_memory(pod: Mapping[str, Any]) -> str:
    """What to do about a worker that had too little."""
    line = enough_memory(memory_of(pod))
    do = f"set `{line}` (1.2 times what it had; it may need more)" if line else "raise resources.memory"
    return f"{do}, or run fewer cells at once (job.slots)"


def memory_of(pod: Mapping[str, Any]) -> int:
    """The limit of a worker's memory, in bytes; 0 where it has none, or it does not read."""
    try:
        containers = pod["spec"]["containers"]
        limits = [(one.get("resources") or {}).get("limits") or {} for one in containers]
        return max((int(amount_of(str(one.get("memory", "")))) for one in limits), default=0)
    except (AttributeError, KeyError, TypeError, OverflowError):
        return 0
