"""The request bodies and query parameters for RunPod's REST v2.

RunPod refuses unknown fields. `disk` and `gpu.count` are always sent: without `disk` a create fails after a machine was
matched, without `gpu.count` it fails with a text about capacity. A body has exactly one of `gpu` and `cpu`, and at most
one of the two kinds of `mounts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.box_layout import HOME, ON_START, RUNNER_PID
from sweepstack.onbox.common.errors import RequestRefused
from sweepstack.onbox.host.capabilities import OwnStop
from sweepstack.onbox.host.offers import Constraints, Offer
from sweepstack.onbox.host.platform import BoxRequest
from sweepstack.platforms.common import start_lease
from sweepstack.platforms.runpod.keys import base_url
from sweepstack.platforms.runpod.offers import CLOUD, disks, gpu_count
from sweepstack.platforms.runpod.states import MARKER, PRICE, SSH_PORT

ROOT = "/sweepstack"
"""The folder on a pod below which the box's files lie."""
IMAGE = "ubuntu:22.04"
"""The image when a request names none; the start command installs what a box needs."""

LAST_SECONDS = 4
HEED = (
    f'p=$(tr -dc "0-9," < {ROOT}/{RUNNER_PID} 2> /dev/null | cut -d, -f1); [ -z "$p" ] || kill -TERM $p 2> /dev/null; '
    f'n=0; while [ -n "$p" ] && [ $n -lt {LAST_SECONDS} ] && kill -0 $p 2> /dev/null; do sleep 1; n=$((n + 1)); done'
)
"""Upon SIGTERM, which RunPod sends to a container's first process alone: passes it on to the runner, and waits for it.
RunPod kills a spot pod 5 s after the signal."""
START = (
    f"mkdir -p {ROOT}/data {ROOT}/scratch {ROOT}/mnt/durable /run/sshd /root/.ssh; chmod 700 /root/.ssh; "
    'printf "%s\\n" "$PUBLIC_KEY" > /root/.ssh/authorized_keys; chmod 600 /root/.ssh/authorized_keys; '
    'need=""; [ -x /usr/sbin/sshd ] || need="$need openssh-server"; '
    'command -v python3 > /dev/null || need="$need python3"; '
    'tries=0; while [ -n "$need" ] && [ $tries -lt 5 ]; do tries=$((tries + 1)); apt-get update && '
    "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $need && break; sleep 5; done; "
    "rm -f /etc/ssh/ssh_host_*; ssh-keygen -A; "
    "/usr/sbin/sshd -o PasswordAuthentication=no -o PermitRootLogin=prohibit-password; "
    f"[ ! -x {ROOT}/{ON_START} ] || {ROOT}/{ON_START}; "
    f"end() {{ {HEED}; exit 0; }}; trap end TERM; while :; do sleep 3600 & wait $!; done"
)
"""The start command: starts sshd for the key in $PUBLIC_KEY, with new host keys at each start, and keeps running. It
holds no secret, and no single quote, since it is sent as one quoted argument of `sh -c`."""

OWN_STOP = "mutation Stop($id: String!) { podStop(input: {podId: $id}) { id desiredStatus } }"


def create_pod(
    request: BoxRequest, offer: Offer, gpu_id: str, data_centers: list[str], volume_id: str = ""
) -> dict[str, Any]:
    """The body of POST /v2/pods. `volume_id`: the network volume behind the request's mount, if it has one.

    Without a volume the box's root is a volume disk, which a stop keeps; with one the root is the container disk, which
    a stop wipes, and the volume is mounted in it. Raises RequestRefused for what a pod can't have.
    """
    wanted = request.constraints
    if len(request.mounts) > 1:
        raise RequestRefused(f"a RunPod pod mounts one volume, and {request.name} asks for {len(request.mounts)}")
    if bool(request.mounts) != bool(volume_id):
        raise RequestRefused(f"{request.name}: the mount and its volume do not belong together")
    disk, size = disks(wanted)
    if volume_id:
        (mount,) = request.mounts
        mounts: dict[str, Any] = {"network": [{"volumeId": volume_id, "path": f"{ROOT}/{mount}"}]}
    else:
        mounts = {"persistent": {"size": size, "path": ROOT}}
    body: dict[str, Any] = {
        "name": request.tag,
        "image": request.image or IMAGE,
        "gpu": _gpu(wanted, gpu_id),
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
    if request.lease_seconds is not None:
        stop = own_stop(start_lease.HERE)
        held = start_lease.text(request.lease_seconds, f"{ROOT}/{HOME}", "RUNPOD_API_KEY", "RUNPOD_POD_ID", stop)
        body["env"][start_lease.VARIABLE] = held
        body["args"] = f"sh -c '{start_lease.COMMAND} {START}'"
    if data_centers:
        body["dataCenterIds"] = data_centers
    return body


def own_stop(pod: str) -> tuple[OwnStop, ...]:
    """See `CanStopItself.own_stop`. REST is said to answer 403 to the key of a pod, while the older query interface,
    which the vendor's own tool in a pod uses, takes it (2026-11; neither is proved)."""
    return (
        OwnStop("POST", f"{base_url()}/v2/pods/{pod}/action", {"action": "stop"}),
        OwnStop("POST", f"{base_url()}/graphql", {"query": OWN_STOP, "variables": {"id": pod}}),
    )


def _gpu(wanted: Constraints, gpu_id: str) -> Mapping[str, Any]:
    count = gpu_count(wanted)
    gpu: dict[str, Any] = {"id": gpu_id, "count": count}
    if wanted.cuda and wanted.cuda_at_least:
        gpu["minCudaVersion"] = wanted.cuda
    elif wanted.cuda:
        gpu["allowedCudaVersions"] = [wanted.cuda]
    if wanted.cpu:
        gpu["minVcpuCountPerGpu"] = math.ceil(wanted.cpu / count)
    if wanted.memory_gb:
        gpu["minRamPerGpu"] = math.ceil(wanted.memory_gb / count)
    return gpu
