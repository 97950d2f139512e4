"""What a stack file says of a cluster of pods: where it is, and what its pods are like.

What can't be asked of them is refused here. A box there is a claim of storage, which outlives each pod; what its
workers ask for is the queue's input. Pure.
"""

from __future__ import annotations

from typing import Any, Final

from sweepstack.config.override import Override
from sweepstack.config.pods import POD_KEYS
from sweepstack.config.rent import CLUSTER_KEYS, Resources
from sweepstack.config.secrets import RawMistakes
from sweepstack.config.stack_config import StackConfig
from sweepstack.extensions.kubernetes import pod_template
from sweepstack.extensions.kubernetes.address import ADAPTER, Address
from sweepstack.extensions.kubernetes.objects import SHARED
from sweepstack.onbox.common.canonical import canonical_json
from sweepstack.profiles.model import Profile
from sweepstack.profiles.spot import asked_resources

_NOT_OF_PODS: Final = frozenset({"context", "namespace", "storage_class", "pod"})
"""Keys that say where the box is, or say it in words of their own."""
_NOT_ASKED: Final = (*sorted({*CLUSTER_KEYS} - {"time"}), "regions", "reliability")


def mistakes(values: dict[str, Any]) -> RawMistakes:
    """Fields of a pod that are not the stack file's to set."""
    overrides = values.get("overrides")
    own = overrides.get(ADAPTER) if isinstance(overrides, dict) else None
    for path, fix in pod_template.mistakes(own["pod"]) if isinstance(own, dict) and "pod" in own else ():
        yield ("overrides", ADAPTER, "pod", *path), fix, None


def address(config: StackConfig) -> str:
    """`NAMESPACE/CONTEXT`, each "" where the stack file leaves it to the kubeconfig."""
    told = _told(config)
    return str(Address(told.namespace or "", told.context or ""))


def claim(config: StackConfig, resources: Resources) -> dict[str, Any]:
    """What the box itself has, its storage: another size or class, or such for several nodes, is another box."""
    asked = {"disk": resources.disk, "storage_class": _told(config).storage_class, SHARED: config.job.nodes > 1}
    return {key: value for key, value in asked.items() if value}


def pods(config: StackConfig) -> dict[str, Any]:
    """What the pods of each box are like (`sweepstack.core.job.PodsInput`): only what was written."""
    told = _told(config)
    asked = told.model_dump(mode="json", include={*POD_KEYS} - _NOT_OF_PODS, exclude_unset=True)
    asked |= {"image": config.job.image, "pod": canonical_json(told.pod).decode() if told.pod else None}
    return {key: value for key, value in sorted(asked.items()) if value}


def problems(config: StackConfig, profile: Profile) -> list[str]:
    """What pods can't keep."""
    return [
        f"{at}.time can't be kept there: a worker runs until no cell is left for it. Leave it out; job.timeout bounds "
        "a cell"
        for at, resources in asked_resources(config)
        if resources.time is not None
    ]


def notes(config: StackConfig, profile: Profile) -> list[str]:
    """What to know before boxes are made there, and what was asked and has no effect."""
    name = profile.platform
    keys = sorted(
        {f"{where}.{key}" for where, asked in asked_resources(config) for key in _NOT_ASKED if getattr(asked, key)}
    )
    found = [f"{name}: {', '.join(keys)} has no effect there: write overrides.{name}"] if keys else []
    if config.job.nodes > 1:
        found.append(
            f"{name}: a worker is a Job of {config.job.nodes} pods, on as many nodes as are free, which reach each "
            "other by TCP. The storage of a box is ReadWriteMany: its class has to be a shared file system (NFS, "
            "CephFS, EFS, Filestore, Azure Files), or its claim gets no volume, and no box is made. Pods that lack the "
            "others hold what they have for 10 min at a time: a queue of Kueue gives a worker all of its pods or none"
        )
    elif any((box.workers or 1) > 1 for box in config.boxes.values() if box.want != "gone"):
        found.append(
            f"{name}: the storage of a box is ReadWriteOnce: all its workers run on one node, and one that does not "
            "fit there waits. For more nodes, write more boxes"
        )
    found.append(
        f"{name}: the end of a box ends no bill of machines. Where nodes cost money, the scale-down of their node pool "
        "does: see that it may go down"
    )
    return found


def _told(config: StackConfig) -> Override:
    return config.overrides.get(ADAPTER) or Override()
