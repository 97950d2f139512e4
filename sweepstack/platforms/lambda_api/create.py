"""Launches an instance: asks for one offer after another, cheapest first, until Lambda grants one."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

from sweepstack.onbox.common.errors import (
    NoCapacity,
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    StillCreating,
    Unreachable,
    one_line,
)
from sweepstack.onbox.host.offers import Offer
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.common.deadline import Deadline, Watch
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.renting import Try, first_granted, must_be_wanted, must_not_be_too_dear, with_key
from sweepstack.platforms.common.tag_lock import hold_tag_lock
from sweepstack.platforms.common.tag_memory import Memory
from sweepstack.platforms.lambda_api.api import POLL_SECONDS, Session, session
from sweepstack.platforms.lambda_api.channel import FIRST_BOOT, why_silent
from sweepstack.platforms.lambda_api.errors import refused
from sweepstack.platforms.lambda_api.lookup import by_id, by_tag, recorded
from sweepstack.platforms.lambda_api.offers import fitting, must_be_possible
from sweepstack.platforms.lambda_api.states import ASKED_KEY, BILLS, MOST_NAME, TAG, TAG_KEY, UNHEALTHY


def create(request: BoxRequest, wait: Wait) -> BoxRecord:
    """See `Platform.create`."""
    must_be_possible(request.constraints)
    if not TAG.fullmatch(request.tag):
        raise RequestRefused(f"the tag {request.tag!r} can't be a tag of Lambda: letters, digits, '.', '_' and '-'")
    if request.mounts:
        raise RequestRefused(
            f"{request.name}: no file system of Lambda is mounted here yet. Take `mounts` out and pull the results, or "
            "launch the instance by hand with its file system, and use the platform lambda with `host:`"
        )
    at_hand, deadline = session(), Deadline.of(wait)
    with hold_tag_lock("lambda_api", at_hand.account, request.tag, wait, request.asked) as memory:
        listed = partial(by_tag, at_hand, request.tag, max_age=0.0, known=request.known)
        record = memory.find(partial(by_id, at_hand), listed, listed)
        made = record is None
        if record is None:
            must_be_wanted(request, wait)
            record = _rent(at_hand, with_key(request), wait, deadline, memory)
        memory.made(record.native_id)
        if not made and record.phase is Phase.ENDING:
            raise NotYetGone(
                f"{record.native_id} carries the tag {request.tag} and is being terminated: finish that first"
            )
    note = f" ({record.note})" if record.note else ""
    wait.progress(f"{request.name}: {'rented' if made else 'adopted'} {record.location}{note}")
    must_not_be_too_dear(record, request.name, request.max_price, digits=2)
    return _until_ready(at_hand, request, record, wait, deadline)


def _rent(session: Session, request: BoxRequest, wait: Wait, deadline: Deadline, memory: Memory) -> BoxRecord:
    """Launches the instance, or adopts the one that a launch with a lost answer made. Costs money. Call it while
    holding the tag's lock (which gives `memory`), when no list has an instance of this tag.

    Raises NoCapacity with every refusal when no offer could be rented; what another offer can't do better at once."""
    offers = fitting(session.types(), request.constraints)
    refusals: list[str] = []
    if request.offer:
        if request.offer not in [offer.key for offer in offers]:
            refusals.append(f"{request.offer}: no room there now, or above the price that you allow")
        offers.sort(key=lambda offer: offer.key != request.offer)
    key_name = session.key_name(request.public_key, deadline) if offers else ""
    tries = []
    for offer in offers:
        what = f"{offer.gpu_count}× {offer.gpu} at {offer.price_per_hour:.2f} USD/h in {offer.region}"
        send = partial(_launched, session, request, offer, key_name, what, deadline)
        tries.append(Try(offer.key, f"Lambda for {what}", send))
    return first_granted(tries, partial(by_tag, session, request.tag, max_age=0.0), request, wait, memory, refusals)


def _launched(
    session: Session, request: BoxRequest, offer: Offer, key_name: str, what: str, deadline: Deadline
) -> BoxRecord | NoCapacity:
    """The new instance, or the refusal where the next offer is worth a try. Raises every other refusal."""
    asked = datetime.now(UTC).replace(microsecond=0)
    answer = session.launch(_body(request, offer, key_name, asked), deadline)
    if not answer.ok:
        error = refused(session.http, answer, what)
        if isinstance(error, NoCapacity):
            return error
        raise error
    data = answer.data.get("data") if isinstance(answer.data, dict) else None
    ids = data.get("instance_ids") if isinstance(data, dict) else None
    if not isinstance(ids, list) or len(ids) != 1 or not isinstance(ids[0], str) or not ids[0]:
        raise OutcomeUnknown(f"Lambda accepted the launch of {what}, and its answer names no instance")
    session.launched(ids[0])
    return _new(session, request, offer, ids[0], asked)


def _body(request: BoxRequest, offer: Offer, key_name: str, asked: datetime) -> dict[str, Any]:
    kind, _, region = offer.key.partition("@")
    return {
        "region_name": region,
        "instance_type_name": kind,
        "ssh_key_names": [key_name],
        "name": request.tag[:MOST_NAME],
        "user_data": FIRST_BOOT,
        "tags": [
            {"key": TAG_KEY, "value": request.tag},
            {"key": ASKED_KEY, "value": asked.isoformat()},
        ],
    }


def _new(session: Session, request: BoxRequest, offer: Offer, native_id: str, asked: datetime) -> BoxRecord:
    """The record of an instance that was launched now, before Lambda shows it."""
    return BoxRecord(
        native_id,
        request.tag,
        session.account,
        Phase.CREATING,
        offer.price_per_hour,
        asked,
        f"Lambda {offer.region}, instance {native_id}",
        gpu_count=offer.gpu_count,
        region=offer.region,
        offer=offer.key,
    )


def _until_ready(session: Session, request: BoxRequest, record: BoxRecord, wait: Wait, deadline: Deadline) -> BoxRecord:
    """Blocks until the instance is active, has an address, and answers there. Every error that leaves it rented is
    StillCreating with its id."""
    seen, why_not = record, ""

    def settled() -> bool:
        nonlocal seen, why_not
        try:
            listed = session.instances(max_age=paced(POLL_SECONDS)).by_id.get(record.native_id)
            row = listed or session.instance(record.native_id)
        except Unreachable as error:  # an outage does not end the waiting: only the deadline does
            why_not = one_line(error)
            return False
        seen, why_not = (recorded(session, row) if row is not None else _absent(record)), ""
        if seen.phase is Phase.CREATING:
            return False
        if seen.phase is not Phase.RUNNING:
            return True
        answer = seen.note if seen.note.startswith(UNHEALTHY) else why_silent(seen)
        why_not = f"it is not ready: {answer}" if answer else ""
        return not answer

    what = f"{request.name} ({record.native_id}) to be ready"
    try:
        why = Watch(deadline, what, lambda: paced(POLL_SECONDS), wait).until(settled)
    except PlatformError as error:  # the error carries the id, so that it is not lost
        raise StillCreating(record.native_id, seen.outputs(), [f"{one_line(error)}; {BILLS[Phase.UNKNOWN]}"]) from error
    if seen.phase is Phase.GONE:
        raise PlatformError(
            f"{record.native_id} was terminated, not by this command, while it was being made: nothing bills"
        )
    if why and why_not:
        why = f"{why} ({why_not})"
    if not why and seen.phase is not Phase.RUNNING:
        why = f"{request.name} is {seen.phase}, not running: {seen.note or 'it was ended, not by this command'}"
    if why:
        raise StillCreating(record.native_id, seen.outputs(), [f"{why}; {BILLS.get(seen.phase, 'it may bill')}"])
    must_not_be_too_dear(seen, request.name, request.max_price, digits=2)
    return seen


def _absent(record: BoxRecord) -> BoxRecord:
    """The record of an instance that Lambda no longer knows, `LAG_SECONDS` after its launch or later."""
    return BoxRecord(record.native_id, record.tag, record.account, Phase.GONE, None, None, record.location)
