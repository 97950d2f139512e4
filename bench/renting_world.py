"""A simulated platform with its limits on, the real plugin in a process of its own, and who speaks to it as the engine.

The engine itself is left out: it would start 100 queues, and what it costs has its own figures (preview, cells). Its
calls are made here, over the plugin's own gRPC, as with `--parallel 100`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2

from bench.renting_provider import FIRST_VARIABLE, FOLDER_VARIABLE
from sweepstack.core.records import Action, Approval
from sweepstack.provider.grpc_stubs import engine_pb2_grpc, provider_pb2, provider_pb2_grpc
from sweepstack.provider.resources.box import GONE_SECONDS
from sweepstack.provider.resources.create import READY_SECONDS
from sweepstack.provider.wire import UNKNOWN, to_python, to_struct
from tests.simulators.core import SimServer, Simulator, VirtualClock
from tests.simulators.rental import Options, rental

ROOT = Path(__file__).resolve().parents[1]
STACK, PROJECT = "bench", "sweepstack"
TEARDOWN = {"verb": "destroy", "kills": ["scratch", "data", "durable"], "keeps": []}
CALL_SECONDS = 1800.0
CREATE_SECONDS = 2.0
"""What a create takes on the platform."""
LONGEST_QUOTA = 60.0
OFFERS = 150


@contextmanager
def platform(name: str, scale: float) -> Iterator[tuple[Simulator, dict[str, str]]]:
    """The simulator with its limits on and its clock `scale` times as fast, and the variables that lead there."""
    its, clock = rental(name), VirtualClock(scale=scale)
    customers = its.open(clock, Options(offers=OFFERS, limits=True, create_seconds=CREATE_SECONDS / scale))
    with SimServer(customers.sim) as server:
        yield customers.sim, {its.url: server.api, its.key: customers.key}
        customers.sim.check()


class _Lines(engine_pb2_grpc.EngineServicer):
    """Takes what the plugin says."""

    def Log(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()


@dataclass(frozen=True)
class Step:
    """One command: its seconds on the platform's clock, its calls by route, boxes that bill after it, and what the
    plugin took: bytes of memory at most, seconds of CPU."""

    seconds: float
    calls: dict[str, int]
    living: int
    peak: int
    cpu: float


@dataclass
class World:
    """The engine's end. `outputs`: of the boxes by name, as its state would keep them."""

    sim: Simulator
    base: Path
    environment: dict[str, str]
    names: tuple[str, ...]
    adapter: str
    scale: float
    stub: Any = None
    identity: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    outputs: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def urn(self, kind: str, name: str) -> str:
        return f"urn:pulumi:{STACK}::{PROJECT}::sweepstack:index:{kind}::{name}"

    def step(self, verb: str, *, scaled: bool = True) -> Step:
        """One command of all boxes at once, in a plugin of its own, to the end of the last. It begins when a quota that
        was used before is free again. Not `scaled`: the plugin takes its own time, which is right where it waits for
        nothing."""
        time.sleep(1.05 * LONGEST_QUOTA / self.scale)
        pace = f"{1 / self.scale:g}" if scaled else "1"
        with plugin(self.base, {**self.environment, "SWEEPSTACK_API_PACE": pace}) as (self.stub, pid):
            if not self.identity:
                self.found()
            first, begin, cpu = len(self.sim.calls), self.sim.clock.now(), cpu_seconds(pid)
            with ThreadPoolExecutor(max_workers=len(self.names)) as threads:
                list(threads.map(getattr(self, verb), self.names))
            took = self.sim.clock.now() - begin
            peak, cpu = peak_memory(pid), cpu_seconds(pid) - cpu
        with self.sim.lock:
            seen = self.sim.calls[first:]
            calls = Counter(f"{call.method} {call.route}" for call in seen if call.status != 429)
            calls["429"] = sum(call.status == 429 for call in seen)
            living = sum(one.kind == rental(self.adapter).box for one in self.sim.ledger.live())
        return Step(took, dict(sorted((+calls).items())), living, peak, cpu)

    # The engine's commands

    def found(self) -> None:
        """The sweep begins."""
        properties = to_struct({"project": PROJECT, "stack": STACK, "pull_to": "results"})
        request = provider_pb2.CreateRequest(urn=self.urn("Identity", "identity"), properties=properties)
        self.identity = to_python(self.stub.Create(request, timeout=CALL_SECONDS).properties)

    def preview(self, name: str) -> None:
        """Of a box that is not there: its identity is not known yet either."""
        self._check(name, {**self._wanted(name), "identity": UNKNOWN, "dry_run": True})

    def up(self, name: str) -> None:
        inputs = self._check(name, self._wanted(name))
        request = provider_pb2.CreateRequest(
            urn=self.urn("Box", name), properties=to_struct(inputs), timeout=READY_SECONDS / self.scale
        )
        made = self.stub.Create(request, timeout=CALL_SECONDS)
        self.inputs[name], self.outputs[name] = inputs, (made.id, to_python(made.properties))

    def refresh(self, name: str) -> None:
        """What a preview does with a box that is there, as `refresh: always` asks for."""
        native_id, outputs = self.outputs[name]
        request = provider_pb2.ReadRequest(
            id=native_id,
            urn=self.urn("Box", name),
            properties=to_struct(outputs),
            inputs=to_struct(self.inputs[name]),
        )
        read = self.stub.Read(request, timeout=CALL_SECONDS)
        if read.id != native_id:
            raise RuntimeError(f"{name} is gone from {self.adapter}: {native_id}")
        self._check(name, {**self._wanted(name), "dry_run": True}, self.inputs[name])

    def clear(self, name: str) -> None:
        """The `up` after an approval."""
        native_id, outputs = self.outputs[name]
        old, inputs = self.inputs[name], self._check(name, self._approved(name), self.inputs[name])
        request = provider_pb2.UpdateRequest(
            id=native_id,
            urn=self.urn("Box", name),
            olds=to_struct(outputs),
            old_inputs=to_struct(old),
            news=to_struct(inputs),
        )
        done = self.stub.Update(request, timeout=CALL_SECONDS)
        self.inputs[name], self.outputs[name] = inputs, (native_id, to_python(done.properties))

    def destroy(self, name: str) -> None:
        native_id, outputs = self.outputs[name]
        request = provider_pb2.DeleteRequest(
            id=native_id,
            urn=self.urn("Box", name),
            properties=to_struct(outputs),
            old_inputs=to_struct(self.inputs[name]),
            timeout=GONE_SECONDS / self.scale,
        )
        self.stub.Delete(request, timeout=CALL_SECONDS)

    def _wanted(self, name: str) -> dict[str, Any]:
        return {
            "identity": self.identity["identity"],
            "evidence": self.identity["evidence"],
            "adapter": self.adapter,
            "name": name,
            "resources": {"gpu": {"name": ["RTX 3090"], "count": 1}, "disk": "20GB"},
            "max_price": 0.80,
            "roster_digest": f"sha256:{0:064}",
            "teardown": TEARDOWN,
        }

    def _approved(self, name: str) -> dict[str, Any]:
        now = datetime.now(UTC)
        actions = tuple(Action(verb="destroy", box=one, native_id=self.outputs[one][0]) for one in self.names)
        said = Approval(
            receipt=None,
            actions=actions,
            waivers_digest=Approval.digest_waivers((), ()),
            by="bench",
            at=now - timedelta(minutes=1),
            expires=now + timedelta(hours=72),
        )
        return self._wanted(name) | {"approval": said.model_dump(mode="json", exclude_none=True)}

    def _check(self, name: str, news: dict[str, Any], olds: dict[str, Any] | None = None) -> dict[str, Any]:
        request = provider_pb2.CheckRequest(
            urn=self.urn("Box", name), news=to_struct(news), olds=to_struct(olds) if olds else None
        )
        answer = self.stub.Check(request, timeout=CALL_SECONDS)
        if answer.failures:
            raise RuntimeError(f"{name}: {answer.failures[0].property} {answer.failures[0].reason}")
        return to_python(answer.inputs)


@contextmanager
def world(adapter: str, boxes: int, scale: float) -> Iterator[World]:
    """A platform and an empty project. All of it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="sweepstack-renting-") as folder:
        base = Path(folder)
        (base / "boxes").mkdir()
        (base / "state").mkdir()  # the engine is asked for the policies of its state, and has none
        (base / "Pulumi.yaml").write_text(f"name: {PROJECT}\n")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(base / "key")], check=True)
        with platform(adapter, scale) as (sim, variables):
            environment = {
                **{key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ},
                "HOME": folder,
                "PYTHONPATH": str(ROOT),
                "XDG_DATA_HOME": str(base / "data"),
                "XDG_CACHE_HOME": str(base / "cache"),
                "PULUMI_BACKEND_URL": f"file://{base}/state",
                "SWEEPSTACK_SSH_KEY": str(base / "key"),
                FIRST_VARIABLE: ",".join(("sweepstack.provider.resources.box", *rental(adapter).imports)),
                FOLDER_VARIABLE: str(base / "boxes"),
                **variables,
            }
            names = tuple(f"box-{number}" for number in range(boxes))
            yield World(sim, base, environment, names, adapter, scale)


@contextmanager
def plugin(base: Path, environment: dict[str, str]) -> Iterator[tuple[Any, int]]:
    """The plugin as the engine starts it, and its process id. It is ended as the engine does it."""
    engine = grpc.server(ThreadPoolExecutor(max_workers=4))
    engine_pb2_grpc.add_EngineServicer_to_server(_Lines(), engine)
    address = f"127.0.0.1:{engine.add_insecure_port('127.0.0.1:0')}"
    engine.start()
    command = [sys.executable, "-m", "bench.renting_provider", address]
    with (base / "errors").open("w") as errors:
        process = subprocess.Popen(command, cwd=base, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the plugin did not start: {(base / 'errors').read_text()[-2000:]}")
        options = [("grpc.max_metadata_size", 1 << 20)]  # a refusal can name every offer; the engine takes it, too
        with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            yield provider_pb2_grpc.ResourceProviderStub(channel), process.pid
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        engine.stop(0)


def peak_memory(pid: int) -> int:
    """The most memory that a process has had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def cpu_seconds(pid: int) -> float:
    """Seconds that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
