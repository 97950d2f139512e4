"""See `tests.simulators.rental`."""

from __future__ import annotations

from typing import Any

from tests.simulators.core import VirtualClock
from tests.simulators.rental import USUAL, Customers, Options, posted
from tests.simulators.runpod import CREATE, DELETE, GRAPHQL, KEY, LIST, MENU, OTHER_KEY, SPOT_MENU, Boot, RunPodSim
from tests.simulators.runpod.pods import PROVISIONING, RUNNING

PER_MINUTE = 60


class Rental:
    """RunPod."""

    url, key = "RUNPOD_API_BASE_URL", "RUNPOD_API_KEY"
    older = GRAPHQL
    create, read, delete = CREATE, "GET /v2/pods*", DELETE
    menu = MENU
    spot_menu = SPOT_MENU
    imports = ("httpx",)
    box = "pod"
    computes = frozenset({PROVISIONING, RUNNING})
    preempted = "preempt"
    whole = True
    volume_region, volume_month = "EU-RO-1", "$0.70/month"
    list, page, scale = LIST, 100, 3.0
    limits = f"{PER_MINUTE} requests a minute, all together"

    def open(self, clock: VirtualClock, asked: Options = USUAL) -> Customers:
        sim = RunPodSim(
            clock=clock,
            state=asked.state,
            machines=asked.machines,
            boot=Boot(reads=asked.boot_reads),
            per_minute=PER_MINUTE if asked.limits else None,
            latency={CREATE: asked.create_seconds},
        )
        return Customers(sim, KEY, OTHER_KEY, "user_ann")

    def bystanders(self, customers: Customers, url: str, tag: str, *, newest: bool) -> list[str]:
        asked = {
            "name": tag,
            "image": "ubuntu:22.04",
            "gpu": {"id": "NVIDIA H200", "count": 1},
            "cloud": "SECURE",
            "disk": 20,
            "ports": ["22/tcp"],
            "env": {"SWEEPSTACK_TAG": tag},
        }
        keys = (customers.key, customers.other_key)
        made = [str(posted(f"{url}/v2/pods", key, asked)["id"]) for key in keys]
        if not newest:
            for number, native_id in enumerate(made, start=10**6):
                customers.sim.pods.all[native_id].number = number
        return made

    def least_seconds(self, command: str, boxes: int, create_seconds: float) -> float:
        # Account, catalogue, list of what is there, a create for each box, a list that shows them all at work; and at
        # the end account, list, for each box its delete and the look that does not find it, a list without them.
        calls = 3 + boxes + 1 if command == "up" else 2 + 2 * boxes + 1
        return (calls - 1) // PER_MINUTE * 60.0 + (create_seconds if command == "up" else 0.0)

    def where(self, sim: Any, native_id: str) -> str:
        return str(sim.pods.all[native_id].place)
