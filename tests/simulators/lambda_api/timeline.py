"""How long things take at the simulated Lambda."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulators.timeline import Timeline

__all__ = ["AT_ONCE", "Timeline", "Times"]


@dataclass(frozen=True)
class Times:
    """Virtual seconds, by default those that customers measured (see `platform`). `reads`: so often an instance is read
    besides before it is active, for tests whose clock stands still."""

    launching: float = 5.0
    """From the launch until `actions.terminate` says that it can be terminated."""
    address: float = 71.0
    """From the launch until it has an address; it is booting still."""
    active: float = 244.0
    restarting: float = 120.0
    terminating: float = 60.0
    remembered: float = 600.0
    """So long an instance that is terminated can be asked for by its id."""
    reads: int = 0


AT_ONCE = Times(launching=0, address=0, active=0, restarting=0, terminating=0, reads=1)
