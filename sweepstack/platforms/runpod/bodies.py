"""What is sent to RunPod's REST v2, and nothing else is: unknown fields are refused there, and missing ones bite.

Always `disk` and `gpu.count`: without the one a create fails after a machine was matched, without the other it fails
with a text about capacity. Of `gpu` and `cpu` exactly one; of the two kinds of `mounts` at most one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.errors import RequestRefused
from sweepstack.onbox.host.offers import Constraints, Offer
from sweepstack.onbox.host.platform import BoxRequest
from sweepstack.platforms.runpod.states import MARKER, PRICE, SSH_PORT

ROOT = "/sweepstack"
"""Where box-relative paths lie on a pod."""
IMAGE = "ubuntu:22.04"
"""For a request that names none; the start command installs what a box needs."""
IMAGE_DISK_GB = 20
"""The container disk of a pod whose data lie on a volume disk: the image, and what is installed into it."""
LEAST_VOLUME_DISK_GB = 10
LEAST_VOLUME_GB, MOST_VOLUME_GB = 10, 4096
CLOUD = "SECURE"
"""Network volumes need it, its addresses stay, and v2 can't ask a community host for a public one."""

START = (
    f"mkdir -p {ROOT}/data {ROOT}/scratch {ROOT}/mnt/durable /run/sshd /root/.ssh; chmod 700 /root/.ssh; "
    'printf "%s\\n" "$PUBLIC_KEY" > /root/.ssh/authorized_keys; chmod 600 /root/.ssh/authorized_keys; '
    'need=""; [ -x /usr/sbin/sshd ] || need="$need openssh-server"; '
    'command -v python3 > /dev/null || need="$need python3"; '
    'tries=0; while [ -n "$need" ] && [ $tries -lt 5 ]; do tries=$((tries + 1)); apt-get update && '
    "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $need && break; sleep 5; done; "
    "rm -f /etc/ssh/ssh_host_*; ssh-keygen -A; "
    "/usr/sbin/sshd -o PasswordAuthentication=no -o PermitRootLogin=prohibit-password; "
    'trap "exit 0" TERM; while :; do sleep 3600 & wait $!; done'
)
"""Brings up sshd for the key in $PUBLIC_KEY with host keys of this start alone, and stays. Holds no secret, and no
single quote: it travels as one word of `sh -c`."""


def create_pod(request: BoxRequest, offer: Offer, data_centers: list[str], volume_id: str = "") -> dict[str, Any]:
    """The body of POST /v2/pods. `volume_id`: the network volume behind the request's mount, if it has one.

    Without one the box's root is a volume disk, which a stop keeps; with one it is the container disk, which a stop
    wipes, and the volume hangs in it. Raises RequestRefused for what a pod can't have.
    """
    wanted = request.constraints
    if len(request.mounts) > 1:
        raise RequestRefused(f"a RunPod pod mounts one volume, and {request.name} asks for {len(request.mounts)}")
    if bool(request.mounts) != bool(volume_id):
        raise RequestRefused(f"{request.name}: the mount and its volume do not belong together")
    asked = wanted.disk_gb or 0
    if volume_id:
        (mount,) = request.mounts
        disk = max(asked, IMAGE_DISK_GB)
        mounts: dict[str, Any] = {"network": [{"volumeId": volume_id, "path": f"{ROOT}/{mount}"}]}
    else:
        disk = IMAGE_DISK_GB
        size = max(asked or IMAGE_DISK_GB, LEAST_VOLUME_DISK_GB)
        mounts = {"persistent": {"size": size, "path": ROOT}}
    body: dict[str, Any] = {
        "name": request.tag,
        "image": request.image or IMAGE,
        "gpu": _gpu(wanted, offer.key),
        "cloud": CLOUD,
        "disk": disk,
        "mounts": mounts,
        "ports": [SSH_PORT],
        "env": {
            **request.env,
            "PUBLIC_KEY": request.public_key,
            MARKER: request.tag,
            PRICE: f"{offer.price_per_hour:.6f}",
        },
        "args": f"sh -c '{START}'",
    }
    if data_centers:
        body["dataCenterIds"] = data_centers
    return body


def catalog_params(wanted: Constraints) -> dict[str, str]:
    """The query of GET /v2/catalog/gpus for what is wanted; availability is told only for a product."""
    params = {"include": "AVAILABILITY", "product": "POD", "count": str(gpu_count(wanted)), "cloud": CLOUD}
    if wanted.cuda:
        params["minCudaVersion" if wanted.cuda_at_least else "cudaVersions"] = wanted.cuda
    return params


def gpu_count(wanted: Constraints) -> int:
    """Cards to rent. Whoever asks for none gets one: a pod without would have no disk that outlives a stop."""
    return max(wanted.gpu_count, 1)


def create_volume(tag: str, size_gb: int, data_center: str) -> dict[str, Any]:
    """The body of POST /v2/network-volumes. Raises RequestRefused for a size that there is not."""
    if size_gb > MOST_VOLUME_GB:
        raise RequestRefused(f"a RunPod volume has at most {MOST_VOLUME_GB} GB, and {size_gb} were asked for")
    return {"name": tag, "size": max(size_gb, LEAST_VOLUME_GB), "dataCenter": data_center}


def grow_volume(size_gb: int) -> dict[str, Any]:
    """The body of PATCH /v2/network-volumes/{id}."""
    if size_gb > MOST_VOLUME_GB:
        raise RequestRefused(f"a RunPod volume has at most {MOST_VOLUME_GB} GB, and {size_gb} were asked for")
    return {"size": size_gb}


def _gpu(wanted: Constraints, gpu_id: str) -> Mapping[str, Any]:
    count = gpu_count(wanted)
    gpu: dict[str, Any] = {"id": gpu_id, "count": count}
    if wanted.cuda and wanted.cuda_at_least:
        gpu["minCudaVersion"] = wanted.cuda
    elif wanted.cuda:
        gpu["allowedCudaVersions"] = [wanted.cuda]
    if wanted.cpu:
        gpu["minVcpuCountPerGpu"] = math.ceil(wanted.cpu / count)
    return gpu
