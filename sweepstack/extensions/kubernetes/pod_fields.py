"""Fields of a pod that a stack file may set, and what sets the others. Pure.

The escape `pod:` is closed: a field that it does not name is refused, and so is each part of one that is ours. So pods
pass the restricted standard, whatever is written, and nothing by which they are found and ended can be changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sweepstack.extensions.kubernetes.api import PREFIX

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
            yield from _security(found)
        elif key in ("labels", "annotations", "nodeSelector"):
            yield from _texts(key, found)


def _texts(key: str, found: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, text in found.items():
        if not isinstance(text, str):
            yield (key, str(name)), 'expected a text: write it in quotes, such as "true"'
        elif key != "nodeSelector" and str(name).startswith(_OURS):
            yield (key, str(name)), f"is set by {_ALWAYS}; take it out"


def _security(found: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in found.items():
        at, number = ("securityContext", str(key)), isinstance(value, int) and not isinstance(value, bool)
        if key not in SECURITY:
            yield at, f"is set by sweepstack, by the restricted standard of pods; yours are {', '.join(SECURITY)}"
        elif key in _NUMBERS and not (number and value > 0):
            yield at, "expected a number above 0: the restricted standard of pods lets nothing run as root"
