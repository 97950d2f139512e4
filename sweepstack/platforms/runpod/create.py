"""Rents a pod: asks for one offer after another, cheapest first, until RunPod grants one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    NotYetGone,
    PlatformError,
    RequestRefused,
)
from sweepstack.onbox.host.offers import no_offer_left
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait, not_as_asked
from sweepstack.platforms.common import renting
from sweepstack.platforms.common.deadline import Deadline, Lasting, Watch
from sweepstack.platforms.common.http_client import Answer
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.renting import Comes, Hooks, Try, first_granted, must_not_be_too_dear, with_key
from sweepstack.platforms.common.tag_memory import Memory
from sweepstack.platforms.runpod import bodies, spot
from sweepstack.platforms.runpod.api import NEW_TAG_SECONDS, Session, session
from sweepstack.platforms.runpod.channel import why_silent
from sweepstack.platforms.runpod.errors import refused
from sweepstack.platforms.runpod.lookup import by_id, by_tag, mounts_of, recorded
from sweepstack.platforms.runpod.offers import Candidate, candidates, catalog_params, must_be_possible
from sweepstack.platforms.runpod.states import BILLS, TAG
from sweepstack.platforms.runpod.volumes import Placed, for_box

WAKE_SECONDS = 20.0
"""For so long a pod that was told to start may still be shown as stopped."""
GRACE_SECONDS = 30.0
"""A new pod counts as removed when it was neither listed nor found by its id for so long."""


def create(request: BoxRequest, wait: Wait) -> BoxRecord:
    """See `Platform.create`."""
    must_be_possible(request.constraints)
    if not TAG.fullmatch(request.tag):
        raise RequestRefused(f"the tag {request.tag!r} can't be a pod's name: letters, digits, '.', '_' and '-'")
    at_hand, deadline = session(), Deadline(wait.deadline, wait.cancelled)
    account = at_hand.account()
    volume = for_box(at_hand, request)

    def ready(record: BoxRecord, made: bool) -> BoxRecord:
        if record.phase is Phase.STOPPED and not made:
            return record
        return until_ready(at_hand, request.name, record, wait, deadline=deadline)

    hooks = Hooks(
        "runpod",
        account,
        by_id=partial(by_id, at_hand),
        by_tag=lambda age: by_tag(at_hand, request.tag, max_age=age, known=request.known),
        rent=lambda memory: _rent(at_hand, with_key(request), volume, wait, memory),
        adopt=lambda record: must_fit(record, mounts_of(at_hand, record), request, volume),
        ready=ready,
        dear=lambda record: must_not_be_too_dear(record, request.name, request.max_price),
        # When this machine never asked for this tag, a list that another caller has just read is enough.
        first_look=lambda memory: paced(NEW_TAG_SECONDS) if memory.first else 0.0,
    )
    return renting.create(hooks, request, wait)


def _rent(session: Session, request: BoxRequest, volume: Placed | None, wait: Wait, memory: Memory) -> BoxRecord:
    """Makes the pod, or adopts the one that a create with a lost answer made. Costs money. See `Hooks.rent`.

    Raises NoCapacity with every refusal when no offer could be rented; RequestRefused when RunPod refused all offers
    for the same other reason, which then lies in the request; InsufficientFunds and OutcomeUnknown at once.
    """
    wanted, deadline = request.constraints, Deadline(wait.deadline, wait.cancelled)
    refusals: list[str] = []
    center = volume.data_center if volume else ""
    if wanted.spot:
        found = spot.candidates(session, wanted, center)
    else:
        found = candidates(session.gpus(catalog_params(wanted)), wanted, center)
    if request.offer:
        if request.offer not in [one.offer.key for one in found]:
            refusals.append(f"{request.offer}: not in the market now, or above the price that you allow")
        found.sort(key=lambda one: one.offer.key != request.offer)
    tries = []
    for one in found:
        offer = one.offer
        what = f"{offer.gpu_count}× {offer.gpu} at {offer.price_per_hour:.3f} USD/h"
        body = bodies.create_pod(request, offer, one.gpu_id, list(one.data_centers), volume.id if volume else "")
        send = partial(_asked, session, body, one, what, deadline)
        tries.append(Try(offer.key, f"RunPod for {what} ({offer.region})", send))
    look = partial(by_tag, session, request.tag, max_age=0)
    granted = first_granted(tries, look, request, wait, deadline, memory, refusals, partial(_none_left, request.name))
    return granted if isinstance(granted, BoxRecord) else recorded(session, granted)


def _asked(
    session: Session, body: Mapping[str, Any], one: Candidate, what: str, deadline: Deadline
) -> dict[str, Any] | PlatformError:
    """The pod, or the refusal where the next offer is worth a try. Raises what no other offer can do better."""
    if one.offer.spot:
        return spot.rent(session, body, one, deadline)
    answer = session.create_pod(body, deadline)
    return dict(answer.data) if answer.ok else _refusal(session, answer, what)


def must_fit(record: BoxRecord, mounts: dict[str, str], request: BoxRequest, volume: Placed | None) -> None:
    """Returns when the box has the volumes that the request asks for, so that it may be adopted. `mounts`: what the box
    has (path → volume id). Raises NotYetGone for a box that is being destroyed, and `not_as_asked`."""
    if record.phase is Phase.ENDING:
        raise NotYetGone(f"{record.native_id} carries the tag {request.tag} and is being destroyed: finish that first")
    if record.phase is Phase.UNKNOWN:
        return
    wanted = {f"{bodies.ROOT}/{mount}": volume.id for mount in request.mounts} if volume else {}
    if mounts != wanted:
        raise not_as_asked(record.location, request.tag, _spelled(mounts), _spelled(wanted))


def _spelled(mounts: dict[str, str]) -> str:
    return ", ".join(f"{volume} at {path}" for path, volume in sorted(mounts.items()))


def until_ready(
    session: Session,
    name: str,
    record: BoxRecord,
    wait: Wait,
    *,
    deadline: Deadline | None = None,
    restarted: bool = False,
) -> BoxRecord:
    """Blocks until the pod runs, has an address, and answers there. Every error that leaves it rented is StillCreating
    with its id. `deadline`: given when the clock of `wait` runs already. `restarted`: the pod was told to start, so it
    may be shown as stopped for a short time."""
    begin, deadline = time.monotonic(), deadline or Deadline(wait.deadline, wait.cancelled)
    absent = Lasting(deadline, paced(GRACE_SECONDS))  # not every answer knows a pod that was made a moment ago

    def look() -> BoxRecord | None:
        known = session.pods(max_age=session.poll_seconds()).by_id
        pod = known.get(record.native_id) or session.pod(record.native_id)
        if absent.held(pod is None):
            return BoxRecord(record.native_id, record.tag, record.account, Phase.GONE, None, None, record.location)
        seen = recorded(session, pod) if pod is not None else None
        wakes = restarted and time.monotonic() - begin < WAKE_SECONDS
        return None if seen is not None and seen.phase is Phase.STOPPED and wakes else seen

    def silent(seen: BoxRecord) -> str:
        answer = why_silent(session, seen)
        return f"it runs, and does not answer: {answer}" if answer else ""

    cause = "its image can't be run, or it was stopped, not by this command"
    watch = Watch(deadline, f"{name} ({record.native_id}) to be ready", session.poll_seconds, wait)
    return renting.until_ready(name, record, Comes(look, silent, BILLS, "removed", cause), watch)


def _refusal(session: Session, answer: Answer, what: str) -> PlatformError:
    """The error of a refused offer, when the next offer is worth a try. Raises it when no other offer can do better."""
    error = refused(session.http, answer, what)
    if isinstance(error, InsufficientFunds) or answer.status in (404, 409, 413, 422):
        raise error
    return error


def _none_left(name: str, reasons: list[PlatformError], refusals: list[str]) -> PlatformError:
    """The error when every offer was refused."""
    if reasons and all(isinstance(reason, NotAuthorized) for reason in reasons):
        return NotAuthorized("\n".join([f"{name}: every offer was forbidden; nothing was rented", *refusals]))
    if any(isinstance(reason, NoCapacity) for reason in reasons) or not reasons:
        return no_offer_left(refusals, name)
    texts = {str(reason).rpartition(": ")[2] for reason in reasons if isinstance(reason, RequestRefused)}
    if len(texts) == 1 and all(isinstance(reason, RequestRefused) for reason in reasons):
        return RequestRefused("\n".join([f"{name}: RunPod refuses the request; nothing was rented", *refusals]))
    return no_offer_left(refusals, name)
