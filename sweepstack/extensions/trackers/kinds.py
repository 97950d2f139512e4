"""All trackers, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweepstack.core.job import TrackerInput
from sweepstack.extensions.trackers import aim_repo, mlflow_server, tensorboard_files, trackio_server, wandb_runs
from sweepstack.extensions.trackers.kind import Kind

KINDS: tuple[Kind, ...] = (
    wandb_runs.KIND, mlflow_server.KIND, trackio_server.KIND, aim_repo.KIND, tensorboard_files.KIND,
)  # fmt: skip


def asked_of(tracker: TrackerInput) -> Iterator[tuple[Kind, Any]]:
    """Those that a job names, with what it says of each."""
    for kind in KINDS:
        asked = getattr(tracker, kind.name)
        if asked is not None:
            yield kind, asked
