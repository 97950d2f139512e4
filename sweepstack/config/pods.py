"""The keys of `overrides` for a cluster whose workers are pods.

Which fields of a pod are a person's to write stands here, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator

from sweepstack.config.types import Shape, Text, wrong

POD_KEYS: Final = (
    "context",
    "namespace",
    "storage_class",
    "service_account",
    "priority_class",
    "tolerations",
    "queue",
    "gpu_resource",
    "gpu_label",
    "pod",
)
"""Keys of `overrides` that only a cluster of pods has."""
_SECURITY = ("runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy", "supplementalGroups")
_LISTS = ("imagePullSecrets", "hostAliases", "topologySpreadConstraints")
_MAPPINGS = ("nodeSelector", "labels", "annotations", "securityContext", "affinity", "dnsConfig")
_TEXTS = ("runtimeClassName", "schedulerName", "dnsPolicy")
ALLOWED: Final = (*_MAPPINGS, *_LISTS, *_TEXTS)
_ALWAYS = "sweepstack itself: its pods are started, watched and ended by it"
_OF_JOB = "job.run and job.image"
_REFUSED = "sweepstack, which never shares a node's own namespaces with a cell"
OWNED: Final = {
    **dict.fromkeys(("containers", "initContainers", "ephemeralContainers"), _OF_JOB),
    "volumes": "resources.disk and overrides.<name>.storage_class",
    "resources": "resources.cpu, resources.memory and resources.gpu",
    "tolerations": "overrides.<name>.tolerations",
    **dict.fromkeys(("serviceAccountName", "serviceAccount"), "overrides.<name>.service_account"),
    **dict.fromkeys(("priorityClassName", "priority"), "overrides.<name>.priority_class"),
    "terminationGracePeriodSeconds": "job.grace",
    **dict.fromkeys(("restartPolicy", "activeDeadlineSeconds", "schedulingGates", "readinessGates"), _ALWAYS),
    **dict.fromkeys(("hostname", "hostnameOverride", "subdomain", "setHostnameAsFQDN", "nodeName"), _ALWAYS),
    **dict.fromkeys(("automountServiceAccountToken", "shareProcessNamespace", "preemptionPolicy", "os"), _ALWAYS),
    **dict.fromkeys(("hostPID", "hostIPC", "hostNetwork", "hostUsers"), _REFUSED),
}
"""Field of a pod → what sets it here."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_QUALIFIED = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LINE = re.compile(r"[^\x00-\x1f\x7f]+")


def _spelled(pattern: re.Pattern[str], expected: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise wrong(expected)
        return value

    return AfterValidator(check)


ObjectName = Annotated[Text, _spelled(_NAME, "the name of an object of the cluster: small letters, digits, - and .")]
QualifiedName = Annotated[Text, _spelled(_QUALIFIED, "a name such as nvidia.com/gpu")]
ContextName = Annotated[Text, _spelled(_LINE, "the name of a context, as kubectl config get-contexts shows it")]


def _fits(value: Any) -> Any:
    """The mapping, if a person may write all of it; else raises with the first that they may not."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise wrong("fields of a pod, such as {nodeSelector: {disk: ssd}}")
    for key, found in value.items():
        if key in OWNED:
            raise wrong(f"fields that sweepstack leaves to you: {key} is set by {OWNED[key]}; take it out")
        if key not in ALLOWED:
            raise wrong(f"fields of a pod that may be written here ({', '.join(ALLOWED)}), and {key} is none of them")
        kind, words = _kind(key)
        if not isinstance(found, kind):
            raise wrong(f"{words} as {key}")
    for why in (*_metadata(value), *_security(value.get("securityContext", {}))):
        raise wrong(why)
    return value


def _kind(key: str) -> tuple[type, str]:
    if key in _TEXTS:
        return str, "a text"
    return (list, "a list") if key in _LISTS else (dict, "a mapping")


def _metadata(value: dict[str, Any]) -> Iterator[str]:
    for key in ("labels", "annotations", "nodeSelector"):
        for name, text in value.get(key, {}).items():
            if not isinstance(text, str):
                yield f'{key}: texts, and {name} is none: write it in quotes, such as "true"'


def _security(found: dict[str, Any]) -> Iterator[str]:
    for key, value in found.items():
        number = isinstance(value, int) and not isinstance(value, bool)
        if key not in _SECURITY:
            yield f"securityContext with {', '.join(_SECURITY)} alone: {key} is set by the restricted standard of pods"
        elif key in _SECURITY[:3] and not (number and value > 0):
            yield f"securityContext.{key}: a number above 0: the restricted standard of pods lets nothing run as root"


class Toleration(Shape):
    """A taint of nodes that the pods of the workers bear."""

    anchor: ClassVar[str] = "tolerations"
    key: QualifiedName | None = None
    """the taint's key: `nvidia.com/gpu`; without it, with `operator: Exists`, every taint"""
    operator: Literal["Exists", "Equal"] = "Equal"
    """`Exists`: whatever its value; `Equal` (default): with this `value`"""
    value: str | None = None
    """the taint's value"""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """`NoSchedule`, `PreferNoSchedule` or `NoExecute`; without it, each of them"""


def _bearable(found: Toleration) -> Toleration:
    if found.operator == "Exists" and found.value is not None:
        raise wrong("no value with operator: Exists, which takes each")
    if found.operator == "Equal" and found.key is None:
        raise wrong("a key, or operator: Exists for every taint")
    return found


Tolerations = tuple[Annotated[Toleration, AfterValidator(_bearable)], ...]
PodFields = Annotated[dict[str, Any], BeforeValidator(_fits)]
