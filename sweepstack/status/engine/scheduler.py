"""What the engine's state says of the workers of a box on a cluster."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from sweepstack.billing.gpu_hours import Rate


class Seen(BaseModel):
    """What the state has. What we do not use passes: an older or newer provider may have written it."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class Scheduler(Seen):
    """What each worker of a box asks for, as far as its cost goes."""

    workers: int = 1
    nodes: int = 1
    gpus: int | None = None
    price_per_gpu_hour: float | None = None
    gpu_hours: float | None = None

    @property
    def rate(self) -> Rate:
        """What its GPU-hours are worth."""
        return Rate(self.price_per_gpu_hour, self.gpu_hours)
