"""Makes a machine that is off, looks at what it costs, starts it, and waits until it is ready.

Paperspace's API has no prices. So the stack file says what a machine costs, and the machine itself says it once it is
there: until then only its disk bills. One that would cost more than was said is not started. A start whose event ends
in an error while the machine is off did not happen: there is no such card free, most often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sweepstack.extensions.paperspace_api.api import POLL_SECONDS, Session, session
from sweepstack.extensions.paperspace_api.offers import Kind, disk_gb, fitting, must_be_possible, regions
from sweepstack.extensions.paperspace_api.states import BILLS, TAG, why_silent
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
from sweepstack.platforms.common import renting
from sweepstack.platforms.common.deadline import Deadline, Lasting, Watch
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.renting import CENT_OF_A_CENT, Comes, Hooks, Try, first_granted, with_key
from sweepstack.platforms.common.tag_lock import Memory

_STARTS = ("start", "restart")
OFF_SECONDS = 60.0
"""A machine that is off at every look for so long did not start, unless Paperspace still has a start of it to do."""
LOOKS_BY_LIST = 5
"""So many looks at a machine that is on its way may use the list that all boxes share; the next one asks for it."""
_PENDING, _FAILED = ("new", "in progress"), ("error", "cancelled")


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
    event: str | None = None

    def begin(record: BoxRecord) -> BoxRecord:
        """The lock is held until it is told to start: of two commands, one starts it."""
        nonlocal event
        record, event = _started(at_hand, request, record, most, wait, deadline)
        return record

    def ready(record: BoxRecord, _made: bool) -> BoxRecord:
        if record.phase is Phase.STOPPED and event is None:
            return record
        try:
            return until_ready(at_hand, record, wait, deadline, event=event)
        except NoCapacity as error:
            raise _kept(replace(record, phase=Phase.STOPPED), one_line(error)) from error

    hooks = Hooks(
        "paperspace_api",
        at_hand.account(),
        by_id=at_hand.by_id,
        by_tag=lambda age: at_hand.by_tag(request.tag, max_age=age, known=request.known),
        rent=lambda memory: _make(at_hand, with_key(request), wait, deadline, memory),
        adopt=partial(_must_stay, request.tag),
        begin=begin,
        ready=ready,
        dear=partial(_must_not_be_too_dear, most),
        word="made",
    )
    record = renting.create(hooks, request, wait)
    return record if record.phase is Phase.STOPPED else _priced(record, request)


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
    wanted = request.constraints
    kinds = fitting(session.templates(), wanted)
    script = session.script_id(request.public_key, deadline)
    tries = []
    for kind, region in [(kind, region) for kind in kinds for region in regions(wanted)]:
        what = f"{kind.label} in {region} with {kind.template_name}"
        send = partial(_granted, session, _body(request, kind, region, script), what, deadline)
        tries.append(Try(f"{kind.label} in {region}", f"Paperspace for {what}", send))
    return first_granted(tries, partial(session.by_tag, request.tag, max_age=0.0), request, wait, deadline, memory, [])


def _granted(session: Session, body: Mapping[str, Any], what: str, deadline: Deadline) -> BoxRecord | NoCapacity:
    """The new machine, or the refusal where the next type or region is worth a try. Raises every other refusal."""
    answer = session.create(body, deadline)
    if answer.ok:
        row = answer.data.get("data") if isinstance(answer.data, dict) else None
        if not isinstance(row, dict) or not identifier(row):
            raise OutcomeUnknown(f"Paperspace accepted the create of {what}, and its answer names no machine")
        session.made(identifier(row))
        return replace(session.recorded(row), tag=str(body["name"]))
    error = session.refused(answer, what)
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
    _must_not_be_too_dear(most, record)
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


def _must_not_be_too_dear(most: float, record: BoxRecord) -> None:
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


def begin(session: Session, record: BoxRecord, wait: Wait) -> str:
    """Asks a machine that is off to start. Costs money. Returns the id of the event, "" when the answer was lost: then
    what Paperspace shows decides. Raises NoCapacity, or another PlatformError when Paperspace refuses."""
    if wait.cancelled.is_set():
        raise PlatformError(f"cancelled before {record.native_id} was started: it stays off")
    try:
        answer = session.act(record.native_id, "start")
    except OutcomeUnknown as error:
        wait.progress(f"{record.native_id}: {one_line(error)}; looking what came of it")
        return ""
    if answer.ok:
        wait.progress(f"{record.native_id} is told to start")
        return _event_of(answer.data)
    seen = _seen(session, record, session.box(record.native_id))
    if seen.phase in (Phase.RUNNING, Phase.CREATING):  # another command started it
        return ""
    raise session.refused(answer, f"a start of {record.native_id} (it is {seen.phase})")


def until_ready(
    session: Session, record: BoxRecord, wait: Wait, deadline: Deadline, *, event: str | None = None
) -> BoxRecord:
    """Blocks until the machine is ready, has an address, and answers there. `event`: of the start that was asked for
    ("": it is not known which), None when none was: then one that is off is returned as it is.

    Raises NoCapacity when the start failed and it is off; every other error that leaves it there is StillCreating with
    its id."""
    failed, looks = "", 0
    off = Lasting(deadline, paced(OFF_SECONDS))

    def look() -> BoxRecord | None:
        nonlocal failed, looks
        looks += 1
        row = _looked(session, record.native_id, by_list=looks % (LOOKS_BY_LIST + 1) > 0)
        seen = _seen(session, record, row)
        if event is not None and seen.phase is Phase.STOPPED:
            failed = _failure(session, record.native_id, event, lasting=off.held(True))
            return seen if failed else None
        off.held(False)
        return seen

    def silent(seen: BoxRecord) -> str:
        answer = why_silent(seen)
        return f"it is not ready: {answer}" if answer else ""

    watch = Watch(deadline, f"{record.native_id} to be ready", lambda: paced(POLL_SECONDS), wait)
    # Of one that was told to start, and is off, the start may come after all.
    bills = BILLS if event is None else {**BILLS, Phase.STOPPED: BILLS[Phase.UNKNOWN]}
    comes = Comes(
        look,
        silent,
        bills,
        "deleted",
        "that was not done by this command",
        waits=lambda seen: seen.note,
        rests=event is None,
    )
    try:
        return renting.until_ready(record.native_id, record, comes, watch)
    except StillCreating:
        if not failed:
            raise
        raise NoCapacity(
            f"{record.native_id} did not start, most often since no such card is free now: {failed}. "
            f"{BILLS[Phase.STOPPED]}"
        ) from None


def _seen(session: Session, record: BoxRecord, row: Mapping[str, Any] | None) -> BoxRecord:
    return session.gone(record.native_id, record.account) if row is None else session.recorded(row)


def _looked(session: Session, native_id: str, *, by_list: bool) -> Mapping[str, Any] | None:
    """The machine as it is now. `by_list`: while the shared list shows it on its way, that is enough, so that many
    boxes cost one request; all else is read from the machine itself, since a list may be from before its start."""
    if by_list:
        row = session.boxes(max_age=paced(POLL_SECONDS)).by_id.get(native_id)
        if row is not None and session.recorded(row).phase is Phase.CREATING:
            return row
    return session.box(native_id)


def _failure(session: Session, native_id: str, event: str, *, lasting: bool) -> str:
    """Why a machine that is off did not start, by the event of its start; "" while it may start yet. `lasting`: it was
    off for `OFF_SECONDS`."""
    if event:
        told = session.event(event)
    elif lasting:  # which event is not known: the newest start decides
        starts = [one for one in session.events(native_id) if one.get("name") == "start"]
        told = max(starts, key=lambda one: str(one.get("dtCreated")), default={"state": "done"})
    else:
        return ""
    state, said = told.get("state"), told.get("error")
    if state in _FAILED:
        return session.http.clean(said) if isinstance(said, str) and said else "Paperspace gives no reason"
    return "it stays off" if lasting and state not in _PENDING else ""


def _event_of(data: Any) -> str:
    event = data.get("event") if isinstance(data, dict) else None
    found = event.get("id") if isinstance(event, dict) else None
    return found if isinstance(found, str) else ""
