"""Launches an instance: asks for one offer after another, cheapest first, until Lambda grants one."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

from sweepstack.extensions.lambda_api.api import POLL_SECONDS, Session, session
from sweepstack.extensions.lambda_api.offers import fitting, must_be_possible
from sweepstack.extensions.lambda_api.states import (
    ASKED_KEY,
    BILLS,
    FIRST_BOOT,
    MOST_NAME,
    TAG,
    TAG_KEY,
    UNHEALTHY,
    why_silent,
)
from sweepstack.onbox.common.errors import NoCapacity, NotYetGone, OutcomeUnknown, RequestRefused
from sweepstack.onbox.host.offers import Offer
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.common import renting
from sweepstack.platforms.common.deadline import Deadline, Watch
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.renting import Comes, Hooks, Try, first_granted, must_not_be_too_dear, with_key
from sweepstack.platforms.common.tag_lock import Memory


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
    hooks = Hooks(
        "lambda_api",
        at_hand.account(),
        by_id=at_hand.by_id,
        by_tag=lambda age: at_hand.by_tag(request.tag, max_age=age, known=request.known),
        rent=lambda memory: _rent(at_hand, with_key(request), wait, deadline, memory),
        adopt=partial(_must_stay, request.tag),
        ready=lambda record, made: _until_ready(at_hand, request, record, wait, deadline),
        dear=lambda record: must_not_be_too_dear(record, request.name, request.max_price),
    )
    return renting.create(hooks, request, wait)


def _must_stay(tag: str, record: BoxRecord) -> None:
    if record.phase is Phase.ENDING:
        raise NotYetGone(f"{record.native_id} carries the tag {tag} and is being terminated: finish that first")


def _rent(session: Session, request: BoxRequest, wait: Wait, deadline: Deadline, memory: Memory) -> BoxRecord:
    """Launches the instance, or adopts the one that a launch with a lost answer made. See `Hooks.rent`.

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
    look = partial(session.by_tag, request.tag, max_age=0.0)
    return first_granted(tries, look, request, wait, deadline, memory, refusals)


def _launched(
    session: Session, request: BoxRequest, offer: Offer, key_name: str, what: str, deadline: Deadline
) -> BoxRecord | NoCapacity:
    """The new instance, or the refusal where the next offer is worth a try. Raises every other refusal."""
    asked = datetime.now(UTC).replace(microsecond=0)
    answer = session.launch(_body(request, offer, key_name, asked), deadline)
    if not answer.ok:
        error = session.refused(answer, what)
        if isinstance(error, NoCapacity):
            return error
        raise error
    data = answer.data.get("data") if isinstance(answer.data, dict) else None
    ids = data.get("instance_ids") if isinstance(data, dict) else None
    if not isinstance(ids, list) or len(ids) != 1 or not isinstance(ids[0], str) or not ids[0]:
        raise OutcomeUnknown(f"Lambda accepted the launch of {what}, and its answer names no instance")
    session.made(ids[0])
    return BoxRecord(  # as it is before Lambda shows it
        ids[0],
        request.tag,
        session.account(),
        Phase.CREATING,
        offer.price_per_hour,
        asked,
        f"Lambda {offer.region}, instance {ids[0]}",
        gpu_count=offer.gpu_count,
        region=offer.region,
        offer=offer.key,
    )


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


def _until_ready(session: Session, request: BoxRequest, record: BoxRecord, wait: Wait, deadline: Deadline) -> BoxRecord:
    """Blocks until the instance is active, has an address, and answers there."""

    def look() -> BoxRecord:
        listed = session.boxes(max_age=paced(POLL_SECONDS)).by_id.get(record.native_id)
        row = listed or session.box(record.native_id)
        return session.recorded(row) if row is not None else session.gone(record.native_id, record.account)

    def silent(seen: BoxRecord) -> str:
        answer = seen.note if seen.note.startswith(UNHEALTHY) else why_silent(seen)
        return f"it is not ready: {answer}" if answer else ""

    what = f"{request.name} ({record.native_id}) to be ready"
    watch = Watch(deadline, what, lambda: paced(POLL_SECONDS), wait)
    comes = Comes(look, silent, BILLS, "terminated", "it was ended, not by this command")
    return renting.until_ready(request.name, record, comes, watch)
