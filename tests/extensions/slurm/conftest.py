from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.slurm.world import SlurmSweep
from tests.simulators.slurm_cluster import SlurmCluster
from tests.simulators.test_machines import Login


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Login:
    return Login(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, key: Login) -> Iterator[SlurmCluster]:
    """One cluster for all tests of a file, which leave it as it was."""
    with SlurmCluster.start(tmp_path_factory.mktemp("cluster"), authorized_keys=[key.public]) as made:
        yield made


@pytest.fixture
def make_sweep(
    cluster: SlurmCluster, key: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., SlurmSweep]]:
    """Makes the test's sweep, with what its workers ask for; `on`: another cluster."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    monkeypatch.setenv("SWEEPSTACK_API_PACE", "0.01")
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(key.key))
    monkeypatch.setenv("SWEEPSTACK_SSH_CONFIG", "none")
    made: list[SlurmSweep] = []

    def make(on: SlurmCluster = cluster, **scheduler: Any) -> SlurmSweep:
        made.append(SlurmSweep(tmp_path / f"sweep-{tmp_path.name}-{len(made)}", on, **scheduler))
        return made[-1]

    yield make
    for sweep in made:
        sweep.close()


@pytest.fixture
def sweep(make_sweep: Callable[..., SlurmSweep]) -> SlurmSweep:
    return make_sweep()
