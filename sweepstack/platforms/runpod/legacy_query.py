"""The second source: what RunPod's older query interface says of the account, and of its pods, in one answer.

REST lists can lag, and can be of another account than the one that the key was asked for. So nothing is called absent
before this interface lacks it, too. It is read and never written to (docs/adr/009).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.platforms.runpod import keys
from sweepstack.platforms.runpod.states import MARKER

QUERY = "query { myself { id pods { id name env } } }"


class StillListed(Unreachable):
    """REST does not have it, and the older interface does: whether it is there is not known."""


@dataclass(frozen=True)
class Mine:
    """Whose key it is, and the account's pods: id → its name and the tag in its environment, where it has one."""

    account: str
    pods: Mapping[str, frozenset[str]]

    def tagged(self, tag: str) -> list[str]:
        """The ids of those that bear this tag."""
        return sorted(native_id for native_id, names in self.pods.items() if tag in names)


def ask_mine(key: str) -> Mine:
    """Asked for now. Raises NotAuthorized, Unreachable."""

    def asked(_sdk: Any) -> Mine:
        from runpod.api.graphql import run_graphql_query  # type: ignore[import-untyped]

        return _read(run_graphql_query(QUERY, api_key=key)["data"]["myself"])

    found: Mine = keys.ask("pods", asked)
    return found


def _read(myself: Any) -> Mine:
    """Raises ValueError for what is no whole answer: nothing is proved by it."""
    account, pods = myself["id"], myself["pods"]
    if not isinstance(account, str) or not account or not isinstance(pods, list):
        raise ValueError("no account, or no list")
    return Mine(account, {_text(pod["id"]): _names(pod) for pod in pods})


def _names(pod: Mapping[str, Any]) -> frozenset[str]:
    env = pod.get("env")
    said = [entry for entry in env if isinstance(entry, str)] if isinstance(env, list) else []
    marks = [entry.partition("=")[2] for entry in said if entry.startswith(f"{MARKER}=")]
    return frozenset([str(pod.get("name") or ""), *marks])


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a pod without an id")
    return value
