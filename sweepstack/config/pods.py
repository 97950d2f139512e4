"""The keys of `overrides` for a cluster whose workers are pods, and their types."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator

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
