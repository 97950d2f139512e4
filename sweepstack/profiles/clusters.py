"""Boxes on a cluster: what their workers ask of its scheduler."""

from __future__ import annotations

import re
from typing import Any

from sweepstack.config.model import BoxConfig
from sweepstack.config.rent import Resources
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.units import parse_duration, parse_size
from sweepstack.profiles.model import Profile
from sweepstack.profiles.spot import asked_resources

WIPED = re.compile(r"\$\{?(SLURM_)?TMPDIR\b")
"""The folder that a node gives a job, and takes away with it."""


def scheduler_input(config: StackConfig, profile: Profile, box: BoxConfig, resources: Resources) -> dict[str, Any]:
    """What each worker of a box asks for, as the queue's input; empty where it is no cluster. What was not asked for is
    left out."""
    if not profile.scheduled:
        return {}
    gpu, told = resources.gpu, resources.of_cluster
    grace = config.job.grace
    asked: dict[str, Any] = {
        "workers": box.workers,
        **{key: told.get(key) for key in ("partition", "account", "qos", "constraint", "gres")},
        "wall_seconds": parse_duration(told["time"]) if "time" in told else None,
        "gpus": gpu.count if gpu is not None else None,
        "gpu_names": list(gpu.name) if gpu is not None else None,
        "cpu": resources.cpu,
        "memory_bytes": parse_size(resources.memory).bytes if resources.memory else None,
    }
    found = {key: value for key, value in asked.items() if value}
    return {"workers": 1, **found, **({} if grace is None else {"grace_seconds": parse_duration(grace)})}


def problems(config: StackConfig, profile: Profile) -> list[str]:
    """Keys that this platform can't follow."""
    if profile.scheduled:
        return []
    return [
        f"boxes.{name}.workers is for clusters; one runner runs the cells of a box here, job.slots at once"
        for name, box in config.boxes.items()
        if box.workers is not None and box.want != "gone" and len(config.candidates) == 1
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
