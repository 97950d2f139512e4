"""A box that stands still although no record of ours says why: the trace of a stop past the gate."""

from __future__ import annotations

from datetime import datetime, timedelta

from sweepstack.billing.deadlines import last_seen
from sweepstack.billing.ledger import Bill
from sweepstack.core.own_stop import asked_to_stop
from sweepstack.core.paths import docs_page
from sweepstack.onbox.common.units import parse_duration
from sweepstack.onbox.host.platform import Told
from sweepstack.status.snapshot import BoxSnapshot


def stopped_by_us(box_snapshot: BoxSnapshot, bill: Bill | None) -> bool:
    """Whether the box is to stand still, or a command of ours stopped it last."""
    last = bill.spans[-1] if bill is not None and bill.spans else None
    ours = last is not None and last.phase == "stopped" and not last.found
    return ours or box_snapshot.box.want != "running"


def unexplained_stop(box_snapshot: BoxSnapshot, bill: Bill | None, now: datetime) -> str:
    """Who may have stopped a box, where no command of ours did and its lease can't have; "" where one of them may have.

    A box's journal can't be read while it is stopped. What is certain without it: the lease was not over sooner than
    its time after the last sign of the box.
    """
    box, journal = box_snapshot.box, box_snapshot.journal
    seen = last_seen(journal, box_snapshot.since)
    said = box_snapshot.told is Told.PREEMPTED or box_snapshot.handed is not None or asked_to_stop(journal)
    if said or box.when_done == "stop" or box.to_delete or box_snapshot.gone:
        return ""
    if not box_snapshot.seen.stopped or seen is None or seen > now:  # by a clock that is ahead nothing is certain
        return ""
    if stopped_by_us(box_snapshot, bill):
        return ""
    if box.leased and now >= seen + timedelta(seconds=parse_duration(str(box.lease))):
        return ""
    ours = f"neither a command of ours nor its lease ({box.lease})" if box.leased else "no command of ours"
    return (
        f"box {box.name} ({box.native_id}) is stopped, and {ours} did that: it was up at {seen:%Y-%m-%d %H:%M} UTC. "
        f"Its platform did, a person at its console, or a job with the box's own key ({docs_page('security.md')})"
    )
