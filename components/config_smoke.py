"""The smoke run that a stack config asks for, as `pulumi up` and `sweepctl smoke` both run it."""

from __future__ import annotations

from components.config import StackConfig
from sweep.smoke import NO_CODE, Smoke, smoke_of
from sweep.units import parse_duration


def configured_smoke(config: StackConfig, code: str = NO_CODE) -> Smoke | None:
    """`job.smoke` for the first cell of the roster and this digest of the code; None where there is none."""
    job = config.job
    if job.smoke is None:
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
