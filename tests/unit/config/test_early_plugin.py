"""The plugin is asked for before the program imports its parts; by a real server in the engine's place."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pulumi
import pytest
from pulumi.runtime.config import CONFIG
from pulumi.runtime.proto import resource_pb2, resource_pb2_grpc

from components import early_plugin
from sweepstack.core.functions import READY

REPOSITORY = Path(__file__).resolve().parents[3]
SECONDS = 60


class Engine(resource_pb2_grpc.ResourceMonitorServicer):
    """Answers once `there` is set, as the engine once the plugin is there; with an error where `refuses` is."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.came, self.there, self.refuses = threading.Event(), threading.Event(), False

    def Invoke(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.asked.append(request.tok)
        self.came.set()
        self.there.wait(SECONDS)
        if self.refuses:
            context.abort(grpc.StatusCode.UNKNOWN, "could not read plugin")
        return resource_pb2.ResourceInvokeResponse()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    engine = Engine()
    server = grpc.server(ThreadPoolExecutor(4))
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(engine, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        monitor = resource_pb2_grpc.ResourceMonitorStub(channel)
        monkeypatch.setattr(pulumi.runtime.settings, "get_monitor", lambda: monitor)
        yield engine
        engine.there.set()
        for thread in asking():
            thread.join(SECONDS)
    server.stop(None).wait(SECONDS)


@pytest.fixture
def config() -> Iterator[dict[str, Any]]:
    """The engine's config, as the program sees it."""
    found: dict[str, Any] = {"sweepstack:sweep": "{}", "other:key": "x"}
    token = CONFIG.set(found)
    yield found
    CONFIG.reset(token)


def asking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "early-plugin"]


def test_it_asks_and_goes_on_before_the_plugin_is_there(engine: Engine, config: dict[str, Any]) -> None:
    early_plugin.start()
    assert engine.came.wait(SECONDS)
    assert len(asking()) == 1
    assert engine.asked == [READY]


def test_a_plugin_that_cannot_be_started_is_left_to_the_engine_to_tell(
    engine: Engine, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    engine.refuses = True
    early_plugin.start()
    assert engine.came.wait(SECONDS)
    engine.there.set()
    for thread in asking():
        thread.join(SECONDS)
    assert raised == []


def test_what_is_wrong_with_the_stack_file_is_told_before_a_key(engine: Engine, config: dict[str, Any]) -> None:
    config["sweepstack:runpodApiKey"] = "a key"
    early_plugin.start()
    assert asking() == []
    assert engine.asked == []


def test_nothing_is_asked_without_an_engine(config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for monitor in (None, object()):
        monkeypatch.setattr(pulumi.runtime.settings, "get_monitor", lambda found=monitor: found)
        early_plugin.start()
    assert asking() == []


def test_the_parts_are_imported_after_the_plugin_was_asked_for() -> None:
    """Nothing of the sweep, its config or its records is there when it is."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from components import early_plugin, program\n"
        "early_plugin.start = lambda: sys.exit(' '.join(sys.modules))\n"
        "program.program(Path('.'))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS)
    there = set(done.stderr.split())
    assert "components.program" in there
    assert not there & {"pydantic", "components.from_config", "components.sweep", "sweepstack.core.records"}
