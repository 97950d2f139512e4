"""Which files of a cell hold its results: as the state has it, and after a teardown as the stack file says."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from sweepstack.cli.target import Target
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.records import ArtifactSpec
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.status.engine.state import MetricsEntry, QueueEntry
from sweepstack.status.snapshot import Scene


def files_of(
    target: Target, scene: Scene, cell: str | None = None
) -> tuple[tuple[ArtifactSpec, ...], MetricsEntry | None]:
    """Artifacts, and the metrics file or None, of a cell (of any). Never raises: where nobody says, there are none."""
    queues = [sight.queue for sight in scene.sights if sight.queue is not None]
    own: QueueEntry | None = next((queue for queue in queues if cell in queue.names), None)
    queue = own or next(iter(queues), None)
    if queue is not None:
        return queue.artifacts, queue.metrics
    return _by_file(target.root, target.stack)


def artifacts_of(target: Target) -> tuple[ArtifactSpec, ...]:
    """The artifacts that the stack file names; none where it can't be read."""
    return _by_file(target.root, target.stack)[0]


@lru_cache(maxsize=1)
def _by_file(root: Path, stack: str) -> tuple[tuple[ArtifactSpec, ...], MetricsEntry | None]:
    """Read once a command: it is asked for every cell."""
    try:
        config = StackConfig.load(root, stack)
    except ConfigError:
        return (), None
    metrics = config.metrics
    entry = MetricsEntry(file=metrics.file, x=metrics.x, y=metrics.y) if metrics else None
    return config.artifact_specs(), entry
