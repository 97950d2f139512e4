"""A simulated vast.ai behind the handlers. Nothing stands behind its boxes: what the API says is all there is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sweepstack.provider.resources import run_or_stop
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.vastai import Machine, VastSimulator

TEARDOWN = {
    "verb": "destroy",
    "kills": ["scratch", "data", "durable"],
    "keeps": [],
    "paths": {"scratch": "scratch", "data": "data", "durable": "mnt/durable"},
    "stop": {"kills": [], "keeps": ["scratch", "data", "durable"], "price_per_hour": 0.01},
}


@contextmanager
def vast_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, pace: str = "0.01", machines: int = 1
) -> Iterator[VastSimulator]:
    """Machines of one card, at 0.30 USD/h and a bid of 0.20 or more; the variables and the key that lead there."""
    sim = VastSimulator(clock=VirtualClock(scale=1.0))
    key = sim.add_account("ann").key
    for number in range(1, machines + 1):
        sim.world.market.add(Machine(number, 10 + number, dph=0.30, min_bid=0.20))
    with SimServer(sim) as server:
        for name, value in {
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "VAST_URL": server.url,
            "VAST_API_KEY": key,
            "SWEEPSTACK_API_PACE": pace,
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sweepstack.platforms.common.reach_box.ON", False)
        # At the pace of tests it is half a second, and a busy machine takes longer.
        monkeypatch.setattr("sweepstack.platforms.vastai.power.STOP_SECONDS", 6000.0)
        monkeypatch.setattr(run_or_stop, "ANSWER_SECONDS", 0.0)
        monkeypatch.setattr(run_or_stop, "POLL_SECONDS", 0.05)
        monkeypatch.setattr("sweepstack.provider.resources.create.public_key", lambda: "ssh-ed25519 AAAA test")
        yield sim
        sys.modules["sweepstack.platforms.vastai.api"].forget()
    sim.check()
