"""The platforms of simulated months: the real simulators, asked in this process, and a host that shuts itself down.

A call meets the faults of `tests.simulators.faults` as over a socket, and waits in simulated time.
"""

from __future__ import annotations

import io
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol
from unittest.mock import patch
from urllib.parse import urlsplit

from sweepstack.core.lease_terms import LeaseFacts
from sweepstack.operations.lease_renewal import on_box
from sweepstack.platforms.registry import load_platform
from tests.simulators.core import AFTER, BEFORE, HOUR, VirtualClock
from tests.simulators.faults import Fault
from tests.simulators.own_keys import OWN
from tests.simulators.rental import Options, rental
from tests.simulators.simulator import Reply, Request

URL = "https://platform.invalid"
TIMEOUT_SECONDS = 60.0
PLENTY = 1e6
"""USD, and hours of a contract: a month does not end by them."""
NAMES = ("runpod", "runpod with a volume", "vastai", "autodl", "generic-ssh")
UNABLE = ("runpod with a volume", "generic-ssh")
"""Where a box can only tell."""
DISK = ("scratch", "data")
"""What a stop wipes on RunPod where a network volume is mounted."""


class Platform(Protocol):
    """One box on its platform, by the platform's own clock in seconds since the epoch."""

    secret: str
    """What a box holds in the environment of its first process."""

    def lease(self, seconds: float) -> dict[str, Any]:
        """As the box's spec.json has it."""
        ...

    def move_to(self, moment: float) -> None:
        """It is so late now."""
        ...

    def computes(self) -> bool:
        """Whether compute bills now."""
        ...

    def hours(self, begin: float, end: float) -> float:
        """Hours of compute that were billed between two moments."""
        ...

    def start(self) -> None:
        """The platform, or a person in its console, starts the box that stands still."""
        ...

    def goes_wrong(self, what: str, on: bool) -> None:
        """One of `FAULTS` begins, or is over."""
        ...

    def stopped_itself(self) -> bool:
        """Whether the box was ever stopped by its own doing."""
        ...

    def opener(self, sleep: Callable[[float], None]) -> Any:
        """Stands for `urllib.request.build_opener`, for a box whose time passes by `sleep`."""
        ...

    def run(self, said: IO[bytes], sleep: Callable[[float], None], patience: float) -> int:
        """The box's command that stops it runs: its exit code, after what it said."""
        ...


FAULTS = {
    "refused": "the key is not accepted",
    "busy": "429, 5xx, a proxy's page, or no answer, and nothing is done",
    "ignored": "a stop is answered as done, and is not",
    "lost": "the stop is done, and its answer is lost",
    "second": "RunPod's REST does not take keys of pods",
    "cut": "the network of the box is gone",
}
KINDS = {"refused": ("auth",), "ignored": ("stop_ignored",), "second": ("no_pod_keys",)}
BUSY = ("too_many", "error_before", "html_before", "lost_request", "html_ok")
LOST = ("lost_answer", "error_after", "truncated", "not_json")


class Simulated:
    """RunPod or vast.ai. `detail`: which of the kinds of `BUSY` and `LOST` is meant, by number."""

    def __init__(self, adapter: str, epoch: float, *, volume: bool = False, detail: int = 0) -> None:
        self._its, self._clock, self._adapter, self._volume = rental(adapter), VirtualClock(epoch), adapter, volume
        self._detail, self._rules, self._cut = detail, dict[str, list[Fault]](), False
        customers = self._its.open(self._clock, Options(boot_reads=0))
        self.sim = customers.sim
        self.sim.act("credit", {"account": customers.account, "usd": PLENTY})
        if adapter == "runpod":
            wanted = {"name": "box", "image": "ubuntu:22.04", "gpu": {"id": "NVIDIA H200", "count": 1}}
            wanted |= {"cloud": "SECURE", "disk": 20, "ports": ["22/tcp"]}
            made = self._ask("POST", "/v2/pods", wanted, customers.key, {})
            self.id = str(json.loads(made.payload())["id"])
        else:
            for machine in self.sim.world.market.machines.values():
                machine.duration = PLENTY * HOUR
            offer = min(self.sim.world.market.offers)
            self.id = str(self.sim.act("rent", {"account": customers.account, "offer": offer, "label": "box"}))
        self._comes_up()
        self.secret = self.sim.own_keys.of(self.id)

    def _comes_up(self) -> None:
        self._clock.advance(self.sim.world.settings.by_itself * 4 if self._adapter == "vastai" else 0)
        for _ in range(3):
            if self._adapter == "runpod":
                self.sim.pods.look(self.sim.pods.all[self.id])
            self.sim.settle()

    def lease(self, seconds: float) -> dict[str, Any]:
        variable = {"runpod": "RUNPOD_API_KEY", "vastai": "CONTAINER_API_KEY"}[self._adapter]
        kills = DISK if self._volume else ()
        facts = LeaseFacts(text=f"{seconds:g}s", seconds=seconds, kills=kills, by="key", native="stop", key=variable)
        with patch.dict("os.environ", {self._its.url: URL}):
            return on_box(facts, load_platform(self._adapter), self.id)

    def move_to(self, moment: float) -> None:
        self._clock.advance(max(0.0, moment - self._clock.now()))

    def computes(self) -> bool:
        self.sim.settle()
        return self.sim.ledger.get(self.id).state in self._its.computes

    def hours(self, begin: float, end: float) -> float:
        found: float = self.sim.ledger.get(self.id).hours(self._its.computes, begin, end)
        return found

    def start(self) -> None:
        if self._adapter == "runpod":
            self.sim.pods.start(self.sim.pods.all[self.id], gpus=1)
        else:
            self.sim.world.start(self.sim.world.instances[int(self.id)])
        self._comes_up()

    def stopped_itself(self) -> bool:
        return any(act.by == OWN and act.done for act in self.sim.ledger.get(self.id).acts)

    def goes_wrong(self, what: str, on: bool) -> None:
        if what == "cut":
            self._cut = on
        elif on:
            own = {"busy": (BUSY[self._detail % len(BUSY)],), "lost": (LOST[self._detail % len(LOST)],)}
            kinds = [kind for kind in {**KINDS, **own}[what] if kind in self.sim.faults.kinds]
            self._rules[what] = [self.sim.faults.add(kind, "*", box=self.id, times=None) for kind in kinds]
        else:
            for rule in self._rules.pop(what, ()):
                self.sim.faults.rules.remove(rule)

    def opener(self, sleep: Callable[[float], None]) -> Any:
        return lambda *_: _Opener(self, sleep)

    def run(self, said: IO[bytes], sleep: Callable[[float], None], patience: float) -> int:
        raise AssertionError("this box is stopped by a request")

    def answer(self, asked: urllib.request.Request, sleep: Callable[[float], None]) -> Any:
        """As `OpenerDirector.open`."""
        if self._cut:
            sleep(TIMEOUT_SECONDS)
            raise urllib.error.URLError(TimeoutError("timed out"))
        headers = {name.lower(): value for name, value in asked.header_items()}
        key = headers["authorization"].removeprefix("Bearer ")
        body = asked.data if isinstance(asked.data, bytes) else b""
        reply = self._ask(asked.get_method(), urlsplit(asked.full_url).path, body, key, headers)
        if reply.status >= 400:
            said = io.BytesIO(reply.payload())
            raise urllib.error.HTTPError(asked.full_url, reply.status, "refused", dict(reply.headers), said)  # type: ignore[arg-type]
        return io.BytesIO(reply.payload())

    def _ask(self, method: str, path: str, body: Any, key: str, headers: Mapping[str, str]) -> Reply:
        """As `tests.simulators.server` does it over a socket."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        usual = {"authorization": f"Bearer {key}", "user-agent": "bench", "content-type": "application/json"}
        request = Request(method, path, {}, {**usual, **headers}, data)
        handler = self.sim.find(request)
        if own := self.sim.own_keys.holder(key):
            request.box = own.box
        request.faults = self.sim.faults.fire(f"{method} {request.route}", None, request.box or None)
        kind = next((kind for kind in request.faults if kind in BEFORE | AFTER), "")
        if kind == "lost_request":
            raise ConnectionResetError("the connection was closed before anything was done")
        if kind == "too_many":
            return self.sim.too_many(None)
        if kind == "error_before":
            return self.sim.problem(503, "an internal error occurred")
        if kind in ("html_before", "html_ok"):
            return Reply(200 if kind == "html_ok" else 502, b"<!DOCTYPE html><html></html>")
        reply = self.sim.answer(request, handler)
        if kind == "lost_answer":
            raise ConnectionResetError("the connection was closed without an answer")
        if kind == "error_after":
            return self.sim.problem(500, "an internal error occurred")
        if kind == "truncated":
            return Reply(reply.status, reply.payload()[: len(reply.payload()) // 2])
        return Reply(reply.status, b"upstream connect error") if kind == "not_json" else reply


class _Opener:
    def __init__(self, platform: Simulated, sleep: Callable[[float], None]) -> None:
        self._platform, self._sleep = platform, sleep

    def open(self, asked: urllib.request.Request, timeout: float) -> Any:
        return self._platform.answer(asked, self._sleep)


class Rented:
    """A host that is entered by SSH, as AutoDL. `way`: whether a command on it ends its bill."""

    secret = ""

    def __init__(self, epoch: float, *, way: bool, detail: int) -> None:
        self._now, self._way, self._hangs = epoch, way, detail % 3 == 0
        self._spells: list[list[float]] = [[epoch, epoch]]
        self._on, self._ever, self._wrong = True, False, set[str]()

    def lease(self, seconds: float) -> dict[str, Any]:
        facts = LeaseFacts(text=f"{seconds:g}s", seconds=seconds)
        if self._way:
            facts = facts.model_copy(update={"by": "ssh", "native": "关机", "command": "shutdown"})
        return on_box(facts, load_platform("local"), "host-1")

    def run(self, said: IO[bytes], sleep: Callable[[float], None], patience: float) -> int:
        """What `shutdown` there does: its exit code. Raises TimeoutExpired after `patience`."""
        if "refused" in self._wrong:
            said.write(b"not permitted\n")
            return 1
        if "busy" in self._wrong and self._hangs:
            sleep(patience)
            raise subprocess.TimeoutExpired("shutdown", patience)
        if "busy" in self._wrong:
            said.write(b"try again later\n")
            return 75
        if "ignored" not in self._wrong:
            self._on, self._ever = False, True
        return 0

    def move_to(self, moment: float) -> None:
        self._now = max(self._now, moment)
        if self._on:
            self._spells[-1][1] = self._now

    def computes(self) -> bool:
        return self._on

    def hours(self, begin: float, end: float) -> float:
        return sum(max(0.0, min(end, until) - max(begin, since)) for since, until in self._spells) / HOUR

    def start(self) -> None:
        self._on = True
        self._spells.append([self._now, self._now])

    def stopped_itself(self) -> bool:
        return self._ever

    def goes_wrong(self, what: str, on: bool) -> None:
        (self._wrong.add if on else self._wrong.discard)(what)

    def opener(self, sleep: Callable[[float], None]) -> Any:
        raise AssertionError("this host holds no key")


def rented(name: str, epoch: float, detail: int) -> Platform:
    """A box that computes, on a platform of `NAMES`."""
    if name in ("autodl", "generic-ssh"):
        return Rented(epoch, way=name == "autodl", detail=detail)
    return Simulated(name.split()[0], epoch, volume="volume" in name, detail=detail)
