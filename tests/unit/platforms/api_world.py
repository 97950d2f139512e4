"""What the tests of an adapter with an API begin with: a key, a quick pace, and what answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from sweepstack.platforms.common import reach_box
from sweepstack.platforms.common.rate_limit import PACE_VARIABLE
from tests.addresses import at_a_new_address
from tests.simulators.core import SimServer
from tests.simulators.simulator import Simulator
from tests.unit.loopback import Server

S = TypeVar("S", bound=Simulator)


def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, key: str) -> None:
    """The key in its variable, a pace of tests, and no machine behind a box. `tmp_path`: for notes and locks."""
    monkeypatch.setattr(reach_box, "ON", False)
    monkeypatch.setenv(variable, key)
    monkeypatch.setenv(PACE_VARIABLE, "0.01")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@contextmanager
def serving(sim: S, monkeypatch: pytest.MonkeyPatch, variable: str) -> Iterator[S]:
    """The simulator, at the address in this variable."""
    with SimServer(sim) as server:
        monkeypatch.setenv(variable, server.api)
        yield sim
    sim.check()


@contextmanager
def answering(monkeypatch: pytest.MonkeyPatch, variable: str, base: str = "") -> Iterator[Server]:
    """A server that answers as the test says, at the address in this variable."""
    server = at_a_new_address(Server)
    monkeypatch.setenv(variable, f"{server.url}{base}")
    server.start()
    yield server
    server.stop()


def sent(sim: Simulator, call: str) -> int:
    """How often `METHOD /template` was called, to the letter."""
    return sum(f"{one.method} {one.route}" == call for one in sim.calls)
