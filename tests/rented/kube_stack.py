"""The sweep of tests/engine on a real Kubernetes cluster: its box is a claim there, and pods run its cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweepstack.extensions.kubernetes.api import id_of
from tests.engine.harness import Stack
from tests.simulators.kubernetes import IMAGE, STORAGE_CLASS, KubernetesCluster

NAMESPACE, CONTROL = "ml", "/sweepstack/control"
CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


@dataclass
class KubeStack(Stack):
    """A namespace of a cluster, which takes pods of the restricted standard alone, and a sweep there."""

    cluster: KubernetesCluster = field(kw_only=True)
    cells: tuple[str, ...] = ("seed0", "seed1", "seed2", "seed3")
    boxes: tuple[str, ...] = ("box-0",)
    workers: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.env |= {"KUBECONFIG": str(self.cluster.kubeconfig)}
        self.folder: Path = self.cluster.volume("v1", gb=10).folder
        """All that is on the box's volume, as this machine sees it."""
        self.cluster.namespace(NAMESPACE, pod_security="restricted")
        self.control = self.folder / "control"
        self.control.mkdir()
        self.control.chmod(0o777)

    @property
    def here(self) -> dict[str, Any]:
        """What `overrides.kubernetes` says."""
        return {"context": "tests", "namespace": NAMESPACE, "storage_class": STORAGE_CLASS}

    def boxes_there(self) -> list[str]:
        """The native ids of the boxes in the cluster, by its claims."""
        return sorted(id_of(one) for one in self.cluster.admin.list(CLAIMS))

    def sealed(self) -> set[str]:
        found = self.folder.glob("box/mnt/durable/*/cells/*/manifest.json")
        return {path.parent.name for path in found}

    def write_config(self) -> None:
        super().write_config()
        self.edit_config(
            lambda sweep: sweep.update(
                candidates=["kubernetes"],
                overrides={"kubernetes": self.here},
                boxes={box: {"want": "running", "workers": self.workers} for box in self.boxes},
            )
        )
        self.edit_config(
            lambda sweep: sweep["job"].update(
                run=sweep["job"]["run"].replace("python ", "python3 "),
                image=IMAGE,
                resources={"cpu": 0.1, "memory": "200MB", "disk": "1GB"},
            )
        )
        self.edit_config(lambda sweep: sweep["job"]["env"].update(DRILL_CONTROL=CONTROL))
