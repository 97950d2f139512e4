"""Volumes of vast.ai: a disk on one machine, which only boxes on that machine can mount (2026-11).

A volume's native id is `<account>.<contract>`: a bare number of another account's volume would look like one that is
gone. The vendor has withdrawn its network volumes; we do not use them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from sweepstack.onbox.common.errors import (
    NoCapacity,
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    Unreachable,
    WrongAccount,
)
from sweepstack.onbox.host.platform import BoxRequest, VolumeRecord, Wait, not_as_asked
from sweepstack.platforms.common import keys
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver
from sweepstack.platforms.common.json_values import number
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.renting import look_again
from sweepstack.platforms.vastai import KEY
from sweepstack.platforms.vastai.api import VERB_SECONDS, Row
from sweepstack.platforms.vastai.offers import HOURS_PER_MONTH
from sweepstack.platforms.vastai.session import Session
from sweepstack.platforms.vastai.states import NoSuchThing

REGION = re.compile(r"machine:([1-9]\d{0,17})")
_ID = re.compile(r"([1-9]\d{0,17})\.([0-9a-z]{1,20})")
_LONGEST = 64
_TAG = re.compile(rf"[A-Za-z0-9-]{{1,{_LONGEST}}}")
_LOOKS = (0.0, 2.0, 4.0, 8.0)
_GONE_SECONDS = 45.0
RELEASE_SECONDS = 90.0
"""vast.ai releases a volume about 30 s after the last box that used it is gone."""


def name_of(tag: str) -> str:
    """The volume name for `tag`: 64 letters, digits and `_` at most. Each `-` becomes `_`; `tag_of` turns it back.

    Raises RequestRefused for a tag that could not be read back from the name."""
    if _TAG.fullmatch(tag) is None:
        raise RequestRefused(
            f"a volume of vast.ai can't be called {tag}: letters, digits and -, {_LONGEST} at most, {len(tag)} here. "
            "Next: give it a shorter name in the stack file that keeps it, of small letters, digits and -"
        )
    return tag.replace("-", "_")


def tag_of(name: str) -> str:
    """The tag of a volume name."""
    return name.replace("_", "-")


def contract_of(native_id: str, account: str) -> str:
    """The contract in a volume's native id. Raises PlatformError when the id has another form, WrongAccount when the
    volume belongs to another account."""
    match = _ID.fullmatch(native_id)
    if not match:
        raise PlatformError(f"{native_id[:80]!r} is no volume of vast.ai: <account>.<number> is what one is called")
    if match[1] != account:
        raise WrongAccount(
            f"the volume {native_id} belongs to the vast.ai account {match[1]}, and the key at hand is that of account "
            f"{account}. Next: {keys.way(KEY)} with a key of {match[1]}"
        )
    return match[2]


def listed(session: Session) -> dict[str, tuple[Row, VolumeRecord]]:
    """Every volume of the account: contract → its row and record. Raises Unreachable when a row can't be read."""
    found = {}
    for row in session.client.volumes(session.deadline):
        identifier = row.get("id")
        if not isinstance(identifier, int):
            raise Unreachable("vast.ai lists a volume without an id: what volumes there are is not known")
        found[str(identifier)] = (row, _record(row, session.account))
    return found


def must_fit(session: Session, instance: int, tag: str, wanted: Collection[str]) -> None:
    """Returns when the box mounts exactly the volumes `wanted` (native ids), so that the request may adopt it. This is
    read from the volumes' rows, since an instance's row names no volume.

    Raises PlatformError when it mounts other volumes; Unreachable when vast.ai does not say."""
    has: set[str] = set()
    for pause in _LOOKS:  # the list of volumes may be from before the instance was made
        session.deadline.pause(paced(pause), "the list of volumes")
        records = [record for _, record in listed(session).values()]
        has = {record.native_id for record in records if str(instance) in (record.mounted_by or ())}
        if has == set(wanted):
            return
        silent = [record.native_id for record in records if record.native_id in wanted and record.mounted_by is None]
        if silent and has <= set(wanted):
            raise Unreachable(
                f"instance {instance} of vast.ai carries the tag {tag}, and vast.ai does not say which boxes mount "
                f"{', '.join(silent)}: it is not adopted, no second box is made, and it goes on billing"
            )
    raise not_as_asked(f"instance {instance} of vast.ai", tag, ", ".join(sorted(has)), ", ".join(sorted(wanted)))


def find(session: Session, tag: str) -> VolumeRecord | None:
    """The volume with this tag, the oldest of several (none is deleted); None when the list has none."""
    name = name_of(tag)
    named = [(int(key), record) for key, (row, record) in listed(session).items() if _name(row) == name]
    return replace(min(named)[1], tag=tag) if named else None


def ensure(session: Session, tag: str, size_gb: int | None, region: str) -> VolumeRecord:
    """The volume with this tag; when the list has none, makes it on the machine of `region`. Costs money. See
    `HasVolumes.ensure_volume`."""
    present = find(session, tag)
    if present is not None:
        return present
    found = asks(session, size_gb, region)
    name = name_of(tag)
    try:
        session.client.create_volume(found[0]["id"], size_gb or 0, name, session.deadline)
    except OutcomeUnknown as error:
        made = _appears(session, tag)
        if made is None:
            raise OutcomeUnknown(
                f"{error}. No volume {name} shows up so far: look again before another is made"
            ) from error
    else:
        made = _appears(session, tag)
        if made is None:
            raise OutcomeUnknown(
                f"vast.ai made the volume {name} and does not list it: look again before another is made"
            )
    price = made.price_per_month if made.price_per_month is not None else price_of(found[0], size_gb or 0)
    return replace(made, created=True, price_per_month=price)


def asks(session: Session, size_gb: int | None, region: str) -> list[Row]:
    """The offers of volumes of at least `size_gb` on the machine of `region`, cheapest first; at least one. Raises
    RequestRefused when no machine or no size is given, NoCapacity when there is no offer."""
    match = REGION.fullmatch(region)
    if not match:
        raise RequestRefused(
            f"a volume of vast.ai lies on one machine, which has to be named: region machine:<number>, and not "
            f"{region!r}. A box's number stands in its location, every machine's in the console. Nothing was made"
        )
    if not size_gb:
        raise RequestRefused("a volume of vast.ai has a fixed size, which has to be given (GB). Nothing was made")
    machine = int(match[1])
    found = [
        row
        for row in session.client.search_volumes(
            {"machine_id": {"eq": machine}}, session.deadline, storage=float(size_gb)
        )
        if row.get("machine_id") == machine
        and (number(row.get("disk_space")) or 0) >= size_gb
        and isinstance(row.get("id"), int)
    ]
    if not found:
        raise NoCapacity(f"machine {machine} of vast.ai offers no volume of {size_gb} GB now; nothing was made")
    found.sort(key=lambda row: (number(row.get("storage_cost")) or 0.0, row["id"]))
    return found


def price_of(ask: Row, size_gb: int) -> float | None:
    """The price of the volume in USD per month; None when the offer names none."""
    month = number(ask.get("storage_cost"))
    return None if month is None else month * size_gb


def for_box(session: Session, request: BoxRequest, wait: Wait) -> tuple[int | None, int | None]:
    """The contract and the machine of the volume that the box is to mount; the box must be rented on that machine.
    (None, None) without a volume. Blocks until no other box mounts it, `RELEASE_SECONDS` at most. Raises PlatformError
    when it is not there, or not free in time."""
    if not request.mounts:
        return None, None
    if len(request.mounts) > 1:
        raise RequestRefused(f"{request.name}: a box of vast.ai mounts one volume, and not {len(request.mounts)}")
    native_id = next(iter(request.mounts.values()))
    contract = contract_of(native_id, session.account)
    present: tuple[Row, VolumeRecord] | None = None

    def free() -> bool:
        nonlocal present
        present = listed(session).get(contract)
        return present is None or not in_use(present[0])

    watch = session.watch(f"the volume {native_id} to be released by its last box", wait)
    if why := watch.until(free, paced(RELEASE_SECONDS)):
        raise PlatformError(
            f"{request.name} was not made: {why}. A volume of vast.ai is mounted by one box at a time: end the one "
            "that mounts it first"
        )
    if present is None:
        raise PlatformError(f"{request.name} was not made: its volume {native_id} is not there any more")
    machine = present[0].get("machine_id")
    if not isinstance(machine, int):
        raise Unreachable(f"vast.ai does not say on which machine the volume {native_id} is: no box can be put there")
    return int(contract), machine


def delete(session: Session, native_id: str) -> None:
    """See `HasVolumes.delete_volume`."""
    contract = contract_of(native_id, session.account)
    if contract not in listed(session):
        return
    try:
        session.client.delete_volume(int(contract), session.deadline)
    except NoSuchThing:
        pass  # the list below decides
    except RequestRefused as error:
        raise NotYetGone(
            f"the volume {native_id} was not deleted, and goes on billing: {error}. A box that mounts it must be "
            "destroyed first; it is free about half a minute later. Then: the same command again"
        ) from error
    except OutcomeUnknown as error:
        raise NotYetGone(f"{error}. Next: the same command again; until then the volume may bill") from error
    end = Deadline(paced(_GONE_SECONDS))
    try:
        while contract in listed(session):
            end.pause(paced(2.0))
    except DeadlineOver:
        raise NotYetGone(
            f"vast.ai accepted the deletion of volume {native_id} and still lists it. Next: the same command again"
        ) from None


def in_use(row: Row) -> bool:
    """Whether a box mounts the volume, or did so a moment ago."""
    return row.get("status") in ("in-use", "in_use") or bool(row.get("instances"))


def _appears(session: Session, tag: str) -> VolumeRecord | None:
    """The volume with this tag, after several looks: a list may not have a new volume yet. None when it never shows."""
    own = session.with_deadline(VERB_SECONDS)
    return look_again(lambda: find(own, tag), _LOOKS)


def _name(row: Row) -> str:
    return str(row.get("label") or row.get("name") or "")


def _record(row: Row, account: str) -> VolumeRecord:
    size, machine = number(row.get("disk_space")), row.get("machine_id")
    hourly = number(row.get("storage_total_cost"))
    place = f"vast.ai machine {machine}" if isinstance(machine, int) else "vast.ai, machine unknown"
    where: Any = row.get("geolocation")
    return VolumeRecord(
        native_id=f"{account}.{row['id']}",
        tag=tag_of(_name(row)),
        name=_name(row),
        location=f"{place}, {where}" if where else place,
        region=f"machine:{machine}" if isinstance(machine, int) else "",
        size_gb=None if size is None else round(size),
        price_per_month=None if hourly is None else hourly * HOURS_PER_MONTH,
        account=account,
        mounted_by=_users(row.get("instances")),
    )


def _users(listed: Any) -> tuple[str, ...] | None:
    """The ids of the instances in a volume's row (a list of ids or of rows); None when the row does not name them."""
    if not isinstance(listed, list):
        return None
    found = [one.get("id") if isinstance(one, dict) else one for one in listed]
    return tuple(str(one) for one in found) if all(isinstance(one, int | str) for one in found) else None
