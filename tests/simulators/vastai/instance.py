"""One rented instance of the simulated vast.ai: its four status words, how they change, and what it bills meanwhile.

A status that is on its way changes after so many reads of the instance, so that a test that polls sees every stage, and
not before so much time of the world's clock has passed. Source: vast.ai's API reference, show instance, and its billing
guide.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulators.vastai.market import Machine
from tests.simulators.vastai.meter import HOURS_A_MONTH, Meter
from tests.simulators.vastai.query import Row

BILLS_GPU = ("running", "frozen")
STORED = frozenset(  # filterable in the list: columns of the contract itself, no computed ones
    [
        *("id", "label", "machine_id", "host_id", "image_uuid", "gpu_name", "verification", "geolocation"),
        *("actual_status", "intended_status", "cur_state", "next_state", "start_date", "end_date"),
    ]
)


@dataclass
class Stage:
    """A status to come: after `reads` looks at the one before and not before `at`, or at `by` whoever looked."""

    status: str | None
    reads: int = 0
    at: float = 0.0
    by: float = math.inf
    enter: Callable[[], None] | None = None

    def due(self, now: float) -> bool:
        return self.by <= now or (self.reads <= 0 and self.at <= now)


@dataclass
class Instance:
    """A contract on a machine's GPUs. `bid` is None for on-demand."""

    id: int
    account: str
    machine: Machine
    gpus: int
    disk: float
    image: str
    label: str | None
    env: dict[str, str]
    onstart: str | None
    args: list[str] | None
    runtype: str
    bid: float | None
    started: float
    end_date: float
    dph: float  # GPU USD/h of the whole instance as agreed at create, where it is no bid
    keys: list[str] = field(default_factory=list)
    volume: int | None = None
    mount_path: str = ""
    actual: str | None = None
    intended: str = "running"
    cur_state: str = "running"
    next_state: str = "running"
    status_msg: str | None = None
    stages: deque[Stage] = field(default_factory=deque)
    holds: bool = False  # its GPUs, against other renters
    outbid: bool = False
    queued: bool = False
    destroyed_at: float | None = None
    forgotten: bool = False  # destroyed, and no view shows it any more
    expired: bool = False
    stuck: str = ""  # a status that it never leaves
    dies: bool = False  # ends when it should run
    host: str = "127.0.0.1"
    port: int = 0
    meter: Meter = field(default_factory=Meter)
    own_key: str = field(default="", repr=False)  # it may show, start, stop and destroy itself with it
    keyless: bool = False  # its container's environment lacks the key

    @property
    def container(self) -> str:
        """Its container's name, as VAST_CONTAINERLABEL says it."""
        return f"C.{self.id}"

    def derived_key(self) -> str:
        """Its own key, by the vendor's recipe for an instance that has lost it: of what it knows anyway."""
        keys = "".join(f"{key.strip()}\n" for key in self.keys)
        return "".join(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() for text in (keys, self.container))

    def follow(self, *stages: Stage) -> None:
        """Forgets what was on its way; these come now."""
        self.stages = deque(stages)

    def looked_at(self, now: float) -> None:
        """A client has seen the instance: what waited for that comes nearer."""
        if self.stages:
            self.stages[0].reads -= 1
        self.advance(now)

    def advance(self, now: float) -> None:
        """Enters every stage that is due."""
        while self.stages and self.stages[0].due(now):
            if self.stuck and self.actual == self.stuck:
                return
            stage = self.stages.popleft()
            self.actual = stage.status
            if stage.enter is not None:
                stage.enter()

    @property
    def gpu_rate(self) -> float:
        return self.dph if self.bid is None else self.bid

    @property
    def disk_rate(self) -> float:
        return self.disk * self.machine.storage_cost / HOURS_A_MONTH

    def bill(self, now: float) -> None:
        """Sets the meter to what the instance's state bills."""
        if self.destroyed_at is not None:
            return self.meter.set(now, {})
        rates = {"disk": self.disk_rate}
        if self.actual in BILLS_GPU:
            rates["gpu"] = self.gpu_rate
        return self.meter.set(now, rates)

    @property
    def running(self) -> bool:
        return self.actual == "running"

    def direct(self) -> bool:
        return "ssh_direc" in self.runtype and self.machine.direct_ports > 0

    def row(self) -> Row:
        """The instance as GET shows it. `public_ipaddr` ends with a newline, as some hosts report it."""
        machine, direct = self.machine, self.direct()
        ports: dict[str, Any] = {}
        if self.running and direct:
            ports["22/tcp"] = [{"HostIp": "0.0.0.0", "HostPort": str(self.port)}]
        base = self.gpu_rate
        costs = {"gpuCostPerHour": base, "diskHour": self.disk_rate, "totalHour": base + self.disk_rate}
        address = f"{self.host}\n"
        return {
            **machine.describe(),
            "id": self.id,
            "actual_status": self.actual,
            "intended_status": self.intended,
            "cur_state": self.cur_state,
            "next_state": self.next_state,
            "status_msg": self.status_msg,
            "label": self.label,
            "template_id": None,
            "template_hash_id": None,
            "template_name": None,
            "image_uuid": self.image,
            "image_args": self.args or [],
            "image_runtype": self.runtype,
            "extra_env": [[name, value] for name, value in self.env.items()],
            "onstart": self.onstart,
            "jupyter_token": "0" * 64,
            "gpu_name": machine.gpu_name,
            "gpu_arch": machine.gpu_arch,
            "num_gpus": self.gpus,
            "gpu_ram": machine.gpu_ram,
            "gpu_totalram": machine.gpu_ram * self.gpus,
            "gpu_frac": self.gpus / machine.gpus,
            "gpu_util": 0.0 if self.running else None,
            "gpu_temp": None,
            "cpu_cores_effective": machine.cpu_cores * self.gpus / machine.gpus,
            "disk_space": self.disk,
            "disk_util": -1,
            "disk_usage": -1,
            "dph_base": base,
            "dph_total": base + self.disk_rate,
            "storage_total_cost": self.disk_rate,
            "min_bid": machine.min_bid * self.gpus,
            "is_bid": self.bid is not None,
            "ssh_host": self.host,
            "ssh_port": self.port,
            "ssh_idx": "1",
            "public_ipaddr": address if self.running else None,
            "local_ipaddrs": "172.17.0.2 \n",
            "direct_port_count": machine.direct_ports,
            "direct_port_start": -1,
            "direct_port_end": -1,
            **({"ports": ports} if ports else {}),
            "start_date": self.started,
            "end_date": self.end_date,
            "duration": self.end_date - self.started,
            "uptime_mins": None,
            "rentable": False,
            "instance": costs,
            "search": costs,
            "webpage": None,
        }
