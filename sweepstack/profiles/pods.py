"""Boxes on a cluster whose workers are pods: where it is, and what its pods are like.

What can't be asked of them is refused here. A box there is a claim of storage, which outlives each pod; what its
workers ask for is the queue's input. Pure.
"""

from __future__ import annotations

from typing import Any, Final

from sweepstack.config.pods import POD_KEYS
from sweepstack.config.rent import CLUSTER_KEYS, Resources
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.canonical import canonical_json
from sweepstack.profiles.model import Profile
from sweepstack.profiles.spot import asked_resources

_ADDRESS: Final = ("context", "namespace", "storage_class", "pod")
"""Keys that say something else than what a pod is like, or say it in words of their own."""
_NOT_ASKED: Final = (*CLUSTER_KEYS, "regions", "reliability")
_OURS: Final = ("sweepstack.dev/", "kueue.x-k8s.io/", "batch.kubernetes.io/", "job-name", "controller-uid")
"""Beginnings of labels and annotations that are not a person's to write."""


def address_of(config: StackConfig, profile: Profile) -> str:
    """`NAMESPACE/CONTEXT`, each "" where the stack file leaves it to the kubeconfig; "" where workers are no pods."""
    override = config.overrides.get(profile.platform)
    if not profile.of_pods:
        return ""
    return f"{override.namespace or ''}/{override.context or ''}" if override is not None else "/"


def claim_input(config: StackConfig, profile: Profile, resources: Resources) -> dict[str, Any]:
    """What the box itself has there, which is its storage: another size or class is another box."""
    if not profile.of_pods:
        return {}
    override = config.overrides.get(profile.platform)
    asked = {"disk": resources.disk, "storage_class": override.storage_class if override is not None else None}
    return {key: value for key, value in asked.items() if value}


def pods_input(config: StackConfig, profile: Profile) -> dict[str, Any]:
    """What the pods of each box are like (`sweepstack.core.job.PodsInput`): only what was written."""
    if not profile.of_pods:
        return {}
    override = config.overrides.get(profile.platform)
    keys = set(POD_KEYS) - set(_ADDRESS)
    asked = override.model_dump(mode="json", include=keys, exclude_unset=True) if override is not None else {}
    asked["image"] = config.job.image
    if override is not None and override.pod:
        asked["pod"] = canonical_json(override.pod).decode()
    return {key: value for key, value in sorted(asked.items()) if value}


def problems(config: StackConfig, profile: Profile) -> list[str]:
    """What this platform can't follow: keys of pods where there are none; and what pods can't keep."""
    override, where = config.overrides.get(profile.platform), f"overrides.{profile.platform}"
    if not profile.of_pods:
        told = [key for key in POD_KEYS if override is not None and getattr(override, key)]
        return [f"{where}.{key} is for a cluster whose workers are pods: leave it out" for key in told]
    found = [
        f"{at}.time can't be kept there: a worker runs until no cell is left for it. Leave it out; job.timeout bounds "
        "a cell"
        for at, resources in asked_resources(config)
        if resources.time is not None
    ]
    if config.job.nodes > 1:
        found.append(f"job.nodes is {config.job.nodes}, and a cell has one pod there in this version: leave it out")
    if override is None:
        return found
    return found + [
        f"{where}.pod.{kind}: {name} is sweepstack's own, or the cluster's: take it out"
        for kind in ("labels", "annotations")
        for name in override.pod.get(kind, {})
        if name.startswith(_OURS)
    ]


def notes(config: StackConfig, profile: Profile) -> list[str]:
    """What to know before boxes are made there, and what was asked and has no effect."""
    if not profile.of_pods:
        return []
    name = profile.platform
    keys = {
        f"{where}.{key}"
        for where, resources in asked_resources(config)
        for key in _NOT_ASKED
        if key != "time" and getattr(resources, key)
    }
    found = [f"{name}: {', '.join(sorted(keys))} has no effect there: write overrides.{name}"] if keys else []
    if any((box.workers or 1) > 1 for box in config.boxes.values() if box.want != "gone"):
        found.append(
            f"{name}: the storage of a box is ReadWriteOnce: all its workers run on one node, and one that does not "
            "fit there waits. For more nodes, write more boxes"
        )
    found.append(
        f"{name}: the end of a box ends no bill of machines. Where nodes cost money, the scale-down of their node pool "
        "does: see that it may go to what you keep"
    )
    return found
