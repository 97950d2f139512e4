"""Starts a machine, and waits until it is ready and answers.

A start whose event ends in an error while the machine is off did not happen: there is no such card free, most often.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweepstack.extensions.paperspace_api.api import POLL_SECONDS, Session
from sweepstack.extensions.paperspace_api.channel import why_silent
from sweepstack.extensions.paperspace_api.errors import refused
from sweepstack.extensions.paperspace_api.lookup import recorded
from sweepstack.extensions.paperspace_api.states import BILLS, gone
from sweepstack.onbox.common.errors import (
    NoCapacity,
    OutcomeUnknown,
    PlatformError,
    StillCreating,
    Unreachable,
    one_line,
)
from sweepstack.onbox.host.platform import BoxRecord, Phase, Wait
from sweepstack.platforms.common.deadline import Deadline, Lasting, Watch
from sweepstack.platforms.common.rate_limit import paced

OFF_SECONDS = 60.0
"""A machine that is off at every look for so long did not start, unless Paperspace still has a start of it to do."""
LOOKS_BY_LIST = 5
"""So many looks at a machine that is on its way may use the list that all boxes share; the next one asks for it."""
_PENDING, _FAILED = ("new", "in progress"), ("error", "cancelled")


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
    row = session.machine(record.native_id)
    seen = gone(record.native_id, record.account) if row is None else recorded(session, row)
    if seen.phase in (Phase.RUNNING, Phase.CREATING):  # another command started it
        return ""
    raise refused(session.http, answer, f"a start of {record.native_id} (it is {seen.phase})")


def until_ready(
    session: Session, record: BoxRecord, wait: Wait, deadline: Deadline, *, event: str | None = None
) -> BoxRecord:
    """Blocks until the machine is ready, has an address, and answers there. `event`: of the start that was asked for
    ("": it is not known which), None when none was: then one that is off is returned as it is.

    Raises NoCapacity when the start failed and it is off; every other error that leaves it there is StillCreating with
    its id."""
    seen, why_not, failed, looks = record, "", "", 0
    off = Lasting(deadline, paced(OFF_SECONDS))

    def settled() -> bool:
        nonlocal seen, why_not, failed, looks
        looks += 1
        try:
            row = _looked(session, record.native_id, by_list=looks % (LOOKS_BY_LIST + 1) > 0)
            seen, why_not = gone(record.native_id, record.account) if row is None else recorded(session, row), ""
            if event is not None and seen.phase is Phase.STOPPED:
                failed = _failure(session, record.native_id, event, lasting=off.held(True))
                return bool(failed)
        except Unreachable as error:  # an outage does not end the waiting: only the deadline does
            why_not = one_line(error)
            return False
        off.held(False)
        if seen.phase is Phase.CREATING:
            why_not = seen.note
            return False
        if seen.phase is not Phase.RUNNING:
            return True
        answer = why_silent(seen)
        why_not = f"it is not ready: {answer}" if answer else ""
        return not answer

    name, pace = f"{record.native_id} to be ready", paced(POLL_SECONDS)
    try:
        why = Watch(deadline, name, lambda: pace, wait).until(settled)
    except PlatformError as error:  # the error carries the id, so that it is not lost
        raise StillCreating(record.native_id, seen.outputs(), [f"{one_line(error)}; {BILLS[Phase.UNKNOWN]}"]) from error
    if seen.phase is Phase.GONE:
        raise PlatformError(f"{record.native_id} was deleted, not by this command, while it was started: nothing bills")
    if failed:
        raise NoCapacity(
            f"{record.native_id} did not start, most often since no such card is free now: {failed}. "
            f"{BILLS[Phase.STOPPED]}"
        )
    if why and why_not:
        why = f"{why} ({why_not})"
    if not why and seen.phase is not Phase.RUNNING and not (event is None and seen.phase is Phase.STOPPED):
        why = f"{record.native_id} is {seen.phase}, not running: {seen.note or 'that was not done by this command'}"
    if why:
        asked = event is not None and seen.phase is Phase.STOPPED  # the start may come after all
        costs = BILLS[Phase.UNKNOWN] if asked else BILLS.get(seen.phase, "it may bill")
        raise StillCreating(record.native_id, seen.outputs(), [f"{why}; {costs}"])
    return seen


def _looked(session: Session, native_id: str, *, by_list: bool) -> Mapping[str, Any] | None:
    """The machine as it is now. `by_list`: while the shared list shows it on its way, that is enough, so that many
    boxes cost one request; all else is read from the machine itself, since a list may be from before its start."""
    if by_list:
        row = session.machines(max_age=paced(POLL_SECONDS)).by_id.get(native_id)
        if row is not None and recorded(session, row).phase is Phase.CREATING:
            return row
    return session.machine(native_id)


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
