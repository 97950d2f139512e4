"""One cluster for all tests of a process, wherever they stand; a namespace for each file of tests, or for each test."""

from __future__ import annotations

import atexit
import functools
import secrets
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.simulators.kubernetes.cluster import KubernetesCluster

NODES = 2


@functools.cache
def cluster_of_this_process() -> KubernetesCluster:
    """Starts it (some seconds) where it does not run yet; it ends with the process. See `shared_cluster`."""
    keep = Path(tempfile.mkdtemp(prefix="kubernetes-"))
    made = KubernetesCluster.start(keep / "c", nodes=NODES, gpus=4)

    def end() -> None:
        made.stop()
        shutil.rmtree(keep, ignore_errors=True)

    atexit.register(end)
    return made


def shared_cluster(config: pytest.Config, folders: pytest.TempPathFactory) -> KubernetesCluster:
    """Starts it (some seconds) where it does not run yet; it ends with the session. Two nodes, n1 and n2, with 4
    `nvidia.com/gpu` each. A test gives back what it took: nodes run and are Ready, without taints of its own.

    For a fixture of scope `session` in a conftest.py; two of those in one process get the same cluster."""
    return cluster_of_this_process()


def fresh_namespace(cluster: KubernetesCluster, *, pod_security: str = "") -> str:
    """Makes one with a name that no other has."""
    return cluster.namespace(f"t-{secrets.token_hex(4)}", pod_security=pod_security)
