"""Boxes on a cluster: what their workers ask of its scheduler.

Of cells over several nodes: how many run at once, and whether the extension `nodes` lets them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from sweepstack.billing.gpu_hours import HOUR, Rate
from sweepstack.config.model import BoxConfig
from sweepstack.config.override import Override
from sweepstack.config.pods import POD_KEYS
from sweepstack.config.rent import Resources
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.extensions import not_here, part_of
from sweepstack.core.lease_terms import NONE
from sweepstack.onbox.common.units import parse_duration, parse_size
from sweepstack.profiles.model import Profile
from sweepstack.profiles.spot import asked_resources

GPU_HOURS = ("price_per_gpu_hour", "gpu_hours")
"""Keys of `overrides` about what jobs hold."""
WIPED = re.compile(r"\$\{?(SLURM_)?TMPDIR\b")
"""The folder that a node gives a job, and takes away with it."""


def of_pods(profile: Profile) -> Any:
    """What the adapter says of a stack file (`config.py` of its folder), where workers are pods; else None."""
    return part_of(profile.adapter, "config")


def storage_input(config: StackConfig, profile: Profile, resources: Resources) -> dict[str, Any]:
    """What a box has itself, besides its workers: the storage that pods mount."""
    own = of_pods(profile)
    return dict(own.claim(config, resources)) if own is not None else {}


def scheduler_input(config: StackConfig, profile: Profile, box: BoxConfig, resources: Resources) -> dict[str, Any]:
    """What each worker of a box asks for, as the queue's input; empty where it is no cluster. What was not asked for is
    left out."""
    if not profile.scheduled:
        return {}
    own = of_pods(profile)
    gpu, told = resources.gpu, resources.of_cluster if own is None else {}
    grace, override = config.job.grace, config.overrides.get(profile.platform)
    asked: dict[str, Any] = {
        "workers": box.workers,
        "nodes": config.job.nodes if config.job.nodes > 1 else None,
        **{key: told.get(key) for key in ("partition", "account", "qos", "constraint", "gres", "sbatch")},
        "wall_seconds": parse_duration(told["time"]) if "time" in told else None,
        "gpus": gpu.count if gpu is not None else None,
        "gpu_names": list(gpu.name) if gpu is not None else None,
        "cpu": resources.cpu,
        "memory_bytes": parse_size(resources.memory).bytes if resources.memory else None,
        "price_per_gpu_hour": override.price_per_gpu_hour if override is not None else None,
        "gpu_hours": override.gpu_hours if override is not None else None,
        "pods": own.pods(config) if own is not None else None,
    }
    found = {key: value for key, value in asked.items() if value}
    return {"workers": 1, **found, **({} if grace is None else {"grace_seconds": parse_duration(grace)})}


def problems(config: StackConfig, profile: Profile) -> list[str]:
    """Keys that this platform can't follow."""
    override = config.overrides.get(profile.platform)
    told = [key for key in GPU_HOURS if override is not None and getattr(override, key) is not None]
    own = of_pods(profile)
    found: list[str] = own.problems(config, profile) if own is not None else []
    if own is None and override is not None:
        keys = ", ".join(key for key in POD_KEYS if getattr(override, key))
        found += [f"overrides.{profile.platform}: {keys} is for a cluster of pods: leave it out"] if keys else []
    if profile.scheduled:
        return [*found, *_lease(config), *(_gpu_hours(config, override, told) if override is not None and told else ())]
    found += [f"overrides.{profile.platform}.{key} is for clusters, whose jobs hold GPUs: leave it out" for key in told]
    return found + [
        f"boxes.{name}.workers is for clusters; one runner runs the cells of a box here, job.slots at once"
        for name, box in config.boxes.items()
        if box.workers is not None and box.want != "gone" and len(config.candidates) == 1
    ]


def _gpu_hours(config: StackConfig, override: Override, told: list[str]) -> Iterator[str]:
    keys = " and ".join(told)
    if override.price_per_gpu_hour is not None and override.price_per_hour:
        yield "price_per_hour is of the whole cluster, and price_per_gpu_hour of what jobs hold: write one of them"
    if not any(resources.gpu is not None for _, resources in asked_resources(config)):
        yield f"{keys} counts GPUs, and job.resources asks for none: add resources.gpu, or leave it out"


def gpu_hour_words(config: StackConfig, profile: Profile, boxes: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the workers of these boxes (their `scheduler_input`) hold while all of them run, and what a cell's hour is,
    where the config says what GPU-hours are worth."""
    override = config.overrides.get(profile.platform)
    if not profile.scheduled or override is None:
        return []
    rate = Rate(override.price_per_gpu_hour, override.gpu_hours)
    at_once = sum(int(box.get("workers", 1)) * int(box.get("gpus", 0)) * config.job.nodes for box in boxes)
    if rate == Rate() or not at_once:
        return []
    words = f"{profile.platform}: its workers hold {at_once} GPUs while all run: {at_once} GPU-hours an hour"
    words += rate.usd(at_once)
    if rate.most is not None:
        words += f"; {rate.most:g} of the allocation last {rate.most / at_once:.1f} h of that"
    cells, timeout = len(config.roster.cells), config.job.timeout
    gpus = max(int(box.get("gpus", 0)) for box in boxes) * config.job.nodes
    if timeout is not None:
        most = cells * parse_duration(timeout) / HOUR * gpus / slots_of(config, gpus)
        words += (
            f"; {cells:,} cells of one try each, with job.timeout {timeout}, take {most:,.1f} at most{rate.usd(most)}"
        )
    return [words]


def _lease(config: StackConfig) -> list[str]:
    """Workers end by themselves when nothing is left to do, and none of them can end the bill of a cluster."""
    if config.lease in (None, NONE):
        return []
    return [
        f"lease: {config.lease} can't be kept there: no job of a cluster ends its bill, and workers that have nothing "
        "to do end by themselves. Write lease: none"
    ]


def _of_env(config: StackConfig) -> dict[str, str]:
    return {f"job.env.{name}": str(text) for name, text in config.job.env.items()}


def notes(config: StackConfig, profile: Profile) -> list[str]:
    """What was asked of a cluster and has no effect here, and what a cluster does by itself."""
    if profile.scheduled:
        override = config.overrides.get(profile.platform)
        purge = override.purge_days if override is not None else None
        found = [f"{profile.platform}: its site removes files that were not used for {purge} days: pull before that"]
        found = found if purge is not None else []
        found += own.notes(config, profile) if (own := of_pods(profile)) is not None else []
        found += [
            f"{profile.platform}: {where} speaks of $TMPDIR, which a node wipes when a worker ends, also at its wall: "
            "what has to outlast that goes to {out}, checkpoints to $SWEEPSTACK_CHECKPOINT_DIR"
            for where, text in {"job.run": config.job.run, **_of_env(config)}.items()
            if WIPED.search(text)
        ]
        return found + [
            f"{profile.platform}: {where}.gpu.{key} is not asked of a cluster: name the GPU (gpu.name), or a "
            "constraint of its nodes"
            for where, resources in asked_resources(config)
            if resources.gpu is not None
            for key in ("memory", "cuda")
            if getattr(resources.gpu, key) is not None
        ]
    keys = [f"{where}.{key}" for where, resources in asked_resources(config) for key in resources.of_cluster]
    return [f"{profile.platform} is no cluster: {', '.join(dict.fromkeys(keys))} has no effect there"] if keys else []


def slots_of(config: StackConfig, gpus: int) -> int:
    """How many cells run at once on a box with so many GPUs. A cell on several nodes has all of each."""
    return 1 if config.job.nodes > 1 else config.job.slots or gpus or 1


def node_problems(config: StackConfig, profile: Profile) -> list[str]:
    """Why cells can't run on several nodes there; empty when they can, or when each has one."""
    if config.job.nodes < 2 and not config.job.restores and not any(box.peers for box in config.boxes.values()):
        return []
    nodes = part_of("nodes", "config")
    if nodes is None:
        return [f"job.nodes, job.restores and boxes.<name>.peers belong to {not_here('nodes')}"]
    return cast(list[str], nodes.problems(config, profile))
