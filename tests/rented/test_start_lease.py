"""The lease from a container's first second: a box that was rented, and that no launch ever reached, stops itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.errors import StillCreating
from sweepstack.onbox.host.platform import BoxRequest, Wait
from sweepstack.platforms.common import renting
from sweepstack.platforms.registry import load_platform
from tests.rented import world
from tests.simulators import machines
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.own_keys import OWN
from tests.simulators.rental import Options, rental, whole_rentals
from tests.simulators.test_machines import Login

LEASE = 2.0


@dataclass
class Bare:
    """A box that is up, and on which nothing was launched."""

    sim: Any
    id: str
    computing: frozenset[str]
    folder: Path

    def computes(self) -> bool:
        self.sim.settle()
        return self.sim.ledger.get(self.id).state in self.computing

    def own_stops(self) -> int:
        return sum(act.by == OWN for act in self.sim.ledger.get(self.id).acts)


@contextmanager
def bare(platform: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bare]:
    machines.require()
    its, login = rental(platform), Login(base)
    (base / "platform").mkdir()
    customers = its.open(VirtualClock(scale=1.0), Options(state=base / "platform", machines=True, pace=0.02))
    with SimServer(customers.sim) as server:
        monkeypatch.setenv(its.url, server.api)
        monkeypatch.setenv(its.key, customers.key)
        monkeypatch.setenv("SWEEPSTACK_API_PACE", "0.02")
        monkeypatch.setenv("XDG_DATA_HOME", str(base / "data"))  # where this machine remembers what a tag has rented
        monkeypatch.setattr(renting, "PAUSE_SECONDS", 0.2)
        monkeypatch.setattr(renting, "GONE_SECONDS", 5.0)
        if world.RETIRED and world.has_older_interface(platform):
            customers.sim.faults.add("retired", its.older, times=None)
            monkeypatch.setenv("SWEEPSTACK_API_PACE", "0.002")
        if platform == "vastai":
            customers.sim.act("set", {"stop_reads": 0})  # no command looks at it
        request = BoxRequest(
            tag="sweepstack-a-box-0-g1", name="box-0", public_key=login.public, lease_seconds=LEASE,
            resources={"gpu": {"count": 1}},
        )  # fmt: skip
        with suppress(StillCreating):  # on a busy machine its lease is over sooner than a command finds it ready
            load_platform(platform).create(request, wait=Wait(deadline=300))
        (id,) = [one.id for one in customers.sim.ledger.live() if one.kind == its.box]
        yield Bare(customers.sim, id, its.computes, base / "platform")
    customers.sim.check()


FIRST, *OTHERS = whole_rentals()
BOTH = [FIRST, *(pytest.param(other, marks=pytest.mark.proof) for other in OTHERS)]
"""The text is the same, and what the other one's request has: tests/unit/platforms/test_vastai_platform.py."""


@pytest.mark.parametrize("platform", BOTH)
def test_a_box_on_which_nothing_was_launched_stops_itself(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill of engine and provider between create and launch: by its own key, once."""
    with bare(platform, tmp_path, monkeypatch) as box:
        ends = time.monotonic() + 120
        while box.computes():
            assert time.monotonic() < ends, [str(path) for path in box.folder.rglob("data/sweep/*")]
            time.sleep(0.1)
        assert box.own_stops() == 1
        (note,) = [path.read_text().strip() for path in box.folder.rglob("data/sweep/lease.lock")]
        # "" where the machine went down between the answer and the note
        assert note in ("", "nothing was launched on it: it was asked to stop, and still runs")
