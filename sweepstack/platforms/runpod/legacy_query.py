"""RunPod's older query interface (GraphQL), while it is there: account, pods, balance, least bids.

It is a second source for which pods there are: REST lists can lag behind, and can belong to another account than the
key's. So while it answers, a pod counts as absent only when this interface lacks it, too. RunPod retires it early in
2027: then it answers 410, which is `Retired` and no outage (`Session.older`). This module only reads; the one thing
that we write there is in `spot` (docs/adr/009).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import HttpClient
from sweepstack.platforms.common.json_values import number
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.runpod.states import MARKER

Told = TypeVar("Told")
PATH = "/graphql"
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


def account(http: HttpClient) -> str:
    """The id of the key's account. Raises what `myself` raises."""
    identifier = myself(http, "account", "id").get("id")
    if not isinstance(identifier, str) or not identifier:
        raise Unreachable("RunPod does not say whose key this is, so nothing is known. Try again")
    return identifier


def pods(http: HttpClient) -> LegacyPods:
    """The key's account and its pods. Raises what `myself` raises."""
    said = myself(http, "pods", "id pods { id name env }")
    try:
        return LegacyPods(_text(said["id"]), {_text(pod["id"]): _names(pod) for pod in said["pods"]})
    except (ValueError, KeyError, TypeError, AttributeError):  # no whole answer proves nothing
        raise Unreachable("RunPod gave no usable answer when asked for the pods. Try again") from None


def _told(http: HttpClient, what: str, root: str, query: str, kind: type[Told]) -> Told:
    """What stands under `root`. An answer that is none is asked for again, like one that does not come."""
    deadline = Deadline(ASK_SECONDS)
    for pause in PAUSES:
        answer = http.query(PATH, {"query": query}, deadline=deadline)
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
    raise Unreachable(f"RunPod gave no usable answer when asked for the {what}. Try again")


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
