"""The smoke run that a stack config asks for, as `pulumi up` and `sweepctl smoke` both run it."""

from __future__ import annotations

from typing import Any

from sweepstack.config.stack_config import StackConfig
from sweepstack.core.workdir import NO_CODE
from sweepstack.launch.smoke import Smoke, smoke_of
from sweepstack.onbox.common.units import parse_duration


def smoke_on_box(config: StackConfig) -> dict[str, Any]:
    """What each box is told of `job.smoke` where it is to run there: `run`, `seconds`. Else empty."""
    smoke = config.job.smoke
    if smoke is None or smoke.on != "box":
        return {}
    return {"run": smoke.run, "seconds": parse_duration(smoke.timeout)}


def configured_smoke(config: StackConfig, code: str = NO_CODE) -> Smoke | None:
    """The smoke run here for the first cell of the roster and this digest of the code; None where there is none."""
    job = config.job
    if job.smoke is None or job.smoke.on != "local":
        return None
    return smoke_of(
        config.roster.cells[0],
        run=job.smoke.run,
        seconds=parse_duration(job.smoke.timeout),
        env=job.env,
        secrets=tuple(getattr(job, "secrets", ())),
        workdir=job.workdir,
        include=job.include,
        code=code,
        artifacts=tuple(config.artifacts),
    )
