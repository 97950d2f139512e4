"""A simulated AutoDL with a customer who has ¥100 and no vouchers, and this process as theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.simulators.autodl import TOKEN, AutodlSim
from tests.simulators.core import SimServer, VirtualClock


@contextmanager
def autodl_world(monkeypatch: pytest.MonkeyPatch, scale: float = 0.0) -> Iterator[AutodlSim]:
    """`scale`: of its clock's seconds to ours; 0: it stands still. Our waits are short."""
    sim = AutodlSim(clock=VirtualClock(scale=scale))
    sim.vouchers["ann"] = 0.0
    with SimServer(sim) as server:
        monkeypatch.setenv("AUTODL_API_BASE_URL", server.url)
        monkeypatch.setenv("AUTODL_TOKEN", TOKEN)
        monkeypatch.setenv("SWEEPSTACK_API_PACE", "0.002")
        yield sim
        sim.check()
