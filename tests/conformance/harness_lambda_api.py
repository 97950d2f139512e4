"""How to break Lambda's Cloud API: its simulator on loopback, whose ledger says what is true."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sweepstack.extensions.lambda_api import power
from sweepstack.onbox.host.platform import Phase
from sweepstack.platforms.common.box_session import FRESH_SECONDS
from tests.conformance.rental_harness import KINDS, RentalHarness, played
from tests.simulators.core import VirtualClock
from tests.simulators.lambda_api import (
    AT_ONCE,
    GET,
    KEY,
    LAUNCH,
    LIST,
    OTHER_KEY,
    TERMINATE,
    LambdaSim,
    Times,
    catalog,
)

REGIONS = tuple(catalog.REGIONS)


class Harness(RentalHarness):
    """See `harness.Harness`."""

    adapter = "lambda_api"
    spawns = False
    """Nothing stands behind an instance of the simulator."""
    secrets = (KEY, OTHER_KEY)
    preempted = Phase.UNKNOWN
    """Lambda does not say what is left of an instance that it preempted, nor whether it bills."""
    kinds = KINDS | {
        "out_of_capacity": ("out_of_capacity", {}),
        "low_balance": ("bad_address", {}),
        "never_ready": ("boots_stuck", {}),
        "dies_while_starting": ("boots_unhealthy", {}),
        "odd_status": ("odd_status", {"status": "migrating", "reads": 3}),
        "delete_lingers": ("terminate_lingers", {"seconds": 0.5}),
        "delete_stays": ("terminate_ignored", {}),
    }
    plays = played(kinds)
    wire_of = "runpod"
    impossible = frozenset(
        {
            "says_no",  # its errors have a status
            "zero_gpus",  # there is no start, in which a box could lose its cards
            "no_room",  # nor one that could find them taken
            "refused_yet_made",  # there are no spot boxes, so no bids
        }
    )
    box, url, key = "instance", "LAMBDA_API_BASE_URL", "LAMBDA_API_KEY"
    where: ClassVar = {"create": (LAUNCH,), "read": ("GET /api/v1/instances*",), "delete": (TERMINATE,)}
    elsewhere: ClassVar = {"stale_list": (LIST,), "no_key": ("* /api/v1/*",), "vanished": (GET, TERMINATE)}
    at_once: ClassVar = {"preempted": "preempt", "vanished": "vanish"}
    fresh = FRESH_SECONDS
    limits = ((power, "GONE_SECONDS", 100.0),)  # at the pace of tests a second: some ends never come
    cache = "sweepstack.extensions.lambda_api.api:SESSIONS.forget"

    def simulator(self, state: Path, machines: bool) -> LambdaSim:
        sim = LambdaSim(clock=VirtualClock(scale=1.0), times=AT_ONCE)
        for place in REGIONS[2:]:  # each offer that is refused takes its turn: a few are enough
            sim.stock.empty(place=place)
        return sim

    def slow_boot(self, seconds: float) -> None:
        self.sim.instances.times = Times(0, 0, seconds, 0, reads=1)

    def make_unreadable(self, native_id: str) -> None:
        self.sim.act("set", {"id": native_id, "odd_status": ("transcended", 10**9)})
        self.outlive()

    def mend(self) -> None:
        self.sim.instances.times = AT_ONCE
        for one in self.sim.instances.all.values():
            one.odd_status = None
