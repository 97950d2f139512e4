"""The end of a pod as RunPod's bill shows it: the second source, once the older interface is gone.

The bill has no word for an end. It has charges by the hour, and each pod that is there is charged about every five
minutes. So a pod that the bill knows and that was charged nothing for long enough bills no more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sweepstack.onbox.common.errors import Unproved, Unreachable
from sweepstack.platforms.common.http_client import HttpClient
from sweepstack.platforms.common.json_values import moment, number
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.single_flight import SingleFlight
from sweepstack.platforms.runpod.errors import refused

PATH = "/v2/billing/pods"
STILL_SECONDS = 660.0
"""What was charged nothing for so long bills no more: charges are posted about every five minutes (2026-11)."""
PROOF_SECONDS = 1500.0
"""After so many seconds the bill should have proved an end: the last charges are posted, and it has stood still."""
BILL_SECONDS = 15.0
"""All boxes share a bill of this age."""
HOURS = 26


@dataclass(frozen=True)
class Charges:
    """What the last `HOURS` hours of the bill have of one pod: USD, and the end of the last hour with a charge."""

    usd: float
    until: datetime


class Bill:
    """The bill of one key's account. Safe to share between threads."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._shared = SingleFlight[tuple[Mapping[str, Charges], datetime | None]]()
        self._still: dict[str, tuple[float, float]] = {}
        """Pod → what it was charged (USD), and since when that stands still (monotonic)."""

    def must_have_ended(self, native_id: str) -> None:
        """Returns when the bill knows the pod and shows that it bills no more; that also proves that it is one of this
        account. Raises Unproved, which says what is missing; Unreachable, NotAuthorized."""
        charged, hour_ends = self._shared.get(self._ask, max_age=paced(BILL_SECONDS))
        found = charged.get(native_id)
        if found is None:
            if self._was_ever_charged(native_id):
                return
            raise _unproved(native_id, "its bill does not know the pod: charges are posted about every five minutes")
        if hour_ends is not None and found.until <= hour_ends - timedelta(hours=2):  # a whole hour without a charge
            return
        usd, since = self._still.get(native_id, (-1.0, 0.0))
        if usd != found.usd:
            since = time.monotonic()
            self._still[native_id] = found.usd, since
        if time.monotonic() - since < paced(STILL_SECONDS):
            minutes = f"{STILL_SECONDS / 60:.0f} minutes"
            raise _unproved(native_id, f"its bill must stand still for {minutes} (it is at ${found.usd:.4f})")

    def _ask(self) -> tuple[Mapping[str, Charges], datetime | None]:
        """The charges of each pod, and the end of the hour that has begun, by the bill's own clock; None where it does
        not say."""
        data = self._read({"bucketSize": "hour", "lastN": str(HOURS)})
        found: dict[str, Charges] = {}
        for record in data["records"]:
            native_id, usd, until = _charge(record)
            if usd > 0:
                before = found.get(native_id, Charges(0.0, until))
                found[native_id] = Charges(before.usd + usd, max(before.until, until))
        metadata = data.get("metadata")
        query = metadata.get("query") if isinstance(metadata, dict) else None
        return found, moment(query.get("endTime")) if isinstance(query, dict) else None

    def _was_ever_charged(self, native_id: str) -> bool:
        """Whether an earlier part of the bill knows the pod."""
        data = self._read({"bucketSize": "month", "lastN": "24", "podId": native_id})
        charges = map(_charge, data["records"])
        return any(which == native_id and usd > 0 for which, usd, _ in charges)

    def _read(self, window: Mapping[str, str]) -> Mapping[str, Any]:
        answer = self._http.read(PATH, window)
        if not answer.ok:
            raise refused(self._http, answer, "the bill of the pods, which proves an end")
        if not isinstance(answer.data, dict) or not isinstance(answer.data.get("records"), list):
            raise Unreachable("RunPod's bill can't be read: it has no records")
        return dict(answer.data)


def _charge(record: Any) -> tuple[str, float, datetime]:
    """Pod, USD, and the end of its hour. Raises Unreachable for what is no charge: no part of a bill proves an end."""
    if isinstance(record, dict):
        native_id, usd, until = record.get("podId"), number(record.get("totalAmount")), moment(record.get("endTime"))
        if isinstance(native_id, str) and native_id and usd is not None and until is not None:
            return native_id, usd, until
    raise Unreachable("RunPod's bill can't be read: a record has no pod, no amount or no end")


def _unproved(native_id: str, why: str) -> Unproved:
    return Unproved(
        f"RunPod shows no pod {native_id} any more, neither by its id nor in its list. That alone does not prove "
        f"that it is gone, and it may bill: {why}"
    )
