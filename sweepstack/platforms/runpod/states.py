"""Turns what RunPod says of a pod into our records, and its refusals into our errors.

A state that is not in the table, or a pod that can't be read, is `UNKNOWN` with the reason, never gone. RUNNING does
not mean ready: a pod says RUNNING from its first second, and has an address only later. A status 400 means several
things: no capacity, no money, a wrong request. Its text says which, if we know the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import InsufficientFunds, NoCapacity, NotAuthorized, RequestRefused
from sweepstack.onbox.host.platform import BoxRecord, Phase, Told
from sweepstack.platforms.common.http_client import Means, Refusals
from sweepstack.platforms.common.json_values import identifier, moment, number, text

TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,190}")
"""The form of a tag that can be the name of a pod or a volume."""
MARKER = "SWEEPSTACK_TAG"
"""The variable in a pod's environment that holds its tag, too: a name alone proves nothing, since anyone can give
it."""
PRICE = "SWEEPSTACK_PRICE_PER_HOUR"
"""The variable that holds the price at which the pod was offered (USD per hour): a stopped pod says that it costs 0."""
BID = "SWEEPSTACK_BID_PER_GPU"
"""The variable that holds the bid at which a spot pod was rented (USD per hour and GPU); other pods have none."""
TAKEN = "preempted: RunPod gave its GPUs to another customer; what lies on its volume is kept, and bills"
NOT_SAID = "whether a person stopped it or RunPod took it away is not known: RunPod does not say it now"
NO_START = "RunPod has retired the interface that starts a spot pod again: it stands still for good, and its disk bills"
TELLS = {TAKEN: Told.PREEMPTED, NOT_SAID: Told.TAKEN_OR_STOPPED}
SSH_PORT = "22/tcp"
GB_MONTH, STOPPED_GB_MONTH, HOURS_A_MONTH = 0.10, 0.20, 730.0
"""USD per GB and month of a running pod's disks, and of a stopped one's volume disk (2026-07)."""

PHASES: Mapping[str, Phase] = {
    "PROVISIONING": Phase.CREATING,
    "STARTING": Phase.CREATING,
    "RUNNING": Phase.RUNNING,  # CREATING until it can be reached: see `record_of`
    "EXITED": Phase.STOPPED,
    "ERROR": Phase.FAILED,  # "unrecoverable", and unlike for EXITED nothing says that its compute is free (2026-08)
    "TERMINATED": Phase.ENDING,  # gone is what is neither listed nor found
}
BILLS = {
    Phase.CREATING: "it may bill in full",
    Phase.RUNNING: "it bills in full",
    Phase.STOPPED: "its volume disk goes on billing, at twice the price",
    Phase.FAILED: "it may bill in full",
    Phase.UNKNOWN: "it may bill in full",
}
"""What a pod costs in each phase, for messages. RunPod does not say whether PROVISIONING is billed."""


def marked(pod: Mapping[str, Any]) -> str | None:
    """The tag in the pod's environment; "" when there is none, None when the environment can't be read."""
    env = pod.get("env")
    if not isinstance(env, dict):
        return None
    found = env.get(MARKER, "")
    return found if isinstance(found, str) else None


def carries(pod: Mapping[str, Any], tag: str) -> bool:
    """Whether the pod is the box of this tag: by its marker, or by its name when the marker can't be read.

    A name alone is no proof, and a pod that a person renamed is still ours.
    """
    marker = marked(pod)
    return marker == tag or (marker is None and pod.get("name") == tag)


def bid_of(pod: Mapping[str, Any]) -> float | None:
    """The bid at which a spot pod was rented, USD per hour and GPU; None for a pod that is none."""
    env = pod.get("env")
    try:
        return number(float(env[BID])) if isinstance(env, dict) and BID in env else None
    except (ValueError, TypeError):
        return None


def why_still(change: str | None) -> str:
    """The note of a spot pod that stands still. `change`: the older interface's text of its last change ("Exited by
    user: …", "Exited by Runpod: …"; seen 2026-11, not documented); None when it did not say."""
    words = (change or "").lower()
    if words.startswith("exited by user"):
        return ""
    return TAKEN if words.startswith("exited by runpod") else NOT_SAID


def volume_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """The network volumes that the pod mounts: path on the box → volume id."""
    mounts = pod.get("mounts")
    network = mounts.get("network") if isinstance(mounts, dict) else None
    entries = [entry for entry in network if isinstance(entry, dict)] if isinstance(network, list) else []
    return {str(entry.get("path")): str(entry.get("volumeId")) for entry in entries}


def record_of(pod: Mapping[str, Any], account: str, *, ending: bool = False) -> BoxRecord:
    """The pod as a record. `ending`: RunPod accepted its delete, whatever state it shows. Raises nothing."""
    native_id = identifier(pod)
    name, marker = pod.get("name"), marked(pod)
    tag = marker or text(pod, "name")
    phase, notes = _phase(pod)
    made = moment(pod.get("createdAt"))
    if marker is None:
        phase, notes = Phase.UNKNOWN, [*notes, "its environment can't be read, so whose box it is is not known"]
    elif marker and marker != name:
        notes.append(f"it was renamed to {name!r}")
    if made is None:
        notes.append("when it was made can't be read")
    count = _gpu_count(pod)
    if count == 0 and phase is Phase.RUNNING:
        notes.append("it has no GPU now: its GPUs were rented to another customer while it was stopped")
    if ending and phase is not Phase.UNKNOWN:
        phase = Phase.ENDING
    region = text(pod, "dataCenterId")
    place = f"RunPod {region}".strip()
    return BoxRecord(
        native_id,
        tag,
        account,
        phase,
        _price(pod),
        made,
        f"{place}, pod {native_id}",
        "; ".join(notes),
        endpoint=_endpoint(pod) if phase in (Phase.RUNNING, Phase.CREATING) else None,
        gpu_count=count,
        region=region,
        offer=text(pod.get("gpu"), "id"),
        image=text(pod, "image"),
        stopped_per_hour=_stopped(pod),
        started_at=moment(pod.get("startedAt")),
    )


def _phase(pod: Mapping[str, Any]) -> tuple[Phase, list[str]]:
    status = pod.get("status")
    phase = PHASES.get(status) if isinstance(status, str) else None
    if phase is None:
        return Phase.UNKNOWN, [f"RunPod says {str(status)[:60]!r} of it, and what that means is not known"]
    if status == "ERROR":
        return phase, [
            "its container failed, and RunPod calls that unrecoverable (ERROR): it may bill until it is ended"
        ]
    ports = pod.get("ports")
    by_ssh = not isinstance(ports, list) or SSH_PORT in ports
    if phase is Phase.RUNNING and by_ssh and _direct(pod) is None:
        return Phase.CREATING, []
    return phase, []


def _direct(pod: Mapping[str, Any]) -> SshEndpoint | None:
    return _address(pod, "direct")


def _endpoint(pod: Mapping[str, Any]) -> SshEndpoint | None:
    """The direct address, else RunPod's relay, which passes a shell and no files."""
    return _direct(pod) or _address(pod, "proxy")


def _address(pod: Mapping[str, Any], kind: str) -> SshEndpoint | None:
    ssh = pod.get("ssh")
    found = ssh.get(kind) if isinstance(ssh, dict) else None
    if not isinstance(found, dict):
        return None
    host, port, user = found.get("host"), found.get("port"), found.get("username") or "root"
    if not isinstance(host, str) or not host or not isinstance(user, str):
        return None
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        return None
    start = pod.get("startedAt") or pod.get("createdAt") or ""
    return SshEndpoint(host, port, user, proxied=kind == "proxy", start=str(start))


def gpus_of(pod: Mapping[str, Any]) -> int:
    """The number of GPUs that it was rented with."""
    gpu = pod.get("gpu")
    count = gpu.get("count") if isinstance(gpu, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1


def _gpu_count(pod: Mapping[str, Any]) -> int | None:
    """The number of GPUs that the container sees; None while it does not run."""
    runtime = pod.get("runtime")
    gpus = runtime.get("gpus") if isinstance(runtime, dict) else None
    return len(gpus) if isinstance(gpus, list) else None


def _price(pod: Mapping[str, Any]) -> float | None:
    """USD per hour of the whole running pod: what RunPod says, and at least the price at which it was offered. Whether
    its figure has the disks in it is documented nowhere, and a stopped pod usually shows 0."""
    env = pod.get("env")
    offered: str | None = env.get(PRICE) if isinstance(env, dict) else None
    try:
        return max(number(pod.get("cost")) or 0.0, number(float(offered or 0)) or 0.0) or None
    except (ValueError, TypeError):
        return None


def _stopped(pod: Mapping[str, Any]) -> float | None:
    """USD per hour while it is stopped: for its volume disk; 0 for a pod without one."""
    mounts = pod.get("mounts")
    if not isinstance(mounts, dict):
        return None
    disk = mounts.get("persistent")
    if disk is None:
        return 0.0
    size = number(disk.get("size")) if isinstance(disk, dict) else None
    return None if not size else size * STOPPED_GB_MONTH / HOURS_A_MONTH


NO_CAPACITY = re.compile(
    r"no longer any instances available"
    r"|no instances (?:are )?(?:currently )?available"
    r"|not enough free gpus"
    r"|does not have the resources to deploy",
    re.IGNORECASE,
)
NO_FUNDS = re.compile(r"insufficient (?:balance|funds|credit)|balance (?:is )?too low|spend(?:ing)?[ -]?limit", re.I)
REFUSALS = Refusals(
    lambda answer: "",
    (
        Means(
            InsufficientFunds,
            "RunPod: {text}. Top up the account, or raise its limit, for {asked}",
            statuses=(400, 403, 409),
            words=NO_FUNDS,
        ),
        Means(NoCapacity, "RunPod has no room for {asked}: {text}", statuses=(400, 409), words=NO_CAPACITY),
        Means(
            NotAuthorized,
            "RunPod forbids {asked}: {text}. Either the key lacks the scope (a read-only or restricted one does), or "
            "the account may not use this pool",
            statuses=(403,),
        ),
        Means(RequestRefused, "RunPod: {asked}: 404 {text}", statuses=(404,)),
    ),
)
refused = REFUSALS.error
"""See `Refusals.error`. For 404 and 409 the caller may know a better error."""
