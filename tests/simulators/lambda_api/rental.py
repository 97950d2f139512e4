"""See `tests.simulators.rental`."""

from __future__ import annotations

from typing import Any

from tests.simulators.core import VirtualClock
from tests.simulators.lambda_api import KEY, LAUNCH, LIST, MENU, OTHER_KEY, TERMINATE, LambdaSim, Times
from tests.simulators.lambda_api.instances import ACTIVE, PREEMPTED, TERMINATING, UNHEALTHY
from tests.simulators.lambda_api.platform import LAUNCH_SECONDS, SECONDS
from tests.simulators.rental import USUAL, Customers, Options, posted

MOMENT = 5.0
"""Seconds of each step of an instance, where its real ones would only make a test wait."""


class Rental:
    """Lambda."""

    url, key = "LAMBDA_API_BASE_URL", "LAMBDA_API_KEY"
    create, read, delete = LAUNCH, "GET /api/v1/instances*", TERMINATE
    menu, spot_menu = MENU, ()
    imports = ("httpx",)
    box = "instance"
    computes = frozenset({ACTIVE, UNHEALTHY, TERMINATING, PREEMPTED})
    preempted = "preempt"
    whole = False
    volume_region = volume_month = ""
    list, page, scale = LIST, 10_000, 3.0
    limits = f"a request in {SECONDS:g} s, a launch in {LAUNCH_SECONDS:g} s"

    def open(self, clock: VirtualClock, asked: Options = USUAL) -> Customers:
        step = MOMENT * asked.pace
        sim = LambdaSim(
            clock=clock,
            state=asked.state,
            machines=asked.machines,
            times=Times(step, step, step, step, reads=asked.boot_reads),
            limits=asked.limits,
            latency={LAUNCH: asked.create_seconds},
        )
        return Customers(sim, KEY, OTHER_KEY, "user_ann")

    def bystanders(self, customers: Customers, url: str, tag: str, *, newest: bool) -> list[str]:
        made = []
        for key, name in ((customers.key, "ann-key"), (customers.other_key, "bob-key")):
            asked = {
                "region_name": "us-east-1",
                "instance_type_name": "gpu_1x_h100_pcie",
                "ssh_key_names": [name],
                "name": tag,
            }
            answer = posted(f"{url}/api/v1/instance-operations/launch", key, asked)
            made.append(str(answer["data"]["instance_ids"][0]))
        if not newest:
            for number, native_id in enumerate(made, start=10**6):
                customers.sim.instances.all[native_id].number = number
        return made

    def least_seconds(self, command: str, boxes: int, create_seconds: float) -> float:
        # Keys, types, list, a launch for each box, a look that sees them all at work; and at the end list, for each box
        # a look, its terminate and the look that does not find it.
        if command == "up":
            return max((boxes - 1) * LAUNCH_SECONDS, (3 + boxes) * SECONDS) + create_seconds
        return (1 + 3 * boxes) * SECONDS

    def where(self, sim: Any, native_id: str) -> str:
        return str(sim.instances.all[native_id].region)
