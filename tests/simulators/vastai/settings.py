"""Customers of the simulated vast.ai; how its world behaves where the real one varies or the facts leave it open."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulators.core import Account


@dataclass
class VastAccount(Account):
    """A customer. `broke_since`: it has no credit."""

    broke_since: float | None = None


@dataclass
class Settings:
    """How this world behaves where the real one varies, or where the facts leave it open. Seconds are virtual."""

    boot_reads: int = 1  # looks that see each of null, created, loading
    boot_seconds: float = 0.0  # and not running before
    stop_reads: int = 1  # looks that still see it running after a stop
    start_reads: int = 1  # looks that still see `exited` after a start
    destroy_reads: int = 1  # looks that still see it after DELETE said 200
    by_itself: float = 90.0  # what waits for a look happens by then without one
    volume_release: float = 30.0
    bid_refused_status: int = 400  # or 200
    page: int = 25
    limits: bool = False  # the minimum intervals of LIMITS: on a clock that stands still nothing would ever pass
