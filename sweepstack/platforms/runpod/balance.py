"""The account's balance, and what bills on it per hour.

Two interfaces are asked side by side. REST v2 (since autumn 2026) says what is left and whether it is prepaid; only the
older query interface says what all pods, disks and volumes of the account cost per hour, and it says what is left where
v2 does not. Once that interface is retired, what bills per hour is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from sweepstack.core.parallel import in_parallel
from sweepstack.onbox.common.errors import NotAuthorized, PlatformError, Retired, Unreachable
from sweepstack.onbox.host.billed import Billed
from sweepstack.onbox.host.offers import Balance
from sweepstack.platforms.common.http_client import Answer
from sweepstack.platforms.common.json_values import number
from sweepstack.platforms.runpod.api import Session
from sweepstack.platforms.runpod.bill import PATH as BILL
from sweepstack.platforms.runpod.errors import refused
from sweepstack.platforms.runpod.legacy_query import myself

Told = TypeVar("Told")
PATH = "/v2/billing/balance"
"""Taken from the name of its documentation page. That page could not be read, so a 404 here proves nothing."""
SECONDS = 4.0
"""For so long both are waited for. What one of them said is an answer, where the other one is late."""


def balance(session: Session) -> Balance | None:
    """The account's balance (USD), None when the key may not see it. Reads only. Raises Unreachable.

    At a balance of zero RunPod stops all pods, so nothing below zero is counted.
    """
    asked: dict[str, Callable[[], Any]] = {
        "v2": lambda: _tried(lambda: session.http.read(PATH)),
        "older": lambda: _by_query(session),
    }
    told = in_parallel(asked, SECONDS)
    late = Unreachable("RunPod does not tell the balance in time")
    answer, older = told.get("v2", late), told.get("older", late)
    spends = {} if isinstance(older, PlatformError) else older
    per_hour, limit = number(spends.get("currentSpendPerHr")), number(spends.get("spendLimit"))
    known = isinstance(answer, Answer) and answer.ok and isinstance(answer.data, dict)
    if known and (usd := _usd(answer.data.get("balanceAmount"))) is not None:
        mode = answer.data.get("billingMode")
        prepaid = mode == "PREPAID" if mode in ("PREPAID", "POSTPAID") else None
        return Balance(usd, prepaid, limit, per_hour, volumes=True)
    if isinstance(older, NotAuthorized) or (isinstance(answer, Answer) and answer.status == 403):
        return None
    if isinstance(older, Retired):
        raise Unreachable("RunPod does not tell the balance: REST v2 gave none, and its older interface is retired")
    if isinstance(older, PlatformError):
        raise older
    usd = _usd(older.get("clientBalance"))
    if usd is None:
        raise Unreachable("RunPod does not tell the balance")
    return Balance(usd, None, limit, per_hour, volumes=True)


def billed(session: Session, begin: datetime, until: datetime) -> list[Billed]:
    """See `HasBill.billed`. The bill has buckets of whole days (UTC), and pods by their id alone. RunPod posts charges
    about every five minutes."""
    first = begin.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    window = {"startTime": _moment(first), "endTime": _moment(until), "bucketSize": "day"}
    answer = session.http.read(BILL, window)
    if not answer.ok:
        raise refused(session.http, answer, "the bill of the pods")
    records = answer.data.get("records") if isinstance(answer.data, dict) else None
    total: dict[str, float] = {}
    for record in records if isinstance(records, list) else [None]:
        native_id, usd = (
            (record.get("podId"), number(record.get("totalAmount"))) if isinstance(record, dict) else (0, 0)
        )
        if not isinstance(native_id, str) or usd is None:
            raise Unreachable("RunPod's bill can't be read: a record has no pod or no amount")
        total[native_id] = total.get(native_id, 0.0) + usd
    return [Billed(native_id, usd) for native_id, usd in sorted(total.items())]


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _by_query(session: Session) -> Mapping[str, Any] | PlatformError:
    fields = "clientBalance spendLimit currentSpendPerHr"
    return _tried(lambda: session.older(lambda: myself(session.http, "balance", fields)))


def _tried(ask: Callable[[], Told]) -> Told | PlatformError:
    """The answer, or our error: an exception of one would hide what the other said."""
    try:
        return ask()
    except PlatformError as error:
        return error


def _usd(value: Any) -> float | None:
    return number(value, least=-math.inf)  # negative: the account owes money
