"""The work dir of a job, read once for all queues of a command."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

from sweepstack.config.own_files import own_files
from sweepstack.core.job import JobInput
from sweepstack.core.workdir import Shipment, collect, located
from sweepstack.provider.session import Operation


class WorkDir(NamedTuple):
    """`own`: how absolute paths begin that are no code (`config.own_files`). `shipment`: what ships; None where that is
    not the job's code any more."""

    path: Path
    own: tuple[str, ...]
    shipment: Shipment | None


def work_dir(op: Operation, job: JobInput) -> WorkDir:
    """Reads every file the first time. Raises ConfigError where it can't be had."""
    path, own = located(op.session.project_root, job.workdir, op.info), own_files(op.session.project_root)
    return WorkDir(path, own, _shipment(path, tuple(job.include or ()), own, job.code))


@functools.lru_cache(maxsize=8)
def _shipment(path: Path, include: tuple[str, ...], own: tuple[str, ...], code: str) -> Shipment | None:
    shipment = collect(path, include, own)
    return shipment if shipment.digest == code else None
