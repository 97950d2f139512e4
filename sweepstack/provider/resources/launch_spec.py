"""What launching is told of a queue."""

from __future__ import annotations

from pathlib import Path

from sweepstack.config.own_files import own_files
from sweepstack.core.workdir import located
from sweepstack.launch.launch import LaunchSpec
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.onbox.host.platform import Platform
from sweepstack.operations.lease import on_box
from sweepstack.provider import secrets
from sweepstack.provider.models import QueueState
from sweepstack.provider.session import Operation


def launch_spec(op: Operation, state: QueueState, platform: Platform) -> LaunchSpec:
    """The queue's state, as launching takes it. Reads the values of the secrets from this environment."""
    return LaunchSpec(
        identity=state.identity,
        box=state.box_name,
        native_id=state.box,
        generation=state.generation,
        cells=state.cells,
        dropped=state.dropped,
        elsewhere=state.others,
        job=state.job,
        workdir=_workdir(op, state.job.workdir),
        own=own_files(op.session.project_root),
        artifacts=state.artifacts,
        metrics=state.metrics.model_dump(mode="json") if state.metrics else None,
        pins=state.pins or {},
        retries=state.retries or {},
        secrets=secrets.values(state.job.secrets),
        lease=on_box(state.job.lease, platform, state.box),
    )


def _workdir(op: Operation, text: str) -> Path:
    """The folder of the files that may have to be shipped. If it is missing, that is only a warning: code that is on
    the box already needs it no more."""
    try:
        return located(op.session.project_root, text, op.info)
    except ConfigError as error:
        op.warn(str(error))
        return Path(text)
