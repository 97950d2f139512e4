"""Stops, starts and destroys a box of vast.ai; each is proved by what vast.ai shows afterwards.

A stop keeps the machine and releases the GPU: at the next start another customer may have it. vast.ai then answers 200
with `success: false` and *queues* the start: the box would start hours later, bill, and run no cell (2026-11).
"""

from __future__ import annotations

import time
from dataclasses import replace

from sweepstack.onbox.common.errors import (
    NoCapacity,
    NotYetGone,
    NotYetStopped,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    StillCreating,
)
from sweepstack.onbox.host.capabilities import OwnStop
from sweepstack.onbox.host.platform import BoxRecord, Phase, Wait
from sweepstack.platforms.common.deadline import Lasting
from sweepstack.platforms.common.json_values import number
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.renting import Comes, until_ready
from sweepstack.platforms.vastai.api import VERB_SECONDS, Row, base_url
from sweepstack.platforms.vastai.session import Session, still_creating
from sweepstack.platforms.vastai.states import (
    BILLS,
    CONTRACT_OVER,
    MAY_START,
    NoSuchThing,
    StartQueued,
    asked_above,
    settled,
    status_message,
)

STOP_SECONDS = 60.0
GONE_SECONDS = 90.0
"""vast.ai may show a destroyed box for more than a minute."""
STOPS = 4
RESTART_GRACE_SECONDS = 600.0
"""For so long after a start a box may still be shown as ended."""
MIN_BID = 0.001


def destroy(session: Session, identifier: int) -> None:
    """See `Platform.destroy`. Sends the request even when no list shows the box: lists lag behind, and it costs
    nothing."""
    taken = True
    try:
        session.client.destroy(identifier, session.deadline)
    except NoSuchThing:
        taken = False  # the proof below decides whether it is gone
    except OutcomeUnknown as error:
        raise NotYetGone(f"{error}. Next: the same command again; until then instance {identifier} may bill") from error
    since, short = time.monotonic(), session.with_deadline(paced(GONE_SECONDS))
    watch = short.watch(f"instance {identifier} to be gone", behind="destroy", later=taken)

    def ended() -> bool:
        age = session.poll_seconds("destroy")
        return session.with_deadline(VERB_SECONDS).row(identifier, age=age, since=since) is None

    why = watch.until(ended)
    session.client.state.forget()
    if why:
        raise NotYetGone(f"vast.ai was told to destroy instance {identifier} and still shows it ({why}): it may bill")


def end_for_sure(session: Session, identifier: int, seconds: float) -> str:
    """Destroys the instance and blocks until it is proved gone, `seconds` at most. Returns "" when it is, else why not.
    Sends the request again when its answer was lost: a second one does no harm. Raises PlatformError."""
    own, answered = session.with_deadline(VERB_SECONDS), False

    def gone() -> bool:
        nonlocal answered
        if not answered:
            try:
                own.client.destroy(identifier, own.deadline)
            except NoSuchThing:
                pass
            except OutcomeUnknown:
                return False
            answered = True
        return own.row(identifier) is None

    return session.with_deadline(seconds).watch(f"instance {identifier} to be gone").until(gone)


def own_stop(identifier: int | str) -> tuple[OwnStop, ...]:
    """See `CanStopItself.own_stop`."""
    return (OwnStop("PUT", f"{base_url()}/api/v0/instances/{identifier}/", {"state": "stopped"}),)


def stop(session: Session, identifier: int) -> None:
    """See `CanStop.stop`. The container disk is kept, and bills until the box is destroyed."""
    row = _present(session, identifier)
    if settled(row):
        return
    try:
        session.client.stop(identifier, session.deadline)
    except OutcomeUnknown as error:
        raise NotYetStopped(
            f"{error}. Next: the same command again; until then instance {identifier} may bill"
        ) from error
    why = prove_stopped(session, identifier)
    if why:
        raise NotYetStopped(f"vast.ai was told to stop instance {identifier}: {why}; until it stands still it bills")


def prove_stopped(session: Session, identifier: int) -> str:
    """Blocks until the box is stopped and no start is scheduled, `STOP_SECONDS` at most. Returns "" when that is
    proved, else why not."""
    seen, since = "", time.monotonic()

    def still() -> bool:
        nonlocal seen
        own, age = session.with_deadline(VERB_SECONDS), session.poll_seconds("state")
        row = own.watched(identifier, age=age, since=since)
        if row is None:
            return True
        record = session.record(row)
        seen = f"it is {record.phase}{f' ({record.note})' if record.note else ''}"
        return settled(row)

    short = session.with_deadline(paced(STOP_SECONDS))
    why = short.watch(f"instance {identifier} to stand still", behind="state", later=True).until(still)
    session.client.state.forget()
    return f"{why}; {seen}" if why else ""


def start(session: Session, identifier: int, wait: Wait) -> BoxRecord:
    """See `CanStop.start`. Raises NoCapacity when another customer has its GPU now; then no start stays queued."""
    row = _present(session, identifier)
    record = session.record(row)
    if record.phase is Phase.STOPPING:
        session.watch(f"instance {identifier} to stand still, before it is started", wait).until(
            lambda: session.record(_present(session, identifier)).phase is not Phase.STOPPING
        )
        record = session.record(_present(session, identifier))
    if record.note.endswith(CONTRACT_OVER):
        raise RequestRefused(
            f"instance {identifier} is not started: {CONTRACT_OVER}. Its disk bills until it is destroyed"
        )
    if record.phase is not Phase.RUNNING:
        _ask_to_run(session, identifier, row, wait)
    return _until_running(session, identifier, record, wait)


def change_bid(session: Session, identifier: int, bid: float) -> None:
    """See `RentsSpot.change_bid`."""
    row = session.row(identifier)
    if row is None:
        raise PlatformError(f"instance {identifier} is gone: there is no bid to change")
    if not row.get("is_bid"):
        raise RequestRefused(
            f"instance {identifier} was rented on demand, at its own price: only a spot box has a bid, and a box "
            "can't become one"
        )
    most = 32.0 * (number(row.get("num_gpus")) or 1.0)
    if not MIN_BID <= bid <= most:
        raise RequestRefused(f"a bid of {bid:g} USD/h for instance {identifier}: {MIN_BID:g} to {most:g} is possible")
    session.client.change_bid(identifier, bid, session.deadline)


def _ask_to_run(session: Session, identifier: int, row: Row, wait: Wait) -> None:
    try:
        session.client.start(identifier, session.deadline)
    except StartQueued as error:
        _take_back(session, identifier, row, error)
    except OutcomeUnknown as error:
        wait.progress(f"{error}; looking at what it does")
    wait.progress(f"instance {identifier} was told to run")


def _take_back(session: Session, identifier: int, row: Row, queued: StartQueued) -> None:
    """Cancels a queued start by a stop. Always raises: NoCapacity when it is proved that nothing will start, else
    StillCreating."""
    own = session.with_deadline(VERB_SECONDS)
    why = ""
    for _ in range(STOPS):  # the one write that is repeated: a second stop does no harm, and a queue may not be shown
        try:
            own.client.stop(identifier, own.deadline)
            why = prove_stopped(own, identifier)
            break
        except PlatformError as error:
            why = str(error)
    if why:
        raise still_creating(
            session.record(row),
            f"{queued}",
            f"the start is queued, and that it was taken back is not proved: {why}. Instance {identifier} may start, "
            "and bill, at any time: stop it or destroy it",
        ) from queued
    raise NoCapacity(
        f"{queued}. The start was taken back: instance {identifier} stands still, only its disk bills. Its disk can't "
        f"move: {_way_out(row)}try again later, or destroy it and rent another"
    ) from queued


def _way_out(row: Row) -> str:
    """For a spot box: the advice to raise the bid, to what its machine asks for if that is more; "" for any other box.
    No bid helps while the GPU is rented on demand."""
    if least := asked_above(row):
        return f"set `bid` to {least:.4f} USD/h or more, "
    return "raise `bid` (no bid helps while its GPU is rented on demand), " if row.get("is_bid") else ""


def _until_running(session: Session, identifier: int, record: BoxRecord, wait: Wait) -> BoxRecord:
    told, since, ended = "", time.monotonic(), False
    absent, dead_end = (Lasting(session.deadline, paced(RESTART_GRACE_SECONDS)) for _ in range(2))

    def look() -> BoxRecord | None:
        nonlocal told, ended
        row = session.watched(identifier, age=session.poll_seconds("state"), since=since)
        if absent.held(row is None):
            return replace(record, phase=Phase.GONE)
        if row is None:
            return None
        seen, told = session.record(row), status_message(row).strip(" ()")
        ended = seen.phase is Phase.ENDING
        if ended:
            return seen
        stuck = dead_end.held(seen.phase not in (Phase.RUNNING, Phase.CREATING))
        note = f"it does not come up: {seen.note or MAY_START}"
        return replace(seen, note=note) if stuck else seen if seen.phase in (Phase.RUNNING, Phase.CREATING) else None

    def silent(seen: BoxRecord) -> str:
        return "" if seen.endpoint is not None else told or "it runs, and has no address yet"

    watch = session.watch(f"instance {identifier} to run", wait, behind="state")
    bills = {**BILLS, Phase.STOPPED: MAY_START}
    comes = Comes(look, silent, bills, "removed", MAY_START, waits=lambda seen: told)
    try:
        return until_ready(f"instance {identifier}", record, comes, watch)
    except StillCreating as error:
        if ended:
            raise PlatformError(f"instance {identifier} is being destroyed: nothing is started") from error
        raise


def _present(session: Session, identifier: int) -> Row:
    """The instance's row. Raises PlatformError when it is gone or is being destroyed: nothing to stop or start."""
    row = session.row(identifier)
    if row is None:
        raise PlatformError(f"instance {identifier} is gone: there is nothing to stop or start")
    if session.record(row).phase is Phase.ENDING:
        raise PlatformError(f"instance {identifier} is being destroyed: there is nothing to stop or start")
    return row
