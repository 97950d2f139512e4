"""RunPod's network volumes: the name is the tag; each is bound to a data center, and can only grow.

A volume's native id is `<account>.<id>`: a key of another account gets "not found", and that must not count as gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.errors import NotYetGone, OutcomeUnknown, PlatformError, RequestRefused, Unreachable
from sweepstack.onbox.host.platform import BoxRequest, Phase, VolumeRecord
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.look_again import look_again
from sweepstack.platforms.runpod.api import Session, checked_id
from sweepstack.platforms.runpod.errors import refused
from sweepstack.platforms.runpod.states import PHASES, TAG, volume_of

_MOUNT = re.compile(r"mnt/[A-Za-z0-9][A-Za-z0-9._-]*")
LEAST_VOLUME_GB, MOST_VOLUME_GB = 10, 4096
STANDARD, STEP_GB = "STANDARD", 1000
GB_MONTH, GB_MONTH_ABOVE = 0.07, 0.05
"""USD per GB and month of a STANDARD volume: up to `STEP_GB`, and for what is above that (2026-07)."""
OTHER_GB_MONTH = 0.14
"""The same of any other type: "priced at a premium" is all that the vendor says; twice is what others report."""
LOOKS = (0.5, 1.0, 2.0, 4.0)
"""Seconds before each look for the volume that a create with a lost answer may have made."""


@dataclass(frozen=True)
class Placed:
    """A volume that a pod is to mount: RunPod's id, and the data center in which the pod must be rented."""

    id: str
    data_center: str


def split(native_id: str) -> tuple[str, str]:
    """The account and RunPod's own id in a volume's native id. Raises RequestRefused when it has another form."""
    account, dot, volume_id = native_id.rpartition(".")
    if not dot or not account or not account.isprintable():
        raise RequestRefused(f"{native_id!r} is no id of a RunPod volume (<account>.<id>)")
    return account, checked_id(volume_id)


def get(session: Session, native_id: str) -> VolumeRecord | None:
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


def placed(session: Session, native_id: str) -> Placed:
    """The volume with its data center. Raises RequestRefused when it is not there, and what `get` raises."""
    found = get(session, native_id)
    if found is None:
        raise RequestRefused(f"the volume {native_id} is not there any more: nothing was rented")
    return Placed(split(native_id)[1], found.region)


def for_box(session: Session, request: BoxRequest) -> Placed | None:
    """The volume that the box is to mount, None without one. Called before anything is rented. Raises
    RequestRefused."""
    for mount in request.mounts:
        if not _MOUNT.fullmatch(mount):
            raise RequestRefused(f"the mount {mount!r} is not one: mnt/<name> is what a box has")
    if len(request.mounts) > 1:
        raise RequestRefused(f"a RunPod pod mounts one volume, and {request.name} asks for {len(request.mounts)}")
    return next((placed(session, native_id) for native_id in request.mounts.values()), None)


def tagged(session: Session, prefix: str) -> list[VolumeRecord]:
    """All volumes whose name begins with `prefix`, sorted by id."""
    account = session.account()
    found = [_record(volume, account) for volume in session.volumes().values()]
    return sorted((one for one in found if one.tag.startswith(prefix)), key=lambda one: one.native_id)


def ensure(session: Session, tag: str, *, size_gb: int | None, region: str) -> VolumeRecord:
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
            return _grown(session, record, size_gb)
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
        if (made := look_again(lambda: _named(session, tag, max_age=0), LOOKS)) is None:
            raise
        return _record(made, account, created=True)
    if not answer.ok:
        raise refused(session.http, answer, f"the volume {tag} of {body['size']} GB in {body['dataCenter']}")
    if not identifier(answer.data):
        raise OutcomeUnknown(f"RunPod made the volume {tag} and did not say which")
    return _record(answer.data, account, created=True)


def delete(session: Session, native_id: str, account: str) -> None:
    """Deletes the volume. Irreversible; a volume that is gone already is a success. Raises RequestRefused while a pod
    mounts it, since RunPod does not reliably refuse that itself; NotYetGone when its end is not proved."""
    _, volume_id = split(native_id)
    if get(session, native_id) is None:
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
    if get(session, native_id) is not None:
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


def _grown(session: Session, record: VolumeRecord, size_gb: int) -> VolumeRecord:
    _, volume_id = split(record.native_id)
    try:
        answer = session.write_volume("PATCH", volume_id, grow_volume(size_gb))
    except OutcomeUnknown:
        seen = session.volume(volume_id)
        if seen is None or seen.get("size") != size_gb:
            raise
        return _record(seen, record.account)
    if not answer.ok:
        raise refused(session.http, answer, f"{size_gb} GB for the volume {record.tag}")
    return _record(answer.data if identifier(answer.data) else session.volumes(max_age=0)[volume_id], record.account)


def month(size_gb: int, kind: str) -> float:
    """USD a month of a volume of this type and size."""
    if kind != STANDARD:
        return size_gb * OTHER_GB_MONTH
    return min(size_gb, STEP_GB) * GB_MONTH + max(size_gb - STEP_GB, 0) * GB_MONTH_ABOVE


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
        price_per_month=month(size, str(kind)) if isinstance(size, int) else None,
        account=account,
    )
