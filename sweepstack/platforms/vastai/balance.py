"""The account's credit, and what its instances bill per hour.

Volumes are not in it: their list would be one more request, and a sweep's own volumes have a price in its state.
"""

from __future__ import annotations

from sweepstack.core.parallel import in_parallel
from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.host.offers import Balance
from sweepstack.onbox.host.platform import Phase
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.vastai.session import READ_AGE_SECONDS, Session

LIST_SECONDS = 4.0
"""A credit without a rate is better than none: the list is not waited for longer."""


def balance(session: Session) -> Balance | None:
    """The account's credit (USD), None when vast.ai does not show it. Reads only: at most one request beside the one
    that tells whose key it is, for each 25 instances. Credit is prepaid; vast.ai lets an account fall below zero by an
    amount that it does not name, so that counts as nothing."""
    said = session.client.user(session.deadline, age=paced(READ_AGE_SECONDS))
    credit = said.get("credit")
    if isinstance(credit, bool) or not isinstance(credit, int | float):
        return None
    told = in_parallel({"rate": lambda: _per_hour(session)}, LIST_SECONDS)
    return Balance(usd=float(credit), prepaid=True, per_hour=told.get("rate"))


def _per_hour(session: Session) -> float | None:
    """USD per hour of all instances of the account, each in its state; None where that is not known."""
    total = 0.0
    try:
        rows = session.client.instances(session.deadline, age=paced(READ_AGE_SECONDS))
    except PlatformError:
        return None
    for row in rows.values():
        record = session.record(row)
        if record.phase in (Phase.GONE, Phase.ENDING):
            continue
        price = record.stopped_per_hour if record.phase is Phase.STOPPED else record.price_per_hour
        if price is None:
            return None
        total += price
    return total
