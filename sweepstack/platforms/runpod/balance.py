"""What RunPod tells of the account: its balance, its bill, and, by the older interface, its pods.

Balance: two interfaces are asked side by side. REST v2 (since autumn 2026) says what is left and whether it is prepaid;
only the older query interface says what all pods, disks and volumes of the account cost per hour, and it says what is
left where v2 does not. Once that interface is retired, what bills per hour is not known.

Bill: it has no word for an end. It has charges by the hour, and each pod that is there is charged about every five
minutes. So a pod that the bill knows and that was charged nothing for long enough bills no more: the second source for
an end, once the older interface is gone.

Ends with RunPod's older query interface (GraphQL), early in 2027: all below `GRAPHQL`. It is a second source for which
pods there are: REST lists can lag behind, and can belong to another account than the key's. So while it answers, a pod
counts as absent only when it lacks it, too. Once retired it answers 410, which is `Retired` and no outage
(`Session.older`). Here it is only read; the one thing that we write there is a bid (`offers`, docs/adr/009).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from sweepstack.core.parallel import in_parallel
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import NotAuthorized, PlatformError, Retired, Unproved, Unreachable
from sweepstack.onbox.host.capabilities import Billed
from sweepstack.onbox.host.offers import Balance
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import HttpAnswer, HttpClient
from sweepstack.platforms.common.json_values import moment, number
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.single_flight import SingleFlight
from sweepstack.platforms.runpod.states import MARKER, refused

Told = TypeVar("Told")
PATH = "/v2/billing/balance"
"""Taken from the name of its documentation page. That page could not be read, so a 404 here proves nothing."""
SECONDS = 4.0
"""For so long both are waited for. What one of them said is an answer, where the other one is late."""


def balance(http: HttpClient, spends: Callable[[], Mapping[str, Any]]) -> Balance | None:
    """The account's balance (USD), None when the key may not see it. Reads only. Raises Unreachable. `spends`: what the
    older interface says of it (`Session.spends`).

    At a balance of zero RunPod stops all pods, so nothing below zero is counted.
    """
    asked: dict[str, Callable[[], Any]] = {
        "v2": lambda: _tried(lambda: http.read(PATH)),
        "older": lambda: _tried(spends),
    }
    told = in_parallel(asked, SECONDS)
    late = Unreachable("RunPod does not tell the balance in time")
    answer, older = told.get("v2", late), told.get("older", late)
    spent = {} if isinstance(older, PlatformError) else older
    per_hour, limit = number(spent.get("currentSpendPerHr")), number(spent.get("spendLimit"))
    known = isinstance(answer, HttpAnswer) and answer.ok and isinstance(answer.data, dict)
    if known and (usd := _usd(answer.data.get("balanceAmount"))) is not None:
        mode = answer.data.get("billingMode")
        prepaid = mode == "PREPAID" if mode in ("PREPAID", "POSTPAID") else None
        return Balance(usd, prepaid, limit, per_hour, volumes=True)
    if isinstance(older, NotAuthorized) or (isinstance(answer, HttpAnswer) and answer.status == 403):
        return None
    if isinstance(older, Retired):
        raise Unreachable("RunPod does not tell the balance: REST v2 gave none, and its older interface is retired")
    if isinstance(older, PlatformError):
        raise older
    usd = _usd(older.get("clientBalance"))
    if usd is None:
        raise Unreachable("RunPod does not tell the balance")
    return Balance(usd, None, limit, per_hour, volumes=True)


def billed(http: HttpClient, begin: datetime, until: datetime) -> list[Billed]:
    """See `HasBill.billed`. The bill has buckets of whole days (UTC), and pods by their id alone. RunPod posts charges
    about every five minutes."""
    first = begin.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    window = {"startTime": _moment(first), "endTime": _moment(until), "bucketSize": "day"}
    answer = http.read(BILL_PATH, window)
    if not answer.ok:
        raise refused(http, answer, "the bill of the pods")
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


def _tried(ask: Callable[[], Told]) -> Told | PlatformError:
    """The answer, or our error: an exception of one would hide what the other said."""
    try:
        return ask()
    except PlatformError as error:
        return error


def _usd(value: Any) -> float | None:
    return number(value, least=-math.inf)  # negative: the account owes money


BILL_PATH = "/v2/billing/pods"
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
        answer = self._http.read(BILL_PATH, window)
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


GRAPHQL = "/graphql"
ASK_SECONDS = 60.0
"""Limit for one query, with all its retries."""
PAUSES = (0.5, 1.0, 2.0, None)
"""Seconds before a query is sent again that was answered with errors; None: it is not."""


class StillListed(Unreachable):
    """REST does not show the pod and the older interface does: whether it still exists is not known."""


@dataclass(frozen=True)
class LastChange:
    """`text`: "Exited by user: …", as it is, None when it is not said. `price`: USD per hour when it ran last."""

    text: str | None
    price: float | None


@dataclass(frozen=True)
class LegacyPods:
    """The key's account and its pods: id → the pod's name, and the tag in its environment if there is one."""

    account: str
    pods: Mapping[str, frozenset[str]]

    def tagged(self, tag: str) -> list[str]:
        """The ids of the pods with this tag or name, sorted."""
        return sorted(native_id for native_id, names in self.pods.items() if tag in names)


def myself(http: HttpClient, what: str, fields: str) -> Mapping[str, Any]:
    """Queries `fields` of the key's account now. `what`: their name in messages. Blocks. Raises Retired where the
    interface is no more, NotAuthorized, Unreachable (RateLimited for a 429)."""
    return dict(_told(http, what, "myself", f"query {{ myself {{ {fields} }} }}", dict))


def gpu_types(http: HttpClient, query: str) -> list[Any]:
    """The GPU types that `query` (a selection `gpuTypes {…}`) asks for. Raises what `myself` raises."""
    return list(_told(http, "least bids", "gpuTypes", f"query {{ {query} }}", list))


def last_changes(http: HttpClient) -> dict[str, LastChange]:
    """The last change of each pod of the account. Raises what `myself` raises."""
    said = myself(http, "pods", "pods { id lastStatusChange costPerHr }").get("pods")
    pods = [pod for pod in said if isinstance(pod, dict)] if isinstance(said, list) else []
    return {str(pod.get("id")): LastChange(_words(pod), number(pod.get("costPerHr"))) for pod in pods}


def legacy_account(http: HttpClient) -> str:
    """The id of the key's account. Raises what `myself` raises."""
    identifier = myself(http, "account", "id").get("id")
    if not isinstance(identifier, str) or not identifier:
        raise Unreachable("RunPod does not say whose key this is, so nothing is known")
    return identifier


def legacy_pods(http: HttpClient) -> LegacyPods:
    """The key's account and its pods. Raises what `myself` raises."""
    said = myself(http, "pods", "id pods { id name env }")
    try:
        return LegacyPods(_text(said["id"]), {_text(pod["id"]): _names(pod) for pod in said["pods"]})
    except (ValueError, KeyError, TypeError, AttributeError):  # no whole answer proves nothing
        raise Unreachable("RunPod gave no usable answer when asked for the pods") from None


def _told(http: HttpClient, what: str, root: str, query: str, kind: type[Told]) -> Told:
    """What stands under `root`. An answer that is none is asked for again, like one that does not come."""
    deadline = Deadline(ASK_SECONDS)
    for pause in PAUSES:
        answer = http.query(GRAPHQL, {"query": query}, deadline=deadline)
        if answer.status == 403:
            raise http.refusal(answer, f"a look at the {what}")
        told = answer.data if isinstance(answer.data, dict) else {}
        data = told.get("data")
        found = data.get(root) if isinstance(data, dict) else None
        if answer.ok and "errors" not in told and isinstance(found, kind):
            return found
        if pause is not None:
            deadline.pause(paced(pause))
    if answer.text:
        raise Unreachable(f"RunPod did not tell the {what}: {answer.text}")
    raise Unreachable(f"RunPod gave no usable answer when asked for the {what}")


def _names(pod: Mapping[str, Any]) -> frozenset[str]:
    env = pod.get("env")
    said = [entry for entry in env if isinstance(entry, str)] if isinstance(env, list) else []
    marks = [entry.partition("=")[2] for entry in said if entry.startswith(f"{MARKER}=")]
    return frozenset([str(pod.get("name") or ""), *marks])


def _words(pod: Mapping[str, Any]) -> str | None:
    said = pod.get("lastStatusChange")
    return said if isinstance(said, str) else None


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("no id")
    return value
