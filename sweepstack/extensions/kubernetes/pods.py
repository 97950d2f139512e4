"""Says what the cluster's words about a pod, a Job or a claim mean, and what to do. Pure.

The cluster says why a pod does not begin in three places: the pod's conditions, the waiting reason of its container,
and events, which it keeps for an hour. How a pod ended stands in its status alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweepstack.extensions.kubernetes.api import QUOTA, UNSAID, Object, marks_of
from sweepstack.extensions.kubernetes.objects import phase_of, status_of
from sweepstack.extensions.kubernetes.onbox import ends
from sweepstack.extensions.kubernetes.onbox.pilot import AGAIN
from sweepstack.extensions.kubernetes.pod_template import WHERE

MOST_CHARS = 400
"""Of what the cluster itself says, so much is shown."""
MOST_CAUSES = 3
_COUNTED = re.compile(r"(\d+) (?!nodes are available)([^,]+?)(?=, \d+ |\.(?:\s|$)|$)")
_TAINT = re.compile(r"taint(?:\(s\))? ?\{([^}]*)\}")
_INSUFFICIENT = re.compile(r"Insufficient (\S+)")
_RESOURCES = {name: f"resources.{name}" for name in ("cpu", "memory")}
_RESOURCES["ephemeral-storage"] = "what the image and cells write"
RUNS_AS_ROOT = (
    "the image runs as root, and the namespace's Pod Security asks for a user that is not: sweepstack runs it as 65532 "
    "(write overrides.kubernetes.pod.securityContext.runAsUser for another one); what the image needs to write has to "
    "lie below $HOME or /tmp"
)
_SCHEDULER: tuple[tuple[str, str], ...] = (
    ("untolerated taint", "add it to overrides.kubernetes.tolerations, if these nodes are yours to use"),
    ("didn't match Pod's node affinity", "no node has what resources.gpu or pod.nodeSelector names"),
    ("didn't match pod affinity", "its volume is mounted on one node only, and that one is full or is lost"),
    ("volume node affinity conflict", "its volume lies where these nodes can't reach it"),
    ("Too many pods", "the nodes have as many pods as they may"),
    ("were unschedulable", "they are cordoned (kubectl uncordon)"),
    ("free ports", "pod.hostNetwork asks for ports that are taken"),
    ("find available persistent volumes", "no volume is there for its claim: see the claim"),
    ("unbound immediate", "its claim has no volume yet: see the claim"),
)
"""What the scheduler says of nodes → what that means."""


# -- before it runs


def beginning(pod: Object, events: Sequence[Mapping[str, Any]] = ()) -> str:
    """How it is with a pod that does not run yet, in one line. `events`: of the pod, oldest first."""
    name, node = pod["metadata"]["name"], ends.node_of(pod)
    if why := waiting(pod, events):
        return f"{name} waits: {why}"
    return f"{name} starts on {node}" if node else f"{name} waits for the scheduler"


def waiting(pod: Object, events: Sequence[Mapping[str, Any]] = ()) -> str:
    """Why a pod does not begin, and what to do; "" for one that runs, has ended, or only takes its time."""
    status = status_of(pod)
    for one in status.get("containerStatuses") or ():
        held = (one.get("state") or {}).get("waiting") or {}
        reason = str(held.get("reason") or "")
        if found := _container(reason, str(held.get("message") or ""), str(one.get("image") or ""), events):
            return found
    if status.get("phase") not in (None, "Pending"):
        return ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return scheduling(str(condition.get("reason") or ""), str(condition.get("message") or ""))
    return _volume(events)


def scheduling(reason: str, message: str) -> str:
    """Why no node takes a pod. `reason`, `message`: of its condition PodScheduled, or of the event FailedScheduling."""
    if reason == "SchedulingGated":
        return "it is held by a scheduling gate, which another program takes away: Kueue, say"
    said = message.partition(" preemption:")[0].strip()
    if "is being deleted" in said:
        return f"{_short(said)}: the claim was deleted, and takes no new pod; what is on it can still be saved"
    if "not found" in said and "persistentvolumeclaim" in said:
        return f"{_short(said)}: its claim is not there"
    causes: list[str] = []
    for count, what in _COUNTED.findall(said.partition(": ")[2] or said):
        causes.append(f"{count} {_cause(what.strip())}")
    if not causes:
        more = _cause(said)
        return _short(said) if more == said else more
    head = said.partition(":")[0].strip()
    return f"{head or 'no node takes it'}: {'; '.join(causes[:MOST_CAUSES])}"


def _cause(what: str) -> str:
    if match := _INSUFFICIENT.search(what):
        resource = match[1].rstrip(".")
        key = _RESOURCES.get(resource, "resources.gpu" if resource.endswith("gpu") else f"what asks for {resource}")
        return f"with too little {resource} left (wait, or lower {key})"
    if match := _TAINT.search(what):
        taint = match[1].strip().rstrip(":").strip()
        if taint.startswith(("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")):
            return f"with the taint {taint} (the node does not answer: kubectl describe node says why)"
        if taint.endswith("-pressure") or "-pressure" in taint:
            return f"with the taint {taint} (the node is short of it: it takes pods again once that is over)"
        return f"with the taint {taint} ({_SCHEDULER[0][1]})"
    for begin, means in _SCHEDULER:
        if begin in what:
            return f"{what.rstrip('.')} ({means})"
    return what.rstrip(".")


def _container(reason: str, message: str, image: str, events: Sequence[Mapping[str, Any]]) -> str:
    if "Image" in reason or reason == "RegistryUnavailable":
        told = message if reason != "ImagePullBackOff" else _last(events, "Failed", "image") or message
        asks = "write its name as the registry has it" if reason == "InvalidImageName" else (
            "is its name right, does the node reach the registry, and does it ask for a login "
            f"({WHERE}.pod.imagePullSecrets)?"
        )  # fmt: skip
        return f"the image {image or 'of the pod'} can't be pulled ({reason}: {_short(told)}): {asks}"
    if reason.endswith("Error") or reason == "CrashLoopBackOff":
        return f"its container can't be started ({reason}: {_short(message)}): {_no_start(message)}"
    return ""


def _no_start(message: str) -> str:
    if "runAsNonRoot" in message or "non-root" in message or "non-numeric" in message:
        return RUNS_AS_ROOT
    if "no such file" in message or ("not found" in message and "exec" in message):
        return "the image lacks the program: it needs a shell and Python 3.8 or newer"
    if "permission denied" in message:
        return "the image does not let the user 65532 run its programs: their files need the rights r and x for all"
    if "secret" in message or "configmap" in message:
        return f"make what it names, or take it out of {WHERE}.pod"
    return "kubectl describe pod shows more"


def _volume(events: Sequence[Mapping[str, Any]]) -> str:
    for one in reversed(events):
        said = str(one.get("message") or "")
        if one.get("reason") == "FailedAttachVolume" and "Multi-Attach" in said:
            return (
                f"its volume is attached to another node ({_short(said)}): where that node has ended, wait; where it "
                "is lost, a person says so with the taint node.kubernetes.io/out-of-service"
            )
        if one.get("reason") in ("FailedMount", "FailedAttachVolume"):
            return f"its volume can't be mounted ({_short(said)}): kubectl describe pvc shows more"
        if one.get("reason") == "FailedCreatePodSandBox":
            return f"its node can't make a sandbox for it ({_short(said)}): tell who runs the cluster if that goes on"
        if one.get("reason") in ("Pulling", "Pulled", "Created", "Started"):
            return ""
    return ""


# -- how it ended


def ended_well(pod: Object) -> bool:
    """Whether there is nothing to say of a pod's end: nothing was left for it, it was told to end, or never began."""
    status = status_of(pod)
    terminated = _terminated(status) or {}
    if _never_began(status):
        return True
    again = terminated.get("exitCode") == AGAIN and not _disrupted(status) and not ends.starved(pod)
    return terminated.get("exitCode") == 0 or again


def _never_began(status: Mapping[str, Any]) -> bool:
    """Whether its container was never started, and its node did not refuse it either."""
    told = [(one.get("state") or {}) for one in status.get("containerStatuses") or ()]
    if status.get("reason"):
        return False
    if not told:
        return status.get("phase") in (None, "Pending")
    ended = [state.get("terminated") or {} for state in told]
    return all(one.get("reason") == "ContainerStatusUnknown" and not one.get("startedAt") for one in ended)


def ending(pod: Object) -> str:
    """How a pod ended, and what to do about it, as it follows its name in a sentence."""
    status = status_of(pod)
    if _never_began(status):
        return "was taken away before it began"
    if ends.starved(pod) and (_terminated(status) or {}).get("exitCode") != 0:
        how = "was evicted, since its node ran out of memory" if status.get("reason") == "Evicted" else "was OOMKilled"
        return f"{how}: {ends.more_memory(pod)}"
    reason, message = str(status.get("reason") or ""), _short(str(status.get("message") or ""))
    if reason == "Evicted":
        return _evicted(message)
    if reason == "DeadlineExceeded":
        return f"ran into a deadline that was put on it ({message}): its cells go on in the next worker"
    if disrupted := _disrupted(status):
        return f"was ended{disrupted}"
    if reason in ("OutOfcpu", "OutOfmemory", "OutOfpods", "NodeAffinity", "UnexpectedAdmissionError", "NodeShutdown"):
        return f"was refused by its node ({reason}: {message}): another pod takes its place"
    terminated = _terminated(status)
    code = terminated.get("exitCode") if terminated else None
    if code == 0 or (code is None and status.get("phase") == "Succeeded"):
        return "has ended: nothing was left for it"
    if code == AGAIN:
        return "was told to end, and left cells: another pod goes on with them"
    if code is None:
        return f"is {status.get('phase')}{f' ({reason}: {message})' if reason or message else ''}"
    told = str((terminated or {}).get("reason") or "")
    more = _short(str((terminated or {}).get("message") or ""))
    if told in ("StartError", "ContainerCannotRun") or code in (126, 127, 128):
        said = f"{told or 'exit code'} {code}{f': {more}' if more else ''}"
        return f"could not start ({said}): {_no_start(more or 'exec not found')}"
    if code in (137, 143):
        return f"was killed (exit code {code}, {told}): another pod goes on with its cells"
    return f"ended with exit code {code}: the worker's log says why (sweepctl logs, or kubectl logs)"


def exit_of(pod: Object) -> int | None:
    """The exit code of a pod's container; None where its node has told of none."""
    return (_terminated(status_of(pod)) or {}).get("exitCode")


def _evicted(message: str) -> str:
    if "ephemeral" in message or "emptyDir" in message:
        return (
            f"was evicted, since it wrote too much outside its volume ({message}): let cells write to {{out}} or to "
            "scratch, which lie on the volume"
        )
    if "disk" in message.lower() or "inodes" in message:
        return f"was evicted, since its node ran out of disk ({message}): its cells go on elsewhere"
    return f"was evicted ({message}): its cells go on in another pod"


_DISRUPTIONS = {
    "PreemptionByScheduler": (
        "a pod of a higher priority took its place; another one goes on when there is room again. "
        "overrides.kubernetes.priority_class raises its own"
    ),
    "DeletionByTaintManager": "its node does not answer, or was tainted so that it has to leave",
    "EvictionByEvictionAPI": "its node was drained; another one goes on elsewhere",
    "DeletionByPodGC": "the cluster gave up its node",
    "TerminationByKubelet": "its node shut down, or was short of something; another one goes on",
}


def _disrupted(status: Mapping[str, Any]) -> str:
    for one in status.get("conditions") or ():
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True":
            reason = str(one.get("reason") or "")
            means = _DISRUPTIONS.get(reason, _short(str(one.get("message") or "")))
            return f" ({reason}: {means})"
    return ""


def off(kubectl: str, pod: Object) -> str:
    """The command by which a person says that a pod's node is off. `kubectl`: `Cluster.kubectl`."""
    return f"`{kubectl} taint nodes {ends.node_of(pod) or 'NODE'} {ends.OUT_OF_SERVICE}=nodeshutdown:NoExecute`"


def _terminated(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How its container ended; None while none has, or one runs."""
    found: Mapping[str, Any] | None = None
    for one in status.get("containerStatuses") or ():
        state = one.get("state") or {}
        if "terminated" not in state:
            return None
        found = state["terminated"]
    return found


# -- what makes pods


def job_words(events: Iterable[Mapping[str, Any]]) -> str:
    """Why a Job gets no pods, by its events; "" where the last one that counts says that it got one."""
    for one in reversed(list(events)):
        if one.get("reason") in ("SuccessfulCreate", "Resumed", "Completed"):
            return ""
        if one.get("reason") == "FailedCreate":
            return refused(str(one.get("message") or ""))
    return ""


def refused(message: str) -> str:
    """Why the API server takes no pod, and what to do."""
    said = _short(message.partition("is forbidden: ")[2] or message)
    if QUOTA in message:
        return f"the namespace's quota is used up ({said}): ask for less, or wait until others end"
    if UNSAID in message:
        return f"a quota asks for more ({said}): write resources.cpu and resources.memory, or let a LimitRange say it"
    if "violates PodSecurity" in message:
        return f"the namespace's Pod Security refuses the pod ({said}): {_security(message)}"
    if any(words in message for words in ("limits.memory", "maximum memory", "LimitRange", "per Container")):
        return f"the namespace's limits refuse the pod ({said}): change resources.memory or resources.cpu"
    if "serviceaccount" in message or "service account" in message:
        return f"its service account is not there ({said}): write another overrides.kubernetes.service_account"
    if "PriorityClass" in message or "priority class" in message:
        return f"its priority class is not there ({said}): write another overrides.kubernetes.priority_class"
    if "because it is being terminated" in message:
        return f"the namespace is being deleted, and takes no new pod ({said})"
    if "denied the request" in message:
        return f"a rule of the cluster refuses the pod ({said}): tell who runs it"
    return f"the API server refuses the pod ({said})"


def _security(message: str) -> str:
    if "hostPath" in message:
        return "take the hostPath volume out of overrides.kubernetes.pod"
    if "runAsNonRoot" in message or "runAsUser" in message:
        return RUNS_AS_ROOT
    return "change overrides.kubernetes.pod so that it passes, or use another namespace"


def claim_words(pvc: Object, events: Sequence[Mapping[str, Any]] = ()) -> str:
    """Why a claim has no volume, and what to do; "" for one that has, and for one that only waits for its first pod."""
    phase = phase_of(pvc)
    name = str(pvc["metadata"]["name"])
    if phase == "Lost":
        return f"the volume of the claim {name} is lost: the cluster has it no more"
    if phase == "Bound":
        return ""
    last: Mapping[str, Any] = next((one for one in reversed(events) if one.get("reason") != "ExternalProvisioning"), {})
    reason, said = str(last.get("reason") or ""), _short(str(last.get("message") or ""))
    if reason == "WaitForFirstConsumer":
        return ""
    if reason == "ProvisioningFailed":
        missing = "not found" in said
        do = "make it, or give this box up and write another storage_class" if missing else "kubectl describe pvc"
        return f"the claim {name} gets no volume ({said}): {do}"
    if "no persistent volumes available" in said and "no storage class" in said:
        return (
            f"the claim {name} names no storage class, and the cluster has no default one: write "
            "overrides.kubernetes.storage_class (kubectl get storageclass shows them)"
        )
    return f"the claim {name} has no volume yet{f' ({said})' if said else ''}"


def reclaim_words(pv: Object) -> str:
    """What becomes of a box's bytes once its claim is gone, as its volume's reclaim policy says; "" where none does.
    `reclaim`: what that was before the volume was kept for a while (`kept`)."""
    policy = marks_of(pv).get("reclaim") or str(pv["spec"].get("persistentVolumeReclaimPolicy") or "")
    return f"its volume {pv['metadata']['name']} {_reclaimed(policy)}" if policy else ""


def class_words(found: Object) -> str:
    """The same before there is a volume, as a storage class says it, and when that is made."""
    name, policy = found["metadata"]["name"], str(found.get("reclaimPolicy") or "Delete")
    late = found.get("volumeBindingMode") == "WaitForFirstConsumer"
    when = "where and when its first pod begins (WaitForFirstConsumer)" if late else "at once (Immediate)"
    if found.get("provisioner") == "kubernetes.io/no-provisioner":
        return (
            f"the storage class {name} has no provisioner: the claim gets a volume that a person made, {when}; whether "
            "its bytes stay after the claim's end is that volume's reclaim policy, and not proved before"
        )
    return f"the storage class {name} {_reclaimed(policy)}; its volume is made {when}"


def _reclaimed(policy: str) -> str:
    ends = "the end of the claim ends its bytes" if policy == "Delete" else "its bytes stay after the claim's end"
    return f"has the reclaim policy {policy}: {ends}"


def _last(events: Sequence[Mapping[str, Any]], reason: str, word: str) -> str:
    said = (str(one.get("message") or "") for one in reversed(events) if one.get("reason") == reason)
    return next((text for text in said if word in text and "BackOff" not in text), "")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_CHARS else f"{line[:MOST_CHARS]}…"
