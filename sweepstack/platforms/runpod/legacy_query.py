"""RunPod's older query interface, through the official SDK: account, pods, balance, least bids.

It is a second source for which pods there are: REST lists can lag behind, and can belong to another account than the
key's. So a pod counts as absent only when this interface lacks it, too. This module only reads; the one thing that we
write there is in `spot` (docs/adr/009).
An error of the SDK can carry the whole query: we take only its message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sweepstack.onbox.common.errors import NotAuthorized, PlatformError, Unreachable
from sweepstack.platforms.common import redact
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import retried
from sweepstack.platforms.common.json_values import number
from sweepstack.platforms.runpod import keys, sdk
from sweepstack.platforms.runpod.states import MARKER

Told = TypeVar("Told")
ASK_SECONDS = 60.0
"""Limit for one query, with all its retries."""


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


def myself(what: str, fields: str, key: str) -> Mapping[str, Any]:
    """Queries `fields` of the key's account now. `what`: their name in messages. Blocks. Raises NotAuthorized,
    Unreachable; never an error of the SDK, which could hold the query."""

    return dict(_told(what, "myself", f"query {{ myself {{ {fields} }} }}", key, dict))


def gpu_types(query: str, key: str) -> list[Any]:
    """The GPU types that `query` (a selection `gpuTypes {…}`) asks for. Raises what `myself` raises."""
    return list(_told("least bids", "gpuTypes", f"query {{ {query} }}", key, list))


def last_changes(key: str) -> dict[str, LastChange]:
    """The last change of each pod of the account. Raises what `myself` raises."""
    said = myself("pods", "pods { id lastStatusChange costPerHr }", key).get("pods")
    pods = [pod for pod in said if isinstance(pod, dict)] if isinstance(said, list) else []
    return {str(pod.get("id")): LastChange(_words(pod), number(pod.get("costPerHr"))) for pod in pods}


def _told(what: str, root: str, query: str, key: str, kind: type[Told]) -> Told:
    def once() -> Told:
        answer, failure = _asked(what, root, query, key)
        if failure:
            raise failure
        if not isinstance(answer, kind):
            raise Unreachable(f"RunPod gave no usable answer when asked for the {what}. Try again")
        return answer

    return retried(once, Deadline(ASK_SECONDS), f"RunPod to tell the {what}")


def account(key: str) -> str:
    """The id of the key's account. Raises what `myself` raises."""
    identifier = myself("account", "id", key).get("id")
    if not isinstance(identifier, str) or not identifier:
        raise Unreachable("RunPod does not say whose key this is, so nothing is known. Try again")
    return identifier


def pods(key: str) -> LegacyPods:
    """The key's account and its pods. Raises what `myself` raises."""
    said = myself("pods", "id pods { id name env }", key)
    try:
        return LegacyPods(_text(said["id"]), {_text(pod["id"]): _names(pod) for pod in said["pods"]})
    except (ValueError, KeyError, TypeError, AttributeError):  # no whole answer proves nothing
        raise Unreachable("RunPod gave no usable answer when asked for the pods. Try again") from None


def _asked(what: str, root: str, query: str, key: str) -> tuple[Any, PlatformError | None]:
    """The answer, or our error for what the SDK raised. The caller raises it, so that the SDK's error is not
    chained."""
    import requests

    run, error = sdk.module("api.graphql").run_graphql_query, sdk.module("error")
    try:
        return run(query, api_key=key)["data"][root], None
    except error.AuthenticationError:
        return {}, NotAuthorized(f"RunPod does not accept the key (asked for the {what}): check {keys.KEY_HINT}")
    except error.QueryError as refused:
        text = redact.redact(str(refused.message or ""))[:200]
        return {}, Unreachable(f"RunPod did not tell the {what}: {text}")
    except requests.RequestException as broken:
        return {}, Unreachable(f"RunPod does not answer (asked for the {what}: {type(broken).__name__})")
    except (ValueError, KeyError, TypeError, AttributeError):  # a page instead of JSON, a 429, a retired API
        return {}, Unreachable(f"RunPod gave no usable answer when asked for the {what}. Try again")


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
