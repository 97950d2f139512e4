"""RunPod's spot pods: rented and resumed for a bid, through its older query interface alone.

REST v2 knows no bids, and RunPod is taking them out of the older interface (2026-11), which it retires early in 2027;
no run of ours with an account has shown that it still has them. So a refusal here says how to go on without, and
everything else of such a pod goes to v2. A bid is USD per hour and GPU there. Words of an answer that are not known to
mean "nothing was made" leave the outcome unknown, and the caller looks for the pod by its tag.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    Retired,
    Unsupported,
)
from sweepstack.onbox.host.offers import Constraints, Offer, cheapest_first, maker_of
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import Answer
from sweepstack.platforms.common.json_values import identifier, number
from sweepstack.platforms.runpod.api import Session
from sweepstack.platforms.runpod.errors import NO_CAPACITY, NO_FUNDS
from sweepstack.platforms.runpod.legacy_query import PATH
from sweepstack.platforms.runpod.offers import Candidate, disks_per_hour, fits, gpu_count, in_region
from sweepstack.platforms.runpod.states import BID

RENT, RESUME = "podRentInterruptable", "podBidResume"
WITHOUT = "Go on without: `spot: false`, or let another candidate have it"
NO_BIDS = "RunPod has retired its older interface (GraphQL: it answers 410), and REST v2 knows no bids"
NO_RENT = f"{NO_BIDS}: no spot pod can be rented any more, and none was. {WITHOUT}"
NO_RESUME = (
    f"{NO_BIDS}: a spot pod that stands still can't be started again, so what is on it can't be read, and its volume "
    'disk bills on. To end it: sweepctl approve --abandon BOX --reason "…", then pulumi up and pulumi destroy; '
    "`spot: false` rents the next one"
)
NOT_ENABLED = (
    "RunPod says the same where spot is not enabled for the account, or for this kind of GPU: look whether its console "
    f"offers any before you wait. {WITHOUT}"
)
STEP = 1e-4
RESUME_SECONDS = 90.0
_NO_MORE = re.compile(r"cannot query field|unknown (?:argument|type)|is not defined by type", re.I)
_FORBIDDEN = re.compile(r"unauthorized|forbidden|access denied|not allowed", re.I)
_WRONG = re.compile(r"spot pod as an on demand|pod not found", re.I)


def candidates(session: Session, wanted: Constraints, data_center: str = "") -> list[Candidate]:
    """The spot offers that fit, cheapest first, at the bid that is asked for, else at the least that is accepted.
    `data_center`: the volume's. Where data centers are asked for, each is an offer of its own, since a mutation names
    one. Raises Unreachable; Unsupported once the older interface is gone."""
    centers = [data_center] if data_center else _centers(session, wanted)
    if not centers:
        return []
    found = {}
    try:
        gpus = session.spot_gpus(_query(gpu_count(wanted), centers))
    except Retired:
        raise Unsupported(NO_RENT) from None
    for gpu in gpus:
        for place, center in enumerate(centers):
            if isinstance(gpu, dict) and (one := _candidate(gpu, f"at{place}", center, wanted)) is not None:
                found[one.offer.key] = one
    return [found[offer.key] for offer in cheapest_first((one.offer for one in found.values()), wanted)]


def rent(
    session: Session, body: Mapping[str, Any], one: Candidate, deadline: Deadline
) -> dict[str, Any] | PlatformError:
    """Rents the pod that `body` (of POST /v2/pods) describes, for the price of the candidate's GPUs. Costs money; sent
    once.

    Returns the pod in the form of REST v2, or the refusal where another offer may do better. Raises OutcomeUnknown when
    a pod may have been made; InsufficientFunds, Unsupported, NotAuthorized when no offer can do better.
    """
    offer = one.offer
    bid = per_gpu(one.gpus_per_hour, offer.gpu_count)
    pod = {**body, "env": {**body["env"], BID: f"{bid:.4f}"}}
    what = f"a spot pod, {offer.gpu_count}× {offer.gpu} for {offer.price_per_hour:.3f} USD/h"
    made = _written(session, RENT, _literal(_rent_input(pod, bid)), what, deadline)
    if isinstance(made, PlatformError):
        return made
    centers = body.get("dataCenterIds") or [None]
    shown = {
        **pod,
        "id": identifier(made),
        "status": "PROVISIONING",
        "dataCenterId": centers[0],
        "createdAt": datetime.now(UTC).isoformat(),
        "cost": made.get("costPerHr"),
    }
    session.keep_made(shown)
    return shown


def resume(session: Session, native_id: str, bid: float, count: int) -> None:
    """Asks for a spot pod that stands still, for `bid` USD per hour and GPU. Costs money; sent once. Raises NoCapacity
    where the bid is too low or its host has no room; OutcomeUnknown, …: as `rent`."""
    told = {"podId": native_id, "bidPerGpu": bid, "gpuCount": count}
    what = f"{native_id} again, for {bid * count:.4f} USD/h"
    try:
        made = _written(session, RESUME, _literal(told), what, Deadline(RESUME_SECONDS))
    finally:
        session.forget_pods()
    if isinstance(made, PlatformError):
        raise made


def floor(session: Session, gpu_id: str, count: int) -> float | None:
    """The least bid for so many of these GPUs now, USD per hour of the whole box; None where it is not known."""
    wanted = Constraints(gpu_count=count, spot=True, parts=True)
    try:
        found = {one.gpu_id: one.gpus_per_hour for one in candidates(session, wanted)}
    except PlatformError:
        return None
    return found.get(gpu_id)


def per_gpu(price: float, count: int) -> float:
    """A bid for the whole box as one for each GPU, rounded down: nothing above the price is ever bid."""
    return round(int(round(price / max(count, 1) / STEP, 4)) * STEP, 4)


def _centers(session: Session, wanted: Constraints) -> list[str]:
    """The data centers to ask for; one empty name where any will do."""
    if not wanted.regions:
        return [""]
    known = [str(center["id"]) for center in session.data_centers() if isinstance(center, dict) and center.get("id")]
    return [center for center in known if any(in_region(center, region) for region in wanted.regions)]


def _query(count: int, centers: list[str]) -> str:
    """GPU types with their least bid and stock, in each of the data centers."""
    asked = [
        f"at{place}: lowestPrice(input: {_literal({'gpuCount': count, 'secureCloud': True, **_in(center)})}) "
        "{ minimumBidPrice stockStatus }"
        for place, center in enumerate(centers)
    ]
    fields = "id displayName manufacturer memoryInGb secureCloud maxGpuCount secureSpotPrice"
    return f"gpuTypes {{ {fields} {' '.join(asked)} }}"


def _in(center: str) -> dict[str, Any]:
    return {"dataCenterId": center} if center else {}


def _candidate(gpu: Mapping[str, Any], place: str, center: str, wanted: Constraints) -> Candidate | None:
    count = gpu_count(wanted)
    key, name, memory = gpu.get("id"), gpu.get("displayName"), number(gpu.get("memoryInGb"))
    most = number(gpu.get("maxGpuCount"))
    lowest = gpu.get(place)
    if not isinstance(key, str) or not key or gpu.get("secureCloud") is not True or not isinstance(lowest, dict):
        return None
    maker = maker_of(gpu.get("manufacturer"), key)
    if (most is not None and most < count) or not fits([key, name], memory, wanted, maker):
        return None
    stock, least = lowest.get("stockStatus"), number(lowest.get("minimumBidPrice"))
    if not least or stock in (None, "None", "NONE"):
        return None
    # Whether the least bid is that of the box or of a GPU is documented nowhere: the reading that bids less is taken.
    each = max(least / count, number(gpu.get("secureSpotPrice")) or 0.0)
    each = math.ceil(round(each / STEP, 4)) * STEP
    price = round(each * count if wanted.bid is None else wanted.bid, 4)
    if per_gpu(price, count) + STEP / 2 < each:
        return None
    running, stopped = disks_per_hour(wanted)
    shown = name if isinstance(name, str) and name else key
    offer = Offer(
        f"{key}@{center}" if center else key,
        shown,
        count,
        round(price + running, 6),
        center or "any",
        gpu_memory_gb=memory,
        disk_gb=wanted.disk_gb,
        stopped_per_hour=stopped,
        cuda=wanted.cuda,
        spot=True,
        stock=str(stock).lower(),
        maker=maker,
    )
    return Candidate(offer, (center,) if center else (), key, price)


def _rent_input(body: Mapping[str, Any], bid: float) -> dict[str, Any]:
    """The body of POST /v2/pods as the mutation's input."""
    gpu, mounts = body["gpu"], body["mounts"]
    told: dict[str, Any] = {
        "name": body["name"],
        "imageName": body["image"],
        "cloudType": Word(body["cloud"]),
        "gpuTypeId": gpu["id"],
        "gpuCount": gpu["count"],
        "bidPerGpu": bid,
        "containerDiskInGb": body["disk"],
        "ports": ",".join(body["ports"]),
        "env": [{"key": name, "value": value} for name, value in body["env"].items()],
        "dockerArgs": body["args"],
    }
    if network := mounts.get("network"):
        told |= {"networkVolumeId": network[0]["volumeId"], "volumeMountPath": network[0]["path"]}
    else:
        told |= {"volumeInGb": mounts["persistent"]["size"], "volumeMountPath": mounts["persistent"]["path"]}
    if centers := body.get("dataCenterIds"):
        told["dataCenterId"] = centers[0]
    if cuda := gpu.get("minCudaVersion"):
        told["minCudaVersion"] = cuda
    if versions := gpu.get("allowedCudaVersions"):
        told["allowedCudaVersions"] = versions
    if cores := gpu.get("minVcpuCountPerGpu"):
        told["minVcpuCount"] = cores * gpu["count"]
    if memory := gpu.get("minRamPerGpu"):
        told["minMemoryInGb"] = memory * gpu["count"]
    return told


class Word(str):
    """A word of an enumeration: it stands without quotes."""


def _literal(value: Any) -> str:
    """A value as a literal of the query language. The names of its input types are documented nowhere, so no variables
    are used; texts are escaped as in JSON."""
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_literal(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value)


def _written(
    session: Session, verb: str, told: str, what: str, deadline: Deadline
) -> Mapping[str, Any] | PlatformError:
    """What the mutation made, or the refusal that another offer may not get."""
    query = f"mutation {{ {verb}(input: {told}) {{ id desiredStatus costPerHr }} }}"
    try:
        answer = session.older(lambda: session.http.write("POST", PATH, {"query": query}, deadline=deadline))
    except Retired:
        raise Unsupported(NO_RENT if verb == RENT else NO_RESUME) from None
    data = answer.data.get("data") if isinstance(answer.data, dict) else None
    made = data.get(verb) if isinstance(data, dict) else None
    if answer.ok and isinstance(made, dict) and identifier(made):
        return made
    return _refusal(answer, verb, what)


def _refusal(answer: Answer, verb: str, what: str) -> PlatformError:
    """See `_written`. Raises what no other offer changes, and OutcomeUnknown for words that prove nothing."""
    text = answer.text
    if NO_FUNDS.search(text):
        raise InsufficientFunds(f"RunPod: {text}. Top up the account, or raise its limit, for {what}")
    if NO_CAPACITY.search(text):
        return NoCapacity(f"RunPod has no spot instance for {what}: {text} {NOT_ENABLED}")
    if _NO_MORE.search(text) or answer.status == 404:
        raise Unsupported(
            f"RunPod's older interface does not take {verb} any more, so no spot pod can be had "
            f"({text or answer.status}). {WITHOUT}"
        )
    if answer.status == 403 or _FORBIDDEN.search(text):
        return NotAuthorized(f"RunPod forbids {what}: {text or answer.status}. {WITHOUT}")
    if _WRONG.search(text) or not answer.ok:
        raise RequestRefused(f"RunPod refuses {what}: {answer.status} {text}. {WITHOUT}")
    raise OutcomeUnknown(f"RunPod's answer to {verb} names no pod, so it may have made one: {text or 'it was empty'}")
