"""Which files of a cell hold its results: by the state, or after a teardown by the stack file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from sweepstack.cli.target import Target
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.job import MetricsInput
from sweepstack.core.records import ArtifactSpec
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.status.engine.state import QueueEntry
from sweepstack.status.snapshot import Snapshot


def files_of(
    target: Target, snapshot: Snapshot, cell: str | None = None
) -> tuple[tuple[ArtifactSpec, ...], MetricsInput | None]:
    """The artifacts of a cell (None: of any cell), and its metrics file or None. Never raises: if unknown, empty."""
    queues = [box_snapshot.queue for box_snapshot in snapshot.box_snapshots if box_snapshot.queue is not None]
    own: QueueEntry | None = next((queue for queue in queues if cell in queue.names), None)
    queue = own or next(iter(queues), None)
    if queue is not None:
        return queue.artifacts, queue.metrics
    return _by_file(target.root, target.stack)


def artifacts_of(target: Target) -> tuple[ArtifactSpec, ...]:
    """The artifacts that the stack file names; none if it can't be read."""
    return _by_file(target.root, target.stack)[0]


@lru_cache(maxsize=1)
def _by_file(root: Path, stack: str) -> tuple[tuple[ArtifactSpec, ...], MetricsInput | None]:
    """Cached: a command asks for every cell."""
    try:
        config = StackConfig.load(root, stack)
    except ConfigError:
        return (), None
    metrics = config.metrics
    entry = MetricsInput(file=metrics.file, x=metrics.x, y=metrics.y) if metrics else None
    return config.artifact_specs(), entry
