"""Sweeps on a real cluster, for the files of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.kubernetes.world import KubeSweep, settle
from tests.simulators.kubernetes import KubernetesCluster
from tests.simulators.kubernetes.fixture import shared_cluster


@pytest.fixture(scope="module")
def cluster(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> KubernetesCluster:
    """One cluster for all tests of this file, which leave it as it was."""
    return shared_cluster(pytestconfig, tmp_path_factory)


@pytest.fixture
def make_sweep(
    cluster: KubernetesCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., KubeSweep]]:
    """Makes the test's sweep, of a class of its own or `KubeSweep`, with what its workers ask for."""
    settle(monkeypatch, tmp_path, cluster)
    made: list[KubeSweep] = []

    def make(kind: type[KubeSweep] = KubeSweep, **how: Any) -> KubeSweep:
        made.append(kind(tmp_path / f"sweep-{len(made)}", cluster, **how))
        return made[-1]

    yield make
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    for sweep in made:
        sweep.close()


@pytest.fixture
def sweep(make_sweep: Callable[..., KubeSweep]) -> KubeSweep:
    return make_sweep()
