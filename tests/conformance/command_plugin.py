"""The command plugin as the engine drives it: its process, its gRPC service, and the lines that it logs."""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import pulumi  # noqa: F401 - before sweepstack.provider.grpc_stubs, which else leaves an empty shell for other tests
from google.protobuf import empty_pb2, struct_pb2

from sweepstack.provider.grpc_stubs import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc
from sweepstack.provider.wire import to_python, to_struct

SECONDS = 120.0
"""Of one request. None of the tests waits that long."""


NAME = "set-up"


def urn(token: str) -> str:
    """Of a resource of this type."""
    return f"urn:pulumi:s::p::{token}::{NAME}"


@dataclass
class Line:
    """One line that the plugin logged."""

    severity: str
    urn: str
    text: str
    ephemeral: bool


class _Engine(engine_pb2_grpc.EngineServicer):
    def __init__(self, lines: list[Line], arrived: threading.Condition) -> None:
        self._lines, self._arrived = lines, arrived

    def Log(self, request: Any, context: Any) -> Any:
        with self._arrived:
            kind = engine_pb2.LogSeverity.Name(request.severity)
            self._lines.append(Line(kind, request.urn, request.message, request.ephemeral))
            self._arrived.notify_all()
        return empty_pb2.Empty()


@dataclass
class Plugin:
    """One process of the plugin. `argv`: without the engine's address. Values are plain Python; secret ones `Secret`,
    in both directions."""

    argv: Sequence[str]
    env: Mapping[str, str]
    lines: list[Line] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.arrived = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(8))
        engine_pb2_grpc.add_EngineServicer_to_server(_Engine(self.lines, self.arrived), self._server)
        engine = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.process = subprocess.Popen(
            [*self.argv, f"127.0.0.1:{engine}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(self.env),
            text=True,
            start_new_session=True,
        )
        said: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda: said.put(self.process.stdout.readline()), daemon=True).start()  # type: ignore[union-attr]
        port = said.get(timeout=SECONDS).strip()
        assert port.isdigit(), self.process.communicate(timeout=5)[1]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = provider_pb2_grpc.ResourceProviderStub(self._channel)
        self.configured = self.call(
            "Configure",
            provider_pb2.ConfigureRequest(args=struct_pb2.Struct(), acceptSecrets=True, acceptResources=True),
        )

    def call(self, verb: str, request: Any) -> Any:
        """One request. Raises grpc.RpcError."""
        return getattr(self.stub, verb)(request, timeout=SECONDS, wait_for_ready=True)

    def check(self, token: str, news: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """The completed inputs, and the failures by property (joined)."""
        answer = self.call("Check", provider_pb2.CheckRequest(urn=urn(token), news=to_struct(news)))
        failures: dict[str, str] = {}
        for one in answer.failures:
            failures[one.property] = f"{failures.get(one.property, '')} {one.reason}"
        return to_python(answer.inputs, secrets=True), failures

    def diff(self, token: str, olds: Mapping[str, Any], news: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
        """Which paths differ, and how; and what is to be replaced."""
        inputs = {name: value for name, value in olds.items() if name not in ("stdout", "stderr")}
        answer = self.call(
            "Diff",
            provider_pb2.DiffRequest(
                id="one", urn=urn(token), olds=to_struct(olds), old_inputs=to_struct(inputs), news=to_struct(news)
            ),
        )
        assert answer.hasDetailedDiff
        some = provider_pb2.DiffResponse.DIFF_SOME if answer.detailedDiff else provider_pb2.DiffResponse.DIFF_NONE
        assert answer.changes == some
        assert not answer.deleteBeforeReplace
        kinds = provider_pb2.PropertyDiff.Kind
        return {path: kinds.Name(found.kind) for path, found in answer.detailedDiff.items()}, list(answer.replaces)

    def create(self, token: str, inputs: Mapping[str, Any], *, preview: bool = False) -> tuple[str, dict[str, Any]]:
        """Id and outputs."""
        request = provider_pb2.CreateRequest(
            urn=urn(token), name=NAME, type=token, properties=to_struct(inputs), preview=preview
        )
        answer = self.call("Create", request)
        return answer.id, to_python(answer.properties, secrets=True)

    def update(
        self, token: str, olds: Mapping[str, Any], news: Mapping[str, Any], *, preview: bool = False
    ) -> dict[str, Any]:
        """The outputs."""
        request = provider_pb2.UpdateRequest(
            id="one", urn=urn(token), olds=to_struct(olds), news=to_struct(news), preview=preview
        )
        return to_python(self.call("Update", request).properties, secrets=True)

    def read(self, token: str, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Id and outputs."""
        request = provider_pb2.ReadRequest(
            id="one", urn=urn(token), inputs=to_struct(inputs), properties=to_struct(state)
        )
        answer = self.call("Read", request)
        return answer.id, to_python(answer.properties, secrets=True)

    def delete(self, token: str, state: Mapping[str, Any]) -> None:
        """Raises what it refuses with."""
        self.call("Delete", provider_pb2.DeleteRequest(id="one", urn=urn(token), properties=to_struct(state)))

    def close(self) -> int:
        """Ends it as the engine does, and returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(SECONDS)
        self._channel.close()
        self._server.stop(0)
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()  # type: ignore[union-attr]
        return code

    def logged(self) -> str:
        """All lines so far."""
        with self.arrived:
            return "\n".join(line.text for line in self.lines)

    def wait_for(self, text: str) -> None:
        """Until a line with this text was logged. Raises AssertionError after that."""
        with self.arrived:
            there = self.arrived.wait_for(lambda: any(text in line.text for line in self.lines), SECONDS)
        assert there, self.logged()
