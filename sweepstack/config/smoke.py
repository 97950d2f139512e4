"""The smoke run of a stack config; `pulumi up` and `sweepctl doctor --smoke` run the same one."""

from __future__ import annotations

from typing import Any

from sweepstack.config.stack_config import StackConfig
from sweepstack.core import trackers
from sweepstack.core.job import Smoke
from sweepstack.core.workdir import NO_CODE
from sweepstack.launch.smoke import smoke_of
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.onbox.common.units import parse_duration


def smoke_on_box(config: StackConfig) -> dict[str, Any]:
    """The smoke run for each box: `run`, `seconds`. Empty if it does not run on boxes."""
    smoke = config.job.smoke
    if smoke is None or smoke.on != "box":
        return {}
    return {"run": smoke.run, "seconds": parse_duration(smoke.timeout)}


def configured_smoke(config: StackConfig, code: str = NO_CODE) -> Smoke | None:
    """The smoke run on this machine, for the first cell of the roster and this digest of the code; None if none."""
    job = config.job
    if job.smoke is None or job.smoke.on != "local":
        return None
    first = config.roster.cells[0]
    return smoke_of(
        first,
        run=job.smoke.run,
        seconds=parse_duration(job.smoke.timeout),
        env={**trackers.of_smoke(job.tracker is not None), **job.env},
        secrets=tuple(getattr(job, "secrets", ())),
        workdir=job.workdir,
        include=job.include,
        code=code,
        artifacts=tuple(own_file(path, first.name, first.params) for path in config.artifacts),
    )
