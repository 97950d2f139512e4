"""The account's credit, and what its instances bill per hour.

Volumes are not in it: their list would be one more request, and a sweep's own volumes have a price in its state.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sweepstack.core.parallel import in_parallel
from sweepstack.onbox.common.errors import PlatformError, Unreachable
from sweepstack.onbox.host.capabilities import Billed
from sweepstack.onbox.host.offers import Balance
from sweepstack.onbox.host.platform import Phase
from sweepstack.platforms.common.json_values import number
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.vastai.session import READ_AGE_SECONDS, Session

TRAFFIC = ("bwd", "bwu")
"""Items of a charge for bytes over the network, down and up."""
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


def billed(session: Session, begin: datetime, until: datetime) -> list[Billed]:
    """See `HasBill.billed`. A charge names its instance and its label, and has items: GPU, disk, and traffic in both
    directions, which no price per hour holds."""
    first = begin.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    found: dict[str, Billed] = {}
    for row in session.client.charges(int(first.timestamp()), int(until.timestamp()), session.deadline):
        kind, _, native_id = str(row.get("source")).partition("-")
        usd, items, labels = number(row.get("amount")), row.get("items"), row.get("metadata")
        if kind != "instance" or not native_id.isdigit() or usd is None or not isinstance(items, list):
            raise Unreachable("vast.ai's bill can't be read: a charge has no instance or no amount")
        parts = [item for item in items if isinstance(item, dict) and item.get("type") in TRAFFIC]
        traffic = sum(number(part.get("amount")) or 0.0 for part in parts)
        label = labels.get("label") if isinstance(labels, dict) else ""
        known = found.get(native_id, Billed(native_id, 0.0, 0.0, str(label or "")))
        found[native_id] = Billed(native_id, known.usd + usd, known.traffic + traffic, known.tag)
    return [found[native_id] for native_id in sorted(found)]
