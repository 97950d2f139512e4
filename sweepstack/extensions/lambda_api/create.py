"""Launches an instance: asks for one offer after another, cheapest first, until Lambda grants one."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

from sweepstack.extensions.lambda_api.api import POLL_SECONDS, Session, session
from sweepstack.extensions.lambda_api.channel import FIRST_BOOT, why_silent
from sweepstack.extensions.lambda_api.errors import refused
from sweepstack.extensions.lambda_api.lookup import by_id, by_tag, recorded
from sweepstack.extensions.lambda_api.offers import fitting, must_be_possible
from sweepstack.extensions.lambda_api.states import ASKED_KEY, BILLS, MOST_NAME, TAG, TAG_KEY, UNHEALTHY
from sweepstack.onbox.common.errors import (
    NoCapacity,
    NotYetGone,
    OutcomeUnknown,
    RequestRefused,
)
from sweepstack.onbox.host.offers import Offer
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.common.deadline import Deadline, Watch
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.renting import (
    Comes,
    Tagged,
    Try,
    first_granted,
    must_not_be_too_dear,
    rented,
    until_ready,
)
from sweepstack.platforms.common.tag_memory import Memory


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
    tagged = Tagged(
        "lambda_api",
        at_hand.account,
        partial(by_id, at_hand),
        lambda age: by_tag(at_hand, request.tag, max_age=age, known=request.known),
        lambda asked, memory: _rent(at_hand, asked, wait, deadline, memory),
        partial(_must_stay, request.tag),
    )
    with rented(tagged, request, wait) as (record, _):
        pass
    must_not_be_too_dear(record, request.name, request.max_price, digits=2)
    return _until_ready(at_hand, request, record, wait, deadline)


def _must_stay(tag: str, record: BoxRecord) -> None:
    if record.phase is Phase.ENDING:
        raise NotYetGone(f"{record.native_id} carries the tag {tag} and is being terminated: finish that first")


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
    return first_granted(
        tries, partial(by_tag, session, request.tag, max_age=0.0), request, wait, deadline, memory, refusals
    )


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
    """Blocks until the instance is active, has an address, and answers there; then its price counts."""

    def look() -> BoxRecord:
        listed = session.instances(max_age=paced(POLL_SECONDS)).by_id.get(record.native_id)
        row = listed or session.instance(record.native_id)
        return recorded(session, row) if row is not None else _absent(record)

    def silent(seen: BoxRecord) -> str:
        answer = seen.note if seen.note.startswith(UNHEALTHY) else why_silent(seen)
        return f"it is not ready: {answer}" if answer else ""

    what = f"{request.name} ({record.native_id}) to be ready"
    watch = Watch(deadline, what, lambda: paced(POLL_SECONDS), wait)
    comes = Comes(look, silent, BILLS, "terminated", "it was ended, not by this command")
    seen = until_ready(request.name, record, comes, watch)
    must_not_be_too_dear(seen, request.name, request.max_price, digits=2)
    return seen


def _absent(record: BoxRecord) -> BoxRecord:
    """The record of an instance that Lambda no longer knows, `LAG_SECONDS` after its launch or later."""
    return BoxRecord(record.native_id, record.tag, record.account, Phase.GONE, None, None, record.location)
