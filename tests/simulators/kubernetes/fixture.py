"""One cluster for all tests of a process, wherever they stand; a namespace for each file of tests, or for each test."""

from __future__ import annotations

import secrets

import pytest

from tests.simulators.kubernetes.cluster import KubernetesCluster

_SHARED = pytest.StashKey[KubernetesCluster]()
NODES = 2


def shared_cluster(config: pytest.Config, folders: pytest.TempPathFactory) -> KubernetesCluster:
    """Starts it (some seconds) where it does not run yet; it ends with the session. Two nodes, n1 and n2, with 4
    `nvidia.com/gpu` each. A test gives back what it took: nodes run and are Ready, without taints of its own.

    For a fixture of scope `session` in a conftest.py; two of those in one process get the same cluster."""
    if _SHARED not in config.stash:
        made = KubernetesCluster.start(folders.mktemp("kubernetes"), nodes=NODES, gpus=4)
        config.stash[_SHARED] = made
        config.add_cleanup(made.stop)
    return config.stash[_SHARED]


def fresh_namespace(cluster: KubernetesCluster, *, pod_security: str = "") -> str:
    """Makes one with a name that no other has."""
    return cluster.namespace(f"t-{secrets.token_hex(4)}", pod_security=pod_security)
