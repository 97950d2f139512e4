"""Finds a box by its id or tag. RunPod's names are not unique, and other people may use ours."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sweepstack.onbox.common.errors import PlatformError, Retired, Unproved
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.listed import first_of
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.runpod.api import FRESH_SECONDS, NAMES, Session, checked_id
from sweepstack.platforms.runpod.legacy_query import StillListed
from sweepstack.platforms.runpod.states import (
    NO_START,
    NOT_SAID,
    TELLS,
    bid_of,
    carries,
    record_of,
    volume_of,
    why_still,
)

AGAIN_SECONDS = 1.0
"""An answer of this age is new enough for all boxes of one list."""


def get(session: Session, native_id: str, account: str) -> BoxRecord:
    """See `Platform.get`. Raises Unproved where only the bill is missing as a proof that it is gone."""
    checked_id(native_id)
    what = f"the box {native_id}"
    mine = session.mine(account, what)
    place = f"RunPod, pod {native_id}"
    try:
        pod = session.pod(native_id)
    except StillListed as error:
        if not session.is_ending(native_id):
            raise
        return BoxRecord(native_id, "", account, Phase.ENDING, None, None, place, str(error))
    except Unproved as error:
        ours = session.owner.is_of(account)
        if ours is False:  # another account's bill does not know the pod
            session.require(account, what)
        error.same_account = ours is True
        raise
    if pod is None:
        if (
            not session.retired
        ):  # under another account's key it would look gone; a bill that knows it proves the account
            session.require(account, what, now=True)
        return BoxRecord(native_id, "", account, Phase.GONE, None, None, place)
    if not mine:
        session.owner.recall(account)  # the key shows the box that is on record for this account
    return replace(recorded(session, pod), account=account)


def by_tag(session: Session, tag: str, *, max_age: float | None = None, known: str = "") -> BoxRecord | None:
    """The oldest box with this tag that is not ending, else one that is ending; None only when it is proved that there
    is none: no complete list has it, and the older interface, while it is there, shows none. `known`: the id on
    record, which comes before all others. The note names other boxes with the same tag. Raises Unreachable."""
    if max_age is None and any(carries(pod, tag) for pod in session.pods().by_id.values()):
        pods = session.pods()
    else:  # a list from a moment ago does not prove that there is none
        pods = session.pods(max_age=max_age or 0)
    found = [recorded(session, pod) for pod in pods.by_id.values() if carries(pod, tag)]
    if found:
        return first_of(found, known, NAMES)
    pods.must_be_whole(tag)
    return _only_in_legacy(session, tag, max_age or 0)


def _only_in_legacy(session: Session, tag: str, max_age: float) -> BoxRecord | None:
    """The box that the older interface shows and REST's list lacks, read from REST by its id; None without one, or
    without that interface."""
    try:
        older = session.legacy_pods(session.account(), max_age=max_age).tagged(tag)
    except Retired:
        return None
    for native_id in older:
        if (pod := session.pod(native_id)) is not None and carries(pod, tag):
            return recorded(session, pod)
    return None


def by_id(session: Session, native_id: str) -> BoxRecord | None:
    """The box with this id; None only when it is proved that there is none. Raises Unreachable; RequestRefused when
    `native_id` can't be an id."""
    pod = session.pod(native_id)
    return None if pod is None else recorded(session, pod)


def recorded(session: Session, pod: Mapping[str, Any]) -> BoxRecord:
    """The pod as a record; ENDING when this process had its delete accepted."""
    record = record_of(pod, session.account(), ending=session.is_ending(identifier(pod)))
    if record.phase is not Phase.STOPPED or bid_of(pod) is None:
        return record
    why = _why_still(session, record.native_id)
    note = "; ".join(part for part in (why, record.note) if part)
    return replace(record, note=note, told=TELLS.get(why))


def _why_still(session: Session, native_id: str) -> str:
    """The note of a spot pod that stands still. An answer from before it stopped does not say why, so then it is asked
    for again. Raises nothing."""
    why = NOT_SAID
    with contextlib.suppress(PlatformError):
        for age in (FRESH_SECONDS, AGAIN_SECONDS):
            change = session.last_changes(max_age=paced(age)).get(native_id)
            why = why_still(change.text if change is not None else None)
            if why != NOT_SAID:
                break
    return NO_START if session.retired else why


def mounts_of(session: Session, record: BoxRecord) -> dict[str, str]:
    """The network volumes of the record's pod: path on the box → volume id."""
    return volume_of(session.pods().by_id.get(record.native_id, {}))


def listed(session: Session, prefix: str) -> list[BoxRecord]:
    """Every pod whose tag begins with `prefix` or can't be read, sorted by id; last, one record for pods without an
    id."""
    pods = session.pods()
    return pods.tagged((recorded(session, pod) for pod in pods.by_id.values()), prefix, session.account())
