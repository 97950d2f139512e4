"""Stops, starts and deletes a machine; each is proved by what Paperspace shows afterwards.

A machine is deleted only when it is off, so a destroy stops it first.
"""

from __future__ import annotations

from sweepstack.extensions.paperspace_api.api import POLL_SECONDS, Session
from sweepstack.extensions.paperspace_api.create import begin, until_ready
from sweepstack.extensions.paperspace_api.states import BILLS
from sweepstack.onbox.common.errors import (
    NotYetGone,
    NotYetStopped,
    OutcomeUnknown,
    Unreachable,
    one_line,
)
from sweepstack.onbox.host.platform import BoxRecord, Phase, Wait
from sweepstack.platforms.common.deadline import Deadline

STOP_SECONDS, GONE_SECONDS = 120.0, 30.0
"""For so long a stop waits until the machine is off, and a delete until it is gone; then the caller asks again."""


def stop(session: Session, native_id: str, account: str) -> None:
    """See `CanStop.stop`."""
    record = session.living(native_id, account, "stopped")
    if record.phase is Phase.STOPPED:
        return
    said = ""
    if record.phase is not Phase.STOPPING:
        try:
            answer = session.act(native_id, "stop")
        except OutcomeUnknown as error:
            said = one_line(error)
        else:
            said = "" if answer.ok else f"Paperspace does not stop it now: {answer.text or answer.status}"
    seen = session.watched(native_id, account, Phase.STOPPED, 0.0 if said else STOP_SECONDS, POLL_SECONDS)
    if seen.phase is not Phase.STOPPED:
        told = said or "Paperspace accepted the stop"
        raise NotYetStopped(
            f"{native_id} is {seen.phase}, not off: {told}. {BILLS.get(seen.phase, 'It may bill in full')}. Next: the "
            "same command again"
        )


def start(session: Session, native_id: str, account: str, wait: Wait) -> BoxRecord:
    """See `CanStop.start`."""
    deadline = Deadline.of(wait)
    record = session.living(native_id, account, "started")
    if record.phase is Phase.UNKNOWN:
        raise Unreachable(f"{native_id} is not started, since its state is not known: {record.note}")
    if record.phase is Phase.STOPPING:  # it is off first: Paperspace starts no machine that it stops
        stop(session, native_id, account)
        record = session.living(native_id, account, "started")
    event = begin(session, record, wait) if record.phase is Phase.STOPPED else None
    return until_ready(session, record, wait, deadline, event=event)


def destroy(session: Session, native_id: str, account: str) -> None:
    """See `Platform.destroy`. A delete whose answer is lost is looked up; a later call sends it again."""
    record = session.get(native_id, account, now=True)
    if record.phase is Phase.GONE:
        return
    if record.phase not in (Phase.STOPPED, Phase.ENDING):
        try:
            stop(session, native_id, account)
        except NotYetStopped as error:
            if record.phase is not Phase.UNKNOWN:  # else Paperspace says whether it can be deleted
                raise NotYetGone(f"Paperspace deletes a machine only when it is off: {error}") from error
    try:
        answer = session.delete(native_id)
    except OutcomeUnknown as error:
        if session.get(native_id, account, now=True).phase is Phase.GONE:
            return
        raise NotYetGone(f"{native_id}: {one_line(error)}. Destroy it again: a second time does no harm") from error
    seen = session.watched(native_id, account, Phase.GONE, GONE_SECONDS if answer.ok else 0.0, POLL_SECONDS)
    if seen.phase is not Phase.GONE:
        said = "" if answer.ok else f", and does not delete it now: {answer.text or answer.status}"
        raise NotYetGone(f"Paperspace still has {native_id} ({seen.phase}){said}: it may bill until it is proved gone")
