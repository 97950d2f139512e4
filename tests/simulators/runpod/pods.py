"""Pods: their life, what they cost in each part of it, and how REST v2 shows them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tests.simulators.clock import VirtualClock, rfc3339
from tests.simulators.ledger import HOUR, MONTH, RentalLedger
from tests.simulators.own_keys import OwnKeys
from tests.simulators.runpod import catalog
from tests.simulators.runpod.shapes import CreatePod

if TYPE_CHECKING:
    from tests.simulators.runpod.volumes import Volume

PROVISIONING, STARTING, RUNNING, EXITED, ERROR, TERMINATED = (
    "PROVISIONING", "STARTING", "RUNNING", "EXITED", "ERROR", "TERMINATED",
)  # fmt: skip
ACTIONS = {
    PROVISIONING: ["stop", "terminate"],
    STARTING: ["stop", "terminate"],
    RUNNING: ["stop", "restart", "terminate"],
    EXITED: ["start", "terminate"],
    ERROR: ["start", "terminate"],
    TERMINATED: [],
}


class Host(Protocol):
    """What a pod runs on: a real machine, or nothing (`machines.py` of this package)."""

    def boot(self, pod: Pod) -> None:
        """Starts it; returns at once."""

    def ready(self, pod: Pod) -> bool:
        """Whether its sshd answers."""
        ...

    def port(self, pod: Pod) -> int:
        """The public port of its port 22."""
        ...

    def halt(self, pod: Pod, *, wipe: bool, grace: bool = False, notice: bool = False) -> None:
        """Ends all that runs on it; `wipe`: and what lies on its container disk. `grace`: a moment later. `notice`:
        SIGTERM, and the end some seconds later."""

    def kill(self, pod: Pod) -> None:
        """Ends it for good."""


@dataclass
class Boot:
    """How a pod becomes ready. `at_once`: its status is RUNNING from the start, only runtime and ssh are late.

    Ready after `reads` reads of it and `seconds` on the clock.
    """

    at_once: bool = True
    reads: int = 1
    seconds: float = 0.0


@dataclass
class Pod:
    """One pod. `status` is kept; RUNNING while it boots, too: `Pods.shown` says what a reader sees."""

    id: str
    account: str
    wanted: CreatePod
    env: dict[str, str]
    gpu_count: int
    place: str | None
    price: float
    created: float
    number: int
    volume: Volume | None = None
    status: str = RUNNING
    started: float | None = None
    booting: bool = True
    reads: int = 0
    restarts: int = 0
    port: int = 0
    gpus_now: int = 0
    note: str = ""
    never_ready: str = ""
    dies: tuple[int, str] | None = None
    hidden: int = 0
    hidden_in_list: bool = False
    lingering: int | None = None
    lingers: bool = False
    lingering_as: str = ""
    odd_status: tuple[str, int] | None = None
    keyless: bool = False
    """Its machine has no key of its own."""
    bid: float | None = None
    """USD an hour for a single GPU, of a spot pod; None: on demand."""
    history: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.wanted.name


class Pods:
    """All pods of all accounts, and the stock that they are taken from."""

    def __init__(
        self,
        clock: VirtualClock,
        ledger: RentalLedger,
        stock: catalog.Stock,
        host: Host,
        boot: Boot,
        own_keys: OwnKeys,
    ) -> None:
        self._clock, self._ledger, self._stock, self._host, self._own_keys = clock, ledger, stock, host, own_keys
        self.boot = boot
        self.all: dict[str, Pod] = {}
        self.gone: dict[str, Pod] = {}

    # Life

    def create(
        self,
        account: str,
        wanted: CreatePod,
        env: dict[str, str],
        place: str | None,
        volume: Volume | None,
        price: float,
        gpus: int | None = None,
        *,
        keyless: bool = False,
        bid: float | None = None,
    ) -> Pod:
        """A new pod that begins to boot. The stock is taken already; `gpus`: how many it got, where not all."""
        number = len(self.all) + len(self.gone) + 1
        id = hashlib.sha256(f"{account} {number}".encode()).hexdigest()[:14]
        count = wanted.gpu.count or 0
        pod = Pod(id, account, wanted, env, count, place, price, self._clock.now(), number, volume, keyless=keyless)
        pod.bid = bid
        self.all[id] = pod
        self._ledger.begin(id, account=account, tag=wanted.name, kind="pod", state=PROVISIONING, rate=self.rate(pod))
        self._own_keys.issue(id, account, f"rpa_{hashlib.sha256(f'own key of {id}'.encode()).hexdigest()[:40].upper()}")
        self._begin(pod, pod.gpu_count if gpus is None else gpus)
        pod.history.append("created")
        return pod

    def start(self, pod: Pod, *, gpus: int) -> None:
        """From EXITED or ERROR on; ports are drawn anew. `gpus`: how many were still to be had on its host."""
        pod.restarts += 1
        pod.history.append("started")
        self._begin(pod, gpus)

    def stop(
        self,
        pod: Pod,
        status: str = EXITED,
        note: str = "Exited by user",
        *,
        grace: bool = False,
        notice: bool = False,
    ) -> None:
        """It ends; the container disk is wiped, the GPUs go to the next customer. `grace`: what runs on it ends
        a moment later, though it bills no more; `notice`: it gets a SIGTERM, and ends some seconds later."""
        if pod.status in (EXITED, ERROR):
            return
        self._host.halt(pod, wipe=True, grace=grace, notice=notice)
        pod.status, pod.note, pod.booting = status, note, False
        self._give_back(pod)
        self._ledger.turn(pod.id, status, self.rate(pod))
        pod.history.append(note)

    def end(self, pod: Pod) -> None:
        """Nothing is left of it, and nothing bills."""
        self._host.kill(pod)
        if pod.status not in (EXITED, ERROR):
            self._give_back(pod)
        pod.status = TERMINATED
        self._ledger.end(pod.id, TERMINATED)
        self._own_keys.end(pod.id)
        self.gone[pod.id] = self.all.pop(pod.id)
        pod.history.append("terminated")

    def _begin(self, pod: Pod, gpus: int) -> None:
        pod.status, pod.booting, pod.reads, pod.note = RUNNING, True, 0, "Rented by User"
        pod.started = self._clock.now()
        pod.gpus_now = gpus
        pod.never_ready, pod.dies = "", None
        self._ledger.turn(pod.id, PROVISIONING, self.rate(pod))
        self._host.boot(pod)

    def _give_back(self, pod: Pod) -> None:
        self._stock.give(pod.wanted.gpu.id, pod.wanted.cloud, pod.place, pod.gpus_now)

    # Reading

    def of(self, account: str) -> list[Pod]:
        """An account's pods, newest first, hidden and lingering ones too."""
        return sorted((p for p in self.all.values() if p.account == account), key=lambda p: -p.number)

    def look(self, pod: Pod) -> None:
        """Somebody reads it: what was due by now happens. It may be gone afterwards."""
        pod.reads += 1
        if pod.lingers and pod.lingering is not None:
            pod.lingering -= 1
            if pod.lingering < 0:
                self.end(pod)
                return
        if pod.status != RUNNING:
            return
        if pod.dies is not None and pod.reads > pod.dies[0]:
            self.stop(pod, pod.dies[1], "Exited by Runpod")
        elif pod.booting and not pod.never_ready and self._due(pod) and self._host.ready(pod):
            pod.booting, pod.port = False, self._host.port(pod)
            self._ledger.turn(pod.id, RUNNING, self.rate(pod))

    def _due(self, pod: Pod) -> bool:
        assert pod.started is not None
        return pod.reads > self.boot.reads and self._clock.now() >= pod.started + self.boot.seconds

    def status(self, pod: Pod) -> str:
        """The status that a reader is told."""
        if pod.odd_status and pod.odd_status[1] > 0:
            pod.odd_status = (pod.odd_status[0], pod.odd_status[1] - 1)
            return pod.odd_status[0]
        if pod.lingers and pod.lingering_as:
            return pod.lingering_as
        if pod.status != RUNNING or not pod.booting:
            return pod.status
        if pod.never_ready:
            return pod.never_ready
        if self.boot.at_once:
            return RUNNING
        return PROVISIONING if pod.reads * 2 <= self.boot.reads else STARTING

    def rate(self, pod: Pod) -> float:
        """USD an hour that it costs now, disks included; compute also while it is being provisioned, which is not
        documented: the dearer answer."""
        if pod.status == TERMINATED:
            return 0.0
        runs = pod.status == RUNNING
        compute = pod.price if runs else 0.0
        disk = (pod.wanted.disk or 0) * catalog.CONTAINER_GB if runs else 0.0
        kept = pod.wanted.mounts.persistent
        disk += kept.size * (catalog.VOLUME_GB if runs else catalog.VOLUME_GB_STOPPED) if kept else 0.0
        return compute + disk * HOUR / MONTH

    def outline(self, pod: Pod) -> dict[str, Any]:
        """The pod as REST v2 shows it."""
        wanted, status = pod.wanted, self.status(pod)
        up = status == RUNNING and pod.status == RUNNING and not pod.booting
        address = f"127.0.0.1:{pod.port}" if up else ""
        return {
            "id": pod.id,
            "name": wanted.name,
            "status": status,
            "actions": ACTIONS.get(status, []),
            "image": wanted.image,
            "args": wanted.args,
            "disk": wanted.disk,
            "ports": list(wanted.ports),
            "env": dict(pod.env),
            "registry": None,
            "mounts": wanted.mounts.model_dump(exclude_none=True),
            "cloud": wanted.cloud,
            "dataCenterId": pod.place,
            "cudaVersion": "12.8",
            "ssh": {"proxy": self._proxy(pod), "direct": self._direct(pod, address)},
            "template": None,
            "cost": pod.price if status not in (EXITED, TERMINATED) else 0.0,
            "locked": False,
            "globalNetworking": {"enabled": False},
            "runtime": self._runtime(pod) if up else None,
            "createdAt": rfc3339(pod.created),
            "startedAt": rfc3339(pod.started) if pod.started else None,
            "gpu": {"id": wanted.gpu.id, "count": pod.gpu_count, "vcpuCount": 8 * pod.gpu_count, "memory": 32},
        }

    def _proxy(self, pod: Pod) -> dict[str, Any]:
        user = f"{pod.id}-{pod.number:08x}"
        return {"host": "ssh.runpod.io", "port": 22, "username": user, "command": f"ssh {user}@ssh.runpod.io"}

    def _direct(self, pod: Pod, address: str) -> dict[str, Any] | None:
        if not address or "22/tcp" not in pod.wanted.ports:
            return None
        host, port = address.split(":")
        return {"host": host, "port": int(port), "username": "root", "command": f"ssh root@{host} -p {port}"}

    def _runtime(self, pod: Pod) -> dict[str, Any]:
        ports = []
        for text in pod.wanted.ports:
            private, kind = text.split("/")
            public = pod.port if text == "22/tcp" else 20000 + pod.restarts * 100 + int(private) % 100
            ip = "127.0.0.1" if kind == "tcp" else "100.65.0.7"
            ports.append({"private": int(private), "public": public, "type": kind, "ip": ip})
        gpus = [{"id": f"GPU-{pod.id}-{n}", "utilization": 0, "memoryUtilization": 0} for n in range(pod.gpus_now)]
        uptime = int(self._clock.now() - (pod.started or 0))
        return {"uptime": uptime, "gpus": gpus, "cpu": {"utilization": 0}, "memory": {"utilization": 0}, "ports": ports}
