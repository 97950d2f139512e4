"""The operations of RunPod's REST v2 that we use, for one key: paths, envelopes, pages, and one list for all who ask.

Nothing here decides. Writes are sent once (`common.http_client`); a read that begins after a write sees it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweepstack.onbox.common.errors import OutcomeUnknown, PlatformError, RequestRefused, Unreachable
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import Answer, HttpClient
from sweepstack.platforms.common.rate_limit import Quota, RateLimiter, paced
from sweepstack.platforms.common.single_flight import SingleFlight
from sweepstack.platforms.runpod import keys, legacy_query
from sweepstack.platforms.runpod.errors import refused
from sweepstack.platforms.runpod.legacy_query import Mine, StillListed
from sweepstack.platforms.runpod.states import identifier

QUOTA = Quota(60, 60.0)
"""What the specification names as its example; the replies say what holds."""
FRESH_SECONDS = 8.0
"""So old may a list be that somebody reads a box from, if no write of ours came after: a preview of 100 boxes is one
list, however slowly they come."""
ACCOUNT_SECONDS = 30.0
"""So old may the answer be to whose key this is: a key never changes hands, and another key is asked about anew."""
NEW_TAG_SECONDS = 30.0
"""The same for a tag that nobody on this machine ever asked for: only another machine could have been faster, and
against that the lease stands."""
PROVED_SECONDS = 30.0
"""So long does a proved end serve whoever asks again: a destroy proves it, and its caller wants to know."""
LAG_SECONDS = 60.0
"""So long may a pod that we made be neither listed nor found, and still be there."""
LIST_SECONDS = 180.0
"""A quota that is used up comes back within a minute; whoever asks for a list has others waiting for it."""
CATALOG_SECONDS = 30.0
MAX_PAGES = 100
_POD_ID = re.compile(r"[A-Za-z0-9]{1,64}")
_sessions: dict[tuple[str, str], Session] = {}
_sessions_lock = threading.Lock()


def session() -> Session:
    """The session of the key at hand. Asks nobody. Raises NotAuthorized when there is no key."""
    base, key = keys.base_url(), keys.api_key()
    with _sessions_lock:
        if (base, key) not in _sessions:
            _sessions[base, key] = Session(base, key)
        return _sessions[base, key]


def forget() -> None:
    """Nothing that is known so far counts any more: for whoever changes the platform behind our back."""
    with _sessions_lock:
        _sessions.clear()


def checked_id(native_id: str) -> str:
    """A pod's id as it may stand in a path. Raises RequestRefused for what can't be one."""
    if not _POD_ID.fullmatch(native_id):
        raise RequestRefused(f"{native_id!r} is no id of a RunPod pod")
    return native_id


@dataclass(frozen=True)
class Pods:
    """A complete list. `damaged`: entries without an id: of them nothing is known, so nothing is proved absent."""

    by_id: Mapping[str, Mapping[str, Any]]
    damaged: int = 0


class Session:
    """One key at one address. Threads share it."""

    def __init__(self, base: str, key: str) -> None:
        self._key, self._account = key, ""
        limiter = RateLimiter(QUOTA, learns=True)
        self.http = HttpClient("RunPod", base, key, key_hint=keys.KEY_HINT, limiter=limiter)
        self._lock = threading.Lock()
        self._owner = SingleFlight[str]()
        self._older = SingleFlight[Mine]()
        self._pods = SingleFlight[Pods]()
        self._volumes = SingleFlight[dict[str, Mapping[str, Any]]]()
        self._catalogs: dict[tuple[tuple[str, str], ...], SingleFlight[list[Any]]] = {}
        self._born: dict[str, tuple[float, Mapping[str, Any]]] = {}  # made by us and not seen in a list yet
        self._ended: set[str] = set()
        self._gone: dict[str, float] = {}  # proved, and when

    def account(self, *, now: bool = False) -> str:
        """The id of the key's account; `now`: asked for seconds ago at most, and not when the process began."""
        return ("" if now else self._account) or self._owner.get(self._ask_owner, max_age=paced(ACCOUNT_SECONDS))

    def require(self, account: str, what: str, *, now: bool = False) -> None:
        """Raises WrongAccount unless the key is of this account."""
        keys.require(account, self.account(now=now), what)

    def older(self, account: str, *, max_age: float = 0.0, gather: float = 0.0) -> Mine:
        """What the older interface says of this account's pods. Raises WrongAccount where the key is another's there;
        Unreachable."""
        mine = self._older.get(self._ask_older, max_age=max_age, gather=gather)
        keys.require(account, mine.account, "what was asked for")
        return mine

    def pods(self, *, max_age: float | None = None, gather: float = 0.0) -> Pods:
        """All pods of the account, with those that we made and that are not listed yet. Raises Unreachable."""
        age = paced(FRESH_SECONDS) if max_age is None else max_age
        listed = self._pods.get(self._list_pods, max_age=age, gather=gather)
        with self._lock:
            missing = {key: pod for key, (_, pod) in self._born.items() if key not in listed.by_id and self._young(key)}
        return Pods({**listed.by_id, **missing}, listed.damaged) if missing else listed

    def pod(self, native_id: str) -> Mapping[str, Any] | None:
        """The pod; None only when it is proved that there is none: not found by its id, in no complete list of that
        moment, and not shown by the older interface, whose account is the same. Raises Unreachable when it can't be
        said, StillListed where the two disagree."""
        checked_id(native_id)
        if time.monotonic() - self._gone.get(native_id, float("-inf")) < paced(PROVED_SECONDS):
            return None
        # Of a pod whose delete was accepted no list is asked before the look at the pod itself, only after it.
        if not self.is_ending(native_id) and (pod := self.pods().by_id.get(native_id)) is not None:
            return pod
        answer = self.http.read(f"/v2/pods/{native_id}")
        if answer.ok:
            if identifier(answer.data) != native_id:
                raise Unreachable(f"RunPod was asked for the pod {native_id} and answered something else")
            self._seen({native_id})
            return dict(answer.data)
        if answer.status != 404:
            raise refused(self.http, answer, f"a look at the pod {native_id}")
        listed = self.pods(max_age=0, gather=self._gather_seconds())
        if native_id in listed.by_id:
            return listed.by_id[native_id]
        if listed.damaged:
            raise Unreachable(
                f"whether the pod {native_id} is gone is not known: {listed.damaged} of RunPod's pods can't be read"
            )
        if native_id in self.older(self.account(), gather=self._gather_seconds()).pods:
            raise StillListed(
                f"RunPod's REST interface has no pod {native_id}, and its older one shows it: whether it is gone is "
                "not known, and it may bill"
            )
        if self.is_ending(native_id):
            self._gone[native_id] = time.monotonic()
        return None

    def is_ending(self, native_id: str) -> bool:
        """Whether this process had its delete accepted."""
        return native_id in self._ended

    def create_pod(self, body: Mapping[str, Any], deadline: Deadline) -> Answer:
        """POST /v2/pods. Costs money. Raises OutcomeUnknown when it may have been carried out."""
        answer = self.http.write("POST", "/v2/pods", body, deadline=deadline)
        if answer.ok:
            native_id = identifier(answer.data)
            if not native_id:
                self._pods.forget()
                raise OutcomeUnknown("RunPod made a pod and did not say which")
            with self._lock:
                self._born[native_id] = (time.monotonic(), dict(answer.data))
        return answer

    def delete_pod(self, native_id: str) -> Answer:
        """DELETE /v2/pods/{id}. Irreversible."""
        try:
            answer = self.http.write("DELETE", f"/v2/pods/{checked_id(native_id)}")
        finally:
            self._pods.forget()
        if answer.ok:
            with self._lock:
                self._ended.add(native_id)
                self._born.pop(native_id, None)
        return answer

    def act(self, native_id: str, action: str) -> Answer:
        """POST /v2/pods/{id}/action with `start` or `stop`."""
        try:
            return self.http.write("POST", f"/v2/pods/{checked_id(native_id)}/action", {"action": action})
        finally:
            self._pods.forget()

    def volumes(self, *, max_age: float | None = None) -> dict[str, Mapping[str, Any]]:
        """All network volumes of the account by id. Raises Unreachable."""
        return self._volumes.get(self._list_volumes, max_age=paced(FRESH_SECONDS) if max_age is None else max_age)

    def volume(self, volume_id: str) -> Mapping[str, Any] | None:
        """The volume; None only when it is proved that there is none, as with `pod`."""
        checked_id(volume_id)
        if (found := self.volumes().get(volume_id)) is not None:
            return found
        answer = self.http.read(f"/v2/network-volumes/{volume_id}")
        if answer.ok and identifier(answer.data) == volume_id:
            return dict(answer.data)
        if answer.ok:
            raise Unreachable(f"RunPod was asked for the volume {volume_id} and answered something else")
        if answer.status != 404:
            raise refused(self.http, answer, f"a look at the volume {volume_id}")
        return self.volumes(max_age=0).get(volume_id)

    def write_volume(self, method: str, volume_id: str = "", body: Mapping[str, Any] | None = None) -> Answer:
        """POST (no id), PATCH or DELETE of a network volume. Costs money."""
        path = f"/v2/network-volumes/{checked_id(volume_id)}" if volume_id else "/v2/network-volumes"
        try:
            return self.http.write(method, path, body)
        finally:
            self._volumes.forget()

    def gpus(self, params: Mapping[str, str]) -> list[Any]:
        """The catalog of cards with price and stock, at most seconds old. A hint, and no reservation."""
        query = tuple(sorted(params.items()))
        with self._lock:
            shared = self._catalogs.setdefault(query, SingleFlight())
        return shared.get(
            lambda: self._entries("/v2/catalog/gpus", "gpus", dict(query)), max_age=paced(CATALOG_SECONDS)
        )

    def data_centers(self) -> list[Any]:
        """The catalog of data centers."""
        return self._entries("/v2/catalog/datacenters", "dataCenters", {})

    def poll_seconds(self) -> float:
        """How often to look for a change: seldom when the quota runs short, so that the writes get through."""
        if self._is_crowded():
            return paced(8.0)
        return paced(2.0 if self.http.limiter.spare() > 0.8 else 4.0)

    def _gather_seconds(self) -> float:
        """So long does who needs a new list wait for others who need one: not at all while there is quota to spare."""
        return paced(4.0 if self._is_crowded() else 0.0 if self.http.limiter.spare() > 0.8 else 1.0)

    def _is_crowded(self) -> bool:
        """Whether so many wait for the quota that nobody should ask for what can wait."""
        return self.http.limiter.waiting() > 2

    def _entries(self, path: str, name: str, params: Mapping[str, str]) -> list[Any]:
        """A list in its envelope, all pages of it. Raises Unreachable for one that has no end or no sense."""
        found: list[Any] = []
        cursor, seen = "", set[str]()
        for _ in range(MAX_PAGES):
            page = {**params, "cursor": cursor} if cursor else dict(params)
            answer = self.http.read(path, page, deadline=Deadline(LIST_SECONDS))
            if not answer.ok:
                error = refused(self.http, answer, f"the list {path}")
                raise Unreachable(f"the next page was refused: {error}") if cursor else error
            entries = answer.data.get(name) if isinstance(answer.data, dict) else None
            if not isinstance(entries, list):
                raise Unreachable(f"RunPod's list {path} is none: it has no {name}, so nothing is known")
            found += entries
            paging = answer.data.get("pagination")
            if not isinstance(paging, dict) or not paging.get("hasNextPage"):
                return found
            following = paging.get("nextCursor")
            if not isinstance(following, str) or not following or following in seen:
                break
            cursor = following
            seen.add(cursor)
        raise Unreachable(f"RunPod's list {path} has no end, so nothing is known")

    def _ask_owner(self) -> str:
        """Counted like our own requests: whether the older interface has the same quota nobody says."""
        self.http.limiter.take(Deadline(LIST_SECONDS), "ask RunPod whose key this is")
        self._account = legacy_query.account(self._key)
        return self._account

    def _ask_older(self) -> Mine:
        """Counted like `_ask_owner`."""
        self.http.limiter.take(Deadline(LIST_SECONDS), "ask RunPod for its older list")
        return legacy_query.mine(self._key)

    def _list_pods(self) -> Pods:
        entries = self._entries("/v2/pods", "pods", {})
        by_id = {identifier(pod): pod for pod in reversed(entries) if identifier(pod)}
        self._seen(set(by_id))
        return Pods(by_id, sum(1 for pod in entries if not identifier(pod)))

    def _list_volumes(self) -> dict[str, Mapping[str, Any]]:
        entries = self._entries("/v2/network-volumes", "networkVolumes", {})
        if not all(identifier(entry) for entry in entries):
            raise Unreachable("RunPod's list of network volumes has entries without an id, so nothing is known")
        return {identifier(entry): entry for entry in entries}

    def _seen(self, native_ids: set[str]) -> None:
        with self._lock:
            for native_id in native_ids & set(self._born):
                del self._born[native_id]

    def _young(self, native_id: str) -> bool:
        return time.monotonic() - self._born[native_id][0] < paced(LAG_SECONDS)


def problem(error: PlatformError) -> str:
    """An error as one line, for the list of what was tried."""
    return " ".join(str(error).split())
