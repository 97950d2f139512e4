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
from sweepstack.provider.job_input import JobInput
from sweepstack.provider.models import QueueState
from sweepstack.provider.resources.kept_caches import network_of
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
        workdir=_workdir(op, state.job.workdir),
        include=state.job.include,
        own=own_files(op.session.project_root),
        code=state.job.code,
        run=state.job.run,
        env=state.job.env,
        slots=state.job.slots,
        artifacts=state.artifacts,
        metrics=state.metrics.model_dump(mode="json") if state.metrics else None,
        setup=state.job.setup or "",
        gpus=state.job.gpus or 0,
        pins=state.pins or {},
        retries=state.retries or {},
        across=across(state.job),
        secret_names=state.job.secrets or (),
        secrets=secrets.values(state.job.secrets),
        min_free={
            kind: least
            for kind, least in (("bytes", state.job.min_free_bytes), ("inodes", state.job.min_free_inodes))
            if least
        },
        stall_seconds=state.job.stall_seconds,
        timeout_seconds=state.job.timeout_seconds,
        grace_seconds=state.job.grace_seconds,
        on_hang=state.job.on_hang or "",
        tries_again=state.job.retries,
        mounts=[mount.model_dump(exclude_defaults=True) for mount in state.job.mounts or ()],
        keep=state.job.keep or (),
        network=network_of(state.job),
        when_drained=state.job.when_drained.model_dump() if state.job.when_drained else {},
        smoke=state.job.smoke.model_dump() if state.job.smoke else {},
        lease=on_box(state.job.lease, platform, state.box),
        image=state.job.image or "",
        by_hand=state.job.by_hand.model_dump(exclude_none=True) if state.job.by_hand else {},
        nodes=state.job.nodes.model_dump(mode="json", exclude_defaults=True) if state.job.nodes else {},
        scheduler=state.job.scheduler.model_dump(mode="json", exclude_none=True) if state.job.scheduler else {},
    )


def across(job: JobInput) -> bool:
    """Whether cells go on from checkpoints of other code."""
    return job.resume == "across-code"


def _workdir(op: Operation, text: str) -> Path:
    """The folder of the files that may have to be shipped. If it is missing, that is only a warning: code that is on
    the box already needs it no more."""
    try:
        return located(op.session.project_root, text, op.info)
    except ConfigError as error:
        op.warn(str(error))
        return Path(text)
