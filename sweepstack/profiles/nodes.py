"""Cells over several nodes: how many run at once, and whether the extension `nodes` lets them."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from sweepstack.config.stack_config import StackConfig
from sweepstack.core.adapters import module_of
from sweepstack.core.extensions import not_here
from sweepstack.profiles.model import Profile


def slots_of(config: StackConfig, gpus: int) -> int:
    """How many cells run at once on a box with so many GPUs. A cell on several nodes has all of each."""
    return 1 if config.job.nodes > 1 else config.job.slots or gpus or 1


def node_problems(config: StackConfig, profile: Profile) -> list[str]:
    """Why cells can't run on several nodes there; empty when they can, or when each has one."""
    if config.job.nodes < 2 and not config.job.restores and not any(box.peers for box in config.boxes.values()):
        return []
    module = module_of("nodes", "config")
    if module is None:
        return [f"job.nodes, job.restores and boxes.<name>.peers belong to {not_here('nodes')}"]
    return cast(list[str], import_module(module).problems(config, profile))
