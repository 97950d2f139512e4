"""Imports are seconds of every command: the SDK of the platform at hand comes in, no other's, and none for local."""

from __future__ import annotations

import gc
import importlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

import tests.unit.provider.test_host  # noqa: F401 - the real SDK of Pulumi first, for other tests of this process
from sweepstack.provider import late_imports
from sweepstack.provider.grpc_stubs import provider_pb2, provider_pb2_grpc
from sweepstack.provider.wire import to_struct
from tests.conformance.harness import harness_class
from tests.simulators.rental import rental, rentals

ROOT = Path(__file__).parents[3]


def sdk_of(adapter: str) -> set[str]:
    """The packages of its vendor's SDK."""
    imports = rental(adapter).imports if adapter in rentals() else ()
    return {module.partition(".")[0] for module in imports} - {"httpx"}


HEAVY = {"boto3", "botocore", "fastapi", "sentry_sdk", "torch", "numpy", "pandas", "paramiko"}.union(
    *map(sdk_of, rentals())
)
"""What no command should wait for unless it needs it. `requests` and `httpx` may come with what is needed."""
_IMPORT = re.compile(r"^import time:.*\|\s*(\S+)$", re.MULTILINE)


@contextmanager
def plugin(errors: Path, cwd: Path) -> Iterator[Any]:
    """The plugin as the engine starts it; what it imports is in `errors` afterwards."""
    command = [sys.executable, "-X", "importtime", "-P", "-m", "sweepstack.provider", "127.0.0.1:1"]
    with errors.open("w") as said:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=said, text=True)
    try:
        assert process.stdout
        with grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}") as channel:
            yield provider_pb2_grpc.ResourceProviderStub(channel)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(120)


def imported(errors: Path) -> set[str]:
    """Top-level names of all that a Python process imported, by its own account."""
    return {name.split(".")[0] for name in _IMPORT.findall(errors.read_text())}


@pytest.fixture(params=["local", *rentals()])
def adapter(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    world = harness_class(request.param)(tmp_path, monkeypatch, False)
    yield request.param
    world.close()


def test_a_preview_imports_the_sdk_of_its_own_platform_at_most(adapter: str, tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: project\n")
    news = {
        "identity": "abc",
        "evidence": f"file://{tmp_path}/results",
        "adapter": adapter,
        "name": "box-0",
        "resources": {"gpu": {"count": 1}},
        "roster_digest": f"sha256:{0:064}",
        "teardown": {"verb": "destroy", "kills": ["data"], "keeps": []},
        "dry_run": True,
    }
    if adapter == "local":
        news |= {"resources": {}, "price_per_hour": 0.5}
    urn = "urn:pulumi:dev::project::sweepstack:index:Box::box-0"
    errors = tmp_path / "errors"
    with plugin(errors, tmp_path) as stub:
        answer = stub.Check(provider_pb2.CheckRequest(urn=urn, news=to_struct(news)), timeout=120)
        assert not answer.failures, answer.failures
        request = provider_pb2.CreateRequest(urn=urn, properties=answer.inputs, preview=True)
        stub.Create(request, timeout=120)
    found = imported(errors)
    assert {"sweepstack", "grpc", "pydantic"} <= found, "the list of imports is not one"
    assert found & HEAVY <= sdk_of(adapter), f"{adapter}: {sorted(found & HEAVY)}"
    parts = {name for name in _IMPORT.findall(errors.read_text()) if name.startswith(("aiohttp.", "runpod.serverless"))}
    assert not parts, f"{adapter}: the SDK's serverless half came in: {sorted(parts)}"


def test_garbage_is_collected_once_all_is_imported() -> None:
    """An `up` of days would keep all of it."""
    importlib.reload(late_imports)
    assert gc.isenabled()


def test_a_process_that_is_asked_about_its_configuration_alone_imports_nothing_of_resources(tmp_path: Path) -> None:
    """The engine starts two a command, and asks one of them nothing else."""
    (tmp_path / "Pulumi.yaml").write_text("name: project\n")
    errors = tmp_path / "errors"
    with plugin(errors, tmp_path) as stub:
        stub.Handshake(provider_pb2.ProviderHandshakeRequest(engine_address="127.0.0.1:1"), timeout=120)
        stub.CheckConfig(provider_pb2.CheckRequest(news=to_struct({"version": "1"})), timeout=120)
        stub.DiffConfig(provider_pb2.DiffRequest(), timeout=120)
        stub.Configure(provider_pb2.ConfigureRequest(), timeout=120)
    found = imported(errors)
    assert {"sweepstack", "grpc"} <= found, "the list of imports is not one"
    assert "pydantic" not in found
    names = set(_IMPORT.findall(errors.read_text()))
    assert not {
        name
        for name in names
        if name.startswith(
            (
                "sweepstack.provider.resources",
                "sweepstack.platforms.registry",
                "sweepstack.onbox.host",
                "sweepstack.core.records",
            )
        )
    }


def test_the_plugin_reads_no_stack_file_until_it_is_asked_to() -> None:
    """The shapes of one, and the YAML reader, are a quarter of what the requests of a preview import."""
    code = "import sys, sweepstack.provider.late_imports; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert "sweepstack.provider.resources.box" in (there := set(found.stdout.split()))
    assert not there & {"sweepstack.config.file", "sweepstack.config.types", "sweepstack.config.model"}
