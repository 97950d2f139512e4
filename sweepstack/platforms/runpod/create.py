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
    StillCreating,
    Unreachable,
    one_line,
)
from sweepstack.onbox.host.offers import no_offer_left
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait, not_as_asked
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver, Lasting, Watch
from sweepstack.platforms.common.http_client import Answer
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.listed import LOOKS
from sweepstack.platforms.common.look_again import sent_or_found
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.renting import must_be_wanted, must_not_be_too_dear, with_key
from sweepstack.platforms.common.tag_lock import hold_tag_lock
from sweepstack.platforms.common.tag_memory import Memory
from sweepstack.platforms.runpod import bodies, spot
from sweepstack.platforms.runpod.api import NEW_TAG_SECONDS, Session, session
from sweepstack.platforms.runpod.channel import why_silent
from sweepstack.platforms.runpod.errors import refused
from sweepstack.platforms.runpod.lookup import by_id, by_tag, mounts_of, recorded
from sweepstack.platforms.runpod.offers import Candidate, candidates, must_be_possible
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
    with hold_tag_lock("runpod", account, request.tag, wait, request.asked) as memory:
        # When this machine never asked for this tag, a list that another caller has just read is enough.
        age, known = paced(NEW_TAG_SECONDS) if memory.first else 0, request.known
        look = partial(by_tag, at_hand, request.tag, known=known)
        record = memory.find(partial(by_id, at_hand), partial(look, max_age=age), partial(look, max_age=0))
        made = record is None
        if record is None:
            must_be_wanted(request, wait)
            record = rent(at_hand, with_key(request), volume, wait, memory)
        else:
            memory.made(record.native_id)
            must_fit(record, mounts_of(at_hand, record), request, volume)
    note = f" ({record.note})" if record.note else ""
    wait.progress(f"{request.name}: {'rented' if made else 'adopted'} {record.location}{note}")
    must_not_be_too_dear(record, request.name, request.max_price)
    if record.phase is Phase.STOPPED and not made:
        return record
    return until_ready(at_hand, request.name, record, wait, deadline=deadline, max_price=request.max_price)


def rent(session: Session, request: BoxRequest, volume: Placed | None, wait: Wait, memory: Memory) -> BoxRecord:
    """Makes the pod, or adopts the one that a create with a lost answer made. Costs money. Call it while holding the
    tag's lock (which gives `memory`), when it is proved that there is no pod of this tag.

    Raises NoCapacity with every refusal when no offer could be rented; RequestRefused when RunPod refused all offers
    for the same other reason, which then lies in the request; InsufficientFunds and OutcomeUnknown at once.
    """
    with memory.renting():
        granted = _granted(session, request, volume, wait, memory)
    if isinstance(granted, BoxRecord):
        memory.made(granted.native_id)
        return granted
    memory.made(identifier(granted))
    return recorded(session, granted)


def _granted(
    session: Session, request: BoxRequest, volume: Placed | None, wait: Wait, memory: Memory
) -> BoxRecord | dict[str, Any]:
    """The pod of the first offer that RunPod grants (its answer), or the record of a pod that was found by its tag
    after the answer was lost. OutcomeUnknown is the only error after which there may be a pod."""
    wanted, begin = request.constraints, time.monotonic()
    refusals: list[str] = []
    reasons: list[PlatformError] = []
    center = volume.data_center if volume else ""
    if wanted.spot:
        tries = spot.candidates(session, wanted, center)
    else:
        tries = candidates(session.gpus(bodies.catalog_params(wanted)), wanted, center)
    if request.offer:
        if request.offer not in [one.offer.key for one in tries]:
            refusals.append(f"{request.offer}: not in the market now, or above the price that you allow")
        tries.sort(key=lambda one: one.offer.key != request.offer)
    for one in tries:
        offer = one.offer
        what = f"{offer.gpu_count}× {offer.gpu} at {offer.price_per_hour:.3f} USD/h"
        must_be_wanted(request, wait)
        left = wait.deadline - (time.monotonic() - begin)
        if left <= 0:
            raise _too_late(request, refusals, reasons, wait.deadline)
        wait.progress(f"{request.name}: asking RunPod for {what} ({offer.region})")
        body = bodies.create_pod(request, offer, one.gpu_id, list(one.data_centers), volume.id if volume else "")
        memory.sending()
        try:
            made = sent_or_found(
                partial(_asked, session, body, one, what, Deadline(left, wait.cancelled)),
                partial(by_tag, session, request.tag, max_age=0),
                LOOKS,
                request.name,
                wait,
            )
        except DeadlineOver as error:
            if not reasons or wait.cancelled.is_set():
                raise
            raise _too_late(request, refusals, reasons, wait.deadline) from error
        if not isinstance(made, PlatformError):
            return made
        refusals.append(f"{offer.key}: {one_line(made)}")
        reasons.append(made)
        wait.progress(f"{request.name}: {one_line(made)}")
    raise _none_left(request, refusals, reasons)


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
    max_price: float | None = None,
    restarted: bool = False,
) -> BoxRecord:
    """Blocks until the pod runs, has an address, and answers there. Every error that leaves it rented is StillCreating
    with its id. `deadline`: given when the clock of `wait` runs already. `restarted`: the pod was told to start, so it
    may be shown as stopped for a short time."""
    seen, why_not, begin = record, "", time.monotonic()
    deadline = deadline or Deadline(wait.deadline, wait.cancelled)
    absent = Lasting(deadline, paced(GRACE_SECONDS))  # not every answer knows a pod that was made a moment ago

    def settled() -> bool:
        nonlocal seen, why_not
        try:
            known = session.pods(max_age=session.poll_seconds()).by_id
            pod = known.get(record.native_id) or session.pod(record.native_id)
        except Unreachable as error:  # an outage does not end the waiting: only the deadline does
            why_not = one_line(error)
            return False
        if absent.held(pod is None):
            seen = BoxRecord(record.native_id, record.tag, record.account, Phase.GONE, None, None, record.location)
            return True
        if pod is None:
            return False
        seen, why_not = recorded(session, pod), ""
        if seen.phase is Phase.CREATING:
            return False
        if seen.phase is Phase.STOPPED and restarted and time.monotonic() - begin < WAKE_SECONDS:
            return False
        if seen.phase is not Phase.RUNNING:
            return True
        answer = why_silent(session, seen)
        why_not = f"it runs, and does not answer: {answer}" if answer else ""
        return not answer

    try:
        what = f"{name} ({record.native_id}) to be ready"
        why = Watch(deadline, what, session.poll_seconds, wait).until(settled)
    except PlatformError as error:  # the error carries the id, so that it is not lost
        raise StillCreating(record.native_id, seen.outputs(), [f"{one_line(error)}; {BILLS[Phase.UNKNOWN]}"]) from error
    if seen.phase is Phase.GONE:
        raise PlatformError(
            f"{record.native_id} was removed, not by this command, while it was being made: nothing bills"
        )
    if why and why_not:
        why = f"{why} ({why_not})"
    if not why and seen.phase is not Phase.RUNNING:
        cause = seen.note or "its image can't be run, or it was stopped, not by this command"
        why = f"{name} is {seen.phase}, not running: {cause}"
    if why:
        raise StillCreating(record.native_id, seen.outputs(), [f"{why}; {BILLS.get(seen.phase, 'it may bill')}"])
    must_not_be_too_dear(seen, name, max_price)
    return seen


def _refusal(session: Session, answer: Answer, what: str) -> PlatformError:
    """The error of a refused offer, when the next offer is worth a try. Raises it when no other offer can do better."""
    error = refused(session.http, answer, what)
    if isinstance(error, InsufficientFunds) or answer.status in (404, 409, 413, 422):
        raise error
    return error


def _too_late(request: BoxRequest, refusals: list[str], reasons: list[PlatformError], seconds: float) -> PlatformError:
    """The error when time was up before every offer was tried: that of the refusals so far, if there are any."""
    if not reasons:
        return PlatformError("\n".join([f"{request.name}: nothing was rented within {seconds:g} s", *refusals]))
    error = _none_left(request, refusals, reasons)
    return type(error)(f"{error}\n  no other offer was asked for: {seconds:g} s were over")


def _none_left(request: BoxRequest, refusals: list[str], reasons: list[PlatformError]) -> PlatformError:
    """The error when every offer was refused."""
    if reasons and all(isinstance(reason, NotAuthorized) for reason in reasons):
        return NotAuthorized("\n".join([f"{request.name}: every offer was forbidden; nothing was rented", *refusals]))
    if any(isinstance(reason, NoCapacity) for reason in reasons) or not reasons:
        return no_offer_left(refusals, request.name)
    texts = {str(reason).rpartition(": ")[2] for reason in reasons if isinstance(reason, RequestRefused)}
    if len(texts) == 1 and all(isinstance(reason, RequestRefused) for reason in reasons):
        return RequestRefused("\n".join([f"{request.name}: RunPod refuses the request; nothing was rented", *refusals]))
    return no_offer_left(refusals, request.name)
