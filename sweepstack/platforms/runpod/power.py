"""Stops, starts and destroys a pod; each is proved by what RunPod shows afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.errors import (
    NoCapacity,
    NotYetGone,
    NotYetStopped,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    Retired,
    Unproved,
    Unreachable,
    Unsupported,
)
from sweepstack.onbox.host.capabilities import OwnStop
from sweepstack.onbox.host.platform import BoxRecord, Phase, Told, Wait
from sweepstack.platforms.common.deadline import Deadline, Watch
from sweepstack.platforms.common.http_client import Answer
from sweepstack.platforms.common.json_values import number
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.runpod import bodies, spot
from sweepstack.platforms.runpod.api import Session, checked_id
from sweepstack.platforms.runpod.bill import BILL_SECONDS, PROOF_SECONDS
from sweepstack.platforms.runpod.create import until_ready
from sweepstack.platforms.runpod.errors import refused
from sweepstack.platforms.runpod.lookup import get
from sweepstack.platforms.runpod.states import bid_of, gpus_of

STOP_SECONDS = 20.0
MOST_BID = 1000.0
_SAME = 1e-4


def destroy(session: Session, native_id: str, account: str) -> None:
    """See `Platform.destroy`."""
    if not session.mine(account, f"the box {native_id}") and get(session, native_id, account).phase is Phase.GONE:
        return  # else the key shows it, so it is of the account
    if not session.is_unfound(native_id):
        _ask_to_end(session, native_id, account)
    record = _seen(session, native_id, account)
    if record.phase is not Phase.GONE:
        raise NotYetGone(f"RunPod still has {native_id} ({record.phase}): it may bill until it is proved gone")


def _ask_to_end(session: Session, native_id: str, account: str) -> None:
    try:
        answer = session.delete_pod(native_id)
    except OutcomeUnknown as error:
        if _seen(session, native_id, account).phase is Phase.GONE:
            return
        raise NotYetGone(f"{native_id}: {error}. Destroy it again: a second time does no harm") from error
    if not answer.ok and answer.status != 404:
        lock = ", and is locked in RunPod's console" if _is_locked(session, native_id) else ""
        raise refused(session.http, answer, f"the end of {native_id} (it still exists and bills{lock})")


def _seen(session: Session, native_id: str, account: str) -> BoxRecord:
    """The box while it is being destroyed. Raises NotYetGone, and how long a proof takes, where only its bill is
    missing."""
    try:
        return get(session, native_id, account)
    except Unproved as error:
        within, pause = paced(PROOF_SECONDS), paced(BILL_SECONDS)
        raise NotYetGone(str(error), within=within, pause=pause) from error


def stop(session: Session, native_id: str, account: str) -> None:
    """See `CanStop.stop`."""
    if _living(session, native_id, account, "stop").phase is Phase.STOPPED:
        return
    if _is_locked(session, native_id):
        raise RequestRefused(f"{native_id} is locked in RunPod, so it can't be stopped: unlock it in the console")
    try:
        answer = session.act(native_id, "stop")
    except OutcomeUnknown as error:
        if get(session, native_id, account).phase is Phase.STOPPED:
            return
        raise NotYetStopped(f"{native_id}: {error}. Stop it again: a second time does no harm") from error
    if not answer.ok:
        seen = get(session, native_id, account)
        if seen.phase is Phase.STOPPED:
            return
        if answer.status == 404:
            raise NotYetStopped(f"RunPod does not find {native_id} to stop it, and lists it as {seen.phase}")
        raise refused(session.http, answer, f"a stop of {native_id} (it is {seen.phase}, and bills)")
    phase: Phase | None = None

    def stopped() -> bool:
        nonlocal phase
        if phase is not None:
            session.pods(max_age=session.poll_seconds() / 2)  # an older list may not show the stop yet
        phase = get(session, native_id, account).phase
        if phase in (Phase.GONE, Phase.ENDING):
            raise PlatformError(f"{native_id} is {phase}: it was ended from elsewhere while it was being stopped")
        return phase is Phase.STOPPED

    if Watch(Deadline(paced(STOP_SECONDS)), f"{native_id} to stand still", session.poll_seconds).until(stopped):
        raise NotYetStopped(f"RunPod accepted the stop of {native_id}, which is {phase} and may bill in full")


def own_stop(native_id: str) -> tuple[OwnStop, ...]:
    """See `CanStopItself.own_stop`."""
    return bodies.own_stop(checked_id(native_id))


def start(session: Session, native_id: str, account: str, wait: Wait) -> BoxRecord:
    """See `CanStop.start`."""
    record = _living(session, native_id, account, "start")
    restarted = record.phase is Phase.STOPPED
    if record.phase is Phase.UNKNOWN:
        raise Unreachable(f"{native_id} is not started, since its state is not known: {record.note}")
    if restarted:
        try:
            answer = _asked_to_start(session, native_id)
        except OutcomeUnknown as error:
            wait.progress(f"{native_id}: {error}; looking what came of it")
        else:
            if answer is not None and not answer.ok:
                seen = get(session, native_id, account)
                if seen.phase not in (Phase.RUNNING, Phase.CREATING):
                    raise refused(session.http, answer, f"a start of {native_id} (it stays {seen.phase})")
        wait.progress(f"{native_id} is started again")
    return until_ready(session, native_id, record, wait, restarted=restarted)


def _asked_to_start(session: Session, native_id: str) -> Answer | None:
    """Asks for the pod again: for its last bid, if it is a spot pod (then None), which can't be had on demand."""
    pod = session.pod(native_id) or {}
    bid = bid_of(pod)
    if bid is None:
        return session.act(native_id, "start")
    count = gpus_of(pod)
    change = None
    with contextlib.suppress(Retired):  # then the resume says so
        change = session.last_changes().get(native_id)
    if change is not None and change.price is not None:  # it may have been resumed for more than it was rented for
        bid = max(bid, spot.per_gpu(change.price, count))
    _resume(session, native_id, pod, bid)
    return None


def change_bid(session: Session, native_id: str, account: str, bid: float) -> None:
    """See `RentsSpot.change_bid`. RunPod takes a bid only as it rents or resumes a pod: this resumes one that it took
    away, and refuses everything else that would change anything."""
    record = _living(session, native_id, account, "change the bid of")
    pod = session.pod(native_id) or {}
    bidden = bid_of(pod)
    if bidden is None:
        raise RequestRefused(
            f"{native_id} was rented on demand, at its own price: only a spot box has a bid, and a box can't become "
            "one. Take `bid` out"
        )
    if not 0 < bid <= MOST_BID:
        raise RequestRefused(f"a bid of {bid:g} USD/h for {native_id}: above 0 and up to {MOST_BID:g} is possible")
    if record.phase is Phase.STOPPED and session.retired:
        raise Unsupported(spot.NO_RESUME)
    if record.phase is Phase.STOPPED and record.told is Told.PREEMPTED:
        _resume(session, native_id, pod, spot.per_gpu(bid, gpus_of(pod)))
        return
    now = number(pod.get("cost")) or bidden * gpus_of(pod)
    if abs(now - bid) < _SAME * gpus_of(pod):
        return
    raise RequestRefused(
        f"RunPod takes another bid only for a pod that it has taken away, and {native_id} is {record.phase}: write "
        "`bid` as it was, until it is preempted"
    )


def _resume(session: Session, native_id: str, pod: Mapping[str, Any], bid: float) -> None:
    """`bid`: USD per hour and GPU. Raises NoCapacity with the bid that would do, where RunPod says it."""
    gpu, count = pod.get("gpu"), gpus_of(pod)
    try:
        spot.resume(session, native_id, bid, count)
    except NoCapacity as error:
        least = spot.floor(session, str(gpu.get("id") if isinstance(gpu, dict) else ""), count)
        more = f" Set `bid` to {least:.4f} USD/h or more, then pulumi up." if least and least > bid * count else ""
        raise NoCapacity(f"{error}{more}") from error


def _living(session: Session, native_id: str, account: str, verb: str) -> BoxRecord:
    record = get(session, native_id, account)
    if record.phase in (Phase.GONE, Phase.ENDING):
        raise PlatformError(f"{native_id} is {record.phase}: there is nothing to {verb}")
    if record.phase is Phase.FAILED:
        raise RequestRefused(f"{native_id} can be neither stopped nor started: {record.note}")
    return record


def _is_locked(session: Session, native_id: str) -> bool:
    pod: Any = session.pods().by_id.get(native_id, {})
    return pod.get("locked") is True
