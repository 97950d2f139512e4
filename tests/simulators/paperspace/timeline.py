"""How long things take at the simulated Paperspace, in virtual seconds. Invented: the vendor publishes no figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """`reads`: so often a machine is read besides before each step, for tests whose clock stands still."""

    provisioning: float = 120.0
    starting: float = 60.0
    service: float = 20.0
    """From `serviceready`, when its system is up, until `ready`."""
    stopping: float = 45.0
    restarting: float = 60.0
    deactivating: float = 60.0
    snapshot: float = 120.0
    reads: int = 0


AT_ONCE = Times(
    provisioning=0, starting=0, service=0, stopping=0, restarting=0, deactivating=0, snapshot=0, reads=1
)  # fmt: skip
