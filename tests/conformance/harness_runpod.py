"""How to break RunPod: its simulator on loopback, whose ledger says what is true."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sweepstack.onbox.host.capabilities import RentsSpot
from sweepstack.onbox.host.platform import Platform, VolumeRecord
from sweepstack.platforms.common.box_session import FRESH_SECONDS
from sweepstack.platforms.runpod import balance, create
from tests.conformance.rental_harness import FOREVER, KINDS, RentalHarness, played
from tests.simulators.core import VirtualClock
from tests.simulators.runpod import CREATE, DELETE, GRAPHQL, KEY, LIST, OTHER_KEY, Boot, RunPodSim
from tests.simulators.runpod.catalog import ODD
from tests.simulators.runpod.spot import SPOT_CREATE

REGION = "EU-RO-1"
ONE, ACTION = "GET /v2/pods/{id}", "POST /v2/pods/{id}/action"


class Harness(RentalHarness):
    """See `harness.Harness`."""

    adapter = "runpod"
    killed_by_stop = ("scratch", "data")
    kept_by_stop = ("mnt/durable",)
    secrets = (KEY, OTHER_KEY)
    kinds = KINDS | {
        "out_of_capacity": ("out_of_capacity", {}),
        "low_balance": ("low_balance", {}),
        "never_ready": ("never_ready", {}),
        "dies_while_starting": ("dies_while_starting", {"reads": 0}),
        "odd_status": ("odd_status", {"status": "MIGRATING", "reads": 3}),
        "delete_lingers": ("delete_lingers", {"reads": 3}),
        "delete_stays": ("delete_lingers", {"reads": None}),
        "zero_gpus": ("zero_gpus", {}),
        "no_room": ("start_no_gpus", {}),
        "refused_yet_made": ("error_after", {"status": 500}),
    }
    plays = played(kinds)
    impossible = frozenset({"says_no"})  # its errors have a status
    box, url, key = "pod", "RUNPOD_API_BASE_URL", "RUNPOD_API_KEY"
    where: ClassVar = {
        "create": (CREATE,),
        "read": ("GET /v2/pods*",),
        "delete": (DELETE, ACTION),
        "start": (ACTION,),
        "spot": (SPOT_CREATE,),
    }
    elsewhere: ClassVar = {"stale_list": (LIST,), "no_key": ("GET /v2/*",), "vanished": (ONE, ACTION)}
    at_once: ClassVar = {"preempted": "preempt", "vanished": "vanish"}
    fresh = FRESH_SECONDS
    limits = ((create, "STOP_SECONDS", FOREVER),)
    cache = "sweepstack.platforms.runpod.api:SESSIONS.forget"

    def simulator(self, state: Path, machines: bool) -> RunPodSim:
        return RunPodSim(clock=VirtualClock(scale=1.0), boot=Boot(reads=0), machines=machines, state=state)

    def volume(self, platform: Platform, tag: str) -> VolumeRecord:
        return platform.ensure_volume(tag, "durable", size_gb=10, region=REGION)

    def odd_cards(self) -> tuple[str, ...]:
        self.sim.stock.add(*ODD)
        return tuple(gpu.name for gpu in ODD)

    def slow_boot(self, seconds: float) -> None:
        self.sim.pods.boot = Boot(reads=0, seconds=seconds)

    def make_unreadable(self, native_id: str) -> None:
        self.sim.act("set", {"id": native_id, "odd_status": ("TRANSCENDED", 10**9)})
        self.outlive()

    def mend(self) -> None:
        self.sim.pods.boot = Boot(reads=0)
        self.sim.stock.floors.clear()
        for pod in self.sim.pods.all.values():
            pod.odd_status = None
            if pod.lingers and pod.lingering is None:
                pod.lingers, pod.lingering_as = False, ""


class Retired(Harness):
    """The same with GraphQL answering 410 from the beginning. The bill need not stand still here: how long it must is
    in the tests that prove this."""

    proved_by = "tests/unit/platforms/test_runpod_retired.py, tests/rented/test_loop.py"
    lacks = (RentsSpot,)
    """Capabilities of the adapter that are no more then; what it says of them is in the first of these tests."""
    quick: frozenset[str | tuple[str, str]] = frozenset()
    limits = (*Harness.limits, (balance, "STILL_SECONDS", 0.0), (balance, "BILL_SECONDS", 0.0))

    def _set(self) -> None:
        super()._set()
        self.sim.faults.add("retired", GRAPHQL, times=None)

    def mend(self) -> None:
        super().mend()
        self.sim.faults.add("retired", GRAPHQL, times=None)


VARIANTS = {"retired": Retired}
