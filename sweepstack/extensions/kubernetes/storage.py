"""The storage of a box before it is made: what becomes of its bytes, and which pods can mount it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from sweepstack.extensions.kubernetes import pods
from sweepstack.extensions.kubernetes.api import Cluster, Object
from sweepstack.extensions.kubernetes.objects import is_shared
from sweepstack.extensions.kubernetes.pod_template import WHERE
from sweepstack.onbox.common.errors import NotAuthorized, PlatformError, RequestRefused

ONE_NODE = frozenset(
    [
        *("ebs.csi.aws.com", "kubernetes.io/aws-ebs", "pd.csi.storage.gke.io", "kubernetes.io/gce-pd"),
        *("disk.csi.azure.com", "kubernetes.io/azure-disk", "cinder.csi.openstack.org", "csi.vsphere.vmware.com"),
        *("dobs.csi.digitalocean.com", "csi.hetzner.cloud", "linodebs.csi.linode.com", "block.csi.vultr.com"),
        *("rancher.io/local-path", "openebs.io/local", "topolvm.io"),
    ]
)
"""Provisioners of disks: one node at a time writes to a file system on such a one."""
DEFAULT = "storageclass.kubernetes.io/is-default-class"
MOST_NAMED = 6


def words(cluster: Cluster, name: str) -> list[str]:
    """What becomes of a new box's bytes, as its storage class says: `name`, or the default one. Raises RequestRefused
    where there is neither that class nor a volume of it, Unreachable."""
    try:
        there = cluster.list("storageclass")
    except NotAuthorized:
        return ["whether its bytes stay after the claim's end is not known: you may not list storage classes"]
    if (found := meant(there, name)) is not None:
        return [pods.class_words(found)]
    lacks = f"no storage class {name}" if name else "no default storage class"
    names = sorted(str(one["metadata"]["name"]) for one in there)
    has = f"it has {', '.join(names[:MOST_NAMED])}" if names else "it has none"
    found_not = f"overrides.kubernetes.storage_class: {cluster} has {lacks}; {has}"
    with contextlib.suppress(NotAuthorized):  # a volume may name a class that is no object
        if not any((one["spec"].get("storageClassName") or "") == name for one in cluster.list("pv")):
            raise RequestRefused(found_not)
    return [found_not]


def meant(there: Sequence[Object], name: str) -> Object | None:
    """The class of this name; for "" the default one, of several the newest, as the cluster chooses it."""
    if name:
        return next((one for one in there if one["metadata"]["name"] == name), None)
    default = [one for one in there if (one["metadata"].get("annotations") or {}).get(DEFAULT) == "true"]
    return max(default, key=lambda one: str(one["metadata"].get("creationTimestamp")), default=None)


def refusals(cluster: Cluster, nodes: int, storage_class: str | None = None) -> list[str]:
    """Why no claim can be had that several nodes mount, as far as its storage class shows; empty where nothing does.
    `storage_class`: "" for the default one; None: not known, all are looked at. What may not be read is not judged."""
    if nodes < 2:
        return []
    try:
        there = cluster.list("storageclass")
        if storage_class is None:
            there = [] if any(map(is_shared, cluster.list("pv"))) else there
        else:
            there = [found] if (found := meant(there, storage_class)) is not None else []
    except PlatformError:
        return []
    if not there or any(str(one.get("provisioner")) not in ONE_NODE for one in there):
        return []
    named = ", ".join(f"{one['metadata']['name']} ({one['provisioner']})" for one in there)
    return [
        f"job.nodes is {nodes}, and the storage {named} gives volumes that one node mounts: write {WHERE}.storage_class"
        " with one of a shared file system (NFS, CephFS, EFS, Filestore, Azure Files), or leave job.nodes out"
    ]
