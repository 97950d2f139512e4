"""How to break vast.ai: its simulator on loopback, whose ledger says what is true."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sweepstack.onbox.host.platform import Platform, VolumeRecord
from sweepstack.platforms.vastai import power, volumes
from tests.conformance.rental_harness import FOREVER, KINDS, RentalHarness, played
from tests.simulators.core import VirtualClock
from tests.simulators.vastai import Machine, VastSimulator

CREATE, DELETE = "PUT /api/v0/asks/{id}/", "DELETE /api/v0/instances/{id}/"
LIST, READS = "GET /api/v1/instances/", "GET /api/v[01]/instances/*"
START = "PUT /api/v0/instances/{id}/"
NEVER_ENDS = ("delete_stays", "odd_status")
"""Where the adapter waits for an end until it must not any more."""
VOLUME_GB = 10
MIN_BID = 0.20  # USD an hour and GPU


class Harness(RentalHarness):
    """See `harness.Harness`. Hosts of one and two GPUs; the clock runs, limits are off."""

    adapter = "vastai"
    kept_by_stop = ("scratch", "data", "mnt/durable")
    kinds = KINDS | {
        "error_after": ("error_after", {"status": 502}),
        "no_key": ("auth", {"status": 404}),  # as seen live, where a 404 also says "no such instance"
        "stale_list": ("stale_list", {"seconds": 60}),
        "out_of_capacity": ("snatched", {}),
        "low_balance": ("lacks_credit", {}),
        "never_ready": ("stuck", {}),
        "dies_while_starting": ("dies", {}),
        "odd_status": ("odd_status", {"word": "migrating"}),
        "delete_lingers": ("destroy_slow", {"reads": 3}),
        "delete_stays": ("destroy_ignored", {}),
        "no_room": ("start_queued", {"seconds": 10**6}),
        "says_no": ("success_false", {}),
        "refused_yet_made": ("bid_refused", {}),
    }
    plays = played(kinds)
    impossible = frozenset({"zero_gpus"})  # a start gets all its cards, or waits for them
    box, url, key = "instance", "VAST_URL", "VAST_API_KEY"
    where: ClassVar = {
        "create": (CREATE,),
        "read": (READS,),
        "delete": (DELETE,),
        "start": (START,),
        "spot": (CREATE,),
    }
    elsewhere: ClassVar = {"stale_list": (LIST,), "odd_status": (READS,), "no_key": ("*",)}
    late = ("read",)
    fresh = 12.5
    """A list serves it for 8 s, and whose key it is for 20 s: twice this time is longer than both."""
    limits = (
        (power, "GONE_SECONDS", FOREVER),
        (power, "STOP_SECONDS", FOREVER),
        (volumes, "_GONE_SECONDS", FOREVER),
        (volumes, "RELEASE_SECONDS", FOREVER),
    )
    cache = "sweepstack.platforms.vastai.api:forget"

    def simulator(self, state: Path, machines: bool) -> VastSimulator:
        self._odd: set[int] = set()
        sim = VastSimulator(clock=VirtualClock(scale=1.0), state=state, machines=machines)
        self.secrets = (sim.add_account("ann").key, sim.add_account("bob").key)
        for number in range(1, 7):
            sim.world.market.add(
                Machine(number, 10 + number, gpus=1 + number % 2, dph=0.30 + number / 100, min_bid=MIN_BID)
            )
        self._brisk(sim)
        return sim

    def _brisk(self, sim: VastSimulator) -> None:
        """Every stage is seen once, and nothing that takes time takes long."""
        sim.act("set", {"boot_seconds": 0.0, "volume_release": 0.3, "by_itself": 5.0})

    def volume(self, platform: Platform, tag: str) -> VolumeRecord:
        return platform.ensure_volume(tag, "durable", size_gb=VOLUME_GB, region="machine:1")

    def inject(self, fault: str, verb: str, *, times: int | None = 1) -> None:
        if fault in NEVER_ENDS:
            self._patch.setattr(power, "GONE_SECONDS", 90.0)
        if fault == "refused_yet_made":  # with an error's status, or with that of a success
            self.sim.act("set", {"bid_refused_status": 200 if times is None else 400})
        super().inject(fault, verb, times=times)

    def odd_cards(self) -> tuple[str, ...]:
        part = Machine(101, 111, gpu_name="H100 MIG 1g.10gb", dph=0.02, gpu_ram=9856)
        amd = Machine(102, 112, gpu_name="RX 7900 XTX", gpu_arch="amd", dph=0.01)
        for machine in (part, amd):
            self.sim.world.market.add(machine)
        return part.gpu_name, amd.gpu_name

    def slow_boot(self, seconds: float) -> None:
        self.sim.act("set", {"boot_seconds": seconds})

    def make_unreadable(self, native_id: str) -> None:
        self._odd.add(int(native_id))
        self.sim.act("die", {"id": native_id, "word": "transcended"})
        self.outlive()

    def mend(self) -> None:
        self._brisk(self.sim)
        for machine in list(self.sim.world.market.machines):
            self.sim.act("free", {"machine": machine})
            self.sim.act("price", {"machine": machine, "min_bid": MIN_BID})
        for number in self._odd:
            self.sim.act("die", {"id": number, "word": "running"})
        self._odd.clear()
