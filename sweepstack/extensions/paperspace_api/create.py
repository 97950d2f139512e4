"""Makes a machine that is off, looks at what it costs, and starts it.

Paperspace's API has no prices. So the stack file says what a machine costs, and the machine itself says it once it is
there: until then only its disk bills. One that would cost more than was said is not started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sweepstack.extensions.paperspace_api.api import Session, session
from sweepstack.extensions.paperspace_api.errors import refused
from sweepstack.extensions.paperspace_api.lookup import by_id, by_tag
from sweepstack.extensions.paperspace_api.machine_types import Kind, disk_gb, fitting, must_be_possible, regions
from sweepstack.extensions.paperspace_api.ready import begin, until_ready
from sweepstack.extensions.paperspace_api.states import BILLS, TAG, record_of
from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    StillCreating,
    one_line,
)
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.renting import CENT_OF_A_CENT, Tagged, Try, first_granted, rented
from sweepstack.platforms.common.tag_memory import Memory

_STARTS = ("start", "restart")


def create(request: BoxRequest, wait: Wait) -> BoxRecord:
    """See `Platform.create`."""
    must_be_possible(request.constraints)
    most = _most(request)
    if not TAG.fullmatch(request.tag):
        raise RequestRefused(
            f"the tag {request.tag!r} can't be the name of a machine: letters, digits, '.', '_' and '-'"
        )
    if request.mounts:
        raise RequestRefused(
            f"{request.name}: Paperspace's API has no volume that could be mounted here. Take `mounts` out, and pull "
            "the results"
        )
    at_hand, deadline = session(), Deadline.of(wait)
    tagged = Tagged(
        "paperspace_api",
        at_hand.account(),
        partial(by_id, at_hand),
        lambda age: by_tag(at_hand, request.tag, max_age=age, known=request.known),
        lambda asked, memory: _make(at_hand, asked, wait, deadline, memory),
        partial(_must_stay, request.tag),
        word="made",
    )
    with rented(tagged, request, wait) as (record, _):
        # The lock is held until it is told to start: of two commands, one starts it.
        record, event = _started(at_hand, request, record, most, wait, deadline)
    if record.phase is Phase.STOPPED and event is None:
        return record
    try:
        ready = until_ready(at_hand, record, wait, deadline, event=event)
    except NoCapacity as error:
        raise _kept(replace(record, phase=Phase.STOPPED), one_line(error)) from error
    _must_not_be_too_dear(ready, most)
    return _priced(ready, request)


def _must_stay(tag: str, record: BoxRecord) -> None:
    if record.phase is Phase.ENDING:
        raise NotYetGone(f"{record.native_id} carries the tag {tag} and is being deleted: finish that first")


def _most(request: BoxRequest) -> float:
    """USD per hour that the machine may cost. Raises RequestRefused when the stack file does not say what it costs."""
    if request.price_per_hour is None:
        raise RequestRefused(
            "Paperspace's API has no prices, so nothing is rented before you say what a machine costs, in USD an hour "
            "with its disk: overrides: {paperspace-api: {price_per_hour: 0.8}}"
        )
    return min(request.price_per_hour, request.price_per_hour if request.max_price is None else request.max_price)


def _make(session: Session, request: BoxRequest, wait: Wait, deadline: Deadline, memory: Memory) -> BoxRecord:
    """Makes the machine, which is off, or adopts the one that a create with a lost answer made. Its disk bills. Call it
    while holding the tag's lock (which gives `memory`), when no list has a machine of this tag.

    Raises NoCapacity with every refusal when none could be made; at once, what another type can't do better."""
    wanted, account = request.constraints, session.account()
    kinds = fitting(session.templates(), wanted)
    script = session.script_id(request.public_key, deadline)
    tries = []
    for kind, region in [(kind, region) for kind in kinds for region in regions(wanted)]:
        what = f"{kind.label} in {region} with {kind.template_name}"
        send = partial(_granted, session, account, _body(request, kind, region, script), what, deadline)
        tries.append(Try(f"{kind.label} in {region}", f"Paperspace for {what}", send))
    return first_granted(tries, partial(by_tag, session, request.tag, max_age=0.0), request, wait, deadline, memory, [])


def _granted(
    session: Session, account: str, body: Mapping[str, Any], what: str, deadline: Deadline
) -> BoxRecord | NoCapacity:
    """The new machine, or the refusal where the next type or region is worth a try. Raises every other refusal."""
    answer = session.create(body, deadline)
    if answer.ok:
        row = answer.data.get("data") if isinstance(answer.data, dict) else None
        if not isinstance(row, dict) or not identifier(row):
            raise OutcomeUnknown(f"Paperspace accepted the create of {what}, and its answer names no machine")
        session.made(identifier(row))
        return replace(record_of(row, account), tag=str(body["name"]))
    error = refused(session.http, answer, what)
    if isinstance(error, NoCapacity):
        return error
    if answer.status == 403 and (trouble := session.trouble()):
        raise InsufficientFunds(
            f"Paperspace makes no machine for this account, which is not in good standing ({trouble}). Next: see to it "
            f"in Paperspace's console. Asked for: {what}"
        )
    raise error


def _body(request: BoxRequest, kind: Kind, region: str, script: str) -> dict[str, Any]:
    """What is asked for. It says what Paperspace would otherwise choose: a machine that runs, one that is shut down
    after some hours, snapshots that bill, a password by mail."""
    return {
        "name": request.tag,
        "machineType": kind.label,
        "templateId": kind.template,
        "diskSize": disk_gb(kind, request.constraints),
        "region": region,
        "publicIpType": "dynamic",
        "startOnCreate": False,
        "startupScriptId": script,
        "autoShutdownEnabled": False,
        "autoSnapshotEnabled": False,
        "takeInitialSnapshot": False,
        "emailPassword": False,
    }


def _started(
    session: Session, request: BoxRequest, record: BoxRecord, most: float, wait: Wait, deadline: Deadline
) -> tuple[BoxRecord, str | None]:
    """Starts a machine that was made and never started; leaves every other as it is. Returns its record, and the event
    of the start (see `until_ready`), None when nothing was started. Raises StillCreating when it would cost too much,
    or can't be started: its disk bills."""
    if record.phase is Phase.CREATING:  # a create that was begun ends off; what is starting, ends running
        record = until_ready(session, record, wait, deadline)
    _must_not_be_too_dear(record, most)
    if record.phase is not Phase.STOPPED:
        return record, None
    try:
        if _was_started(session, record.native_id):
            return record, None
        _must_have_its_cards(record, request)
        return record, begin(session, record, wait)
    except PlatformError as error:
        raise _kept(record, f"{record.native_id} is there and can't be started: {one_line(error)}") from error


def _was_started(session: Session, native_id: str) -> bool:
    """Whether it was ever told to start: then a person or a command stopped it, and who called decides. So it counts,
    too, where what happened to it is not known from its create on."""
    happened = {str(event.get("name")) for event in session.events(native_id)}
    return "create" not in happened or not happened.isdisjoint(_STARTS)


def _kept(record: BoxRecord, why: str) -> StillCreating:
    """The error for a machine that was made, and is off: it has its id, so that it is started, or ended, later."""
    return StillCreating(record.native_id, record.outputs(), [f"{why}; {BILLS[Phase.STOPPED]}"])


def _must_not_be_too_dear(record: BoxRecord, most: float) -> None:
    """Raises StillCreating for a machine that costs more than was said. Does not end it: a person decides."""
    price = record.price_per_hour
    if price is None or price <= most + CENT_OF_A_CENT:
        return
    off = "It is not started. " if record.phase is Phase.STOPPED else ""
    raise StillCreating(
        record.native_id,
        record.outputs(),
        [
            f"{record.native_id} ({record.offer}) costs {price:.2f} USD/h, as it says itself; you allow {most:.4f}. "
            f"{off}Write what it costs as overrides.paperspace-api.price_per_hour (and raise max_price, if "
            f"that is less) to keep it, or destroy it; {BILLS.get(record.phase, 'it may bill')}"
        ],
    )


def _must_have_its_cards(record: BoxRecord, request: BoxRequest) -> None:
    """Raises PlatformError for a new machine that shows another number of cards than was asked for."""
    wanted = request.constraints.gpu_count
    if record.gpu_count and record.gpu_count != wanted:
        raise PlatformError(f"{record.offer} has {record.gpu_count} cards, and {wanted} are asked for")


def _priced(record: BoxRecord, request: BoxRequest) -> BoxRecord:
    """The record with the higher of both prices, so that no budget counts less: Paperspace gives no unit of its own."""
    known = [price for price in (record.price_per_hour, request.price_per_hour) if price is not None]
    return replace(record, price_per_hour=max(known) if known else None)
