"""See `tests.simulators.rental`."""

from __future__ import annotations

from typing import Any

from tests.simulators.core import VirtualClock
from tests.simulators.faults import Choice
from tests.simulators.rental import USUAL, Customers, Options
from tests.simulators.vastai import Machine, VastSimulator
from tests.simulators.vastai.instance import BILLS_GPU
from tests.simulators.vendor import usual

CREATE, DELETE, SEARCH = "PUT /api/v0/asks/{id}/", "DELETE /api/v0/instances/{id}/", "POST /api/v0/bundles/"
LIST, ONE, READS = "GET /api/v1/instances/", "GET /api/v0/instances/{id}/", "GET /api/v[01]/*"
CREATE_EVERY, DELETE_EVERY, LOOK_EVERY = 4.5, 3.0, 2.0
"""Seconds between two creates, two deletes, two looks, of one account."""
CREDIT = 1000.0
CHEAPEST, SPREAD = 0.30, 0.20
"""USD an hour of the first machine, and how much more the last of them is, about."""
MENU = (
    *usual(CREATE, DELETE, READS),
    Choice("success_false", READS),
    Choice("stale_list", LIST, {"seconds": [30.0, 60.0]}),
    Choice("null_read", ONE),
    Choice("empty_list", LIST),
    Choice("snatched", CREATE, {"gpus": [False, True]}),
    Choice("lacks_credit", CREATE),
    Choice("spend_limit", CREATE, {"status": [400, 403]}),
    Choice("stuck", CREATE),
    Choice("oci", CREATE),
    Choice("dies", CREATE),
    Choice("destroy_slow", DELETE, {"reads": [1, 5]}),
    Choice("destroy_ignored", DELETE),
    Choice("preempted", READS),
    Choice("vanished", READS),
    Choice("odd_status", READS, {"word": ["migrating", "paused"]}),
    Choice("search_quota", SEARCH),
    Choice("auth", READS, {"status": [401, 404]}),
)


class Rental:
    """vast.ai."""

    url, key = "VAST_URL", "VAST_API_KEY"
    create, read, delete = CREATE, "GET /api/v[01]/instances/*", DELETE
    menu = MENU
    spot_menu = (Choice("bid_refused", CREATE), Choice("preempted", READS))
    imports = ("vastai",)
    box = "instance"
    computes = frozenset(BILLS_GPU)
    preempted = "stop"
    whole = True
    volume_region, volume_month = "machine:102", "$1.50/month"
    list, page, scale = LIST, 25, 4.0
    limits = f"a create in {CREATE_EVERY:g} s, a destroy in {DELETE_EVERY:g} s"

    def open(self, clock: VirtualClock, asked: Options = USUAL) -> Customers:
        latency = {CREATE: asked.create_seconds}
        sim = VastSimulator(clock=clock, state=asked.state, machines=asked.machines, latency=latency)
        sim.world.settings.limits = asked.limits
        sim.world.settings.boot_reads = asked.boot_reads
        sim.world.settings.volume_release *= asked.pace
        for number in range(asked.offers):
            price = CHEAPEST + SPREAD * number / asked.offers
            sim.world.market.add(Machine(100 + number, 10 + number, gpu_name="RTX 3090", dph=price))
        ann, bob = sim.add_account("ann", credit=CREDIT), sim.add_account("bob", credit=CREDIT)
        return Customers(sim, ann.key, bob.key, ann.id)

    def bystanders(self, customers: Customers, url: str, tag: str, *, newest: bool) -> list[str]:
        sim = customers.sim
        free = list(sim.world.market.offers)[::-1]  # the dearest
        return [str(sim.act("rent", {"account": id, "offer": free.pop(0), "label": tag})) for id in sim.customers]

    def least_seconds(self, command: str, boxes: int, create_seconds: float) -> float:
        # The last box's create, and the three looks in which it comes up; its delete, and the look at it and the list.
        every = CREATE_EVERY if command == "up" else DELETE_EVERY
        looks = 3 * LOOK_EVERY + create_seconds if command == "up" else 2 * LOOK_EVERY
        return (boxes - 1) * every + looks

    def where(self, sim: Any, native_id: str) -> str:
        return f"machine:{sim.world.instances[int(native_id)].machine.id}"
