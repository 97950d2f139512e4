"""What RunPod rents out, and for how much: cards on demand, network volumes, and spot pods for a bid.

Cards: one offer for each kind of GPU, with its price and data centers now. The catalog reserves nothing: RunPod may
refuse what it showed a second ago. It names no price of a disk, so that is added by what the vendor's pages say. An
offer's key is the GPU's id.

Network volumes: the name is the tag; each is bound to a data center, and can only grow. A volume's native id is
`<account>.<id>`: a key of another account gets "not found", and that must not count as gone.

Ends with RunPod's older query interface (GraphQL), early in 2027: all below `RENT`, the spot pods. REST v2 knows no
bids, and RunPod is taking them out of the older interface (2026-11); no run of ours with an account has shown that it
still has them. So a refusal here says how to go on without, and everything else of such a pod goes to v2. A bid is USD
per hour and GPU there. Words of an answer that are not known to mean "nothing was made" leave the outcome unknown, and
the caller looks for the pod by its tag.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    Retired,
    Unreachable,
    Unsupported,
)
from sweepstack.onbox.host.offers import Constraints, Offer, cheapest_first, in_region, is_meant, maker_of
from sweepstack.onbox.host.platform import BoxRequest, Phase, VolumeRecord
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import HttpAnswer
from sweepstack.platforms.common.json_values import identifier, number
from sweepstack.platforms.common.renting import look_again
from sweepstack.platforms.runpod.api import Session
from sweepstack.platforms.runpod.balance import GRAPHQL
from sweepstack.platforms.runpod.states import (
    BID,
    GB_MONTH,
    HOURS_A_MONTH,
    NO_CAPACITY,
    NO_FUNDS,
    PHASES,
    STOPPED_GB_MONTH,
    TAG,
    refused,
    volume_of,
)

NOWHERE = "NONE"
_SHOWN = 3
IMAGE_DISK_GB = 20
"""The container disk of a pod whose data lie on a volume disk: room for the image and what is installed there."""
LEAST_VOLUME_DISK_GB = 10
CLOUD = "SECURE"
"""Boxes are rented from the Secure Cloud only: network volumes need it, its addresses are stable, and v2 can't ask for
a community host with a public address."""


@dataclass(frozen=True)
class Candidate:
    """An offer, and the data centers to ask for it in; empty when any will do. `gpu_id`: what a create names.
    `gpus_per_hour`: USD of its GPUs alone, which a bid is for."""

    offer: Offer
    data_centers: tuple[str, ...]
    gpu_id: str
    gpus_per_hour: float


def must_be_possible(wanted: Constraints) -> None:
    """Raises Unsupported for constraints that RunPod can never meet. Sends no request."""
    if wanted.min_reliability is not None:
        raise Unsupported(
            "RunPod publishes no reliability of its hosts (boxes are rented from its Secure Cloud only): take "
            "`reliability` out, or let another candidate have it"
        )


def candidates(gpus: list[Any], wanted: Constraints, data_center: str = "") -> list[Candidate]:
    """The offers that fit, cheapest first. `data_center`: the volume's, when only that one will do."""
    found = {}
    for gpu in gpus:
        if isinstance(gpu, dict) and (one := _candidate(gpu, wanted, data_center)) is not None:
            found[one.offer.key] = one
    return [found[offer.key] for offer in cheapest_first((one.offer for one in found.values()), wanted)]


def _candidate(gpu: Mapping[str, Any], wanted: Constraints, data_center: str) -> Candidate | None:
    key, name, memory = gpu.get("id"), gpu.get("name"), number(gpu.get("memory"))
    price, count = _secure(gpu, "price"), gpu_count(wanted)
    if not isinstance(key, str) or not key or gpu.get("secure") is not True or not price:
        return None
    most = _secure(gpu, "maxCount")
    if most is not None and most < count:
        return None
    maker = maker_of(gpu.get("manufacturer"), key)
    if not fits([key, name], memory, wanted, maker):
        return None
    stock = gpu.get("availability")
    if stock == NOWHERE:
        return None
    there = _data_centers(gpu)
    regions = (data_center,) if data_center else wanted.regions
    if regions:
        there = tuple(dc for dc in there if any(in_region(dc, region) for region in regions))
        if not there:
            return None
    shown = ", ".join(there[:_SHOWN]) + (f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else "")
    running, stopped = disks_per_hour(wanted)
    offer = Offer(
        key,
        name if isinstance(name, str) and name else key,
        count,
        round(price * count + running, 6),
        shown or "any",
        gpu_memory_gb=memory,
        disk_gb=wanted.disk_gb,
        stopped_per_hour=stopped,
        cuda=wanted.cuda,
        stock=stock.lower() if isinstance(stock, str) else "",
        maker=maker,
    )
    return Candidate(offer, there if regions else (), key, price * count)


def fits(names: Sequence[Any], memory: float | None, wanted: Constraints, maker: str) -> bool:
    """Whether a GPU with these names, so much memory (GB) and this maker is asked for."""
    called = is_meant(wanted, *(text for text in names if isinstance(text, str)), maker=maker)
    return called and wanted.takes_memory(memory)


def _data_centers(gpu: Mapping[str, Any]) -> tuple[str, ...]:
    """The ids of the data centers that have the GPU now, in RunPod's own spelling (upper case), which it requires."""
    listed = gpu.get("dataCenters")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return tuple(str(dc["id"]) for dc in entries if dc.get("id") and dc.get("availability") != NOWHERE)


def _secure(gpu: Mapping[str, Any], name: str) -> float | None:
    found = gpu.get(name)
    return number(found.get("secure")) if isinstance(found, dict) else None


def disks(wanted: Constraints) -> tuple[int, int]:
    """GB of the pod's container disk and of its volume disk, which is 0 where a network volume is mounted instead."""
    asked = wanted.disk_gb or 0
    if wanted.volume:
        return max(asked, IMAGE_DISK_GB), 0
    return IMAGE_DISK_GB, max(asked or IMAGE_DISK_GB, LEAST_VOLUME_DISK_GB)


def disks_per_hour(wanted: Constraints) -> tuple[float, float]:
    """USD per hour of both disks: while the pod runs, and while it is stopped. No answer of RunPod names it."""
    container, kept = disks(wanted)
    return (container + kept) * GB_MONTH / HOURS_A_MONTH, kept * STOPPED_GB_MONTH / HOURS_A_MONTH


def catalog_params(wanted: Constraints) -> dict[str, str]:
    """The query of GET /v2/catalog/gpus for these constraints. RunPod names availability only when `product` is
    sent."""
    params = {"include": "AVAILABILITY", "product": "POD", "count": str(gpu_count(wanted)), "cloud": CLOUD}
    if wanted.cuda:
        params["minCudaVersion" if wanted.cuda_at_least else "cudaVersions"] = wanted.cuda
    return params


def gpu_count(wanted: Constraints) -> int:
    """The number of GPUs to rent: at least one, since a pod without a GPU has no disk that survives a stop."""
    return max(wanted.gpu_count, 1)


_MOUNT = re.compile(r"mnt/[A-Za-z0-9][A-Za-z0-9._-]*")
LEAST_VOLUME_GB, MOST_VOLUME_GB = 10, 4096
STANDARD, VOLUME_STEP_GB = "STANDARD", 1000
VOLUME_GB_MONTH, VOLUME_GB_MONTH_ABOVE = 0.07, 0.05
"""USD per GB and month of a STANDARD volume: up to `STEP_GB`, and for what is above that (2026-07)."""
OTHER_GB_MONTH = 0.14
"""The same of any other type: "priced at a premium" is all that the vendor says; twice is what others report."""
VOLUME_LOOKS = (0.5, 1.0, 2.0, 4.0)
"""Seconds before each look for the volume that a create with a lost answer may have made."""


@dataclass(frozen=True)
class VolumeSite:
    """A volume that a pod is to mount: RunPod's id, and the data center in which the pod must be rented."""

    id: str
    data_center: str


def split(native_id: str) -> tuple[str, str]:
    """The account and RunPod's own id in a volume's native id. Raises RequestRefused when it has another form."""
    account, dot, volume_id = native_id.rpartition(".")
    if not dot or not account or not account.isprintable():
        raise RequestRefused(f"{native_id!r} is no id of a RunPod volume (<account>.<id>)")
    return account, Session.checked_id(volume_id)


def get_volume(session: Session, native_id: str) -> VolumeRecord | None:
    """The volume; None only when it is proved that there is none. Raises WrongAccount, Unreachable."""
    account, volume_id = split(native_id)
    what = f"the volume {native_id}"
    mine = session.mine(account, what)
    found = session.volume(volume_id)
    if found is None:
        session.require(account, what, now=True)
        return None
    if not mine:
        session.owner.recall(account)  # the key shows the volume that is on record for this account
    return replace(_record(found, account), mounted_by=tuple(_mounting(session, volume_id)))


def placed(session: Session, native_id: str) -> VolumeSite:
    """The volume with its data center. Raises RequestRefused when it is not there, and what `get` raises."""
    found = get_volume(session, native_id)
    if found is None:
        raise RequestRefused(f"the volume {native_id} is not there any more: nothing was rented")
    return VolumeSite(split(native_id)[1], found.region)


def volume_for_box(session: Session, request: BoxRequest) -> VolumeSite | None:
    """The volume that the box is to mount, None without one. Called before anything is rented. Raises
    RequestRefused."""
    for mount in request.mounts:
        if not _MOUNT.fullmatch(mount):
            raise RequestRefused(f"the mount {mount!r} is not one: mnt/<name> is what a box has")
    if len(request.mounts) > 1:
        raise RequestRefused(f"a RunPod pod mounts one volume, and {request.name} asks for {len(request.mounts)}")
    return next((placed(session, native_id) for native_id in request.mounts.values()), None)


def tagged_volumes(session: Session, prefix: str) -> list[VolumeRecord]:
    """All volumes whose name begins with `prefix`, sorted by id."""
    account = session.account()
    found = [_record(volume, account) for volume in session.volumes().values()]
    return sorted((one for one in found if one.tag.startswith(prefix)), key=lambda one: one.native_id)


def ensure_volume(session: Session, tag: str, *, size_gb: int | None, region: str) -> VolumeRecord:
    """The volume of this tag: made when it is proved absent, grown when it is too small. Costs money. Idempotent. Call
    it while holding the tag's lock.

    To make one, `size_gb` and `region` (one data center) are needed: raises RequestRefused without them."""
    if not TAG.fullmatch(tag):
        raise RequestRefused(f"the tag {tag!r} can't be a volume's name: letters, digits, '.', '_' and '-'")
    account = session.account()
    found = _named(session, tag, max_age=0)
    if found is not None:
        record = _record(found, account)
        if size_gb is not None and record.size_gb is not None and record.size_gb < size_gb:
            return _changed(session, record, grow_volume(size_gb), f"{size_gb} GB for the volume {record.tag}")
        return record
    if size_gb is None or not region:
        raise RequestRefused(
            f"the volume {tag} has to be made, and RunPod asks for its size and its data center: give it `size` and "
            f"`region` (`sweepctl place` shows which data centers have the card)"
        )
    body = create_volume(tag, size_gb, *made_in(session, region))
    try:
        answer = session.write_volume("POST", body=body)
    except OutcomeUnknown:
        if (made := look_again(lambda: _named(session, tag, max_age=0), VOLUME_LOOKS)) is None:
            raise
        return _record(made, account, created=True)
    if not answer.ok:
        raise refused(session.http, answer, f"the volume {tag} of {body['size']} GB in {body['dataCenter']}")
    if not identifier(answer.data):
        raise OutcomeUnknown(f"RunPod made the volume {tag} and did not say which")
    return _record(answer.data, account, created=True)


def delete_volume(session: Session, native_id: str, account: str) -> None:
    """Deletes the volume. Irreversible; a volume that is gone already is a success. Raises RequestRefused while a pod
    mounts it, since RunPod does not reliably refuse that itself; NotYetGone when its end is not proved."""
    _, volume_id = split(native_id)
    if get_volume(session, native_id) is None:
        return
    session.require(account, f"the volume {native_id}")
    users = _mounting(session, volume_id, max_age=0)
    if users:
        raise RequestRefused(f"the volume {native_id} is mounted by {', '.join(users)}: end these boxes first")
    try:
        answer = session.write_volume("DELETE", volume_id)
    except OutcomeUnknown as error:
        raise NotYetGone(f"the volume {native_id}: {error}. Call it again") from error
    if not answer.ok and answer.status != 404:
        raise refused(session.http, answer, f"the end of the volume {native_id}")
    if get_volume(session, native_id) is not None:
        raise NotYetGone(f"RunPod still has the volume {native_id}, which goes on billing: call it again")


def _mounting(session: Session, volume_id: str, *, max_age: float | None = None) -> list[str]:
    """The ids of the pods that mount the volume and are not ending, from the list of pods: RunPod's volumes do not name
    their users."""
    return [
        identifier(pod)
        for pod in session.pods(max_age=max_age).by_id.values()
        if volume_id in volume_of(pod).values() and PHASES.get(str(pod.get("status"))) is not Phase.ENDING
    ]


def _named(session: Session, tag: str, *, max_age: float | None = None) -> Mapping[str, Any] | None:
    found = [volume for volume in session.volumes(max_age=max_age).values() if volume.get("name") == tag]
    if len(found) > 1:
        raise PlatformError(
            f"RunPod has {len(found)} volumes by the name {tag} ({', '.join(map(identifier, found))}), and which one "
            f"is the sweep's is not known: rename all but one in RunPod's console"
        )
    return found[0] if found else None


def name_volume(session: Session, native_id: str, tag: str) -> VolumeRecord:
    """See `NamesVolumes`: the name of a volume is its tag."""
    record, other = get_volume(session, native_id), _named(session, tag, max_age=0)
    if record is None or (other is not None and identifier(other) != split(native_id)[1]):
        raise RequestRefused(f"{native_id}: {'it is gone' if record is None else f'another volume is called {tag}'}")
    return record if record.tag == tag else _changed(session, record, {"name": tag}, f"the name {tag}")


def _changed(session: Session, record: VolumeRecord, to: Mapping[str, Any], what: str) -> VolumeRecord:
    """The volume once RunPod has changed it. `what`: the change, for messages."""
    _, volume_id = split(record.native_id)
    try:
        answer = session.write_volume("PATCH", volume_id, dict(to))
    except OutcomeUnknown:
        seen = session.volume(volume_id)
        if seen is None or any(seen.get(key) != value for key, value in to.items()):
            raise
        return _record(seen, record.account)
    if not answer.ok:
        raise refused(session.http, answer, what)
    return _record(answer.data if identifier(answer.data) else session.volumes(max_age=0)[volume_id], record.account)


def month_of_volume(size_gb: int, kind: str) -> float:
    """USD a month of a volume of this type and size."""
    if kind != STANDARD:
        return size_gb * OTHER_GB_MONTH
    return min(size_gb, VOLUME_STEP_GB) * VOLUME_GB_MONTH + max(size_gb - VOLUME_STEP_GB, 0) * VOLUME_GB_MONTH_ABOVE


def made_in(session: Session, region: str) -> tuple[str, str]:
    """The id of the data center `region`, in RunPod's spelling, and the type of a volume that is made there: STANDARD
    where it has that. Raises RequestRefused when RunPod has no such data center, or no network volumes there."""
    known: dict[str, list[str]] = {}
    for entry in session.data_centers():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            kinds = entry.get("networkVolumeTypes")
            known[entry["id"].upper()] = [str(kind) for kind in kinds] if isinstance(kinds, list) else []
    asked = region.strip().upper()
    having = sorted(name for name, has in known.items() if has)
    if asked not in known:
        raise RequestRefused(
            f"RunPod has no data center {region!r}{did_you_mean(asked, having)}; with network volumes: "
            f"{', '.join(having) or 'none'}"
        )
    if not known[asked]:
        raise RequestRefused(f"RunPod's {asked} has no network volumes; these have: {', '.join(having) or 'none'}")
    return asked, STANDARD if STANDARD in known[asked] else known[asked][0]


def create_volume(tag: str, size_gb: int, data_center: str, kind: str) -> dict[str, Any]:
    """The body of POST /v2/network-volumes. `kind`: its type, which can't be changed later; without one RunPod takes
    the data center's own default. Raises RequestRefused for a size above `MOST_VOLUME_GB`."""
    if size_gb > MOST_VOLUME_GB:
        raise RequestRefused(f"a RunPod volume has at most {MOST_VOLUME_GB} GB, and {size_gb} were asked for")
    return {"name": tag, "size": max(size_gb, LEAST_VOLUME_GB), "dataCenter": data_center, "type": kind}


def grow_volume(size_gb: int) -> dict[str, Any]:
    """The body of PATCH /v2/network-volumes/{id}. Raises RequestRefused for a size above `MOST_VOLUME_GB`."""
    if size_gb > MOST_VOLUME_GB:
        raise RequestRefused(f"a RunPod volume has at most {MOST_VOLUME_GB} GB, and {size_gb} were asked for")
    return {"size": size_gb}


def _record(volume: Mapping[str, Any], account: str, *, created: bool = False) -> VolumeRecord:
    volume_id, region, size = identifier(volume), volume.get("dataCenter"), volume.get("size")
    name, kind = volume.get("name"), volume.get("type")
    if not isinstance(region, str) or not region or not isinstance(name, str):
        raise Unreachable(f"RunPod's volume {volume_id} can't be read: it names no data center, or has no name")
    return VolumeRecord(
        f"{account}.{volume_id}",
        name,
        name,
        f"RunPod {region}, network volume {volume_id}{f' ({kind})' if kind and kind != STANDARD else ''}",
        created=created,
        region=region,
        size_gb=size if isinstance(size, int) else None,
        price_per_month=month_of_volume(size, str(kind)) if isinstance(size, int) else None,
        account=account,
    )


RENT, RESUME = "podRentInterruptable", "podBidResume"
WITHOUT = "Go on without: `spot: false`, or let another candidate have it"
NO_BIDS = "RunPod has retired its older interface (GraphQL: it answers 410), and REST v2 knows no bids"
NO_RENT = f"{NO_BIDS}: no spot pod can be rented any more, and none was. {WITHOUT}"
NO_RESUME = (
    f"{NO_BIDS}: a spot pod that stands still can't be started again, so what is on it can't be read, and its volume "
    'disk bills on. To end it: sweepctl give-up data/BOX --reason "…", then pulumi up and pulumi destroy; '
    "`spot: false` rents the next one"
)
NOT_ENABLED = (
    "RunPod says the same where spot is not enabled for the account, or for this kind of GPU: look whether its console "
    f"offers any before you wait. {WITHOUT}"
)
BID_STEP = 1e-4
RESUME_SECONDS = 90.0
_NO_MORE = re.compile(r"cannot query field|unknown (?:argument|type)|is not defined by type", re.I)
_FORBIDDEN = re.compile(r"unauthorized|forbidden|access denied|not allowed", re.I)
_WRONG = re.compile(r"spot pod as an on demand|pod not found", re.I)


def spot_candidates(session: Session, wanted: Constraints, data_center: str = "") -> list[Candidate]:
    """The spot offers that fit, cheapest first, at the bid that is asked for, else at the least that is accepted.
    `data_center`: the volume's. Where data centers are asked for, each is an offer of its own, since a mutation names
    one. Raises Unreachable; Unsupported once the older interface is gone."""
    centers = [data_center] if data_center else _centers(session, wanted)
    if not centers:
        return []
    found = {}
    try:
        gpus = session.spot_gpus(_spot_query(gpu_count(wanted), centers))
    except Retired:
        raise Unsupported(NO_RENT) from None
    for gpu in gpus:
        for place, center in enumerate(centers):
            if isinstance(gpu, dict) and (one := _spot_candidate(gpu, f"at{place}", center, wanted)) is not None:
                found[one.offer.key] = one
    return [found[offer.key] for offer in cheapest_first((one.offer for one in found.values()), wanted)]


def rent_spot(
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


def resume_spot(session: Session, native_id: str, bid: float, count: int) -> None:
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


def least_bid(session: Session, gpu_id: str, count: int) -> float | None:
    """The least bid for so many of these GPUs now, USD per hour of the whole box; None where it is not known."""
    wanted = Constraints(gpu_count=count, spot=True, parts=True)
    try:
        found = {one.gpu_id: one.gpus_per_hour for one in spot_candidates(session, wanted)}
    except PlatformError:
        return None
    return found.get(gpu_id)


def per_gpu(price: float, count: int) -> float:
    """A bid for the whole box as one for each GPU, rounded down: nothing above the price is ever bid."""
    return round(int(round(price / max(count, 1) / BID_STEP, 4)) * BID_STEP, 4)


def _centers(session: Session, wanted: Constraints) -> list[str]:
    """The data centers to ask for; one empty name where any will do."""
    if not wanted.regions:
        return [""]
    known = [str(center["id"]) for center in session.data_centers() if isinstance(center, dict) and center.get("id")]
    return [center for center in known if any(in_region(center, region) for region in wanted.regions)]


def _spot_query(count: int, centers: list[str]) -> str:
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


def _spot_candidate(gpu: Mapping[str, Any], place: str, center: str, wanted: Constraints) -> Candidate | None:
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
    each = math.ceil(round(each / BID_STEP, 4)) * BID_STEP
    price = round(each * count if wanted.bid is None else wanted.bid, 4)
    if per_gpu(price, count) + BID_STEP / 2 < each:
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
        answer = session.older(lambda: session.http.write("POST", GRAPHQL, {"query": query}, deadline=deadline))
    except Retired:
        raise Unsupported(NO_RENT if verb == RENT else NO_RESUME) from None
    data = answer.data.get("data") if isinstance(answer.data, dict) else None
    made = data.get(verb) if isinstance(data, dict) else None
    if answer.ok and isinstance(made, dict) and identifier(made):
        return made
    return _spot_refusal(answer, verb, what)


def _spot_refusal(answer: HttpAnswer, verb: str, what: str) -> PlatformError:
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
