"""Asks a cluster, before anything is made there, whether it would run a box's workers."""

from __future__ import annotations

from sweepstack.core.resources import QueueInputs
from sweepstack.onbox.common.errors import ConfigError, PlatformError
from sweepstack.onbox.host.capabilities import IsCluster
from sweepstack.platforms.registry import load_platform
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.session import Operation


def refusals(op: Operation, old: QueueInputs | None, new: QueueInputs) -> list[Failure]:
    """Why the cluster would not run the workers that `new` asks for; empty when it would, when nothing about them
    changed, and when it can't be asked now: then a line says so, and the update asks again."""
    asked = new.job.scheduler
    if asked is None or not new.cells or new.want != "running" or (old is not None and old.job.scheduler == asked):
        return []
    try:
        platform = load_platform(new.adapter)
        if not isinstance(platform, IsCluster):
            return []
        found = platform.refusals(asked.model_dump(mode="json", exclude_none=True))
    except (PlatformError, ConfigError) as error:
        op.warn(f"queue of {new.box_name}: whether the cluster would run its workers is not known ({error})")
        return []
    return [Failure("job", line) for line in found]
