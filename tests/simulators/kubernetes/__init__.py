"""A real Kubernetes for the tests, in namespaces. `python -m tests.simulators.kubernetes` starts one by hand."""

from tests.simulators.kubernetes.cluster import IMAGE, LATE_CLASS, STORAGE_CLASS, KubernetesCluster, missing, require

__all__ = ["IMAGE", "LATE_CLASS", "STORAGE_CLASS", "KubernetesCluster", "missing", "require"]
