"""Workers of several pods, one for each node of a cell: the storage that all of them mount."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweepstack.extensions.kubernetes.api import Cluster, Object
from sweepstack.onbox.common.errors import PlatformError, RequestRefused

SHARED = "shared"
"""Of `BoxRequest.resources`: true where pods on several nodes have to mount the claim."""
MANY = "ReadWriteMany"
ONE_NODE = frozenset(
    [
        *("ebs.csi.aws.com", "kubernetes.io/aws-ebs", "pd.csi.storage.gke.io", "kubernetes.io/gce-pd"),
        *("disk.csi.azure.com", "kubernetes.io/azure-disk", "cinder.csi.openstack.org", "csi.vsphere.vmware.com"),
        *("dobs.csi.digitalocean.com", "csi.hetzner.cloud", "linodebs.csi.linode.com", "block.csi.vultr.com"),
        *("rancher.io/local-path", "openebs.io/local", "topolvm.io"),
    ]
)
"""Provisioners of disks: one node at a time writes to a file system on such a one."""
DO = (
    "write overrides.kubernetes.storage_class with one of a shared file system (NFS, CephFS, EFS, Filestore, Azure "
    "Files), or leave job.nodes out"
)
DEFAULT = "storageclass.kubernetes.io/is-default-class"


def access_modes(resources: Mapping[str, Any]) -> list[str]:
    """Of the claim of a box that is asked for so."""
    return [MANY if resources.get(SHARED) else "ReadWriteOnce"]


def must_be_shared(claim: Object, nodes: int) -> None:
    """Raises RequestRefused where workers of several pods can't have this claim."""
    if nodes > 1 and MANY not in (claim["spec"].get("accessModes") or ()):
        raise RequestRefused(
            f"job.nodes is {nodes}, and the box's claim {claim['metadata']['name']} is ReadWriteOnce: one node alone "
            "mounts it. A box that is made with job.nodes has a claim that is ReadWriteMany: make another one"
        )


def refusals(cluster: Cluster, nodes: int, storage_class: str | None = None) -> list[str]:
    """Why no claim can be had that several nodes mount, as far as its storage class shows; empty where nothing does.
    `storage_class`: "" for the default one; None where it is not known: then all of them are looked at. What this user
    may not read is not judged."""
    if nodes < 2:
        return []
    try:
        there = cluster.list("storageclass")
        if storage_class is None:
            there = [] if any(MANY in (pv["spec"].get("accessModes") or ()) for pv in cluster.list("pv")) else there
        else:
            there = [one for one in there if _is_meant(one, storage_class)]
    except PlatformError:
        return []
    if not there or any(str(one.get("provisioner")) not in ONE_NODE for one in there):
        return []
    named = ", ".join(f"{one['metadata']['name']} ({one['provisioner']})" for one in there)
    return [f"job.nodes is {nodes}, and the storage {named} gives volumes that one node mounts: {DO}"]


def _is_meant(one: Object, name: str) -> bool:
    marks = one["metadata"].get("annotations") or {}
    return one["metadata"]["name"] == name if name else marks.get(DEFAULT) == "true"
