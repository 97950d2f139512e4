"""Simulators for their own tests. A violation that a test does not `pardon` fails it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.kubernetes import KubernetesCluster
from tests.simulators.kubernetes.fixture import shared_cluster
from tests.simulators.runpod import KEY, OTHER_KEY, Boot, RunPodSim

START = 1_790_000_000.0


@pytest.fixture
def runpod_sim() -> Iterator[RunPodSim]:
    """A RunPod whose clock stands still and whose pods are ready at their second read."""
    sim = RunPodSim(clock=VirtualClock(START), boot=Boot(at_once=True, reads=1))
    with SimServer(sim):
        yield sim
        sim.check()


@pytest.fixture
def ann(runpod_sim: RunPodSim) -> Iterator[httpx.Client]:
    """A customer."""
    with _client(runpod_sim, KEY) as client:
        yield client


@pytest.fixture
def bob(runpod_sim: RunPodSim) -> Iterator[httpx.Client]:
    """Another customer."""
    with _client(runpod_sim, OTHER_KEY) as client:
        yield client


@pytest.fixture(scope="session")
def kubernetes_cluster(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> KubernetesCluster:
    """A Kubernetes of two nodes for all tests of this process. They leave it as it was, but for namespaces."""
    return shared_cluster(pytestconfig, tmp_path_factory)


def _client(sim: RunPodSim, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}", "User-Agent": "sweepstack-tests"}
    return httpx.Client(base_url=sim.url, headers=headers, timeout=60)
